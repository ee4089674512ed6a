/* An LTTng-UST tracepoint: the counter is read at the begin, and LTTng's own clock at the end. */
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "io_tracepoint.h"
#include "log.h"
#include <x86intrin.h>

int log_begin(const char *directory) { (void)directory; return 0; }
void log_put(uint64_t file, uint64_t offset, uint64_t asked, uint64_t bytes) {
    lttng_ust_tracepoint(sheaf_compare, io, __rdtsc(), 3, file, offset, asked, (int64_t)bytes);
}
void log_rest(void) {}
