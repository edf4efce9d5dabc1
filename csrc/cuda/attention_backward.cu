/* The gradients of attention on tensor cores, without the scores in memory (Dao 2023, FlashAttention-2). One kernel has
 * blocks of 64 queries and makes the query's gradient, the other blocks of 64 keys and makes those of key and value. So
 * nothing is added up between blocks, and the numbers are the same every time. The other side's rows pass by, 32 at a
 * time. Half of the warps compute scores, the others the gradients of the weights; then all threads make weights, and
 * gradients of scores, of them.
 */
#include "cuda/attention_wmma.cuh"

enum { ROWS = AC_GPU_ATTENTION_ROWS, GROUPS = ROWS / SIDE, EACH = ROWS * STEP / AC_GPU_THREADS };
static_assert((int)EACH == (int)RUN, "a thread's scores are a run of keys");
static_assert(WARPS == 2 * GROUPS, "a warp for 16 rows of each product");

/* Between two steps. Of each pair the first is made of queries and keys, the second of the gradient and values. */
template <int SIDES> struct tiles {
    uint16_t passing[2][STEP * (SIDES * SIDE + PAD)];
    alignas(32) float products[2][ROWS * SCORE_ROW];
    alignas(32) uint16_t slopes[ROWS * WEIGHT_ROW], weights[ROWS * WEIGHT_ROW];
};

template <int SIDES> struct rooms {
    enum { TILE_ROW = SIDES * SIDE + PAD };
    union {
        alignas(32) uint16_t own[2][ROWS * TILE_ROW];
        tiles<SIDES> step;
    };
};
static_assert(sizeof(rooms<8>) <= AC_GPU_ATTENTION_BACKWARD_ROOM, "what the host asks for");

/* Which rows a block has, and which pass by: keys and queries, or the other way round. */
struct job {
    int64_t item, mask, first, from, end;
};
template <bool OF_KEYS> DEV job job_of(const ac_gpu_attention &a) {
    int64_t rows = OF_KEYS ? a.keys : a.queries, blocks = (rows + ROWS - 1) / ROWS;
    job w;
    w.item = quotient(blockIdx.x, blocks), w.mask = mask_of(a, w.item);
    w.first = (blockIdx.x - w.item * blocks) * ROWS;
    w.from = OF_KEYS && a.causal ? w.first : 0, w.end = OF_KEYS ? a.queries : a.keys;
    if (!OF_KEYS && a.causal && w.first + ROWS < w.end) w.end = w.first + ROWS;
    return w;
}

/* A query's logarithm of the sum of exponentials; and the mean of its weights' gradients, by weight. */
struct row_facts {
    float log_sum, mean;
};

/* This thread's part of the tile of a step: some neighbouring keys of one query. */
template <bool OF_KEYS> struct part {
    enum { ACROSS = OF_KEYS ? STEP : STEP / EACH };
    DEV_METHOD static int row() { return (int)threadIdx.x / ACROSS * (OF_KEYS ? EACH : 1); }
    DEV_METHOD static int column() { return (int)threadIdx.x % ACROSS * (OF_KEYS ? 1 : EACH); }
    DEV_METHOD static int64_t query(const job &w, int64_t at) { return OF_KEYS ? at + column() : w.first + row(); }
    DEV_METHOD static int64_t key(const job &w, int64_t at) { return OF_KEYS ? w.first + row() : at + column(); }
    /* where key e lies in a tile whose rows are so many apart */
    DEV_METHOD static int at(int e, int stride) { return row() * stride + column() + (OF_KEYS ? e * stride : e); }
};

/* What the kernel of the queries, which runs first, has found out. */
DEV row_facts facts_of(const ac_gpu_attention_backward &a, const job &w, int64_t query) {
    int64_t at = w.item * a.forward.queries + query;
    if (query >= a.forward.queries) return {-INFINITY, 0};
    return {a.forward.log_sums[at], a.means[at]};
}

/* The mean is the product of the result's row and its gradient; the threads of a query share it. */
template <class E, int SIDES>
DEV row_facts find_facts(const ac_gpu_attention_backward &a, const job &w, const uint16_t *gradient) {
    typedef part<false> mine;
    const ac_gpu_attention &f = a.forward;
    int64_t query = mine::query(w, 0), at = w.item * f.queries + query;
    float sum = 0;
    if (query < f.queries) {
        const uint16_t *out = (const uint16_t *)f.out + at * f.width;
        for (int column = mine::column(); column < f.width; column += STEP) {
            run x = *(const run *)(out + column),
                g = *(const run *)(gradient + mine::row() * rooms<SIDES>::TILE_ROW + column);
            for (int e = 0; e < RUN; e++) sum += Rounding<E>::value(x.v[e]) * Rounding<E>::value(g.v[e]);
        }
    }
    for (int step = 1; step < mine::ACROSS; step *= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
    if (query >= f.queries) return {-INFINITY, 0};
    if (mine::column() == 0) a.means[at] = sum;
    return {f.log_sums[at], sum};
}

/* Weights and the gradients of scores, from the two products. */
template <class E, bool OF_KEYS, int SIDES>
DEV void weigh(const ac_gpu_attention_backward &a, tiles<SIDES> &t, const job &w, int64_t at, row_facts row) {
    typedef part<OF_KEYS> mine;
    const ac_gpu_attention &f = a.forward;
    int64_t query = mine::query(w, at), key = mine::key(w, at);
    uint32_t dropped = f.dropped > 0 ? dropped_of(f, w.item, query, key, EACH) : 0;
    float kept = kept_scale(f), score[EACH];
#pragma unroll
    for (int e = 0; e < EACH; e++) score[e] = t.products[0][mine::at(e, SCORE_ROW)];
    make_scores(f, score, w.mask, query, key);
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        float above = score[e] - row.log_sum; /* over 0 where large numbers are rounded: no weight is above 1 */
        float weight = row.log_sum == -INFINITY ? 0 : above > 0 ? 1 : expf(above);
        float slope = t.products[1][mine::at(e, SCORE_ROW)] * kept, stays = weight;
        if (dropped >> e & 1) slope = stays = 0;
        slope = weight * (slope - row.mean);
        t.slopes[mine::at(e, WEIGHT_ROW)] = Rounding<E>::bits(slope);
        if (OF_KEYS) t.weights[mine::at(e, WEIGHT_ROW)] = Rounding<E>::bits(stays);
        else if (a.dmask && query < f.queries && key + e < f.keys)
            a.dmask[(w.item * f.queries + query) * f.keys + key + e] = slope;
    }
}

