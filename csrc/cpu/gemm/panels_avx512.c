/* Packing of operands into panels with 512-bit vectors. A tile is sixteen registers. They are read along the
 * operand's contiguous direction, rounded, and transposed when the layout wants the other direction. */
#include "cpu/gemm/panels.h"

#include "base/machine.h"

#ifdef AC_HAVE_X86
#include <immintrin.h>

#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#include "cpu/elementwise/half_simd.h"

#define INLINE static inline __attribute__((always_inline))

/* -- sixteen values of any dtype as float32, and float32 as 16-bit --------------------------------- */

INLINE __m512 read16(const void *p, ac_dtype t, __mmask16 valid) {
    if (t == AC_float32) return _mm512_maskz_loadu_ps(valid, p);
    __m256i h = _mm256_maskz_loadu_epi16(valid, p);
    return t == AC_bfloat16 ? ac_widen16_bf16(h) : ac_widen16_f16(h);
}

INLINE __m256i to_half(__m512 x, ac_dtype round) {
    return round == AC_bfloat16 ? ac_narrow16_bf16(x) : ac_narrow16_f16(x);
}

INLINE __m256i read_half(const char *p, ac_dtype t, ac_dtype round, __mmask16 valid) {
    if (t == round) return _mm256_maskz_loadu_epi16(valid, p);
    return to_half(read16(p, t, valid), round);
}

INLINE __m512 read_rounded(const char *p, ac_dtype from, ac_dtype round, __mmask16 valid) {
    __m512 x = read16(p, from, valid);
    if (round == AC_float32 || round == from) return x;
    __m256i h = to_half(x, round);
    return round == AC_bfloat16 ? ac_widen16_bf16(h) : ac_widen16_f16(h);
}

/* -- tiles -------------------------------------------------------------------------------------------- */

typedef struct {
    __m512i row[16];
} tile;

enum { AHEAD = 256 }; /* bytes along a run of memory that are fetched before their turn */

/* Where a tile is read from. */
typedef struct {
    const char *data; /* of its first lane and k */
    int64_t lanes, k; /* that exist, from there on */
    int64_t lane_bytes, k_bytes;
} corner;

INLINE corner corner_of(const ac_operand *o, int64_t lane, int64_t k) {
    int64_t item = ac_itemsize(o->dtype);
    corner c = {.data = (const char *)o->data + (lane * o->lane_stride + k * o->k_stride) * item};
    c.lanes = o->lanes - lane, c.k = o->k - k;
    c.lane_bytes = o->lane_stride * item, c.k_bytes = o->k_stride * item;
    return c;
}

/* A whole tile of halves as they are needs neither masks nor rounding. */
INLINE bool is_whole(ac_dtype from, ac_dtype round, const corner *c) {
    return from == round && c->lanes >= 16 && c->k >= 32;
}

INLINE void whole_by_lane(const corner *c, tile *t) {
    for (int i = 0; i < 16; i++) t->row[i] = _mm512_loadu_si512(c->data + i * c->lane_bytes);
}

INLINE void whole_by_cell(const corner *c, tile *t) {
    for (int i = 0; i < 16; i++) {
        const char *p = c->data + 2 * i * c->k_bytes;
        __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p));
        __m512i y = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(p + c->k_bytes)));
        t->row[i] = _mm512_or_si512(x, _mm512_slli_epi32(y, 16));
    }
}

/* Row i is lane i: 32 halves along k. */
INLINE void halves_by_lane(ac_dtype from, ac_dtype round, const corner *c, tile *t) {
    if (is_whole(from, round, c)) {
        whole_by_lane(c, t);
        return;
    }
    __mmask16 low = ac_first16(c->k), high = ac_first16(c->k - 16);
    int64_t second = 16 * ac_itemsize(from);
    for (int i = 0; i < 16; i++) {
        const char *p = c->data + i * c->lane_bytes;
        __mmask16 l = i < c->lanes ? low : 0, h = i < c->lanes ? high : 0;
        if (from == AC_float32 && round == AC_bfloat16) {
            t->row[i] = ac_narrow32_bf16(read16(p, from, l), read16(p + second, from, h));
            continue;
        }
        __m256i x = read_half(p, from, round, l), y = read_half(p + second, from, round, h);
        t->row[i] = _mm512_inserti64x4(_mm512_castsi256_si512(x), y, 1);
    }
}

/* Row i is cell i: the pair (2i, 2i + 1) of every lane. */
INLINE void halves_by_cell(ac_dtype from, ac_dtype round, const corner *c, tile *t) {
    if (is_whole(from, round, c)) {
        whole_by_cell(c, t);
        return;
    }
    __mmask16 lanes = ac_first16(c->lanes);
    for (int i = 0; i < 16; i++) {
        const char *p = c->data + 2 * i * c->k_bytes;
        __mmask16 l = 2 * i < c->k ? lanes : 0, next = 2 * i + 1 < c->k ? lanes : 0;
        if (from == AC_float32 && round == AC_bfloat16) {
            t->row[i] = ac_pairs_bf16(read16(p, from, l), read16(p + c->k_bytes, from, next));
            continue;
        }
        __m256i x = read_half(p, from, round, l), y = read_half(p + c->k_bytes, from, round, next);
        t->row[i] = _mm512_or_si512(_mm512_cvtepu16_epi32(x), _mm512_slli_epi32(_mm512_cvtepu16_epi32(y), 16));
    }
}

