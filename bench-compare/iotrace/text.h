/* A log of lines: vsnprintf, fwrite, and with -DFLUSH also fflush, as a debug log has it. */
#ifndef TEXT_H
#define TEXT_H
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/syscall.h>
#include <x86intrin.h>

struct text_log {
    FILE *file;
    int pid, tid;
    long bytes;
};

static inline int text_begin(struct text_log *log, const char *directory) {
    char path[4096];
    snprintf(path, sizeof path, "%s/text-%d.log", directory, (int)getpid());
    log->file = fopen(path, "we");
    log->pid = (int)getpid();
    log->tid = (int)syscall(SYS_gettid);
    log->bytes = 0;
    return log->file ? 0 : -1;
}

__attribute__((format(printf, 2, 3), noinline)) static void text_put(struct text_log *log, const char *format, ...) {
    char line[256];
    va_list values;
    va_start(values, format);
    int length = vsnprintf(line, sizeof line, format, values);
    va_end(values);
    if (length <= 0) return;
    fwrite(line, 1, (size_t)length, log->file);
#ifdef FLUSH
    fflush(log->file);
#endif
    log->bytes += length;
}

static inline void text_line(struct text_log *log, uint64_t begun, uint64_t ended, const char *op, uint64_t file,
                             uint64_t offset, uint64_t asked, int64_t result) {
    text_put(log, "[%llu %u] %s file %llu offset %llu asked %llu result %lld pid %d tid %d\n",
             (unsigned long long)begun, (unsigned)(ended - begun), op, (unsigned long long)file,
             (unsigned long long)offset, (unsigned long long)asked, (long long)result, log->pid, log->tid);
}

/* Begins the file again once it is large: memory is not what is measured. */
static inline void text_rewind(struct text_log *log) {
    if (log->bytes > 64 << 20) {
        rewind(log->file);
        log->bytes = 0;
    }
}
#endif
