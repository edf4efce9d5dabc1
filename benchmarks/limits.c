/* What a class of CPUs can do at most on this machine, to divide measurements by: GFLOP/s of its vector unit and of its
 * unit for bfloat16 out of registers, and bytes a second that memory gives. One JSON object on standard output.
 *
 *     gcc -O3 -pthread limits.c -o limits && ./limits THREADS avx2|avx512|avx512bf16|amx
 *
 * The CPU must have the class. Classes below avx512bf16 have no unit for bfloat16. Tiles and dot products get random
 * numbers: multiplying zeros is faster on CPUs that lower their clock with the power they draw. Bandwidths count bytes
 * read and bytes written. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <immintrin.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 15, MAX_THREADS = 256, FLOATS = 1 << 25 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float *from, *to; /* FLOATS each */

typedef struct {
    int id, threads;
    double (*work)(int id, int threads); /* returns what was done */
    double done;
    pthread_barrier_t *start;
} task;

/* Twelve sums at once hide the latency. Each ONE(s) adds products to the sum s of the register type V.
 * benchmarks/products.py calls the functions of float32, too. */
#define TWELVE_SUMS(V, first, repeats)                                                                                  \
    V s0 = first, s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0, s8 = s0, s9 = s0, s10 = s0, s11 = s0; \
    (void)threads;                                                                                                     \
    for (long r = 0; r < (repeats); r++) {                                                                             \
        ONE(s0), ONE(s1), ONE(s2), ONE(s3), ONE(s4), ONE(s5), ONE(s6), ONE(s7), ONE(s8), ONE(s9), ONE(s10), ONE(s11);  \
        __asm__ volatile("" : "+v"(s0), "+v"(s1), "+v"(s2), "+v"(s3), "+v"(s4), "+v"(s5));                             \
        __asm__ volatile("" : "+v"(s6), "+v"(s7), "+v"(s8), "+v"(s9), "+v"(s10), "+v"(s11));                           \
    }

enum { REPEATS = 3000000 };

#pragma GCC push_options
#pragma GCC target("avx2,fma")
double fma_avx2(int id, int threads);
double fma_avx2(int id, int threads) {
    const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(1e-3f);
    (void)id;
#define ONE(s) s = _mm256_fmadd_ps(s, a, b)
    TWELVE_SUMS(__m256, a, REPEATS)
#undef ONE
    return (double)REPEATS * 12 * 8 * 2;
}
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f")
double fma_avx512(int id, int threads);
double fma_avx512(int id, int threads) {
    const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(1e-3f);
    (void)id;
#define ONE(s) s = _mm512_fmadd_ps(s, a, b)
    TWELVE_SUMS(__m512, a, REPEATS)
#undef ONE
    return (double)REPEATS * 12 * 16 * 2;
}
#pragma GCC pop_options

