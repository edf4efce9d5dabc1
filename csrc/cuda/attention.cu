/* Attention in one kernel on tensor cores, without the scores in memory (Dao 2023, FlashAttention-2). A block computes
 * 128 queries, a warp 16 of them. The keys pass by 32 at a time: their scores go through a warp's own shared memory,
 * where two threads take a row, and the sums of the values are scaled when a row's largest score rises. Sums are
 * float32.
 */
#include "cuda/tiles.cuh"

enum { RUN = 8, WARPS = AC_GPU_THREADS / 32, QUERIES = AC_GPU_ATTENTION_QUERIES, KEYS = 32, PAD = 8 };
enum { SCORE_ROW = KEYS + 4, WEIGHT_ROW = KEYS + PAD, HALF_ROW = KEYS / 2 };

typedef pack<uint16_t, RUN> run;

/* A warp's scores, then in their place the weights in 16 bits, and the factors of the sums so far. */
union scrap {
    float scores[SIDE * SCORE_ROW];
    struct {
        uint16_t weights[SIDE * WEIGHT_ROW];
        float factors[SIDE * SIDE];
    } next;
};

/* Shared memory: first the queries, then tiles of keys, and of values with the keys side by side. */
template <int SIDES> struct rooms {
    enum { TILE_ROW = SIDES * SIDE + PAD };
    union {
        alignas(32) uint16_t queries[QUERIES * TILE_ROW];
        struct {
            uint16_t keys[KEYS * TILE_ROW], values[SIDES * SIDE * WEIGHT_ROW];
            alignas(32) scrap own[WARPS];
        } step;
    };
};
static_assert(sizeof(rooms<8>) <= AC_GPU_ATTENTION_ROOM, "what the host asks for");

/* Eight neighbours of a row of 16-bit values, 0 beyond the last row or column. */
DEV run row_run(const ac_gpu_rows_2d &m, const uint16_t *at, int64_t row, int64_t rows, int column, int width) {
    run r = {};
    if (row < rows && column < width) r = *(const run *)(at + row * m.row + column);
    return r;
}

/* What the mask makes of a score; a query looks at no key behind itself where attention is causal. */
DEV float masked(const ac_gpu_attention &a, float score, int64_t mask, int64_t query, int64_t key) {
    if (key >= a.keys || (a.causal && key > query)) return -INFINITY;
    score *= a.scale;
    if (!a.mask.data || query >= a.queries) return score;
    int64_t at = mask + query * a.mask_row + key * a.mask_column;
    if (a.mask.dtype == AC_bool) return ((const uint8_t *)a.mask.data)[at] ? score : -INFINITY;
    return score + load_real<float>(a.mask, at);
}

/* A row's largest score and sum of exponentials so far, which both of its threads know. */
struct state {
    float top, sum;
};

/* The weights of a tile from its scores, and the factors of what was summed before. */
template <class E>
DEV void weigh(const ac_gpu_attention &a, scrap &s, state &row, int64_t mask, int64_t query, int64_t key) {
    int lane = (int)threadIdx.x % 32, r = lane / 2, first = lane % 2 * HALF_ROW;
    float score[HALF_ROW], top = row.top, sum = 0;
#pragma unroll
    for (int i = 0; i < HALF_ROW; i++) {
        score[i] = masked(a, s.scores[r * SCORE_ROW + first + i], mask, query, key + first + i);
        top = Larger()(top, score[i]);
    }
    top = Larger()(top, __shfl_xor_sync(0xFFFFFFFFu, top, 1));
    float shift = top == -INFINITY ? 0 : top, factor = expf(row.top - shift);
    __syncwarp(); /* the scores have been read */
#pragma unroll
    for (int i = 0; i < HALF_ROW; i++) {
        float w = expf(score[i] - shift);
        s.next.weights[r * WEIGHT_ROW + first + i] = Rounding<E>::bits(w);
        s.next.factors[r * SIDE + lane % 2 * (SIDE / 2) + i / 2] = factor;
        sum += w;
    }
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
    row.top = top, row.sum = row.sum * factor + sum;
    __syncwarp();
}

/* The tiles of 32 keys and values from `key` on. Neighbouring threads take neighbouring keys of the values. */
template <int SIDES>
DEV void fetch(const ac_gpu_attention &a, rooms<SIDES> &room, const uint16_t *k, const uint16_t *v, int64_t key) {
    enum { RUNS = SIDES * SIDE / RUN };
    for (int n = (int)threadIdx.x; n < KEYS * RUNS; n += AC_GPU_THREADS) {
        int row = n / RUNS, column = n % RUNS * RUN;
        *(run *)&room.step.keys[row * rooms<SIDES>::TILE_ROW + column] =
            row_run(a.k, k, key + row, a.keys, column, a.width);
        row = n % KEYS, column = n / KEYS * RUN;
        run r = row_run(a.v, v, key + row, a.keys, column, a.width);
        for (int e = 0; e < RUN; e++) room.step.values[(column + e) * WEIGHT_ROW + row] = r.v[e];
    }
}

