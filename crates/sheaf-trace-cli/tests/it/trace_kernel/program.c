// A program whose operations are known, linked statically: nothing sees into it but the kernel.
//   known        eleven reads, eight writes, and one of each other kind
//   hold MS      reads a file and keeps it open for so long
//   threads N    eight threads write N times 64 bytes into files of their own
//   killed N     the same without end, killed once a thread has written N times
//   many N       N writes of a byte at one place
//   ring         asks for io_uring
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static char bytes[4096];
static long times;
static int is_endless;

static int known(void) {
    struct stat about;
    int in = open("in", O_RDONLY), out = open("out", O_CREAT | O_RDWR | O_TRUNC, 0644);
    while (read(in, bytes, 1000) > 0) {}
    for (int i = 0; i < 7; i++) write(out, bytes, 512);
    pwrite(out, bytes, 100, 10000);
    pread(in, bytes, 300, 9900);
    lseek(out, 4, SEEK_SET);
    read(out, bytes, 5);
    fsync(out);
    ftruncate(out, 6000);
    int again = dup(out);
    close(again);
    stat("in", &about);
    mkdir("made", 0700);
    rename("made", "moved");
    rmdir("moved");
    unlink("absent");
    close(in);
    close(out);
    return 0;
}

static int hold(long ms) {
    struct timespec until, now;
    int in = open("in", O_RDONLY);
    read(in, bytes, 123);
    clock_gettime(CLOCK_MONOTONIC, &until);
    do {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - until.tv_sec) * 1000 + (now.tv_nsec - until.tv_nsec) / 1000000 < ms);
    close(in);
    return 0;
}

static void *writer(void *number) {
    char name[16];
    sprintf(name, "file%ld", (long)number);
    int file = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    for (long i = 0; is_endless || i < times; i++) {
        if (is_endless && i == times) kill(getpid(), SIGKILL);
        write(file, bytes, 64);
    }
    close(file);
    return NULL;
}

static int threads(void) {
    pthread_t all[8];
    for (long i = 0; i < 8; i++) pthread_create(&all[i], NULL, writer, (void *)i);
    for (int i = 0; i < 8; i++) pthread_join(all[i], NULL);
    return 0;
}

static int many(void) {
    int out = open("out", O_CREAT | O_WRONLY, 0644);
    for (long i = 0; i < times; i++) pwrite(out, bytes, 1, 0);
    close(out);
    return 0;
}

static int ring(void) {
    char parameters[120] = {0};
    return syscall(425, 1, parameters) < 0 ? 9 : 0;
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    times = count > 2 ? atol(words[2]) : 0;
    is_endless = !strcmp(what, "killed");
    if (!strcmp(what, "known")) return known();
    if (!strcmp(what, "hold")) return hold(times);
    if (!strcmp(what, "threads") || is_endless) return threads();
    if (!strcmp(what, "many")) return many();
    if (!strcmp(what, "ring")) return ring();
    return 2;
}
