/* Looks at the clock before and after each call, and writes nothing down: the least that a tracer of times costs. */
#include "preload.h"
#include <x86intrin.h>
#define AROUND(op, fd, at, len, call)                    \
    uint64_t begun = __rdtsc();                          \
    ssize_t done = call;                                 \
    uint64_t ended = __rdtsc();                          \
    __asm__ volatile("" : : "r"(begun), "r"(ended));     \
    return done;
ALL
