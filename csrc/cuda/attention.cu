/* Attention in one kernel on tensor cores, without the scores in memory (Dao 2023, FlashAttention-2). A block computes
 * 128 queries, a warp 16 of them. The keys pass by 32 at a time: their scores go through a warp's own shared memory,
 * where two threads take a row, and the sums of the values are scaled when a row's largest score rises. Sums are
 * float32. */
#include "cuda/attention.cuh"

enum { QUERIES = AC_GPU_ATTENTION_QUERIES, HALF_ROW = STEP / 2 };

/* A warp's scores, then in their place the weights in 16 bits, and the factors of the sums so far. */
union scrap {
    float scores[SCRATCH];
    struct {
        uint16_t weights[SIDE * WEIGHT_ROW];
        float factors[SIDE * SIDE];
    } next;
};

/* Shared memory: first the queries, then tiles of keys and values. */
template <int SIDES> struct rooms {
    enum { TILE_ROW = SIDES * SIDE + PAD };
    union {
        alignas(32) uint16_t queries[QUERIES * TILE_ROW];
        struct {
            uint16_t passing[2][STEP * TILE_ROW];
            alignas(32) scrap own[WARPS];
        } step;
    };
};
static_assert(sizeof(rooms<8>) <= AC_GPU_ATTENTION_ROOM, "what the host asks for");

/* A row's largest score and sum of exponentials so far, which both of its threads know. */
struct state {
    float top, sum;
};

/* The weights of a tile from its scores, and the factors of what was summed before. */
template <class E>
DEV void weigh(const ac_gpu_attention &a, scrap &s, state &row, int64_t item, int64_t mask, int64_t query,
               int64_t key) {
    int lane = (int)threadIdx.x % 32, r = lane / 2, first = lane % 2 * HALF_ROW;
    float score[HALF_ROW], top = row.top, sum = 0;
#pragma unroll
    for (int i = 0; i < HALF_ROW; i++) score[i] = s.scores[r * SCORE_ROW + first + i];
#pragma unroll
    for (int i = 0; i < HALF_ROW; i += RUN) make_scores(a, score + i, mask, query, key + first + i);
#pragma unroll
    for (int i = 0; i < HALF_ROW; i++) top = Larger()(top, score[i]);
    top = Larger()(top, __shfl_xor_sync(0xFFFFFFFFu, top, 1));
    float shift = top == -INFINITY ? 0 : top, factor = expf(row.top - shift);
    __syncwarp(); /* the scores have been read */
#pragma unroll
    for (int i = 0; i < HALF_ROW; i++) {
        score[i] = expf(score[i] - shift);
        sum += score[i];
        s.next.factors[r * SIDE + lane % 2 * (SIDE / 2) + i / 2] = factor;
    }
    uint32_t dropped = a.dropped > 0 ? dropped_of(a, item, query, key + first, HALF_ROW) : 0;
#pragma unroll
    for (int i = 0; i < HALF_ROW; i++)
        s.next.weights[r * WEIGHT_ROW + first + i] = dropped >> i & 1 ? 0 : Rounding<E>::bits(score[i]);
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
    row.top = top, row.sum = row.sum * factor + sum;
    __syncwarp();
}

/* The sums so far, as if the largest score had been what it is now. */
template <int SIDES> DEV void scale_sums(sums (&out)[SIDES], const scrap &s) {
    sums factors;
    wmma::load_matrix_sync(factors, s.next.factors, SIDE, wmma::mem_row_major);
#pragma unroll
    for (int i = 0; i < SIDES; i++)
        for (int e = 0; e < factors.num_elements; e++) out[i].x[e] *= factors.x[e];
}

template <class E, int SIDES> DEV void attend(const ac_gpu_attention &a) {
    enum { TILE_ROW = rooms<SIDES>::TILE_ROW };
    rooms<SIDES> &room = *(rooms<SIDES> *)ac_shared_memory;
    int64_t tiles = (a.queries + QUERIES - 1) / QUERIES, item = quotient(blockIdx.x, tiles), mask = mask_of(a, item);
    int64_t first = (blockIdx.x - item * tiles) * QUERIES, end = a.keys;
    matrix q = matrix_of(a.q, item, a.queries), k = matrix_of(a.k, item, a.keys), v = matrix_of(a.v, item, a.keys);
    pair_of_tiles<SIDES, QUERIES / 2> halves;
    halves.fetch(q, without(q, QUERIES / 2), first, a.width);
    halves.put(room.queries);
    __syncthreads();
    int warp = (int)threadIdx.x / 32;
    int64_t row = first + warp * SIDE, query = row + threadIdx.x % 32 / 2;
    left<E> own[SIDES];
    sums out[SIDES];
    load_rows(own, room.queries + warp * SIDE * TILE_ROW, TILE_ROW);
#pragma unroll
    for (int i = 0; i < SIDES; i++) wmma::fill_fragment(out[i], 0.0f);
    scrap &s = room.step.own[warp];
    state sofar = {-INFINITY, 0};
    if (a.causal && first + QUERIES < end) end = first + QUERIES;
    for (int64_t key = 0; key < end; key += STEP) {
        pair_of_tiles<SIDES, STEP> next;
        next.fetch(k, v, key, a.width);
        __syncthreads(); /* nobody reads the tiles before any more */
        next.put(room.step.passing[0]);
        __syncthreads();
        multiply(own, room.step.passing[0], s.scores);
        __syncwarp();
        weigh<E>(a, s, sofar, item, mask, query, key);
        scale_sums(out, s);
        add_weighted<E>(out, s.next.weights, room.step.passing[1], TILE_ROW);
    }
    __syncthreads();
    result to = {(uint16_t *)a.out + item * a.queries * a.width, a.queries, a.width};
    give<E>(to, out, s.scores, row, 0, sofar.sum == 0 ? 0 : kept_scale(a) / sofar.sum); /* 0: it attends to nothing */
    if (query < a.queries && threadIdx.x % 2 == 0) a.log_sums[item * a.queries + query] = sofar.top + logf(sofar.sum);
}

#define ATTENTION(E, dtype)                                                                                            \
    AC_KERNEL_OF_TWO(ac_attention_32_##dtype, ac_gpu_attention) { attend<E, 2>(a); }                                   \
    AC_KERNEL_OF_TWO(ac_attention_64_##dtype, ac_gpu_attention) { attend<E, 4>(a); }                                   \
    AC_KERNEL(ac_attention_96_##dtype, ac_gpu_attention) { attend<E, 6>(a); }                                          \
    AC_KERNEL(ac_attention_128_##dtype, ac_gpu_attention) { attend<E, 8>(a); }
ATTENTION(__half, f16)
/* Tensor cores know bfloat16 from generation 8 on; the host asks for these there alone. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
ATTENTION(__nv_bfloat16, bf16)
#endif