/* Of magnitudes from 1/8 to 2, either sign. */
static void random_bf16(uint16_t *to_fill, int n, unsigned seed) {
    for (int i = 0; i < n; i++) to_fill[i] = (uint16_t)(0x3E00 | (rand_r(&seed) & 0x81FF));
}

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bf16")
static double dots_bf16(int id, int threads) {
    uint16_t data[2][32];
    __m512i bits[2];
    random_bf16(data[0], 64, (unsigned)id);
    memcpy(bits, data, sizeof bits);
    const __m512bh a = (__m512bh)bits[0], b = (__m512bh)bits[1];
#define ONE(s) s = _mm512_dpbf16_ps(s, a, b)
    TWELVE_SUMS(__m512, _mm512_setzero_ps(), REPEATS)
#undef ONE
    return (double)REPEATS * 12 * 32 * 2;
}
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("amx-tile,amx-bf16")
static double tiles_bf16(int id, int threads) {
    static const struct __attribute__((packed)) {
        uint8_t palette, start, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
    uint16_t data[4 * 512];
    (void)threads;
    random_bf16(data, 4 * 512, (unsigned)id);
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, data, 64);
    _tile_loadd(5, data + 512, 64);
    _tile_loadd(6, data + 1024, 64);
    _tile_loadd(7, data + 1536, 64);
    for (long r = 0; r < 3000000; r++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
    return 3e6 * 4 * 16 * 16 * 32 * 2;
}
#pragma GCC pop_options

static double copy(int id, int threads) {
    size_t n = FLOATS / (size_t)threads;
    memcpy(to + n * (size_t)id, from + n * (size_t)id, n * sizeof *to);
    return 2. * (double)n * sizeof *to;
}

static double add(int id, int threads) { /* read, modify, write */
    size_t n = FLOATS / (size_t)threads, begin = n * (size_t)id;
    for (size_t i = begin; i < begin + n; i++) to[i] += from[i];
    return 3. * (double)n * sizeof *to;
}

static void *run_task(void *arg) {
    task *t = arg;
    pthread_barrier_wait(t->start);
    t->done = t->work(t->id, t->threads);
    return NULL;
}

/* The best rate of several rounds, in 1e9 a second. */
static double best(double (*work)(int, int), int threads) {
    double rate = 0;
    for (int r = 0; r < ROUNDS; r++) {
        pthread_t ids[MAX_THREADS];
        task tasks[MAX_THREADS];
        pthread_barrier_t start;
        pthread_barrier_init(&start, NULL, (unsigned)threads + 1);
        for (int i = 0; i < threads; i++) {
            tasks[i] = (task){i, threads, work, 0, &start};
            pthread_create(&ids[i], NULL, run_task, &tasks[i]);
        }
        double begin = now(), done = 0;
        pthread_barrier_wait(&start);
        for (int i = 0; i < threads; i++) {
            pthread_join(ids[i], NULL);
            done += tasks[i].done;
        }
        double here = done / (now() - begin) / 1e9;
        if (here > rate) rate = here;
    }
    return rate;
}

/* Whether Linux lets this process use tiles: it saves tile registers only for processes that have asked. */
static bool tiles_permitted(void) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    __get_cpuid_count(7, 0, &a, &b, &c, &d);
    return (d >> 22 & 1) && (d >> 24 & 1) && syscall(SYS_arch_prctl, 0x1023, 18) == 0;
}

static bool has_bf16_dots(void) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __builtin_cpu_supports("avx512f") && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
}

static const char *const classes[] = {"avx2", "avx512", "avx512bf16", "amx"};
enum { AVX2, AVX512, AVX512BF16, AMX, N_CLASSES };

static bool cpu_has(int level) {
    if (level == AVX2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (level == AVX512) return __builtin_cpu_supports("avx512f");
    return level == AVX512BF16 ? has_bf16_dots() : has_bf16_dots() && tiles_permitted();
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 0, level = 0;
    while (argc > 2 && level < N_CLASSES && strcmp(argv[2], classes[level]) != 0) level++;
    if (argc != 3 || threads < 1 || threads > MAX_THREADS || level == N_CLASSES) {
        fprintf(stderr, "usage: limits THREADS avx2|avx512|avx512bf16|amx, with 1 to %d threads\n", MAX_THREADS);
        return 2;
    }
    if (!cpu_has(level)) {
        fprintf(stderr, "limits: this CPU has no %s\n", argv[2]);
        return 1;
    }
    from = aligned_alloc(64, FLOATS * sizeof *from), to = aligned_alloc(64, FLOATS * sizeof *to);
    if (!from || !to) return 1;
    for (size_t i = 0; i < FLOATS; i++) from[i] = 1, to[i] = 2;
    printf("{\"threads\": %d, \"copy_gb_s\": %.1f, \"add_gb_s\": %.1f", threads, best(copy, threads), best(add, threads));
    printf(", \"f32_gflop_s\": %.0f", best(level == AVX2 ? fma_avx2 : fma_avx512, threads));
    if (level >= AVX512BF16) printf(", \"bf16_gflop_s\": %.0f", best(level == AMX ? tiles_bf16 : dots_bf16, threads));
    printf("}\n");
    return 0;
}
