/* Records nothing: -DCLOCK reads the counter twice, else this is a call alone. */
#include "log.h"
#include <x86intrin.h>

int log_begin(const char *directory) { (void)directory; return 0; }
void log_put(uint64_t file, uint64_t offset, uint64_t asked, uint64_t bytes) {
#ifdef CLOCK
    uint64_t begun = __rdtsc(), ended = __rdtsc();
    __asm__ volatile("" : : "r"(begun), "r"(ended));
#endif
    __asm__ volatile("" : : "r"(file), "r"(offset), "r"(asked), "r"(bytes));
}
void log_rest(void) {}
