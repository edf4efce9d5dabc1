/* A stand-in for CUDA's <mma.h>: 16 x 16 tiles in 16 bits, sums in float32. Every lane keeps eight sums, half a row of
 * the result, and what these need of the operands' tiles, as it was when it was loaded; vectors must lie as the real
 * ones ask for. */
#pragma once

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

int sim_lane(void);

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
