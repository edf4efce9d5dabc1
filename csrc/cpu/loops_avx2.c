/* The innermost loops compiled for AVX2. System headers come first: their inline functions must not be compiled for
 * instructions that the machine may lack. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("avx2,fma,f16c")
#define ISA avx2
#include "cpu/loops.inc"
#endif
