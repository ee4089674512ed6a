/* An LTTng-UST tracepoint after each call. */
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "preload.h"
#include "io_tracepoint.h"
#include <x86intrin.h>

#define AROUND(op, fd, at, len, call)                                                              \
    uint64_t begun = __rdtsc();                                                                    \
    ssize_t done = call;                                                                           \
    lttng_ust_tracepoint(sheaf_compare, io, begun, op, (uint64_t)fd, (uint64_t)at, len, done);     \
    return done;
ALL
