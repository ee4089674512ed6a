/* pread and pwrite of 4 KiB on one file.
 *
 * ioloop ab FILE PAIRS            in one process by turns: 100 calls by name, which whatever is preloaded
 *                                 takes, and 100 of the C library's own; prints medians of the differences
 * ioloop seq|random FILE CALLS    so many preads, from the first block to the last over and over, or anywhere
 * ioloop paced FILE RATE SECONDS  so many preads a second; prints what the parent process ran meanwhile */
#define _GNU_SOURCE
#include "ticks.h"
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define BLOCK 4096
#define BLOCKS 8192
#define CHUNK 100

typedef ssize_t (*pread_call)(int, void *, size_t, off_t);
typedef ssize_t (*pwrite_call)(int, const void *, size_t, off_t);
static char block[BLOCK] __attribute__((aligned(4096)));
static int fd;
static uint64_t seed = 88172645463325252u;

static off_t anywhere(void) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (off_t)(seed % BLOCKS) * BLOCK;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t reads(pread_call call) {
    uint64_t begun = __rdtsc();
    for (int i = 0; i < CHUNK; i++)
        if (call(fd, block, BLOCK, anywhere()) != BLOCK) fail("pread");
    return __rdtsc() - begun;
}

static uint64_t writes(pwrite_call call) {
    uint64_t begun = __rdtsc();
    for (int i = 0; i < CHUNK; i++)
        if (call(fd, block, BLOCK, anywhere()) != BLOCK) fail("pwrite");
    return __rdtsc() - begun;
}

static void *own(const char *name) {
    static void *libc;
    if (!libc) libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    void *found = libc ? dlsym(libc, name) : NULL;
    if (!found) fail(name);
    return found;
}

static void compare(size_t pairs) {
    pread_call read_by_name = (pread_call)dlsym(RTLD_DEFAULT, "pread64"), own_read = (pread_call)own("pread64");
    pwrite_call write_by_name = (pwrite_call)dlsym(RTLD_DEFAULT, "pwrite64"), own_write = (pwrite_call)own("pwrite64");
    double *read_more = calloc(pairs, sizeof(double)), *write_more = calloc(pairs, sizeof(double)),
           *plain_read = calloc(pairs, sizeof(double)), *plain_write = calloc(pairs, sizeof(double));
    double rate = ticks_per_ns(), each = rate * CHUNK;
    for (size_t i = 0; i < pairs; i++) {
        /* Who is first changes, as the first finds caches as the calls before have left them. */
        double traced, plain;
        if (i % 2) traced = (double)reads(read_by_name), plain = (double)reads(own_read);
        else plain = (double)reads(own_read), traced = (double)reads(read_by_name);
        read_more[i] = (traced - plain) / each, plain_read[i] = plain / each;
        if (i % 2) traced = (double)writes(write_by_name), plain = (double)writes(own_write);
        else plain = (double)writes(own_write), traced = (double)writes(write_by_name);
        write_more[i] = (traced - plain) / each, plain_write[i] = plain / each;
    }
    double read_ns = quantile(read_more, pairs, 0.5), write_ns = quantile(write_more, pairs, 0.5);
    double read_plain = quantile(plain_read, pairs, 0.5), write_plain = quantile(plain_write, pairs, 0.5);
    printf("{\"pread_more_ns\": %.2f, \"pwrite_more_ns\": %.2f, \"pread_ns\": %.1f, \"pwrite_ns\": %.1f, "
           "\"pread_percent\": %.2f, \"pwrite_percent\": %.2f, \"pread_more_cycles\": %.1f, "
           "\"pairs\": %zu, \"traced\": %zu}\n",
           read_ns, write_ns, read_plain, write_plain, 100 * read_ns / read_plain, 100 * write_ns / write_plain,
           read_ns * rate, pairs, 2 * pairs * CHUNK);
}

/* What all threads of the parent have run, in ns. */
static uint64_t parent_ns(void) {
    char path[512];
    snprintf(path, sizeof path, "/proc/%d/task", (int)getppid());
    DIR *tasks = opendir(path);
    if (!tasks) fail(path);
    uint64_t sum = 0;
    for (struct dirent *task; (task = readdir(tasks));) {
        unsigned long long ran = 0;
        snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", (int)getppid(), task->d_name);
        FILE *file = task->d_name[0] == '.' ? NULL : fopen(path, "re");
        if (!file) continue;
        if (fscanf(file, "%llu", &ran) == 1) sum += ran;
        fclose(file);
    }
    closedir(tasks);
    return sum;
}

static double own_s(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* Sleeps between bursts of a millisecond's calls. */
static void paced(unsigned rate, double seconds) {
    uint64_t parent = parent_ns(), begun = now_ns(CLOCK_MONOTONIC), now, calls = 0;
    while ((now = now_ns(CLOCK_MONOTONIC) - begun) < seconds * 1e9) {
        for (uint64_t due = (uint64_t)((double)now * rate / 1e9); calls < due; calls++)
            if (pread(fd, block, BLOCK, (off_t)(calls % BLOCKS) * BLOCK) != BLOCK) fail("pread");
        usleep(1000);
    }
    double wall = (double)now / 1e9, parent_s = (double)(parent_ns() - parent) / 1e9;
    printf("{\"calls\": %llu, \"wall_own_s\": %.4f, \"own_cpu_s\": %.4f, \"parent_cpu_s\": %.4f, "
           "\"parent_percent\": %.3f}\n",
           (unsigned long long)calls, wall, own_s(), parent_s, 100 * parent_s / wall);
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    fd = open(argv[2], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) fail(argv[2]);
    memset(block, 'x', BLOCK);
    pwrite_call fill = (pwrite_call)own("pwrite64");
    for (off_t i = 0; i < BLOCKS; i++)
        if (fill(fd, block, BLOCK, i * BLOCK) != BLOCK) fail("pwrite");
    size_t count = strtoul(argv[3], NULL, 10);
    if (!strcmp(argv[1], "ab")) {
        compare(count);
    } else if (!strcmp(argv[1], "paced") && argc == 5) {
        paced((unsigned)count, atof(argv[4]));
    } else {
        int is_random = !strcmp(argv[1], "random");
        for (size_t i = 0; i < count; i++)
            if (pread(fd, block, BLOCK, is_random ? anywhere() : (off_t)(i % BLOCKS) * BLOCK) != BLOCK) fail("pread");
    }
    return 0;
}
