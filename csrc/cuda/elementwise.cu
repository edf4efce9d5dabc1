/* Elementwise operators, copies, casts and dropout. A thread computes runs of neighbouring values in 16-byte accesses
 * where the operands allow it, and single elements elsewhere. */
#include "cuda/scalar.cuh"

#include "shared/scalar_int.inc"

/* -- walking ---------------------------------------------------------------------------------------- */

template <class R> DEV R number_of(const ac_gpu_ref &r) { return (R)r.f; }
template <> DEV_METHOD int64_t number_of<int64_t>(const ac_gpu_ref &r) { return r.i; }

/* Whole operands wrap into a small integer dtype; int64 and other opmath types keep them. */
DEV_CALL int64_t wrapped(int dtype, int64_t x) {
    switch (dtype) {
    case AC_int32: return (int32_t)x;
    case AC_int16: return (int16_t)x;
    case AC_int8: return (int8_t)x;
    default: return (uint8_t)x;
    }
}
template <class R> DEV R wrapped_into(int, R x) { return x; }
template <> DEV_METHOD int64_t wrapped_into<int64_t>(int dtype, int64_t x) {
    return dtype == AC_int64 ? x : wrapped(dtype, x);
}

/* Element offsets of index i in each of K operands. */
template <int K, class I> DEV void locate_in(const ac_gpu_point &a, I i, int64_t *at) {
    for (int k = 0; k < K; k++) at[k] = 0;
#pragma unroll 1
    for (int d = a.ndim - 1; d >= 0; d--) {
        I size = (I)a.shape[d], rest = d ? i / size : 0, here = d ? i - rest * size : i;
        for (int k = 0; k < K; k++) at[k] += (int64_t)here * a.strides[k][d];
        i = rest;
    }
}
template <int K> DEV void locate(const ac_gpu_point &a, int64_t i, int64_t *at) {
    if (a.ndim == 1)
        for (int k = 0; k < K; k++) at[k] = i * a.strides[k][0];
    else if (a.numel <= INT32_MAX) locate_in<K, uint32_t>(a, (uint32_t)i, at);
    else locate_in<K, int64_t>(a, i, at);
}

/* `stride` apart: 1 neighbours, 0 one value for all, also a number */
template <int V> DEV void read_run(const ac_gpu_ref &r, int64_t at, int64_t stride, float *x) {
    if (r.data && stride == 1) {
        load_run<V>(r.data, r.dtype, at, x);
        return;
    }
    float one = !r.data              ? number_of<float>(r)
                : r.dtype == AC_bool ? (float)(((const uint8_t *)r.data)[at] != 0)
                                     : load_real<float>(r, at);
    EACH_OF(V) x[j] = one;
}

/* f(index, x[N]) for every element from `first` on; the result is operand 0. */
template <class R, int N, class F> DEV void each_element(const ac_gpu_point &a, int64_t first, F f) {
    for (int64_t i = first + thread_index(); i < a.numel; i += thread_count()) {
        int64_t at[N + 1];
        R x[N];
        locate<N + 1>(a, i, at);
        for (int k = 0; k < N; k++) {
            const ac_gpu_ref &from = a.operand[k + 1];
            x[k] = wrapped_into<R>(a.wraps, from.data ? load<R>(from, at[k + 1]) : number_of<R>(from));
        }
        store<R>(a.operand[0], at[0], f(i, x));
    }
}

/* y = f(index, x[N]) of V neighbours; more at once where f can. */
template <int V, int N, class F> DEV void compute_run(F &f, int64_t i, float (*x)[V], float (&y)[V]) {
    EACH_OF(V) {
        float one[N];
        for (int k = 0; k < N; k++) one[k] = x[k][j];
        y[j] = f(i + j, one);
    }
}

/* Runs of V; returns where they end: the rest of one long line is for each_element. */
template <int V, int N, class F> DEV int64_t each_run(const ac_gpu_point &a, F &f) {
    int last = a.ndim - 1;
    int64_t runs = a.numel / V;
    for (int64_t c = thread_index(); c < runs; c += thread_count()) {
        int64_t at[N + 1];
        float x[N][V], y[V];
        locate<N + 1>(a, c * V, at);
        for (int k = 0; k < N; k++) read_run<V>(a.operand[k + 1], at[k + 1], a.strides[k + 1][last], x[k]);
        compute_run<V, N>(f, c * V, x, y);
        store_run<V>(a.operand[0].data, a.operand[0].dtype, at[0], y);
    }
    return runs * V;
}

