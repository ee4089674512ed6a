/* How far each leaf's clock is from the root's: the offsets of the links on its path, summed, and
 * the bounds of their errors. A leaf sends its index (32 bits, little-endian).
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <sheaf_filter.h>
#include <stdlib.h>
#include <string.h>

struct leaf_clock {
    uint32_t leaf;
    uint32_t padding;
    int64_t offset_ns;
    uint64_t error_ns;
};

static int by_leaf(const void *a, const void *b) {
    const struct leaf_clock *one = a, *other = b;
    return (one->leaf > other->leaf) - (one->leaf < other->leaf);
}

/* The clocks of a packet, as they are at the child: appended at `out`. Returns how many, or -1. */
static long clocks_of(const sheaf_packet *packet, struct leaf_clock *out) {
    if (packet->raw) {
        memset(out, 0, sizeof *out);
        if (packet->len != sizeof out->leaf) return -1;
        memcpy(&out->leaf, packet->data, packet->len);
        return 1;
    }
    if (packet->len % sizeof *out) return -1;
    memcpy(out, packet->data, packet->len);
    return (long)(packet->len / sizeof *out);
}

static int32_t combine(sheaf_call *call, struct leaf_clock *all) {
    size_t count = 0;
    for (size_t i = 0; i < call->inputs_len; i++) {
        const sheaf_packet *packet = &call->inputs[i];
        if (packet->clock_error_ns == UINT64_MAX) {
            sheaf_fail(call, "the clock of a child has not been measured yet");
            return SHEAF_EAGAIN;
        }
        long more = clocks_of(packet, all + count);
        if (more < 0) {
            sheaf_fail(call, "a leaf sends its index");
            return SHEAF_EBADMSG;
        }
        for (; more > 0; more--, count++) {
            all[count].offset_ns += packet->clock_offset_ns;
            all[count].error_ns += packet->clock_error_ns;
        }
    }
    qsort(all, count, sizeof *all, by_leaf);
    return sheaf_output(call, call->inputs[0].tag, all, count * sizeof *all);
}

SHEAF_FILTER_MODULE

SHEAF_FILTER(clock_skew)(sheaf_call *call) {
    size_t clocks_max = 0;
    for (size_t i = 0; i < call->inputs_len; i++)
        clocks_max += call->inputs[i].len / sizeof(struct leaf_clock) + 1;
    struct leaf_clock *all = malloc(clocks_max * sizeof *all);
    if (!all) {
        sheaf_fail(call, "no memory");
        return SHEAF_ENOMEM;
    }
    int32_t status = combine(call, all);
    free(all);
    return status;
}
