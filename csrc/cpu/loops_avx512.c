/* The innermost loops compiled for AVX-512. System headers come first: their inline functions must not be compiled
 * for instructions that the machine may lack. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#define ISA avx512
#define STREAM(to, from, bytes)                                                                                        \
    do {                                                                                                               \
        if ((bytes) == 64) _mm512_stream_ps((float *)(to), _mm512_loadu_ps(from));                                     \
        else _mm256_stream_si256((__m256i *)(to), _mm256_loadu_si256((const __m256i *)(from)));                        \
    } while (0)
#include "cpu/loops.inc"
#endif
