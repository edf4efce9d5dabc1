/* Packing of operands into panels of float32 with 256-bit vectors. A tile of 16 x 16 is four blocks of 8 x 8. They are
 * read along the operand's contiguous direction, rounded, and transposed when the layout wants the other direction. */
#include "cpu/gemm/panels.h"

#include "base/machine.h"

#ifdef AC_HAVE_X86
#include <immintrin.h>
#include <string.h>

#pragma GCC target("avx2,fma,f16c")
#include "cpu/elementwise/half_simd.h"

#define INLINE static inline __attribute__((always_inline))
#define EACH(i, n) _Pragma("GCC unroll 8") for (int i = 0; i < (n); i++)

enum { AHEAD = 256 }; /* bytes along a run that are fetched before their turn */

/* The contiguous runs of memory that a tile is read from: lanes along k, or k steps along lanes. */
typedef struct {
    const char *data;
    int64_t runs, length; /* that exist, from there on: how many, and values in each */
    int64_t bytes;        /* from a run to the next */
} corner;

INLINE corner corner_of(const ac_operand *o, int64_t lane, int64_t k) {
    int64_t item = ac_itemsize(o->dtype);
    const char *data = (const char *)o->data + (lane * o->lane_stride + k * o->k_stride) * item;
    if (o->k_stride == 1) return (corner){data, o->lanes - lane, o->k - k, o->lane_stride * item};
    return (corner){data, o->k - k, o->lanes - lane, o->k_stride * item};
}

/* -- eight values of any dtype as float32 ------------------------------------------------------------- */

INLINE __m256 widen(__m128i half, ac_dtype t) { return t == AC_bfloat16 ? ac_widen8_bf16(half) : ac_widen8_f16(half); }

INLINE __m256 rounded(__m256 x, ac_dtype round) {
    return widen(round == AC_bfloat16 ? ac_narrow8_bf16(x) : ac_narrow8_f16(x), round);
}

/* The first n of eight values, n at least 1, then zeros. */
INLINE __m256 read_some(const char *p, ac_dtype t, int64_t n) {
    const __m256i places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    if (t == AC_float32)
        return _mm256_maskload_ps((const float *)(const void *)p,
                                  _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), places));
    uint16_t half[8] = {0};
    memcpy(half, p, (size_t)n * sizeof *half);
    return widen(_mm_loadu_si128((const void *)half), t);
}

INLINE __m256 read_8(const char *p, ac_dtype from, ac_dtype round, int64_t n) {
    __m256 x = n < 8                ? read_some(p, from, n)
               : from == AC_float32 ? _mm256_loadu_ps((const float *)(const void *)p)
                                    : widen(_mm_loadu_si128((const void *)p), from);
    return round == AC_float32 || round == from ? x : rounded(x, round);
}

/* -- blocks of 8 x 8 ------------------------------------------------------------------------------------ */

/* Pairs, quads, then the two 128-bit halves. */
INLINE void transpose(__m256 r[8]) {
    __m256 a[8];
    EACH(i, 4) {
        a[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        a[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    EACH(i, 2) {
        __m256 *from = a + 4 * i, *to = r + 4 * i;
        to[0] = _mm256_shuffle_ps(from[0], from[2], 0x44), to[1] = _mm256_shuffle_ps(from[0], from[2], 0xEE);
        to[2] = _mm256_shuffle_ps(from[1], from[3], 0x44), to[3] = _mm256_shuffle_ps(from[1], from[3], 0xEE);
    }
    EACH(i, 4) {
        a[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        a[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    EACH(i, 8) r[i] = a[i];
}

/* Values [at, at + 8) of runs [run, run + 8), to rows of 16 floats. */
INLINE void pack_8x8(const corner *c, int run, int at, bool whole, bool turn, ac_dtype from, ac_dtype round,
                     float *to) {
    __m256 r[8];
    int64_t n = whole ? 8 : c->length - at;
    EACH(i, 8) {
        const char *p = c->data + (run + i) * c->bytes + at * ac_itemsize(from);
        r[i] = whole || (n > 0 && run + i < c->runs) ? read_8(p, from, round, n) : _mm256_setzero_ps();
    }
    if (turn) transpose(r);
    to += turn ? at * AC_CELLS + run : run * AC_CELLS + at;
    EACH(i, 8) _mm256_store_ps(to + i * AC_CELLS, r[i]);
}

INLINE void pack_tile(const corner *c, bool whole, bool turn, ac_dtype from, ac_dtype round, float *to) {
    for (int run = 0; run < 16; run += 8) {
        pack_8x8(c, run, 0, whole, turn, from, round, to);
        pack_8x8(c, run, 8, whole, turn, from, round, to);
    }
}

/* Past the caches, whole lines one after the other: blocks of 8 x 8 would write halves of them. */
INLINE void stream_tile(const float *tile, float *to) {
    for (int i = 0; i < AC_TILE_FLOATS; i += 8) _mm256_stream_ps(to + i, _mm256_load_ps(tile + i));
}

/* Tiles follow each other along the runs, and those of a large operand lie so far apart that no CPU foresees them all.
 * What is fetched beyond a run's end does no harm. */
INLINE void fetch_ahead(const corner *c) {
    for (int i = 0; i < 16; i++) _mm_prefetch(c->data + i * c->bytes + AHEAD, _MM_HINT_T1);
}

INLINE void pack_k_step(const ac_operand *o, bool columns, int64_t lane, int64_t k, float *to, ac_dtype from,
                        ac_dtype round) {
    corner c = corner_of(o, lane, k);
    bool turn = (o->k_stride == 1) == columns, whole = c.runs >= 16 && c.length >= 16;
    _Alignas(32) float streamed[AC_TILE_FLOATS];
    float *tile = o->stream ? streamed : to;
    if (whole && c.bytes > AHEAD) fetch_ahead(&c);
    if (!whole) pack_tile(&c, false, turn, from, round, tile);
    else if (turn) pack_tile(&c, true, true, from, round, tile);
    else pack_tile(&c, true, false, from, round, tile);
    if (o->stream) stream_tile(streamed, to);
}

/* The usual pairs of dtypes get code of their own. */
bool ac_pack_k_step_avx2(const ac_operand *o, ac_panel_kind kind, bool columns, int64_t lane, int64_t k, char *to) {
    AC_ASSERT(kind == AC_PANEL_F32);
    (void)kind;
    float *floats = (float *)(void *)to;
#define CASE(from, round_)                                                                                             \
    if (o->dtype == from && o->round == round_) pack_k_step(o, columns, lane, k, floats, from, round_)
    CASE(AC_float32, AC_float32);
    else CASE(AC_float32, AC_bfloat16); else CASE(AC_float32, AC_float16);
    else CASE(AC_bfloat16, AC_bfloat16); else CASE(AC_float16, AC_float16);
    else pack_k_step(o, columns, lane, k, floats, o->dtype, o->round);
#undef CASE
    return true;
}
#endif
