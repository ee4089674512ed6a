/* A layer that gives filters another signature: a function of two strings that says whether the
 * second is to be kept.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <sheaf_filter.h>
#include <string.h>

typedef int (*choose)(const sheaf_packet *have, const sheaf_packet *other);

SHEAF_EXPORT("longest") int longest(const sheaf_packet *have, const sheaf_packet *other) {
    return other->len > have->len;
}

SHEAF_EXPORT("longest_format_string") const char *longest_format_string = "%s";

SHEAF_EXPORT("longest_get_state") const char *longest_get_state(void) { return "state"; }

SHEAF_EXPORT("sheaf_mrnet_trampoline")
int32_t sheaf_mrnet_trampoline(sheaf_call *call, void *symbol, const char *format) {
    if (call->entry == SHEAF_ENTRY_DESTROY) return 0;
    if (call->entry == SHEAF_ENTRY_STATE) {
        const char *state = ((const char *(*)(void))symbol)();
        return sheaf_output(call, 0, state, strlen(state));
    }
    const sheaf_packet *best = call->inputs;
    for (size_t i = 1; i < call->inputs_len; i++)
        if (((choose)symbol)(best, &call->inputs[i])) best = &call->inputs[i];
    int32_t status = sheaf_output(call, 0, format, strlen(format));
    return status ? status : sheaf_output(call, (int32_t)best->len, best->data, best->len);
}
