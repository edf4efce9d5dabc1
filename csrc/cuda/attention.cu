/* Attention in one kernel on tensor cores, without the scores in memory (Dao 2023, FlashAttention-2). A block computes
 * 128 queries, or 64 that are wide. Tiles of keys and values pass by, the next on its way while the products of this
 * one are made. Scores stay in registers, as sums of one product and, rounded to weights, left operand of the next. The
 * sums of the values are scaled when a row's largest score rises. Sums are float32. */
#include "cuda/attention.cuh"

/* A row's largest score, and this lane's part of its sum of exponentials. */
struct state {
    float top, sum;
};

/* The largest of a row, of which four lanes have parts. */
DEV float largest_of_row(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
}

/* Weights in place of scores that lack a factor; what was summed before is scaled to go with them. A nan among the
 * scores reaches the sum. */
template <int N, int V> DEV void weigh(float (&score)[N][4], float factor, state (&rows)[2], float (&out)[V][4]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float top = -INFINITY, sum = 0;
#pragma unroll
        for (int i = 0; i < 2 * N; i++) top = fmaxf(top, score[i / 2][half * 2 + i % 2]);
        top = fmaxf(largest_of_row(top) * factor, rows[half].top);
        float shift = top == -INFINITY ? 0 : top, fade = power_of_2(rows[half].top - shift);
#pragma unroll
        for (int i = 0; i < 2 * N; i++) {
            float &x = score[i / 2][half * 2 + i % 2];
            x = power_of_2(fmaf(x, factor, -shift));
            sum += x;
        }
        rows[half] = {top, fmaf(rows[half].sum, fade, sum)};
#pragma unroll
        for (int i = 0; i < 2 * V; i++) out[i / 2][half * 2 + i % 2] *= fade;
    }
}

template <int M, int N>
DEV void drop_some(const ac_gpu_attention &a, float (&weight)[M][N][4], int64_t item, int64_t query, int64_t key) {
#pragma unroll
    for (int m = 0; m < M; m++) {
        uint32_t dropped[2];
        find_dropped<false, N>(a, dropped, item, query + m * SIDE, key);
        drop(weight[m], dropped);
    }
}

/* A block's queries, of which each warp has 16 M. */
template <class E, int WIDTH, int M> DEV void attend(const ac_gpu_attention &a) {
    typedef tile<WIDTH> rows;
    enum { STEP = WIDTH > 64 ? 32 : 64, QUERIES = WARPS * M * SIDE, TILE = STEP * rows::PITCH, N = STEP / 8 };
    static_assert((int)QUERIES == (WIDTH > 64 ? AC_GPU_ATTENTION_WIDE_QUERIES : AC_GPU_ATTENTION_QUERIES), "the grid");
    static_assert(4 * TILE * 2 <= AC_GPU_ATTENTION_ROOM && QUERIES <= 2 * STEP, "what the host asks for");
    uint16_t *room = (uint16_t *)ac_shared_memory; /* keys, values, the next keys, the next values */
    int64_t tiles = (a.queries + QUERIES - 1) / QUERIES, item = quotient(blockIdx.x, tiles), mask = mask_of(a, item);
    int64_t first = ((item + 1) * tiles - 1 - blockIdx.x) * QUERIES; /* causal: those with most keys come first */
    int64_t end = a.causal && first + QUERIES < a.keys ? first + QUERIES : a.keys;
    matrix k = matrix_of(a.k, item, a.keys), v = matrix_of(a.v, item, a.keys);
    int warp = (int)threadIdx.x / 32;
    uint16_t *own = room + warp * M * SIDE * rows::PITCH; /* before the loop in the place of the next tiles */
    rows::template copy<QUERIES>(room + 2 * TILE, matrix_of(a.q, item, a.queries), first, a.width);
    rows::template copy<STEP>(room, k, 0, a.width), rows::template copy<STEP>(room + TILE, v, 0, a.width);
    copies_done();
    __syncthreads();
    uint32_t q[M][WIDTH / SIDE][4];
    rows::load(q, own + 2 * TILE);
    float out[M][WIDTH / 8][4] = {};
    state sofar[M][2];
#pragma unroll
    for (int i = 0; i < 2 * M; i++) sofar[i / 2][i % 2] = {-INFINITY, 0};
    first += warp * M * SIDE;
    int64_t query = first + lane_of() / 4, own_end = a.causal ? first + M * SIDE : end;
    for (int64_t key = 0; key < end; key += STEP) {
        copies_done();
        __syncthreads(); /* all have these tiles, and nobody reads those before any more */
        const uint16_t *now = room + key / STEP % 2 * 2 * TILE;
        uint16_t *next = room + (key / STEP + 1) % 2 * 2 * TILE;
        if (key + STEP < end) {
            rows::template copy<STEP>(next, k, key + STEP, a.width);
            rows::template copy<STEP>(next + TILE, v, key + STEP, a.width);
        }
        if (key >= own_end) continue;
        float score[M][N][4] = {};
        int64_t column = key + lane_of() % 4 * 2;
        rows::template multiply<E>(score, q, now);
        float factor = make_scores<false>(a, score, mask, query, column);
#pragma unroll
        for (int m = 0; m < M; m++) weigh(score[m], factor, sofar[m], out[m]);
        if (a.dropped > 0) drop_some(a, score, item, query, column);
        rows::template add_weighted<E>(out, score, now + TILE);
    }
    __syncthreads();
    float by[M][2];
#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        float sum = sum_of_row(sofar[i / 2][i % 2].sum);
        int64_t row = query + i * 8;
        by[i / 2][i % 2] = sum == 0 ? 0 : kept_scale(a) / sum; /* 0: it attends to nothing */
        if (row < a.queries && lane_of() % 4 == 0)
            ((log_sum *)a.log_sums)[item * a.queries + row] = {sofar[i / 2][i % 2].top, log2f(sum)};
    }
    rows::template give<E>((uint16_t *)a.out + item * a.queries * a.width, out, by, own, first, a.queries, a.width);
}

/* Registers for so many blocks on a multiprocessor. */
#define OF_WIDTH(E, width, dtype, m, blocks)                                                                           \
    AC_KERNEL_OF(THREADS, blocks, ac_attention_##width##_##dtype, ac_gpu_attention) { attend<E, width, m>(a); }
#define ATTENTION(E, dtype)                                                                                            \
    OF_WIDTH(E, 32, dtype, 2, 2)                                                                                       \
    OF_WIDTH(E, 64, dtype, 2, 2)                                                                                       \
    OF_WIDTH(E, 96, dtype, 1, 3)                                                                                       \
    OF_WIDTH(E, 128, dtype, 1, 2)
ATTENTION(__half, f16)
/* Tensor cores know bfloat16 from generation 8 on; the host asks for these there alone. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
ATTENTION(__nv_bfloat16, bf16)
#endif
