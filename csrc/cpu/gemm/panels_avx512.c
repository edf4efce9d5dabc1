/* Packing of operands into panels with 512-bit vectors. A tile is sixteen registers. They are read along the
 * operand's contiguous direction, rounded, and transposed when the layout wants the other direction. */
#include "cpu/gemm/panels.h"

#include "base/machine.h"

#ifdef AC_HAVE_X86
#include <immintrin.h>

#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#include "cpu/elementwise/half_simd.h"

#define INLINE static inline __attribute__((always_inline))
/* Without this the compiler computes sixteen addresses first, more than there are registers for. */
#define ONE_BY_ONE(p) __asm__("" : "+r"(p))
#define EACH_ROW _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++)

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

/* Without care for nans, whose places it notes. */
INLINE __m512 nearest_bf16(__m512 x, __mmask16 *nan) {
    *nan |= _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_castsi512_ps(_mm512_and_si512(ac_rounded_bf16(x), _mm512_set1_epi32((int)0xFFFF0000u)));
}

INLINE __m512 read_rounded(const char *p, ac_dtype from, ac_dtype round, __mmask16 valid, __mmask16 *nan) {
    __m512 x = read16(p, from, valid);
    if (round == AC_float32 || round == from) return x;
    if (nan && from == AC_float32 && round == AC_bfloat16) return nearest_bf16(x, nan);
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

INLINE int64_t depth_of(ac_panel_kind kind) { return kind == AC_PANEL_F32 ? AC_CELLS : 2 * AC_CELLS; }

INLINE corner corner_of(const ac_operand *o, int64_t lane, int64_t k) {
    int64_t item = ac_itemsize(o->dtype);
    corner c = {.data = (const char *)o->data + (lane * o->lane_stride + k * o->k_stride) * item};
    c.lanes = o->lanes - lane, c.k = o->k - k;
    c.lane_bytes = o->lane_stride * item, c.k_bytes = o->k_stride * item;
    return c;
}

/* Row i is lane i: 32 halves along k. */
INLINE __m512i halves_of_lane(ac_dtype from, ac_dtype round, const corner *c, int i, const char *p, __mmask16 *nan) {
    __mmask16 low = i < c->lanes ? ac_first16(c->k) : 0, high = i < c->lanes ? ac_first16(c->k - 16) : 0;
    const char *second = c->k > 16 ? p + 16 * ac_itemsize(from) : p;
    if (from == round && high == 0xFFFF) return _mm512_loadu_si512(p);
    if (nan && from == AC_float32 && round == AC_bfloat16) {
        __m512 x = read16(p, from, low), y = read16(second, from, high);
        *nan |= _mm512_cmp_ps_mask(x, y, _CMP_UNORD_Q);
        return ac_numbers32_bf16(x, y);
    }
    __m256i x = read_half(p, from, round, low), y = read_half(second, from, round, high);
    return _mm512_inserti64x4(_mm512_castsi256_si512(x), y, 1);
}

/* Row i is cell i: the pair (2i, 2i + 1) of every lane. */
INLINE __m512i halves_of_cell(ac_dtype from, ac_dtype round, const corner *c, int i, const char *p, __mmask16 *nan) {
    __mmask16 lanes = ac_first16(c->lanes), low = 2 * i < c->k ? lanes : 0, high = 2 * i + 1 < c->k ? lanes : 0;
    const char *second = 2 * i + 1 < c->k ? p + c->k_bytes : p;
    if (nan && from == AC_float32 && round == AC_bfloat16) {
        __m512 x = read16(p, from, low), y = read16(second, from, high);
        *nan |= _mm512_cmp_ps_mask(x, y, _CMP_UNORD_Q);
        return ac_pairs_bf16(x, y);
    }
    __m256i x = read_half(p, from, round, low), y = read_half(second, from, round, high);
    return _mm512_or_si512(_mm512_cvtepu16_epi32(x), _mm512_slli_epi32(_mm512_cvtepu16_epi32(y), 16));
}

/* From a row of a tile to the next. */
INLINE int64_t row_bytes(ac_panel_kind kind, bool along_k, const corner *c) {
    return along_k ? c->lane_bytes : kind == AC_PANEL_F32 ? c->k_bytes : 2 * c->k_bytes;
}

/* Row i of a tile, which begins at p. With `nan`, float32 is rounded to bfloat16 as if there were no nans, and their
 * places are noted. */
INLINE __m512i row_of(ac_panel_kind kind, bool along_k, ac_dtype from, ac_dtype round, const corner *c, int i,
                      const char *p, __mmask16 *nan) {
    if (kind != AC_PANEL_F32 && along_k) return halves_of_lane(from, round, c, i, p, nan);
    if (kind != AC_PANEL_F32) return halves_of_cell(from, round, c, i, p, nan);
    int64_t runs = along_k ? c->lanes : c->k, length = along_k ? c->k : c->lanes;
    __mmask16 valid = i < runs ? ac_first16(length) : 0;
    return _mm512_castps_si512(read_rounded(p, from, round, valid, nan));
}

/* 16 x 16 cells: pairs, quads, then the four 128-bit quarters. */
INLINE void transpose(tile *t) {
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

INLINE void write(const tile *t, bool stream, char *to) {
    if (stream) EACH_ROW _mm512_stream_si512((void *)(to + 64 * i), t->row[i]);
    else EACH_ROW _mm512_store_si512(to + 64 * i, t->row[i]);
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
    if (bytes > AHEAD) EACH_ROW _mm_prefetch(c->data + i * bytes + AHEAD, _MM_HINT_T1);
}

/* Turns a tile if it must be, and writes it. */
INLINE bool place(tile *t, ac_panel_kind kind, bool turn, bool stream, char *to) {
    tile rest;
    bool fits = true;
    if (turn) transpose(t);
    if (kind == AC_PANEL_SPLIT) {
        fits = split(t, &rest);
        write(&rest, stream, to + AC_TILE_BYTES);
    }
    write(t, stream, to);
    return fits;
}

/* Tiles at an edge, those with nans, and unusual dtypes. Rows that do not exist are not read: a masked load of nothing
 * takes hundreds of cycles where its address is not mapped. */
static __attribute__((noinline)) bool pack_any(const ac_operand *o, const corner *c, ac_panel_kind kind, bool turn,
                                               char *to) {
    tile t;
    bool along_k = o->k_stride == 1;
    int64_t rows = along_k ? c->lanes : kind == AC_PANEL_F32 ? c->k : ac_ceil_div(c->k, 2);
    const char *p = c->data;
    for (int i = 0; i < 16; i++, p += row_bytes(kind, along_k, c))
        t.row[i] = i < rows ? row_of(kind, along_k, o->dtype, o->round, c, i, p, NULL) : _mm512_setzero_si512();
    return place(&t, kind, turn, o->stream, to);
}

/* A whole tile needs no masks, and stays in registers where all but its address is constant. */
INLINE bool pack_whole(const ac_operand *o, const corner *c, ac_panel_kind kind, bool along_k, bool turn, char *to,
                       ac_dtype from, ac_dtype round) {
    tile t;
    __mmask16 nan = 0;
    corner whole = *c;
    whole.lanes = AC_LANES, whole.k = depth_of(kind);
    const char *p = c->data;
    EACH_ROW {
        t.row[i] = row_of(kind, along_k, from, round, &whole, i, p, &nan);
        p += row_bytes(kind, along_k, c);
        ONE_BY_ONE(p);
    }
    if (__builtin_expect(nan != 0, 0)) return pack_any(o, c, kind, turn, to);
    if (o->stream) return place(&t, kind, turn, true, to);
    return place(&t, kind, turn, false, to);
}

/* The usual pairs of dtypes get code of their own. */
bool ac_pack_k_step_avx512(const ac_operand *o, ac_panel_kind kind, bool columns, int64_t lane, int64_t k, char *to) {
    corner c = corner_of(o, lane, k);
    bool along_k = o->k_stride == 1, turn = along_k == columns;
    fetch_ahead(&c, along_k ? c.lane_bytes : c.k_bytes);
    if (c.lanes < AC_LANES || c.k < depth_of(kind)) return pack_any(o, &c, kind, turn, to);
#define CASE(kind_, from, round_)                                                                                      \
    if (kind == kind_ && o->dtype == from && o->round == round_) {                                                     \
        if (along_k && turn) return pack_whole(o, &c, kind_, true, true, to, from, round_);                            \
        if (along_k) return pack_whole(o, &c, kind_, true, false, to, from, round_);                                   \
        if (turn) return pack_whole(o, &c, kind_, false, true, to, from, round_);                                      \
        return pack_whole(o, &c, kind_, false, false, to, from, round_);                                               \
    }
    CASE(AC_PANEL_BF16, AC_bfloat16, AC_bfloat16)
    CASE(AC_PANEL_BF16, AC_float32, AC_bfloat16)
    CASE(AC_PANEL_F32, AC_float32, AC_float32)
    CASE(AC_PANEL_F32, AC_bfloat16, AC_bfloat16)
    CASE(AC_PANEL_F32, AC_float32, AC_bfloat16)
    CASE(AC_PANEL_F32, AC_float16, AC_float16)
    CASE(AC_PANEL_F32, AC_float32, AC_float16)
    CASE(AC_PANEL_SPLIT, AC_float16, AC_float16)
    CASE(AC_PANEL_SPLIT, AC_float32, AC_float16)
#undef CASE
    return pack_any(o, &c, kind, turn, to);
}
#endif
