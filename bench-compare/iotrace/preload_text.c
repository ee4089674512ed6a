/* A line of text for each call, written out at once (-DFLUSH). */
#include "preload.h"
#include "text.h"

static struct text_log text;

__attribute__((constructor)) static void begin(void) {
    const char *directory = getenv("TEXT_LOG_DIR");
    if (!directory || text_begin(&text, directory) != 0) abort();
}

#define AROUND(op, fd, at, len, call)                                                          \
    uint64_t begun = __rdtsc();                                                                \
    ssize_t done = call;                                                                       \
    text_line(&text, begun, __rdtsc(), op == 1 ? "read" : "write", (uint64_t)fd, (uint64_t)at, \
              len, done);                                                                      \
    text_rewind(&text);                                                                        \
    return done;
ALL
