/* Random numbers from a counter: Philox4x32-10 (Salmon et al., SC 2011). Number i of a stream is a pure function of
 * (seed, offset + i / 4), so results do not depend on threads or devices. */
#ifndef AC_BASE_RNG_H
#define AC_BASE_RNG_H

#include "base/inline.h"

#include <stdint.h>

typedef struct {
    uint64_t seed;
    uint64_t offset; /* counter of the next unused block of four numbers */
} ac_generator;

typedef struct {
    uint32_t v[4];
} ac_philox_block;

AC_INLINE ac_philox_block ac_philox(uint64_t seed, uint64_t counter) {
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = 0, c3 = 0;
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c0 = n0, c1 = (uint32_t)p1, c2 = n2, c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    ac_philox_block block = {{c0, c1, c2, c3}};
    return block;
}

/* Uniform in [0, 1) with 24 and 53 random bits. */
AC_INLINE float ac_uniform24(uint32_t u) { return (float)(u >> 8) * 0x1p-24f; }
AC_INLINE double ac_uniform53(uint32_t hi, uint32_t lo) {
    return (double)((((uint64_t)hi << 32) | lo) >> 11) * 0x1p-53;
}

/* The process's generator; seeded from the clock and address space until ac_manual_seed. */
ac_generator *ac_default_generator(void);
void ac_manual_seed(uint64_t seed);
/* Takes `numbers` numbers' worth of counters; returns the offset where they start. */
uint64_t ac_generator_take(ac_generator *g, int64_t numbers);

#endif