INLINE void floats_by_lane(ac_dtype from, ac_dtype round, const corner *c, tile *t) {
    __mmask16 along = ac_first16(c->k);
    for (int i = 0; i < 16; i++)
        t->row[i] =
            _mm512_castps_si512(read_rounded(c->data + i * c->lane_bytes, from, round, i < c->lanes ? along : 0));
}

INLINE void floats_by_cell(ac_dtype from, ac_dtype round, const corner *c, tile *t) {
    __mmask16 lanes = ac_first16(c->lanes);
    for (int i = 0; i < 16; i++)
        t->row[i] = _mm512_castps_si512(read_rounded(c->data + i * c->k_bytes, from, round, i < c->k ? lanes : 0));
}

/* 16 x 16 cells: pairs, quads, then the four 128-bit quarters. */
static void transpose(tile *t) {
    __m512i a[16], *r = t->row;
    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        a[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        a[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xDD);
        a[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        a[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xDD);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(a[i], a[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(a[i], a[i + 8], 0xDD);
        r[i + 4] = _mm512_shuffle_i32x4(a[i + 4], a[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_i32x4(a[i + 4], a[i + 12], 0xDD);
    }
}

static void write(const tile *t, bool stream, char *to) {
    for (int i = 0; i < 16; i++) {
        if (stream) _mm512_stream_si512((void *)(to + 64 * i), t->row[i]);
        else _mm512_store_si512(to + 64 * i, t->row[i]);
    }
}

/* Sixteen float16 pairs as their leading bits and the rest, both bfloat16; true when all are finite. */
static bool split(tile *high, tile *low) {
    const __m512i top = _mm512_set1_epi32((int)0xFFFF0000u);
    const __m512i exponent = _mm512_set1_epi32(0x7C007C00);
    __mmask32 special = 0;
    for (int i = 0; i < 16; i++) {
        __m512i x = high->row[i];
        special |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(x, exponent), exponent);
        __m512i even = _mm512_castps_si512(_mm512_cvtph_ps(_mm512_cvtepi32_epi16(x)));
        __m512i odd = _mm512_castps_si512(_mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(x, 16))));
        __m512i e = _mm512_and_si512(even, top), o = _mm512_and_si512(odd, top);
        high->row[i] = _mm512_or_si512(_mm512_srli_epi32(e, 16), o);
        even = _mm512_castps_si512(_mm512_sub_ps(_mm512_castsi512_ps(even), _mm512_castsi512_ps(e)));
        odd = _mm512_castps_si512(_mm512_sub_ps(_mm512_castsi512_ps(odd), _mm512_castsi512_ps(o)));
        low->row[i] = _mm512_or_si512(_mm512_srli_epi32(even, 16), _mm512_and_si512(odd, top));
    }
    return special == 0;
}

/* Tiles follow each other along the runs, and those of a large operand lie so far apart that no CPU foresees them all.
 * What is fetched beyond a run's end, or beyond the operand, does no harm. */
INLINE void fetch_ahead(const corner *c, int64_t bytes) {
    for (int i = 0; i < 16; i++) _mm_prefetch(c->data + i * bytes + AHEAD, _MM_HINT_T1);
}

INLINE bool pack_k_step(const ac_operand *o, ac_panel_kind kind, bool columns, int64_t lane, int64_t k, char *to,
                        ac_dtype from, ac_dtype round) {
    corner c = corner_of(o, lane, k);
    tile t, rest;
    bool along_k = o->k_stride == 1, fits = true;
    fetch_ahead(&c, along_k ? c.lane_bytes : c.k_bytes);
    if (kind == AC_PANEL_F32 && along_k) floats_by_lane(from, round, &c, &t);
    else if (kind == AC_PANEL_F32) floats_by_cell(from, round, &c, &t);
    else if (along_k) halves_by_lane(from, round, &c, &t);
    else halves_by_cell(from, round, &c, &t);
    if (along_k == columns) transpose(&t);
    if (kind == AC_PANEL_SPLIT) {
        fits = split(&t, &rest);
        write(&rest, o->stream, to + AC_TILE_BYTES);
    }
    write(&t, o->stream, to);
    return fits;
}

/* The usual pairs of dtypes get code of their own. */
bool ac_pack_k_step_avx512(const ac_operand *o, ac_panel_kind kind, bool columns, int64_t lane, int64_t k, char *to) {
#define CASE(kind_, from, round_)                                                                                      \
    if (kind == kind_ && o->dtype == from && o->round == round_)                                                       \
    return pack_k_step(o, kind_, columns, lane, k, to, from, round_)
    CASE(AC_PANEL_BF16, AC_bfloat16, AC_bfloat16);
    CASE(AC_PANEL_BF16, AC_float32, AC_bfloat16);
    CASE(AC_PANEL_F32, AC_float32, AC_float32);
    CASE(AC_PANEL_SPLIT, AC_float16, AC_float16);
    CASE(AC_PANEL_SPLIT, AC_float32, AC_float16);
#undef CASE
    return pack_k_step(o, kind, columns, lane, k, to, o->dtype, o->round);
}
#endif