/* What computes in float32 goes by runs of V where it can; V = 0: never. */
template <class R, int V, int N, class F> struct Walk {
    DEV_METHOD static void go(const ac_gpu_point &a, F f) { each_element<R, N>(a, 0, f); }
};
template <int V, int N, class F> struct Walk<float, V, N, F> {
    DEV_METHOD static void go(const ac_gpu_point &a, F f) {
        each_element<float, N>(a, a.vector ? each_run<V, N>(a, f) : 0, f);
    }
};
template <class R, int V, int N, class F> DEV void walk(const ac_gpu_point &a, F f) { Walk<R, V, N, F>::go(a, f); }

/* -- the operators of the table -------------------------------------------------------------------------- */

#define POINT_KERNEL1(name, V, R, opmath)                                                                              \
    AC_KERNEL(ac_point_##name##_##opmath, ac_gpu_point) {                                                              \
        walk<R, V, 1>(a, [&](int64_t, const R *x) { return (R)name##_##opmath(x[0], a.attrs); });                      \
    }
#define POINT_KERNEL2(name, V, R, opmath)                                                                              \
    AC_KERNEL(ac_point_##name##_##opmath, ac_gpu_point) {                                                              \
        walk<R, V, 2>(a, [&](int64_t, const R *x) { return (R)name##_##opmath(x[0], x[1], a.attrs); });                \
    }
#define POINT_KERNEL3(name, V, R, opmath)                                                                              \
    AC_KERNEL(ac_point_##name##_##opmath, ac_gpu_point) {                                                              \
        walk<R, V, 3>(a, [&](int64_t, const R *x) { return (R)name##_##opmath(x[0], x[1], x[2], a.attrs); });          \
    }
/* Eight neighbours are 16 bytes of a half type. */
#define REAL(OPMATH, name, V) OPMATH(name, V, float, f32) OPMATH(name, V, double, f64)
#define OPMATHS_KEEP(OPMATH, name) REAL(OPMATH, name, 8) OPMATH(name, 8, int64_t, i64)
#define OPMATHS_BOOL(OPMATH, name) OPMATHS_KEEP(OPMATH, name)
#define OPMATHS_FLOAT(OPMATH, name) REAL(OPMATH, name, 8)
#define OPMATHS_INT(OPMATH, name) OPMATH(name, 8, int64_t, i64)

#define POINT1(name, py, home, result, ...) OPMATHS_##result(POINT_KERNEL1, name)
#define POINT2(name, py, home, result, ...) OPMATHS_##result(POINT_KERNEL2, name)
#define POINT3(name, py, home, result, ...) OPMATHS_##result(POINT_KERNEL3, name)
#include "ops/ops.def"

#define COPY(R, opmath)                                                                                                \
    AC_KERNEL(ac_copy_##opmath, ac_gpu_point) {                                                                        \
        walk<R, 8, 1>(a, [&](int64_t, const R *x) { return x[0]; });                                                   \
    }
COPY(float, f32)
COPY(double, f64)
COPY(int64_t, i64)

/* -- copies that turn ------------------------------------------------------------------------------- */

enum { TURN = AC_GPU_TURN, LANES = 32, WARPS = AC_GPU_THREADS / LANES };

/* The corner of a job's tile, and how much of it there is. */
template <class E> struct Tile {
    const E *from;
    E *to;
    int64_t across, down;
    DEV_METHOD Tile(const ac_gpu_turn &a, int64_t job) {
        int64_t item = quotient(job, a.tiles), tile = job - item * a.tiles, below = quotient(tile, a.tiles_across);
        int64_t right = (tile - below * a.tiles_across) * TURN;
        below *= TURN, across = a.across - right, down = a.down - below;
        from = (const E *)a.from + space_offset(a.from_items, item) + right * a.from_step + below;
        to = (E *)a.to + space_offset(a.to_items, item) + below * a.to_step + right;
    }
};

/* A thread reads a part of its tile at once; through shared memory, both sides move whole lines. */
template <class E> DEV void turn(const ac_gpu_turn &a) {
    enum { ROWS = AC_GPU_THREADS / TURN, EACH = TURN / ROWS, PITCH = TURN + (sizeof(E) < 4 ? 4 / sizeof(E) : 1) };
    E *tile = (E *)ac_shared_memory; /* [TURN][PITCH]: a word more, so that neighbours below lie in other banks */
    int own = threadIdx.x % TURN, row = threadIdx.x / TURN;
    for (int64_t job = blockIdx.x; job < a.jobs; job += gridDim.x) {
        Tile<E> t(a, job);
        E x[EACH];
        EACH_OF(EACH)
        x[j] = own < t.down && row + j * ROWS < t.across ? t.from[(row + j * ROWS) * a.from_step + own] : E();
        __syncthreads(); /* the tile before is written */
        EACH_OF(EACH) tile[(row + j * ROWS) * PITCH + own] = x[j];
        __syncthreads();
        EACH_OF(EACH) x[j] = tile[own * PITCH + row + j * ROWS];
        EACH_OF(EACH) if (own < t.across && row + j * ROWS < t.down) t.to[(row + j * ROWS) * a.to_step + own] = x[j];
    }
}

/* By squares of 2 x 2 values of 16 bits. Words of a line of the tile are two neighbours of the result; the two lines
 * that a thread has are written in an order in which no two threads of a warp meet in a bank. */
DEV void turn_pairs(const ac_gpu_turn &a) {
    enum { EACH = TURN / 2 / WARPS, PITCH = LANES + 1 };
    uint32_t *tile = (uint32_t *)ac_shared_memory; /* [TURN][PITCH] */
    int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, later = lane / (LANES / 2);
    for (int64_t job = blockIdx.x; job < a.jobs; job += gridDim.x) {
        Tile<uint16_t> t(a, job);
        uint32_t x[EACH], y[EACH];
        EACH_OF(EACH) {
            int row = 2 * (warp + j * WARPS);
            bool there = 2 * lane < t.down && row < t.across;
            const uint16_t *from = t.from + row * a.from_step + 2 * lane;
            x[j] = there ? *(const uint32_t *)from : 0, y[j] = there ? *(const uint32_t *)(from + a.from_step) : 0;
        }
        __syncthreads(); /* the tile before is written */
        EACH_OF(EACH) {
            uint32_t low = (x[j] & 0xFFFF) | y[j] << 16, high = x[j] >> 16 | (y[j] & 0xFFFF0000u);
            uint32_t *at = tile + warp + j * WARPS + 2 * lane * PITCH;
            at[later * PITCH] = later ? high : low, at[(1 - later) * PITCH] = later ? low : high;
        }
        __syncthreads();
        EACH_OF(2 * EACH) {
            int row = warp + j * WARPS;
            if (2 * lane >= t.across || row >= t.down) continue;
            *(uint32_t *)(t.to + row * a.to_step + 2 * lane) = tile[row * PITCH + lane];
        }
    }
}

AC_KERNEL(ac_turn_8, ac_gpu_turn) { turn<uint8_t>(a); }
AC_KERNEL(ac_turn_16, ac_gpu_turn) {
    if (a.pairs) turn_pairs(a);
    else turn<uint16_t>(a);
}
AC_KERNEL(ac_turn_32, ac_gpu_turn) { turn<uint32_t>(a); }
AC_KERNEL(ac_turn_64, ac_gpu_turn) { turn<uint64_t>(a); }

/* -- dropout ---------------------------------------------------------------------------------------- */

/* Element i is dropped when its number, of the same stream as on the CPU, is below p: 24 bits of it below `limit`. It
 * is multiplied by 0, so that inf and nan give nan. */
template <class R> struct Dropout {
    ac_gpu_random random;
    R scale;
    uint32_t limit;

    DEV_METHOD explicit Dropout(const ac_gpu_point &a)
        : random(random_now(a.random)), scale(a.p < 1 ? (R)(1 / (1 - a.p)) : 0),
          limit((uint32_t)ceilf((float)a.p * 0x1p24f)) {}
    DEV_METHOD R kept(uint32_t number, R x) const { return x * (number >> 8 < limit ? (R)0 : scale); }
    DEV_METHOD R operator()(int64_t i, const R *x) const {
        ac_philox_block block = ac_philox(random.seed, random.offset + (uint64_t)i / 4);
        uint32_t low = i & 1 ? block.v[1] : block.v[0], high = i & 1 ? block.v[3] : block.v[2];
        return kept(i & 2 ? high : low, x[0]);
    }
};
/* Runs take whole blocks of four numbers. */
template <int V, int N> DEV void compute_run(Dropout<float> &f, int64_t i, float (*x)[V], float (&y)[V]) {
#pragma unroll
    for (int b = 0; b < V / 4; b++) {
        ac_philox_block block = ac_philox(f.random.seed, f.random.offset + (uint64_t)i / 4 + b);
        EACH_OF(4) y[b * 4 + j] = f.kept(block.v[j], x[0][b * 4 + j]);
    }
}
AC_KERNEL(ac_dropout_f32, ac_gpu_point) { walk<float, 8, 1>(a, Dropout<float>(a)); }
AC_KERNEL(ac_dropout_f64, ac_gpu_point) { walk<double, 8, 1>(a, Dropout<double>(a)); }
