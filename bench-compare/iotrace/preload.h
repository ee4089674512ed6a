/* pread and pwrite, interposed: AROUND(op, fd, at, len, call) is what a tracer makes of a call. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef ssize_t (*pread_call)(int, void *, size_t, off_t);
typedef ssize_t (*pwrite_call)(int, const void *, size_t, off_t);
static pread_call real_pread;
static pwrite_call real_pwrite;

__attribute__((constructor)) static void find_real(void) {
    real_pread = (pread_call)dlsym(RTLD_NEXT, "pread64");
    real_pwrite = (pwrite_call)dlsym(RTLD_NEXT, "pwrite64");
}

#define PREAD(name) \
    ssize_t name(int fd, void *to, size_t len, off_t at) { AROUND(1, fd, at, len, real_pread(fd, to, len, at)) }
#define PWRITE(name) \
    ssize_t name(int fd, const void *from, size_t len, off_t at) { AROUND(2, fd, at, len, real_pwrite(fd, from, len, at)) }
#define ALL PREAD(pread) PREAD(pread64) PWRITE(pwrite) PWRITE(pwrite64)
