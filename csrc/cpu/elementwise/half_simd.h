/* Conversion of runs of 16-bit values to and from float32, by the SIMD instructions of the file that includes this.
 * The values are those of base/half.h. */
#ifndef AC_CPU_ELEMENTWISE_HALF_SIMD_H
#define AC_CPU_ELEMENTWISE_HALF_SIMD_H

#include "base/half.h"

#define HALVES static inline __attribute__((always_inline))

#ifdef __AVX512BW__

HALVES __m512 ac_widen16_bf16(__m256i h) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
HALVES __m512 ac_widen16_f16(__m256i h) { return _mm512_cvtph_ps(h); }

/* A nan keeps its upper payload and becomes quiet. */
HALVES __m256i ac_narrow16_bf16(__m512 x) {
    __m512i u = _mm512_castps_si512(x), top = _mm512_srli_epi32(u, 16);
    __m512i odd = _mm512_and_si512(top, _mm512_set1_epi32(1));
    __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF))), 16);
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(rounded, nan, top, _mm512_set1_epi32(0x40)));
}
/* The bits of x before the lower half is cut off, where x is no nan. */
HALVES __m512i ac_rounded_bf16(__m512 x) {
    __m512i u = _mm512_castps_si512(x);
    __mmask16 odd = _mm512_test_epi32_mask(u, _mm512_set1_epi32(0x10000));
    return _mm512_add_epi32(u, _mm512_mask_blend_epi32(odd, _mm512_set1_epi32(0x7FFF), _mm512_set1_epi32(0x8000)));
}

static __attribute__((noinline, cold, unused)) __m512i ac_narrow32_bf16_nan(__m512 x, __m512 y) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(ac_narrow16_bf16(x)), ac_narrow16_bf16(y), 1);
}
/* x, then y, where neither holds a nan */
HALVES __m512i ac_numbers32_bf16(__m512 x, __m512 y) {
    const __m512i upper = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                                           25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_permutex2var_epi16(ac_rounded_bf16(x), upper, ac_rounded_bf16(y));
}
/* x, then y: half of the instructions of two ac_narrow16_bf16 */
HALVES __m512i ac_narrow32_bf16(__m512 x, __m512 y) {
    if (__builtin_expect(_mm512_cmp_ps_mask(x, y, _CMP_UNORD_Q) != 0, 0)) return ac_narrow32_bf16_nan(x, y);
    return ac_numbers32_bf16(x, y);
}
/* Value i of x, then value i of y, for each i, where none is a nan. */
HALVES __m512i ac_pairs_bf16(__m512 x, __m512 y) {
    return _mm512_mask_blend_epi16(0xAAAAAAAA, _mm512_srli_epi32(ac_rounded_bf16(x), 16), ac_rounded_bf16(y));
}
HALVES __m256i ac_narrow16_f16(__m512 x) { return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT); }

HALVES __m512i ac_narrow32_f16(__m512 x, __m512 y) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(ac_narrow16_f16(x)), ac_narrow16_f16(y), 1);
}

HALVES __mmask16 ac_first16(int64_t n) { return (__mmask16)(n >= 16 ? 0xFFFF : n > 0 ? (1u << n) - 1 : 0); }

/* Whole vectors apart from the rest: masked stores of 16-bit values are slow on some CPUs. */
#define HALVES_RUNS(name)                                                                                              \
    static inline void ac_widen_##name(int64_t n, const uint16_t *x, float *y) {                                       \
        int64_t i = 0;                                                                                                 \
        for (; i + 16 <= n; i += 16)                                                                                   \
            _mm512_storeu_ps(y + i, ac_widen16_##name(_mm256_loadu_si256((const __m256i *)(const void *)(x + i))));    \
        if (i == n) return;                                                                                            \
        __mmask16 valid = ac_first16(n - i);                                                                           \
        _mm512_mask_storeu_ps(y + i, valid, ac_widen16_##name(_mm256_maskz_loadu_epi16(valid, x + i)));                \
    }                                                                                                                  \
    static inline void ac_narrow_##name(int64_t n, const float *x, uint16_t *y) {                                      \
        int64_t i = 0;                                                                                                 \
        for (; i + 32 <= n; i += 32)                                                                                   \
            _mm512_storeu_si512(y + i, ac_narrow32_##name(_mm512_loadu_ps(x + i), _mm512_loadu_ps(x + i + 16)));       \
        for (; i + 16 <= n; i += 16)                                                                                   \
            _mm256_storeu_si256((__m256i *)(void *)(y + i), ac_narrow16_##name(_mm512_loadu_ps(x + i)));               \
        if (i == n) return;                                                                                            \
        __mmask16 valid = ac_first16(n - i);                                                                           \
        _mm256_mask_storeu_epi16(y + i, valid, ac_narrow16_##name(_mm512_maskz_loadu_ps(valid, x + i)));               \
    }
HALVES_RUNS(bf16)
HALVES_RUNS(f16)
#undef HALVES_RUNS

#elif defined(__AVX2__) && defined(__F16C__)

HALVES __m256 ac_widen8_bf16(__m128i h) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16)); }
HALVES __m256 ac_widen8_f16(__m128i h) { return _mm256_cvtph_ps(h); }

