/* Filters that go wrong, and some that do little: for the tests of how a node deals with them.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <sheaf_filter.h>
#include <stdlib.h>
#include <string.h>

SHEAF_FILTER_MODULE

/* Passes every packet on. */
static int32_t pass(sheaf_call *call) {
    int32_t status = 0;
    for (size_t i = 0; i < call->inputs_len && status == 0; i++)
        status = sheaf_output(call, call->inputs[i].tag, call->inputs[i].data, call->inputs[i].len);
    return status;
}

SHEAF_FILTER(relay)(sheaf_call *call) { return pass(call); }

/* Gives nothing at all. */
SHEAF_FILTER(swallow)(sheaf_call *call) { (void)call; return 0; }

SHEAF_FILTER(refuse)(sheaf_call *call) {
    sheaf_output(call, 0, "lost", 4);
    sheaf_fail(call, "these are not the packets you are looking for");
    return SHEAF_EBADMSG;
}

/* Refuses at the node of the rank that the stream's parameters name, and passes on elsewhere. */
SHEAF_FILTER(refuse_at)(sheaf_call *call) {
    uint32_t rank = 0;
    if (call->params_len == sizeof rank) memcpy(&rank, call->params, sizeof rank);
    if (call->node->rank != rank) return pass(call);
    sheaf_fail(call, "not here");
    return SHEAF_EBADMSG;
}

#ifndef __wasm__
#include <signal.h>
#include <unistd.h>

static int *volatile nowhere;

/* Breaks the process of the node of the rank that the stream's parameters name. */
SHEAF_FILTER(crash_at)(sheaf_call *call) {
    uint32_t rank = 0;
    if (call->params_len == sizeof rank) memcpy(&rank, call->params, sizeof rank);
    if (call->node->rank == rank) *nowhere = 1;
    return pass(call);
}

/* Does something there that no filter should. */
static int is_there(const sheaf_call *call) {
    uint32_t rank = 0;
    if (call->params_len == sizeof rank) memcpy(&rank, call->params, sizeof rank);
    return call->node->rank == rank && call->inputs_len;
}

SHEAF_FILTER(exit_at)(sheaf_call *call) {
    if (is_there(call)) exit(0);
    return pass(call);
}

SHEAF_FILTER(quit_at)(sheaf_call *call) {
    if (is_there(call)) _exit(9);
    return pass(call);
}

/* As the system does where no memory is left. */
SHEAF_FILTER(kill_at)(sheaf_call *call) {
    if (is_there(call)) kill(getpid(), SIGKILL);
    return pass(call);
}

SHEAF_FILTER(spin_at)(sheaf_call *call) {
    for (volatile uint32_t turns = 0; is_there(call);) turns++;
    return pass(call);
}

SHEAF_FILTER(sleep_at)(sheaf_call *call) {
    while (is_there(call)) sleep(1);
    return pass(call);
}

/* For longer than others wait, not for ever. */
SHEAF_FILTER(nap_at)(sheaf_call *call) {
    if (is_there(call)) sleep(7);
    return pass(call);
}

/* Returns twice, the second time in another process. */
SHEAF_FILTER(forks)(sheaf_call *call) {
    if (call->inputs_len) (void)fork();
    return pass(call);
}
#endif

SHEAF_FILTER(trap)(sheaf_call *call) { (void)call; __builtin_trap(); }

SHEAF_FILTER(wild)(sheaf_call *call) { return sheaf_output(call, 0, (const void *)(uintptr_t)0xfffffff0u, 64); }

static volatile uint32_t turns;
SHEAF_FILTER(spin)(sheaf_call *call) {
    (void)call;
    for (;;) turns++;
}

/* Takes memory until there is none. */
SHEAF_FILTER(hoard)(sheaf_call *call) {
    for (;;) {
        volatile char *more = malloc(1 << 20);
        if (!more) {
            sheaf_fail(call, "no memory is left");
            return SHEAF_ENOMEM;
        }
        *more = 1;
    }
}

/* Traps in every second wave. */
SHEAF_FILTER(moody)(sheaf_call *call) {
    uint32_t wave = 0;
    if (call->inputs_len) memcpy(&wave, call->inputs[0].data, sizeof wave);
    if (wave % 2) __builtin_trap();
    return pass(call);
}

/* Answers every wave with one packet downwards. */
SHEAF_FILTER(answer)(sheaf_call *call) {
    int32_t status = sheaf_reply(call, 77, &call->node->rank, sizeof call->node->rank);
    return status ? status : pass(call);
}

/* Sends more replies than a wave may cause. */
SHEAF_FILTER(storm)(sheaf_call *call) {
    for (int i = 0; i < 100000; i++) sheaf_reply(call, i, "reply", 5);
    return 0;
}

/* Sends as many replies as may be, each as long as may be: more than a link takes at once. */
SHEAF_FILTER(flood)(sheaf_call *call) {
    static char long_reply[64 << 10];
    int32_t status = pass(call);
    for (int i = 0; i < 200 && status == 0; i++) status = sheaf_reply(call, i, long_reply, sizeof long_reply);
    return status;
}

/* Tells what it knows of its node: each node adds a line of nine numbers. */
SHEAF_FILTER(where)(sheaf_call *call) {
    int32_t status = sheaf_output(call, 1, call->node, sizeof *call->node);
    for (size_t i = 0; i < call->inputs_len && status == 0; i++)
        if (!call->inputs[i].raw) status = sheaf_output(call, 1, call->inputs[i].data, call->inputs[i].len);
    return status;
}

/* Counts its packets from wave to wave. */
SHEAF_FILTER(tally_create)(sheaf_call *call) {
    call->state = calloc(1, sizeof(uint64_t));
    return call->state ? 0 : SHEAF_ENOMEM;
}
SHEAF_FILTER(tally_destroy)(sheaf_call *call) {
    free(call->state);
    return 0;
}
SHEAF_FILTER(tally)(sheaf_call *call) {
    uint64_t *seen = call->state;
    *seen += call->inputs_len;
    return sheaf_output(call, 0, seen, sizeof *seen);
}
SHEAF_FILTER(tally_state)(sheaf_call *call) { return sheaf_output(call, 0, call->state, sizeof(uint64_t)); }
SHEAF_FILTER(tally_absorb)(sheaf_call *call) {
    uint64_t more;
    if (call->inputs[0].len != sizeof more) return SHEAF_EBADMSG;
    memcpy(&more, call->inputs[0].data, sizeof more);
    *(uint64_t *)call->state += more;
    return 0;
}
