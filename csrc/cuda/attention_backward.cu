/* The gradients of attention on tensor cores, without the scores in memory (Dao 2023, FlashAttention-2). One kernel has
 * blocks of 64 queries and makes the query's gradient, the other blocks of 64 keys and makes those of key and value. So
 * nothing is added up between blocks, and the numbers are the same every time. The other side's rows pass by, the next
 * tile on its way while this one is used. A warp has 16 rows. Its scores and the gradients of weights are sums of two
 * products, and stay in registers: rounded, weights and gradients of scores are left operands of the next.
 */
#include "cuda/attention.cuh"

enum { ROWS = AC_GPU_ATTENTION_ROWS };
static_assert(ROWS == WARPS * SIDE, "a warp for 16 rows");

/* Which rows a block has, and which pass by: keys and queries, or the other way round. */
struct job {
    int64_t item, mask, first, from, end;
};
template <bool OF_KEYS> DEV job job_of(const ac_gpu_attention &a) {
    int64_t rows = OF_KEYS ? a.keys : a.queries, blocks = (rows + ROWS - 1) / ROWS;
    job w;
    w.item = quotient(blockIdx.x, blocks), w.mask = mask_of(a, w.item);
    int64_t number = blockIdx.x - w.item * blocks;
    w.first = (OF_KEYS ? number : blocks - 1 - number) * ROWS; /* causal: those with most to do come first */
    w.from = OF_KEYS && a.causal ? w.first : 0, w.end = OF_KEYS ? a.queries : a.keys;
    if (!OF_KEYS && a.causal && w.first + ROWS < w.end) w.end = w.first + ROWS;
    return w;
}

/* A query's sum of exponentials, and the mean of its weights' gradients, by weight. Where a query attends to nothing,
 * or there is none, the sum's `top` is inf: then weights are 0. */
struct alignas(16) row_facts {
    log_sum sum;
    float mean;
};
DEV row_facts facts_of(const ac_gpu_attention &f, int64_t at, float mean) {
    log_sum sum = ((const log_sum *)f.log_sums)[at];
    if (sum.rest == -INFINITY) sum.top = INFINITY; /* of a nan it is nan */
    return {sum, mean};
}

/* What the kernel of the queries, which runs first, has found out. */
DEV row_facts found_facts(const ac_gpu_attention_backward &a, int64_t item, int64_t query) {
    int64_t at = item * a.forward.queries + query;
    if (query >= a.forward.queries) return {{INFINITY, 0}, 0};
    return facts_of(a.forward, at, a.means[at]);
}

/* The mean is the product of the result's row and its gradient; four lanes share a query. */
template <class E>
DEV row_facts find_facts(const ac_gpu_attention_backward &a, int64_t item, int64_t query, const uint16_t *gradient) {
    const ac_gpu_attention &f = a.forward;
    int64_t at = item * f.queries + query;
    float sum = 0;
    if (query < f.queries) {
        const uint16_t *out = (const uint16_t *)f.out + at * f.width;
        for (int column = lane_of() % 4 * RUN; column < f.width; column += 4 * RUN) {
            run x = *(const run *)(out + column), g = *(const run *)(gradient + column);
            for (int e = 0; e < RUN; e++) sum += Rounding<E>::value(x.v[e]) * Rounding<E>::value(g.v[e]);
        }
    }
    sum = sum_of_row(sum);
    if (query >= f.queries) return {{INFINITY, 0}, 0};
    if (lane_of() % 4 == 0) a.means[at] = sum;
    return facts_of(f, at, sum);
}

/* Weights in place of scores that lack a factor, and gradients of scores in place of those of weights, which dropout
 * multiplied by `kept`. The facts are of this lane's two rows, or of its columns. */
template <bool OF_KEYS, int N>
DEV void weigh(float (&score)[N][4], float (&slope)[N][4], float factor, float kept, const row_facts (&rows)[2],
               const row_facts *columns) {
#pragma unroll
    for (int j = 0; j < N; j++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            row_facts facts = OF_KEYS ? columns[j * 8 + e % 2] : rows[e / 2];
            float above = fmaf(score[j][e], factor, -facts.sum.top); /* over 0 where large numbers are rounded */
            bool none = facts.sum.top == INFINITY; /* also where no query is, and 0 times an infinite key is nan */
            score[j][e] = none ? 0 : power_of_2((above > 0 ? 0 : above) - facts.sum.rest); /* no weight is above 1 */
            slope[j][e] = score[j][e] * fmaf(slope[j][e], kept, -facts.mean);
        }
    }
}

/* Gradients of scores leave as those of the mask. */
template <int N>
DEV void give_slopes(const ac_gpu_attention_backward &a, const float (&slope)[N][4], int64_t item, int64_t query,
                     int64_t key) {
    const ac_gpu_attention &f = a.forward;
#pragma unroll
    for (int i = 0; i < 4 * N; i++) {
        int64_t row = query + i % 4 / 2 * 8, column = key + i / 4 * 8 + i % 2;
        if (row < f.queries && column < f.keys)
            a.dmask[(item * f.queries + row) * f.keys + column] = slope[i / 4][i % 4];
    }
}

