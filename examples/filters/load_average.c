/* Mean load of all hosts: leaves send the text of /proc/loadavg.
 *
 * A partial holds three sums and how many leaves are in them. Whether an input is a leaf's text or
 * such a partial is said by `raw`; it cannot be told from a count of one, because a node may have
 * one leaf below it.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <sheaf_filter.h>
#include <stdlib.h>
#include <string.h>

struct loads {
    double sum[3];
    uint64_t leaves;
};

static int scan(const sheaf_packet *packet, struct loads *into) {
    char text[128];
    char *at = text;
    if (packet->len >= sizeof text) return 0;
    memcpy(text, packet->data, packet->len);
    text[packet->len] = 0;
    for (int i = 0; i < 3; i++) {
        char *end;
        into->sum[i] += strtod(at, &end);
        if (end == at) return 0;
        at = end;
    }
    into->leaves += 1;
    return 1;
}

static int merge(const sheaf_packet *packet, struct loads *into) {
    struct loads more;
    if (packet->len != sizeof more) return 0;
    memcpy(&more, packet->data, sizeof more);
    for (int i = 0; i < 3; i++) into->sum[i] += more.sum[i];
    into->leaves += more.leaves;
    return 1;
}

SHEAF_FILTER_MODULE

SHEAF_FILTER(load_average)(sheaf_call *call) {
    struct loads all = {{0, 0, 0}, 0};
    for (size_t i = 0; i < call->inputs_len; i++) {
        const sheaf_packet *packet = &call->inputs[i];
        if (!(packet->raw ? scan(packet, &all) : merge(packet, &all))) {
            sheaf_fail(call, "a load average is three numbers");
            return SHEAF_EBADMSG;
        }
    }
    if (call->emit == SHEAF_EMIT_RESULT) {
        double mean[3];
        for (int i = 0; i < 3; i++) mean[i] = all.sum[i] / (double)all.leaves;
        return sheaf_output(call, call->inputs[0].tag, mean, sizeof mean);
    }
    return sheaf_output(call, call->inputs[0].tag, &all, sizeof all);
}
