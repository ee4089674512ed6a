/* What one call of a log costs: batches of two libraries in turn, each short against a time slice.
 *
 * logcall DIRECTORY BATCHES BASE.so BASE_CALLS OTHER.so OTHER_CALLS
 *
 * Prints medians of the batches as a line of JSON: of OTHER, of BASE beside it, and of the ratio of
 * each batch to the one before it. */
#define _GNU_SOURCE
#include "log.h"
#include "ticks.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

struct logger {
    void (*put)(uint64_t, uint64_t, uint64_t, uint64_t);
    void (*rest)(void);
    unsigned calls;
    uint64_t number;
    double *ticks;
};

static void load(struct logger *logger, const char *path, const char *directory) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    int (*begin)(const char *) = (int (*)(const char *))dlsym(library, "log_begin");
    logger->put = (void (*)(uint64_t, uint64_t, uint64_t, uint64_t))dlsym(library, "log_put");
    logger->rest = (void (*)(void))dlsym(library, "log_rest");
    if (!begin || !logger->put || !logger->rest || begin(directory) != 0) {
        fprintf(stderr, "%s: cannot record\n", path);
        exit(1);
    }
}

static double batch(struct logger *logger) {
    void (*put)(uint64_t, uint64_t, uint64_t, uint64_t) = logger->put;
    uint64_t number = logger->number, end = number + logger->calls;
    uint64_t begun = __rdtsc();
    for (; number < end; number++) put(5, number << 12, 4096, 4096);
    uint64_t ended = __rdtsc();
    logger->number = end;
    logger->rest();
    return (double)(ended - begun) / logger->calls;
}

int main(int argc, char **argv) {
    if (argc != 7) return 2;
    size_t batches = strtoul(argv[2], NULL, 10);
    struct logger base = {0}, other = {0};
    load(&base, argv[3], argv[1]);
    load(&other, argv[5], argv[1]);
    base.calls = (unsigned)strtoul(argv[4], NULL, 10);
    other.calls = (unsigned)strtoul(argv[6], NULL, 10);
    double *of_base = calloc(batches, sizeof(double)), *of_other = calloc(batches, sizeof(double)),
           *ratios = calloc(batches, sizeof(double));
    double rate = ticks_per_ns();
    for (size_t i = 0; i < 50; i++) batch(&base), batch(&other);
    for (size_t i = 0; i < batches; i++) {
        of_base[i] = batch(&base);
        of_other[i] = batch(&other);
        ratios[i] = of_other[i] / of_base[i];
    }
    double cycles = quantile(of_other, batches, 0.5), base_cycles = quantile(of_base, batches, 0.5);
    printf("{\"cycles\": %.2f, \"ns\": %.2f, \"p10_cycles\": %.2f, \"p90_cycles\": %.2f, "
           "\"base_cycles\": %.2f, \"to_base\": %.3f, \"batches\": %zu, \"calls\": %llu, \"ghz\": %.4f}\n",
           cycles, cycles / rate, quantile(of_other, batches, 0.1), quantile(of_other, batches, 0.9), base_cycles,
           quantile(ratios, batches, 0.5), batches, (unsigned long long)other.number, rate);
    return 0;
}