template <class E, int WIDTH, int STEP, bool OF_KEYS> DEV void go_back(const ac_gpu_attention_backward &a) {
    typedef tile<WIDTH> rows;
    enum { TILE = STEP * rows::PITCH, OWN = ROWS * rows::PITCH, N = STEP / 8, FACTS = OF_KEYS ? 2 * STEP * 16 : 0 };
    static_assert(4 * TILE * 2 + FACTS <= AC_GPU_ATTENTION_ROOM, "what the host asks for");
    static_assert(2 * OWN * 2 <= AC_GPU_ATTENTION_ROOM, "what the host asks for");
    /* First the block's own rows. Then tiles of queries and gradients, or keys and values, twice, and facts. */
    uint16_t *room = (uint16_t *)ac_shared_memory, *mine = room + threadIdx.x / 32 * SIDE * rows::PITCH;
    row_facts *passing = (row_facts *)(room + 4 * TILE);
    const ac_gpu_attention &f = a.forward;
    job w = job_of<OF_KEYS>(f);
    matrix q = matrix_of(f.q, w.item, f.queries), g = matrix_of(a.g, w.item, f.queries);
    matrix k = matrix_of(f.k, w.item, f.keys), v = matrix_of(f.v, w.item, f.keys);
    rows::template copy<ROWS>(room, OF_KEYS ? k : q, w.first, f.width);
    rows::template copy<ROWS>(room + OWN, OF_KEYS ? v : g, w.first, f.width);
    copies_done();
    __syncthreads();
    uint32_t own[2][1][WIDTH / SIDE][4];
    rows::load(own[0], mine), rows::load(own[1], mine + OWN);
    int64_t first = w.first + threadIdx.x / 32 * SIDE, row = first + lane_of() / 4;
    row_facts facts[2] = {}, next = {};
    for (int half = 0; half < 2 && !OF_KEYS; half++)
        facts[half] = find_facts<E>(a, w.item, row + half * 8, mine + OWN + (lane_of() / 4 + half * 8) * rows::PITCH);
    __syncthreads(); /* nobody reads the rows any more */
    float total[1 + OF_KEYS][1][WIDTH / 8][4] = {}, kept = kept_scale(f);
    int stage = 0;
    for (int64_t at = w.from - STEP; at < w.end; at += STEP, stage ^= 1) {
        /* at first nothing but the copy of the first tiles */
        if (OF_KEYS && at >= w.from && threadIdx.x < STEP) passing[stage * STEP + threadIdx.x] = next;
        copies_done();
        __syncthreads(); /* all have these tiles, and nobody reads those before any more */
        uint16_t *now = room + stage * 2 * TILE, *later = room + (stage ^ 1) * 2 * TILE;
        if (at + STEP < w.end) {
            rows::template copy<STEP>(later, OF_KEYS ? q : k, at + STEP, f.width);
            rows::template copy<STEP>(later + TILE, OF_KEYS ? g : v, at + STEP, f.width);
            if (OF_KEYS && threadIdx.x < STEP) next = found_facts(a, w.item, at + STEP + threadIdx.x);
        }
        if (at < w.from || (f.causal && (OF_KEYS ? at + STEP <= first : at >= first + SIDE))) continue;
        float score[1][N][4] = {}, slope[1][N][4] = {};
        uint32_t dropped[2];
        int64_t column = at + lane_of() % 4 * 2;
        rows::template multiply<E>(score, own[0], now);
        rows::template multiply<E>(slope, own[1], now + TILE);
        float factor = make_scores<OF_KEYS>(f, score, w.mask, row, column);
        if (f.dropped > 0) find_dropped<OF_KEYS, N>(f, dropped, w.item, row, column), drop(slope[0], dropped);
        weigh<OF_KEYS>(score[0], slope[0], factor, kept, facts, passing + stage * STEP + lane_of() % 4 * 2);
        if (!OF_KEYS && a.dmask) give_slopes(a, slope[0], w.item, row, column);
        if (OF_KEYS && f.dropped > 0) drop(score[0], dropped);
        rows::template add_weighted<E>(total[0], slope, now);
        if (OF_KEYS) rows::template add_weighted<E>(total[OF_KEYS], score, now + TILE);
    }
    __syncthreads();
    int64_t n = OF_KEYS ? f.keys : f.queries, from = w.item * n * f.width;
    rows::template give<E>((uint16_t *)(OF_KEYS ? a.dk : a.dq) + from, total[0], {{f.scale, f.scale}}, mine, first, n,
                           f.width);
    if (OF_KEYS)
        rows::template give<E>((uint16_t *)a.dv + from, total[OF_KEYS], {{kept, kept}}, mine + OWN, first, n, f.width);
}

/* Registers for so many blocks on a multiprocessor; and how many rows pass by at a time. */
#define QUERIES_OF(E, width, dtype, blocks, step)                                                                      \
    AC_KERNEL_OF(THREADS, blocks, ac_attention_queries_##width##_##dtype, ac_gpu_attention_backward) {                 \
        go_back<E, width, step, false>(a);                                                                             \
    }
#define KEYS_OF(E, width, dtype, blocks, step)                                                                         \
    AC_KERNEL_OF(THREADS, blocks, ac_attention_keys_##width##_##dtype, ac_gpu_attention_backward) {                    \
        go_back<E, width, step, true>(a);                                                                              \
    }
#define BACKWARD(E, dtype)                                                                                             \
    QUERIES_OF(E, 32, dtype, 3, 32)                                                                                    \
    QUERIES_OF(E, 64, dtype, 3, 32)                                                                                    \
    QUERIES_OF(E, 96, dtype, 2, 32)                                                                                    \
    QUERIES_OF(E, 128, dtype, 2, 32)                                                                                   \
    KEYS_OF(E, 32, dtype, 3, 32)                                                                                       \
    KEYS_OF(E, 64, dtype, 2, 32)                                                                                       \
    KEYS_OF(E, 96, dtype, 2, 32)                                                                                       \
    KEYS_OF(E, 128, dtype, 2, 16)
BACKWARD(__half, f16)
/* Tensor cores know bfloat16 from generation 8 on; the host asks for these there alone. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
BACKWARD(__nv_bfloat16, bf16)
#endif
