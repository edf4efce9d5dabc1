/* What this machine can do at most, to divide measurements by: GFLOP/s of the vector and the tile unit
 * out of registers, and bytes a second that memory gives. One JSON object on standard output.
 *
 *     gcc -O3 -pthread limits.c -o limits && ./limits THREADS
 *
 * Tiles hold random numbers: multiplying zeros is faster on CPUs that lower their clock with the power
 * they draw. Bandwidths count bytes read and bytes written. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <immintrin.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 7, MAX_THREADS = 256, FLOATS = 1 << 25 };

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

/* Twelve sums at once hide the latency of a multiplication with addition. products.py calls these functions too. */
#define FMA(s) s = MULTIPLY_ADD(s, a, b)
#define FMA_LOOP(name, vector, width, broadcast)                                                                       \
    double name(int id, int threads) {                                                                                 \
        const vector a = broadcast(0.999f), b = broadcast(1e-3f);                                                      \
        vector s0 = a, s1 = a, s2 = a, s3 = a, s4 = a, s5 = a, s6 = a, s7 = a, s8 = a, s9 = a, s10 = a, s11 = a;       \
        (void)id, (void)threads;                                                                                       \
        for (long r = 0; r < 5000000; r++) {                                                                           \
            FMA(s0), FMA(s1), FMA(s2), FMA(s3), FMA(s4), FMA(s5);                                                      \
            FMA(s6), FMA(s7), FMA(s8), FMA(s9), FMA(s10), FMA(s11);                                                    \
            __asm__ volatile("" : "+v"(s0), "+v"(s1), "+v"(s2), "+v"(s3), "+v"(s4), "+v"(s5));                         \
            __asm__ volatile("" : "+v"(s6), "+v"(s7), "+v"(s8), "+v"(s9), "+v"(s10), "+v"(s11));                       \
        }                                                                                                              \
        return 5e6 * 12 * width * 2;                                                                                   \
    }

#pragma GCC push_options
#pragma GCC target("avx512f")
#define MULTIPLY_ADD _mm512_fmadd_ps
double fma_avx512(int id, int threads);
FMA_LOOP(fma_avx512, __m512, 16, _mm512_set1_ps)
#undef MULTIPLY_ADD
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define MULTIPLY_ADD _mm256_fmadd_ps
double fma_avx2(int id, int threads);
FMA_LOOP(fma_avx2, __m256, 8, _mm256_set1_ps)
#undef MULTIPLY_ADD
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
    unsigned seed = (unsigned)id;
    (void)threads;
    for (int i = 0; i < 4 * 512; i++) data[i] = (uint16_t)(0x3E00 | (rand_r(&seed) & 0x81FF)); /* 1/8 to 2, either sign */
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

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (threads < 1 || threads > MAX_THREADS) return 2;
    from = aligned_alloc(64, FLOATS * sizeof *from), to = aligned_alloc(64, FLOATS * sizeof *to);
    if (!from || !to) return 1;
    for (size_t i = 0; i < FLOATS; i++) from[i] = 1, to[i] = 2;
    printf("{\"threads\": %d, \"copy_gb_s\": %.1f, \"add_gb_s\": %.1f", threads, best(copy, threads), best(add, threads));
    if (__builtin_cpu_supports("avx512f")) printf(", \"f32_gflop_s\": %.0f", best(fma_avx512, threads));
    else if (__builtin_cpu_supports("avx2")) printf(", \"f32_gflop_s\": %.0f", best(fma_avx2, threads));
    __get_cpuid_count(7, 0, &a, &b, &c, &d);
    /* Linux saves tile registers only for processes that have asked. */
    if ((d >> 22 & 1) && (d >> 24 & 1) && syscall(SYS_arch_prctl, 0x1023, 18) == 0)
        printf(", \"bf16_gflop_s\": %.0f", best(tiles_bf16, threads));
    printf("}\n");
    return 0;
}
