/* A stand-in for CUDA's <mma.h>: 16 x 16 tiles in 16 bits, sums in float32. Every lane keeps eight sums, half a row of
 * the result, and what these need of the operands' tiles, as it was when it was loaded; vectors must lie as the real
 * ones ask for. */
#pragma once

#include "shim.h"

#include "base/half.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

struct __half {
    uint16_t bits;
};
struct __nv_bfloat16 {
    uint16_t bits;
};

namespace nvcuda {
namespace wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };
enum { SIDE = 16, OWN = SIDE * SIDE / 32 };

/* An operand's vectors run along k: rows of a, columns of b. A lane needs the row that its sums are in, and their
 * columns. Vectors lie one after the other, or, in a column by column and b row by row, side by side. */
template <class Use> struct needed;
template <> struct needed<matrix_a> {
    enum { N = 1 };
    static inline int first() { return sim_lane() * OWN / SIDE; }
};
template <> struct needed<matrix_b> {
    enum { N = OWN };
    static inline int first() { return sim_lane() * OWN % SIDE; }
};
template <class Use, int M, int N, int K, class E, class Layout = void> struct fragment {
    static_assert(M == SIDE && N == SIDE && K == SIDE, "tiles of 16 x 16");
    float at_k[SIDE][needed<Use>::N];
};
template <class Use, class Layout> struct is_across {
    enum { yes = 0 };
};
template <> struct is_across<matrix_a, col_major> {
    enum { yes = 1 };
};
template <> struct is_across<matrix_b, row_major> {
    enum { yes = 1 };
};
template <int M, int N, int K> struct fragment<accumulator, M, N, K, float, void> {
    enum { num_elements = OWN };
    float x[OWN];
};
typedef fragment<accumulator, SIDE, SIDE, SIDE, float> sums;

static inline float widen(__half h) { return ac_f16_to_f32(h.bits); }
static inline float widen(__nv_bfloat16 h) { return ac_bf16_to_f32(h.bits); }
/* What the real one leaves undefined is nan here. */
static inline bool lies_well(const void *at, unsigned stride, size_t bytes) {
    return ((uintptr_t)at & 31) == 0 && stride * bytes % 16 == 0;
}

static inline void fill_fragment(sums &s, float v) {
    for (int i = 0; i < OWN; i++) s.x[i] = v;
}

template <class Use, class E, class Layout>
static inline void load_matrix_sync(fragment<Use, SIDE, SIDE, SIDE, E, Layout> &f, const E *at, unsigned stride) {
    bool well = lies_well(at, stride, sizeof(E)), across = is_across<Use, Layout>::yes;
    unsigned vector = across ? 1 : stride, k_step = across ? stride : 1;
    const E *first = at + (unsigned)needed<Use>::first() * vector;
    for (int i = 0; i < needed<Use>::N; i++)
        for (int k = 0; k < SIDE; k++) f.at_k[k][i] = well ? widen(first[i * vector + k * k_step]) : NAN;
}

template <class E, class Left, class Right>
static inline void mma_sync(sums &to, const fragment<matrix_a, SIDE, SIDE, SIDE, E, Left> &a,
                            const fragment<matrix_b, SIDE, SIDE, SIDE, E, Right> &b, const sums &from) {
    sums s = from;
    for (int k = 0; k < SIDE; k++)
        for (int i = 0; i < OWN; i++) s.x[i] += a.at_k[k][0] * b.at_k[k][i];
    to = s;
}

static inline void load_matrix_sync(sums &s, const float *from, unsigned stride, layout_t) {
    bool well = lies_well(from, stride, sizeof(float));
    for (int i = 0; i < OWN; i++) {
        int at = sim_lane() * OWN + i;
        s.x[i] = well ? from[at / SIDE * stride + at % SIDE] : NAN;
    }
}

static inline void store_matrix_sync(float *to, const sums &s, unsigned stride, layout_t) {
    bool well = lies_well(to, stride, sizeof(float));
    for (int i = 0; i < OWN; i++) {
        int at = sim_lane() * OWN + i;
        to[at / SIDE * stride + at % SIDE] = well ? s.x[i] : NAN;
    }
}

} // namespace wmma
} // namespace nvcuda

/* -- what fragments.cuh asks of tensor cores: the lanes of a warp leave their operands for each other ------------- */

/* Lanes 8 i to 8 i + 7 give the rows of matrix i; a row misaligned is nan. */
static inline void sim_load_matrices(uint32_t (&to)[4], const uint16_t *row, bool turned) {
    memset(sim_warp_slot(sim_lane()), 0xFF, 16);
    if (((uintptr_t)row & 15) == 0) memcpy(sim_warp_slot(sim_lane()), row, 16);
    sim_sync_warp();
    sim_gather_matrices(to, turned);
    sim_sync_warp();
}

/* A lane leaves its registers of both operands, then has two sums of row l / 4, and two of that plus 8. */
template <class E>
static inline void sim_product(float (&sums)[4], const uint32_t (&a)[4], uint32_t b, uint32_t b_below) {
    const uint32_t own[] = {a[0], a[1], a[2], a[3], b, b_below};
    memcpy(sim_warp_slot(sim_lane()), own, sizeof own);
    sim_sync_warp();
    float left[2][16], right[2][16];
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 16; k++) {
            left[i][k] = nvcuda::wmma::widen(E{sim_half_of(sim_lane() / 4, i + k / 8 * 2, k % 8)});
            right[i][k] = nvcuda::wmma::widen(E{sim_half_of(sim_lane() % 4 * 2 + i, 4 + k / 8, k % 8)});
        }
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 16; k++) sums[i] += left[i / 2][k] * right[i % 2][k];
    sim_sync_warp();
}
