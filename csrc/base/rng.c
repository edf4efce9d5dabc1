/* The process's random stream: its seed and its offset. */
#include "base/rng.h"

#include <time.h>

static ac_generator generator;
static int seeded;

void ac_manual_seed(uint64_t seed) {
    generator = (ac_generator){.seed = seed, .offset = 0};
    seeded = 1;
}

ac_generator *ac_default_generator(void) {
    if (!seeded) {
        struct timespec now;
        (void)timespec_get(&now, TIME_UTC);
        uint64_t mix = (uint64_t)now.tv_sec * 1000000007u ^ (uint64_t)now.tv_nsec;
        ac_manual_seed(mix ^ (uint64_t)(uintptr_t)&now);
    }
    return &generator;
}

uint64_t ac_generator_take(ac_generator *g, int64_t numbers) {
    uint64_t start = g->offset;
    g->offset += ((uint64_t)numbers + 3) / 4;
    return start;
}