template <class E, int SIDES, bool OF_KEYS> DEV void go_back(const ac_gpu_attention_backward &a) {
    enum { TILE_ROW = rooms<SIDES>::TILE_ROW, COLUMNS = OF_KEYS ? SIDES : SIDES / 2 };
    rooms<SIDES> &room = *(rooms<SIDES> *)ac_shared_memory;
    const ac_gpu_attention &f = a.forward;
    job w = job_of<OF_KEYS>(f);
    matrix q = matrix_of(f.q, w.item, f.queries), g = matrix_of(a.g, w.item, f.queries);
    matrix k = matrix_of(f.k, w.item, f.keys), v = matrix_of(f.v, w.item, f.keys);
    pair_of_tiles<SIDES, ROWS> mine;
    mine.fetch(OF_KEYS ? k : q, OF_KEYS ? v : g, w.first, f.width);
    mine.put(room.own[0]);
    __syncthreads();
    int warp = (int)threadIdx.x / 32, row = warp % GROUPS * SIDE;
    bool second = warp >= GROUPS;
    left<E> own[SIDES];
    sums total[COLUMNS];
    load_rows(own, room.own[second] + row * TILE_ROW, TILE_ROW);
    row_facts facts = {0, 0};
    if (!OF_KEYS) facts = find_facts<E, SIDES>(a, w, room.own[1]);
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) wmma::fill_fragment(total[i], 0.0f);
    tiles<SIDES> &t = room.step;
    /* queries: both halves of the warps add up the same rows, each its columns of the result */
    const uint16_t *weights = (OF_KEYS && second ? t.weights : t.slopes) + row * WEIGHT_ROW;
    const uint16_t *summed = t.passing[OF_KEYS && second] + (!OF_KEYS && second ? COLUMNS * SIDE : 0);
    pair_of_tiles<SIDES, STEP> next;
    if (w.from < w.end) next.fetch(OF_KEYS ? q : k, OF_KEYS ? g : v, w.from, f.width);
    for (int64_t at = w.from; at < w.end; at += STEP) {
        __syncthreads(); /* nobody reads the tiles before any more */
        next.put(t.passing[0]);
        __syncthreads();
        if (at + STEP < w.end) next.fetch(OF_KEYS ? q : k, OF_KEYS ? g : v, at + STEP, f.width);
        if (OF_KEYS) facts = facts_of(a, w, part<OF_KEYS>::query(w, at));
        multiply(own, t.passing[second], t.products[second] + row * SCORE_ROW);
        __syncthreads();
        weigh<E, OF_KEYS>(a, t, w, at, facts);
        __syncthreads();
        add_weighted<E>(total, weights, summed, TILE_ROW);
    }
    __syncthreads();
    int64_t rows = OF_KEYS ? f.keys : f.queries;
    uint16_t *out = (uint16_t *)(!OF_KEYS ? a.dq : second ? a.dv : a.dk) + w.item * rows * f.width;
    give<E>({out, rows, f.width}, total, t.products[0] + warp * SCRATCH, w.first + row,
            !OF_KEYS && second ? COLUMNS * SIDE : 0, OF_KEYS && second ? kept_scale(f) : f.scale);
}

#define OF_WIDTH(kernel, E, width, dtype)                                                                              \
    kernel(ac_attention_queries_##width##_##dtype, ac_gpu_attention_backward) { go_back<E, width / SIDE, false>(a); }  \
    kernel(ac_attention_keys_##width##_##dtype, ac_gpu_attention_backward) { go_back<E, width / SIDE, true>(a); }
#define BACKWARD(E, dtype)                                                                                             \
    OF_WIDTH(AC_KERNEL_OF_TWO, E, 32, dtype)                                                                           \
    OF_WIDTH(AC_KERNEL_OF_TWO, E, 64, dtype)                                                                           \
    OF_WIDTH(AC_KERNEL, E, 96, dtype)                                                                                  \
    OF_WIDTH(AC_KERNEL, E, 128, dtype)
BACKWARD(__half, f16)
/* Tensor cores know bfloat16 from generation 8 on; the host asks for these there alone. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
BACKWARD(__nv_bfloat16, bf16)
#endif
