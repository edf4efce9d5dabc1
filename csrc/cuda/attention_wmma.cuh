/* What attention's kernels share: tiles of rows in 16 bits, products of tiles, masks. A block works on rows of its own
 * while the rows of two other matrices pass by, 32 at a time. */
#pragma once

#include "cuda/tiles.cuh"

enum { RUN = 8, WARPS = AC_GPU_THREADS / 32, STEP = 32, PAD = 8 };
enum { SCORE_ROW = STEP + 4, WEIGHT_ROW = STEP + PAD, SCRATCH = SIDE * SCORE_ROW };

typedef pack<uint16_t, RUN> run;

/* -- rows ---------------------------------------------------------------------------------------------- */

/* The matrix of one item. */
struct matrix {
    const uint16_t *at;
    int64_t row, rows;
};
DEV matrix matrix_of(const ac_gpu_rows_2d &m, int64_t item, int64_t rows) {
    return {(const uint16_t *)m.data + space_offset(m.items, item), m.row, rows};
}
DEV matrix without(const matrix &m, int64_t rows) { return {m.at + rows * m.row, m.row, m.rows - rows}; }

/* Tiles of ROWS rows of two matrices on their way to shared memory: the runs that this thread carries. What lies beyond
 * the last row or column is 0. */
template <int SIDES, int ROWS> struct pair_of_tiles {
    enum { TILE_ROW = SIDES * SIDE + PAD, RUNS = SIDES * SIDE / RUN, OWN = 2 * ROWS * RUNS / AC_GPU_THREADS };
    run own[OWN];
    DEV_METHOD void fetch(const matrix &a, const matrix &b, int64_t first, int width) {
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            int n = (int)threadIdx.x + i * AC_GPU_THREADS, column = n % RUNS * RUN;
            const matrix &m = n / RUNS < ROWS ? a : b;
            int64_t row = first + n / RUNS % ROWS;
            own[i] = {};
            if (row < m.rows && column < width) own[i] = *(const run *)(m.at + row * m.row + column);
        }
    }
    DEV_METHOD void put(uint16_t *tiles) const {
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            int n = (int)threadIdx.x + i * AC_GPU_THREADS;
            *(run *)&tiles[n / RUNS * TILE_ROW + n % RUNS * RUN] = own[i];
        }
    }
};

/* -- products of tiles, by a warp ----------------------------------------------------------------------- */

template <class E, int SIDES> DEV void load_rows(left<E> (&to)[SIDES], const uint16_t *rows, int row) {
#pragma unroll
    for (int i = 0; i < SIDES; i++) wmma::load_matrix_sync(to[i], (const E *)rows + i * SIDE, row);
}

/* 16 rows times the 32 that pass by: products [16][SCORE_ROW] */
template <class E, int SIDES>
DEV void multiply(const left<E> (&rows)[SIDES], const uint16_t *passing, float *products) {
    enum { TILE_ROW = SIDES * SIDE + PAD };
#pragma unroll
    for (int j = 0; j < STEP / SIDE; j++) {
        sums s;
        wmma::fill_fragment(s, 0.0f);
#pragma unroll
        for (int i = 0; i < SIDES; i++) {
            turned<E> b;
            wmma::load_matrix_sync(b, (const E *)passing + j * SIDE * TILE_ROW + i * SIDE, TILE_ROW);
            wmma::mma_sync(s, rows[i], b, s);
        }
        wmma::store_matrix_sync(products + j * SIDE, s, SCORE_ROW, wmma::mem_row_major);
    }
}

/* total += weights [16][32] times the rows that pass by, which are `row` apart */
template <class E, int N>
DEV void add_weighted(sums (&total)[N], const uint16_t *weights, const uint16_t *passing, int row) {
    left<E> w[STEP / SIDE];
    load_rows(w, weights, WEIGHT_ROW);
#pragma unroll
    for (int i = 0; i < N; i++) {
#pragma unroll
        for (int k = 0; k < STEP / SIDE; k++) {
            right<E> b;
            wmma::load_matrix_sync(b, (const E *)passing + k * SIDE * row + i * SIDE, row);
            wmma::mma_sync(total[i], w[k], b, total[i]);
        }
    }
}

/* Rows of a result that lie one after the other. */
struct result {
    uint16_t *at;
    int64_t rows;
    int width;
};

