/* The text way: a line by vsnprintf, and fwrite to a buffered file; -DFLUSH writes each line out. */
#define _GNU_SOURCE
#include "text.h"
#include "log.h"

static struct text_log text;

int log_begin(const char *directory) { return text_begin(&text, directory); }
void log_put(uint64_t file, uint64_t offset, uint64_t asked, uint64_t bytes) {
    uint64_t begun = __rdtsc(), ended = __rdtsc();
    text_line(&text, begun, ended, "read", file, offset, asked, (int64_t)bytes);
}
void log_rest(void) { text_rewind(&text); }
