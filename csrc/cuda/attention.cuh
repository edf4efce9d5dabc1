/* What attention's kernels share: tiles of rows in 16 bits, products of tiles, masks. A block of four warps works on
 * rows of its own, 16 M a warp, while the rows of two other matrices pass by. Scores and weights stay in registers. */
#pragma once

#include "cuda/fragments.cuh"

enum { RUN = 8, WARPS = 4, THREADS = AC_GPU_ATTENTION_THREADS };
static_assert(THREADS == 32 * WARPS, "what the host launches");

typedef pack<uint16_t, RUN> run;

#define LOG2_E 1.44269504f
#define LN_2 0.693147181f

DEV int lane_of(void) { return (int)threadIdx.x % 32; }
DEV int within(int64_t x, int n) { return x < 0 ? 0 : x < n ? (int)x : n; }

/* Of a row, of which four lanes have parts. */
DEV float sum_of_row(float x) {
    x += __shfl_xor_sync(0xFFFFFFFFu, x, 1);
    return x + __shfl_xor_sync(0xFFFFFFFFu, x, 2);
}

/* -- rows ---------------------------------------------------------------------------------------------- */

/* The matrix of one item. */
struct matrix {
    const uint16_t *at;
    int64_t row, rows;
};
DEV matrix matrix_of(const ac_gpu_rows_2d &m, int64_t item, int64_t rows) {
    return {(const uint16_t *)m.data + space_offset(m.items, item), m.row, rows};
}

/* Rows in shared memory. They lie 16 bytes further apart than they are long, so that eight of them have runs in all
 * banks. */
template <int WIDTH> struct tile {
    enum { PITCH = WIDTH + RUN, RUNS = WIDTH / RUN };

    /* Begins to copy ROWS rows of a matrix. What lies beyond its last row or column is 0. */
    template <int ROWS> DEV_METHOD static void copy(uint16_t *to, const matrix &m, int64_t first, int width) {
        enum { LANES = RUNS > 8 ? 16 : RUNS, APART = THREADS / LANES }; /* lanes of a row, of which some may idle */
        int r = (int)threadIdx.x / LANES, column = (int)threadIdx.x % LANES * RUN, rows = within(m.rows - first, ROWS);
        const uint16_t *from = m.at + (first + r) * m.row + column;
        if (column >= WIDTH) return;
        to += r * PITCH + column;
#pragma unroll
        for (int i = 0; i < ROWS / APART; i++, from += APART * m.row)
            copy_begins(to + i * APART * PITCH, from, r + i * APART < rows && column < width);
    }

    /* Where this lane's row of four matrices begins: left operands, or right ones that are turned; and right ones as
     * they lie, of which two follow each other down. */
    DEV_METHOD static const uint16_t *across(const uint16_t *rows) {
        return rows + lane_of() % 16 * PITCH + lane_of() / 16 * RUN;
    }
    DEV_METHOD static const uint16_t *down(const uint16_t *rows) {
        return rows + (lane_of() % 8 + lane_of() / 16 * 8) * PITCH + lane_of() / 8 % 2 * RUN;
    }

    /* A warp's 16 M rows as left operands. */
    template <int M> DEV_METHOD static void load(uint32_t (&to)[M][WIDTH / SIDE][4], const uint16_t *rows) {
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int k = 0; k < WIDTH / SIDE; k++) load_matrices(to[m][k], across(rows) + m * SIDE * PITCH + k * SIDE);
    }

    /* to += own rows times these, turned: a product for each of 8 N of them */
    template <class E, int M, int N>
    DEV_METHOD static void multiply(float (&to)[M][N][4], const uint32_t (&own)[M][WIDTH / SIDE][4],
                                    const uint16_t *rows) {
#pragma unroll
        for (int k = 0; k < WIDTH / SIDE; k++)
#pragma unroll
            for (int j = 0; j < N; j += 2) {
                uint32_t b[4];
                load_matrices(b, down(rows) + j * 8 * PITCH + k * SIDE);
#pragma unroll
                for (int m = 0; m < M; m++) {
                    Product<E>::add(to[m][j], own[m][k], b[0], b[1]);
                    Product<E>::add(to[m][j + 1], own[m][k], b[2], b[3]);
                }
            }
    }

    /* to += weights, rounded, times 8 N rows */
    template <class E, int M, int N>
    DEV_METHOD static void add_weighted(float (&to)[M][WIDTH / 8][4], const float (&weights)[M][N][4],
                                        const uint16_t *rows) {
#pragma unroll
        for (int k = 0; k < N / 2; k++) {
            uint32_t w[M][4];
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    w[m][i] =
                        pair_of<E>(weights[m][2 * k + i / 2][i % 2 * 2], weights[m][2 * k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
            for (int j = 0; j < WIDTH / 8; j += 2) {
                uint32_t b[4];
                load_turned(b, across(rows) + k * SIDE * PITCH + j * 8);
#pragma unroll
                for (int m = 0; m < M; m++) {
                    Product<E>::add(to[m][j], w[m], b[0], b[1]);
                    Product<E>::add(to[m][j + 1], w[m], b[2], b[3]);
                }
            }
        }
    }

    /* A warp's rows, each times its factor, leave by way of shared memory of its own, in runs. `first` of `rows`. */
    template <class E, int M>
    DEV_METHOD static void give(void *to, const float (&total)[M][WIDTH / 8][4], const float (&by)[M][2], uint16_t *own,
                                int64_t first, int64_t rows, int width) {
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < WIDTH / 4; i++) {
                const float *x = &total[m][i / 2][i % 2 * 2];
                int row = m * SIDE + i % 2 * 8 + lane_of() / 4, column = i / 2 * 8 + lane_of() % 4 * 2;
                *(uint32_t *)(own + row * PITCH + column) = pair_of<E>(x[0] * by[m][i % 2], x[1] * by[m][i % 2]);
            }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < M * SIDE * RUNS / 32; i++) {
            int n = lane_of() + i * 32, r = n / RUNS, column = n % RUNS * RUN;
            if (first + r < rows && column < width)
                *(run *)((uint16_t *)to + (first + r) * width + column) = *(const run *)(own + r * PITCH + column);
        }
    }
};