/* A warp's 16 rows, from `column` on, leave by way of its scratch; `by` is the factor of this thread's row, which two
 * threads have. */
template <class E, int N>
DEV void give(const result &to, const sums (&total)[N], float *scratch, int64_t row, int column, float by) {
    int lane = (int)threadIdx.x % 32, r = lane / 2, half = lane % 2 * RUN;
#pragma unroll
    for (int i = 0; i < N; i++) {
        __syncwarp();
        wmma::store_matrix_sync(scratch, total[i], SCORE_ROW, wmma::mem_row_major);
        __syncwarp();
        int first = column + i * SIDE + half;
        run values;
        for (int e = 0; e < RUN; e++) values.v[e] = Rounding<E>::bits(scratch[r * SCORE_ROW + half + e] * by);
        if (row + r < to.rows && first < to.width) *(run *)(to.at + (row + r) * to.width + first) = values;
    }
}

/* -- scores --------------------------------------------------------------------------------------------- */

DEV int64_t mask_of(const ac_gpu_attention &a, int64_t item) {
    return a.mask.data ? space_offset(a.mask_items, item) : 0;
}

/* Eight values of a mask, the first n of them; the loads are in flight together. */
template <class M> DEV void load_mask(const ac_gpu_attention &a, M (&to)[RUN], int64_t at, int n) {
    const M *from = (const M *)a.mask.data + at;
#pragma unroll
    for (int i = 0; i < RUN; i++) to[i] = i < n ? from[i * a.mask_column] : (M)0;
}

/* Adds a mask to scores of eight neighbouring keys, or keeps those where it is true. */
DEV void add_mask(const ac_gpu_attention &a, float *score, int64_t at, int n) {
    if (a.mask.dtype == AC_bool) {
        uint8_t keeps[RUN];
        load_mask(a, keeps, at, n);
#pragma unroll
        for (int i = 0; i < RUN; i++) score[i] = keeps[i] ? score[i] : -INFINITY;
    } else if (a.mask.dtype == AC_float32) {
        float added[RUN];
        load_mask(a, added, at, n);
#pragma unroll
        for (int i = 0; i < RUN; i++) score[i] += added[i];
    } else if (a.mask.dtype == AC_float64) {
        double added[RUN];
        load_mask(a, added, at, n);
#pragma unroll
        for (int i = 0; i < RUN; i++) score[i] += (float)added[i];
    } else {
        uint16_t added[RUN];
        load_mask(a, added, at, n);
        bool wide = a.mask.dtype == AC_bfloat16;
#pragma unroll
        for (int i = 0; i < RUN; i++) score[i] += wide ? ac_bf16_to_f32(added[i]) : half_to_float(added[i]);
    }
}

/* Scores from the products of a query and eight neighbouring keys: scaled, masked, -inf beyond the last key. Where
 * attention is causal, a query looks at no key behind itself. */
DEV void make_scores(const ac_gpu_attention &a, float *score, int64_t mask, int64_t query, int64_t key) {
    int n = a.keys - key < RUN ? (int)(a.keys - key) : RUN;
    if (a.causal && query - key < n) n = query < key ? 0 : (int)(query - key) + 1;
#pragma unroll
    for (int i = 0; i < RUN; i++) score[i] = i < n ? score[i] * a.scale : -INFINITY;
    if (a.mask.data && query < a.queries) add_mask(a, score, mask + query * a.mask_row + key * a.mask_column, n);
}

/* Which weights of so many neighbouring keys are dropped, a bit each, as dropout of the whole matrix would. */
DEV_CALL uint32_t dropped_among(ac_gpu_random random, float p, int64_t first, int n) {
    uint32_t bits = 0;
    uniform_numbers numbers(random);
#pragma unroll 1
    for (int i = 0; i < n; i++) bits |= (uint32_t)(numbers.at(first + i) < p) << i;
    return bits;
}
DEV uint32_t dropped_of(const ac_gpu_attention &a, int64_t item, int64_t query, int64_t key, int n) {
    return dropped_among(a.random, (float)a.dropped, (item * a.queries + query) * a.keys + key, n);
}
DEV float kept_scale(const ac_gpu_attention &a) { return a.dropped < 1 ? (float)(1 / (1 - a.dropped)) : 0; }
