/* What a library that records has for logcall.c: an operation with the moments of its begin and its end. */
#ifndef LOG_H
#define LOG_H
#include <stdint.h>

/* Begins to record, in files below this directory; 0, or it cannot. */
int log_begin(const char *directory);
/* Takes two timestamps and records; these are what changes from one operation to the next. */
void log_put(uint64_t file, uint64_t offset, uint64_t asked, uint64_t bytes);
/* Between two batches: what another process does meanwhile elsewhere. */
void log_rest(void);
#endif