/* -- scores --------------------------------------------------------------------------------------------- */

DEV int64_t mask_of(const ac_gpu_attention &a, int64_t item) {
    return a.mask.data ? space_offset(a.mask_items, item) : 0;
}

/* Of a row of scores the n columns from `column` on that count. Rows are queries and columns keys, or the other way
 * round. Where attention is causal, a query looks at no key behind itself. */
struct span {
    int from, to;
};
template <bool OF_KEYS> DEV span span_of(const ac_gpu_attention &a, int64_t row, int64_t column, int n) {
    if (row >= (OF_KEYS ? a.keys : a.queries)) return {0, 0};
    if (OF_KEYS) return {a.causal ? within(row - column, n) : 0, within(a.queries - column, n)};
    return {0, within((a.causal && row < a.keys ? row + 1 : a.keys) - column, n)};
}

/* A row's sum of exponentials as a logarithm to base 2, in two parts: beside a large score, such as of a mask that is
 * low everywhere, the other would be lost. Where a query attends to nothing, both are -inf. */
struct alignas(8) log_sum {
    float top, rest;
};

/* Of a row's mask, two values in each of n groups of eight columns, `step` apart in memory, those that count. What a
 * function that is called needs comes by value: the address of a kernel's arguments stays inside of it. */
struct mask_row {
    const void *mask;
    int64_t at, step;
    span counts;
    int dtype, n;
    DEV_METHOD int column(int i) const { return i / 2 * 8 + i % 2; }
    DEV_METHOD bool has(int i) const { return column(i) >= counts.from && column(i) < counts.to; }
};
/* A bit each. */
DEV_CALL uint32_t truths_of(const mask_row &row) {
    const uint8_t *from = (const uint8_t *)row.mask + row.at;
    uint32_t bits = 0;
#pragma unroll 8
    for (int i = 0; i < 2 * row.n; i++) bits |= (uint32_t)(row.has(i) && from[row.column(i) * row.step]) << i;
    return bits;
}
DEV_CALL void values_of(const mask_row &row, float *to) {
#pragma unroll 8
    for (int i = 0; i < 2 * row.n; i++)
        to[i] = row.has(i) ? load<float>(row.mask, row.dtype, row.at + row.column(i) * row.step) : 0;
}
/* A number of a mask as a logarithm to base 2. A finite one stays finite; what is added to it is rounded apart, so that
 * it does not change where large numbers end. */