/* scores = q k^T of this warp's queries and a tile of keys */
template <class E, int SIDES> DEV void score(const left<E> (&q)[SIDES], const rooms<SIDES> &room, float *scores) {
#pragma unroll
    for (int j = 0; j < KEYS / SIDE; j++) {
        sums s;
        wmma::fill_fragment(s, 0.0f);
#pragma unroll
        for (int i = 0; i < SIDES; i++) {
            right<E> k;
            wmma::load_matrix_sync(k, (const E *)room.step.keys + j * SIDE * rooms<SIDES>::TILE_ROW + i * SIDE,
                                   rooms<SIDES>::TILE_ROW);
            wmma::mma_sync(s, q[i], k, s);
        }
        wmma::store_matrix_sync(scores + j * SIDE, s, SCORE_ROW, wmma::mem_row_major);
    }
    __syncwarp();
}

/* out = factors * out + weights v */
template <class E, int SIDES> DEV void add_values(sums (&out)[SIDES], const rooms<SIDES> &room, const scrap &s) {
    sums factors;
    left<E> w[KEYS / SIDE];
    wmma::load_matrix_sync(factors, s.next.factors, SIDE, wmma::mem_row_major);
#pragma unroll
    for (int k = 0; k < KEYS / SIDE; k++)
        wmma::load_matrix_sync(w[k], (const E *)s.next.weights + k * SIDE, WEIGHT_ROW);
#pragma unroll
    for (int i = 0; i < SIDES; i++) {
        for (int e = 0; e < factors.num_elements; e++) out[i].x[e] *= factors.x[e];
#pragma unroll
        for (int k = 0; k < KEYS / SIDE; k++) {
            right<E> v;
            wmma::load_matrix_sync(v, (const E *)room.step.values + i * SIDE * WEIGHT_ROW + k * SIDE, WEIGHT_ROW);
            wmma::mma_sync(out[i], w[k], v, out[i]);
        }
    }
}

/* This warp's rows leave by way of its scrap; one that attends to nothing is 0. */
template <int SIDES>
DEV void give(const ac_gpu_attention &a, const sums (&out)[SIDES], scrap &s, state row, int64_t item, int64_t query) {
    int lane = (int)threadIdx.x % 32, r = lane / 2, first = lane % 2 * (SIDE / 2);
    float by = row.sum == 0 ? 0 : 1 / row.sum;
#pragma unroll
    for (int i = 0; i < SIDES; i++) {
        __syncwarp();
        wmma::store_matrix_sync(s.scores, out[i], SCORE_ROW, wmma::mem_row_major);
        __syncwarp();
        for (int e = first; e < first + SIDE / 2; e++)
            if (query < a.queries && i * SIDE + e < a.width)
                store_real<float>(a.out, (item * a.queries + query) * a.width + i * SIDE + e,
                                  s.scores[r * SCORE_ROW + e] * by);
    }
}

template <class E, int SIDES> DEV void attend(const ac_gpu_attention &a) {
    rooms<SIDES> &room = *(rooms<SIDES> *)ac_shared_memory;
    int64_t tiles = (a.queries + QUERIES - 1) / QUERIES, item = quotient(blockIdx.x, tiles);
    int64_t first = (blockIdx.x - item * tiles) * QUERIES, mask = a.mask.data ? space_offset(a.mask_items, item) : 0;
    const uint16_t *q = (const uint16_t *)a.q.data + space_offset(a.q.items, item),
                   *k = (const uint16_t *)a.k.data + space_offset(a.k.items, item),
                   *v = (const uint16_t *)a.v.data + space_offset(a.v.items, item);
    int warp = (int)threadIdx.x / 32;
    int64_t query = first + warp * SIDE + threadIdx.x % 32 / 2, end = a.keys;
    for (int n = (int)threadIdx.x; n < QUERIES * SIDES * SIDE / RUN; n += AC_GPU_THREADS) {
        int row = n / (SIDES * SIDE / RUN), column = n % (SIDES * SIDE / RUN) * RUN;
        *(run *)&room.queries[row * rooms<SIDES>::TILE_ROW + column] =
            row_run(a.q, q, first + row, a.queries, column, a.width);
    }
    __syncthreads();
    left<E> own[SIDES];
    sums out[SIDES];
#pragma unroll
    for (int i = 0; i < SIDES; i++) {
        wmma::load_matrix_sync(own[i], (const E *)room.queries + warp * SIDE * rooms<SIDES>::TILE_ROW + i * SIDE,
                               rooms<SIDES>::TILE_ROW);
        wmma::fill_fragment(out[i], 0.0f);
    }
    scrap &s = room.step.own[warp];
    state row = {-INFINITY, 0};
    if (a.causal && first + QUERIES < end) end = first + QUERIES;
    for (int64_t key = 0; key < end; key += KEYS) {
        __syncthreads(); /* nobody reads the tiles before any more */
        fetch(a, room, k, v, key);
        __syncthreads();
        score<E>(own, room, s.scores);
        weigh<E>(a, s, row, mask, query, key);
        add_values<E>(out, room, s);
    }
    __syncthreads();
    give(a, out, s, row, item, query);
}

#define ATTENTION(E, dtype)                                                                                            \
    AC_KERNEL(ac_attention_32_##dtype, ac_gpu_attention) { attend<E, 2>(a); }                                          \
    AC_KERNEL(ac_attention_64_##dtype, ac_gpu_attention) { attend<E, 4>(a); }                                          \
    AC_KERNEL(ac_attention_96_##dtype, ac_gpu_attention) { attend<E, 6>(a); }                                          \
    AC_KERNEL(ac_attention_128_##dtype, ac_gpu_attention) { attend<E, 8>(a); }
ATTENTION(__half, f16)
/* Tensor cores know bfloat16 from generation 8 on; the host asks for these there alone. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
ATTENTION(__nv_bfloat16, bf16)
#endif
