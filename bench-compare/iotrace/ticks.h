/* The processor's counter, and medians. */
#ifndef TICKS_H
#define TICKS_H
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <x86intrin.h>

static inline uint64_t now_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Ticks of the counter in a nanosecond, over 50 ms. */
static inline double ticks_per_ns(void) {
    uint64_t begun_ns = now_ns(CLOCK_MONOTONIC_RAW), begun = __rdtsc(), ended_ns;
    do {
        ended_ns = now_ns(CLOCK_MONOTONIC_RAW);
    } while (ended_ns - begun_ns < 50000000u);
    return (double)(__rdtsc() - begun) / (double)(ended_ns - begun_ns);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The value below which this share of them is; sorts them. */
static inline double quantile(double *values, size_t count, double share) {
    qsort(values, count, sizeof *values, by_value);
    return values[(size_t)((double)(count - 1) * share)];
}
#endif