/* A nan keeps its upper payload and becomes quiet. */
HALVES __m128i ac_narrow8_bf16(__m256 x) {
    __m256i u = _mm256_castps_si256(x), top = _mm256_srli_epi32(u, 16);
    __m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF))), 16);
    __m256i quiet = _mm256_or_si256(top, _mm256_set1_epi32(0x40));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    __m256i h = _mm256_blendv_epi8(rounded, quiet, nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
}
HALVES __m128i ac_narrow8_f16(__m256 x) { return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT); }

HALVES __m256i ac_both_halves(__m128i first, __m128i second) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
}
HALVES __m256i ac_narrow16_f16(__m256 x, __m256 y) { return ac_both_halves(ac_narrow8_f16(x), ac_narrow8_f16(y)); }

/* Rounds sixteen numbers to the nearest, ties to even. One test looks for a nan among all of them, which is rare. */
HALVES __m256i ac_narrow16_bf16(__m256 x, __m256 y) {
    if (__builtin_expect(_mm256_movemask_ps(_mm256_cmp_ps(x, y, _CMP_UNORD_Q)), 0))
        return ac_both_halves(ac_narrow8_bf16(x), ac_narrow8_bf16(y));
    __m256i u = _mm256_castps_si256(x), v = _mm256_castps_si256(y);
    __m256i top = _mm256_blend_epi16(_mm256_srli_epi32(u, 16), v, 0xAA); /* of u and v in turns */
    __m256i rest = _mm256_blend_epi16(u, _mm256_slli_epi32(v, 16), 0xAA);
    __m256i odd = _mm256_srai_epi16(_mm256_slli_epi16(top, 15), 15); /* -1, or 0 where even */
    __m256i above = _mm256_cmpgt_epi16(_mm256_xor_si256(rest, _mm256_set1_epi16(-0x8000)), odd);
    const __m256i in_order = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0, 1, 4, 5, 8, 9,
                                              12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(_mm256_sub_epi16(top, above), in_order), 0xD8);
}

#define HALVES_RUNS(name)                                                                                              \
    static inline void ac_widen_##name(int64_t n, const uint16_t *x, float *y) {                                       \
        int64_t i = 0;                                                                                                 \
        for (; i + 8 <= n; i += 8)                                                                                     \
            _mm256_storeu_ps(y + i, ac_widen8_##name(_mm_loadu_si128((const __m128i *)(const void *)(x + i))));        \
        for (; i < n; i++) y[i] = ac_##name##_to_f32(x[i]);                                                            \
    }                                                                                                                  \
    static inline void ac_narrow_##name(int64_t n, const float *x, uint16_t *y) {                                      \
        int64_t i = 0;                                                                                                 \
        for (; i + 16 <= n; i += 16)                                                                                   \
            _mm256_storeu_si256((__m256i *)(void *)(y + i),                                                            \
                                ac_narrow16_##name(_mm256_loadu_ps(x + i), _mm256_loadu_ps(x + i + 8)));               \
        for (; i + 8 <= n; i += 8)                                                                                     \
            _mm_storeu_si128((__m128i *)(void *)(y + i), ac_narrow8_##name(_mm256_loadu_ps(x + i)));                   \
        for (; i < n; i++) y[i] = ac_f32_to_##name(x[i]);                                                              \
    }
HALVES_RUNS(bf16)
HALVES_RUNS(f16)
#undef HALVES_RUNS

#else /* loops that compilers vectorise */

#define HALVES_RUNS(name)                                                                                              \
    static inline void ac_widen_##name(int64_t n, const uint16_t *x, float *y) {                                       \
        for (int64_t i = 0; i < n; i++) y[i] = ac_##name##_to_f32(x[i]);                                               \
    }                                                                                                                  \
    static inline void ac_narrow_##name(int64_t n, const float *x, uint16_t *y) {                                      \
        for (int64_t i = 0; i < n; i++) y[i] = ac_f32_to_##name(x[i]);                                                 \
    }
HALVES_RUNS(bf16)
HALVES_RUNS(f16)
#undef HALVES_RUNS
#endif

#undef HALVES
#endif