DEV float to_base_2(float added) {
    const float most = 0x1.fffffep127f;
    float by = added * LOG2_E;
    if (by - by == 0 || added - added != 0) return by;
    return added < 0 ? -most : most;
}
/* Of one row two scores in each of N fragments, in their upper or lower half: as logarithms to base 2. */
template <int N> DEV void add_mask(float (&score)[N][4], int half, const mask_row &row) {
    float added[2 * N];
    uint32_t keeps = row.dtype == AC_bool ? truths_of(row) : 0;
    if (row.dtype != AC_bool) values_of(row, added);
#pragma unroll
    for (int i = 0; i < 2 * N; i++) {
        float &x = score[i / 2][half * 2 + i % 2];
        if (row.dtype != AC_bool) x += to_base_2(added[i]);
        else if (!(keeps >> i & 1)) x = -INFINITY;
    }
}

/* Whether all of a warp's scores count as they are, but for the scale. Columns of no query do no harm: they have no
 * weight. */
template <bool OF_KEYS>
DEV bool are_plain(const ac_gpu_attention &a, int64_t row, int rows, int64_t column, int columns) {
    if (a.mask.data || !(a.scale >= 0)) return false;
    if (OF_KEYS) return !a.causal || column >= row + rows - 1;
    return column + columns <= a.keys && (!a.causal || column + columns - 1 <= row);
}

/* Makes scores of products, -inf where they do not count, and returns the factor that they still lack. `row` and
 * `column` are this lane's first. */
template <bool OF_KEYS, int M, int N>
DEV float make_scores(const ac_gpu_attention &a, float (&score)[M][N][4], int64_t mask, int64_t row, int64_t column) {
    float scale = a.scale * LOG2_E;
    int64_t row_apart = OF_KEYS ? a.mask_column : a.mask_row, column_apart = OF_KEYS ? a.mask_row : a.mask_column;
    if (are_plain<OF_KEYS>(a, row - lane_of() / 4, M * SIDE, column - lane_of() % 4 * 2, N * 8)) return scale;
#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        int64_t own = row + i * 8;
        span counts = span_of<OF_KEYS>(a, own, column, N * 8);
#pragma unroll
        for (int e = 0; e < 2 * N; e++) {
            float &x = score[i / 2][e / 2][i % 2 * 2 + e % 2];
            int at = e / 2 * 8 + e % 2;
            x = at >= counts.from && at < counts.to ? x * scale : -INFINITY;
        }
        if (a.mask.data)
            add_mask<N>(
                score[i / 2], i % 2,
                {a.mask.data, mask + own * row_apart + column * column_apart, column_apart, counts, a.mask.dtype, N});
    }
    return 1;
}

/* Which weights of a row are dropped, a bit each, two in each of N groups of eight columns: as dropout of the whole
 * matrix would. `step` is how far columns are apart in that. */
DEV_CALL uint32_t dropped_of(ac_gpu_random random, float p, int64_t first, int64_t step, int n) {
    uint32_t bits = 0;
    uniform_numbers numbers(random);
#pragma unroll 1
    for (int i = 0; i < 2 * n; i++) bits |= (uint32_t)(numbers.at(first + (i / 2 * 8 + i % 2) * step) < p) << i;
    return bits;
}
/* Of this lane's two rows, the first of which is `row`, in N fragments from `column` on. */
template <bool OF_KEYS, int N>
DEV void find_dropped(const ac_gpu_attention &a, uint32_t (&dropped)[2], int64_t item, int64_t row, int64_t column) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int64_t own = row + half * 8, query = OF_KEYS ? column : own, key = OF_KEYS ? own : column;
        int64_t first = (item * a.queries + query) * a.keys + key;
        dropped[half] = dropped_of(a.random, (float)a.dropped, first, OF_KEYS ? a.keys : 1, N);
    }
}
template <int N> DEV void drop(float (&x)[N][4], const uint32_t (&dropped)[2]) {
#pragma unroll
    for (int i = 0; i < 4 * N; i++)
        if (dropped[i % 4 / 2] >> (i / 4 * 2 + i % 2) & 1) x[i / 4][i % 4] = 0;
}
DEV float kept_scale(const ac_gpu_attention &a) { return a.dropped < 1 ? (float)(1 / (1 - a.dropped)) : 0; }
