/* Included by every kernel file. Has declarations of kernels, loads and stores of every dtype, iteration over strided
 * memory, and sums and maxima over a group of threads. nvcc compiles it for GPUs. A C++ compiler compiles it with
 * tests/cuda_sim/shim.h for the simulator. */
#pragma once

#include "cuda/args.h"

#include "base/half.h"
#include "base/rng.h"

#include <math.h>
#include <stdint.h>

#if defined(__CUDACC__)
#define DEV static __device__ __forceinline__
/* Out of the way: what is rarely called or slow anyway stays one piece of code. */
#define DEV_CALL static __device__ __noinline__
/* One struct by value, which stays in constant memory however it is indexed. */
#define AC_KERNEL(name, Args)                                                                                          \
    extern "C" __global__ void __launch_bounds__(AC_GPU_THREADS) name(const __grid_constant__ Args a)
/* With so many threads a block, and so few registers that this many blocks fit on a multiprocessor. */
#define AC_KERNEL_OF(threads, blocks, name, Args)                                                                      \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ Args a)
/* Two blocks on a multiprocessor: few enough registers for that. */
#define AC_KERNEL_OF_TWO(name, Args)                                                                                   \
    extern "C" __global__ void __launch_bounds__(AC_GPU_THREADS, 2) name(const __grid_constant__ Args a)
/* Four of them. */
#define AC_KERNEL_OF_FOUR(name, Args)                                                                                  \
    extern "C" __global__ void __launch_bounds__(AC_GPU_THREADS, 4) name(const __grid_constant__ Args a)
/* What the launch asked for. */
extern __align__(AC_GPU_SHARED_ALIGNMENT) __shared__ char ac_shared_memory[];
#else
#include <shim.h>
#endif
#include "cuda/intrinsics.cuh"

/* Where the random numbers of a launch begin, now. */
DEV ac_gpu_random random_now(ac_gpu_random r) {
    if (r.from) r.seed = r.from[0], r.offset += r.from[1];
    return r;
}

/* Its uniform numbers, in [0, 1) with 24 bits: neighbours come from one block of four. */
struct uniform_numbers {
    ac_gpu_random random;
    uint64_t have;
    ac_philox_block block;
    DEV_METHOD explicit uniform_numbers(const ac_gpu_random &r) : random(random_now(r)), have(UINT64_MAX) {}
    DEV_METHOD float at(int64_t i) {
        if ((uint64_t)i / 4 != have) have = (uint64_t)i / 4, block = ac_philox(random.seed, random.offset + have);
        uint32_t low = i & 1 ? block.v[1] : block.v[0], high = i & 1 ? block.v[3] : block.v[2];
        return ac_uniform24(i & 2 ? high : low);
    }
};

/* -- values ----------------------------------------------------------------------------------------- */

/* As the CPU converts: a float that no int64 holds becomes the smallest. */
template <class R> DEV R from_real(double x) { return (R)x; }
template <> DEV_METHOD int64_t from_real<int64_t>(double x) {
    return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN;
}

/* Arithmetic of the opmath type: that of int64 wraps. */
template <class R> DEV R added(R a, R b) { return a + b; }
template <class R> DEV R subtracted(R a, R b) { return a - b; }
template <class R> DEV R multiplied(R a, R b) { return a * b; }
template <> DEV_METHOD int64_t added(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
template <> DEV_METHOD int64_t subtracted(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
template <> DEV_METHOD int64_t multiplied(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

template <class R> DEV R load(const void *p, int dtype, int64_t i) {
    switch (dtype) {
    case AC_float32: return from_real<R>(((const float *)p)[i]);
    case AC_float64: return from_real<R>(((const double *)p)[i]);
    case AC_float16: return from_real<R>(half_to_float(((const uint16_t *)p)[i]));
    case AC_bfloat16: return from_real<R>(ac_bf16_to_f32(((const uint16_t *)p)[i]));
    case AC_int64: return (R)((const int64_t *)p)[i];
    case AC_int32: return (R)((const int32_t *)p)[i];
    case AC_int16: return (R)((const int16_t *)p)[i];
    case AC_int8: return (R)((const int8_t *)p)[i];
    case AC_uint8: return (R)((const uint8_t *)p)[i];
    default: return (R)(((const uint8_t *)p)[i] != 0);
    }
}

/* For int64, and for what is narrower: by way of int32, whose smallest stands for what it cannot hold. */
DEV int64_t to_int64(double x) { return from_real<int64_t>(x); }
DEV int64_t to_int64(float x) { return from_real<int64_t>(x); }
DEV int64_t to_int64(int64_t x) { return x; }
DEV int64_t to_narrow(double x) { return x >= -0x1p31 && x < 0x1p31 ? (int64_t)x : INT32_MIN; }
DEV int64_t to_narrow(float x) { return x >= -0x1p31f && x < 0x1p31f ? (int64_t)x : INT32_MIN; }
DEV int64_t to_narrow(int64_t x) { return x; }

template <class R> DEV void store(void *p, int dtype, int64_t i, R x) {
    switch (dtype) {
    case AC_float32: ((float *)p)[i] = (float)x; return;
    case AC_float64: ((double *)p)[i] = (double)x; return;
    case AC_float16: ((uint16_t *)p)[i] = float_to_half((float)x); return;
    case AC_bfloat16: ((uint16_t *)p)[i] = ac_f32_to_bf16((float)x); return;
    case AC_int64: ((int64_t *)p)[i] = to_int64(x); return;
    case AC_int32: ((int32_t *)p)[i] = (int32_t)to_narrow(x); return;
    case AC_int16: ((int16_t *)p)[i] = (int16_t)to_narrow(x); return;
    case AC_int8: ((int8_t *)p)[i] = (int8_t)to_narrow(x); return;
    case AC_uint8: ((uint8_t *)p)[i] = (uint8_t)to_narrow(x); return;
    default: ((uint8_t *)p)[i] = x != 0; return;
    }
}
template <class R> DEV R load(const ac_gpu_ref &r, int64_t i) { return load<R>(r.data, r.dtype, i); }
template <class R> DEV void store(const ac_gpu_ref &r, int64_t i, R x) { store<R>(r.data, r.dtype, i, x); }

/* V neighbours at once, in accesses of up to 16 bytes. */
template <class E, int V> struct alignas(sizeof(E) * V < 16 ? sizeof(E) * V : 16) pack {
    E v[V];
};

#define EACH_OF(V) _Pragma("unroll") for (int j = 0; j < V; j++)

/* How a floating dtype lies in memory. */
template <int DTYPE> struct stored;
template <> struct stored<AC_float32> {
    typedef float type;
    DEV_METHOD static float value(float x) { return x; }
    DEV_METHOD static float of(float x) { return x; }
};
template <> struct stored<AC_float16> {
    typedef uint16_t type;
    DEV_METHOD static float value(uint16_t x) { return half_to_float(x); }
    DEV_METHOD static uint16_t of(float x) { return float_to_half(x); }
};
template <> struct stored<AC_bfloat16> {
    typedef uint16_t type;
    DEV_METHOD static float value(uint16_t x) { return ac_bf16_to_f32(x); }
    DEV_METHOD static uint16_t of(float x) { return ac_f32_to_bf16(x); }
};

/* A thread's share of [begin, end), as float32, for all of a group of threads: body.take<U, RUN>(x, i, apart) gets U
 * packs of RUN values, of 16 bytes, which are in flight together; the first begins at i, the others so many elements
 * further each. What is no whole pack comes value by value. `begin` is on a boundary of 16 bytes. */
enum { PACKS = 4 };
template <int U, int RUN, int DTYPE, class F>
DEV void take_packs(const typename stored<DTYPE>::type *p, int64_t i, int64_t apart, F &body) {
    typedef typename stored<DTYPE>::type E;
    pack<E, RUN> t[U];
    float x[U * RUN];
#pragma unroll
    for (int u = 0; u < U; u++) t[u] = *(const pack<E, RUN> *)(p + i + u * apart);
#pragma unroll
    for (int u = 0; u < U; u++) EACH_OF(RUN) x[u * RUN + j] = stored<DTYPE>::value(t[u].v[j]);
    body.template take<U, RUN>(x, i, apart);
}
template <int DTYPE, class F>
DEV void each_pack_of(const ac_gpu_ref &r, int64_t base, int64_t begin, int64_t end, int group, F &body) {
    typedef typename stored<DTYPE>::type E;
    enum { RUN = 16 / sizeof(E) };
    const E *p = (const E *)r.data + base;
    int64_t apart = (int64_t)group * RUN, i = begin + (int64_t)(threadIdx.x % group) * RUN;
    for (; i + (PACKS - 1) * apart + RUN <= end; i += PACKS * apart) take_packs<PACKS, RUN, DTYPE>(p, i, apart, body);
    for (; i + RUN <= end; i += apart) take_packs<1, RUN, DTYPE>(p, i, apart, body);
    for (; i < end; i++) take_packs<1, 1, DTYPE>(p, i, apart, body);
}
/* Of a bulk dtype, from element `base` on. */
template <class F>
DEV void each_pack(const ac_gpu_ref &r, int64_t base, int64_t begin, int64_t end, int group, F &body) {
    if (r.dtype == AC_float32) each_pack_of<AC_float32>(r, base, begin, end, group, body);
    else if (r.dtype == AC_float16) each_pack_of<AC_float16>(r, base, begin, end, group, body);
    else each_pack_of<AC_bfloat16>(r, base, begin, end, group, body);
}

/* Runs are of the dtypes that training moves in bulk, computed in float32: float32, float16, bfloat16, and
 * truth values beside them. The host sets `vector` for no others; everything else goes by single elements, so that the
 * code stays small. */
template <int V> DEV void load_run(const void *p, int dtype, int64_t i, float *x) {
    if (dtype == AC_float32) {
        pack<float, V> t = *(const pack<float, V> *)((const float *)p + i);
        EACH_OF(V) x[j] = t.v[j];
    } else if (dtype == AC_bool) {
        pack<uint8_t, V> t = *(const pack<uint8_t, V> *)((const uint8_t *)p + i);
        EACH_OF(V) x[j] = t.v[j] != 0;
    } else {
        pack<uint16_t, V> t = *(const pack<uint16_t, V> *)((const uint16_t *)p + i);
        if (dtype == AC_float16) EACH_OF(V) x[j] = half_to_float(t.v[j]);
        else EACH_OF(V) x[j] = ac_bf16_to_f32(t.v[j]);
    }
}
template <int V> DEV void store_run(void *p, int dtype, int64_t i, const float *x) {
    if (dtype == AC_float32) {
        pack<float, V> t;
        EACH_OF(V) t.v[j] = x[j];
        *(pack<float, V> *)((float *)p + i) = t;
    } else if (dtype == AC_bool) {
        pack<uint8_t, V> t;
        EACH_OF(V) t.v[j] = x[j] != 0;
        *(pack<uint8_t, V> *)((uint8_t *)p + i) = t;
    } else {
        pack<uint16_t, V> t;
        if (dtype == AC_float16) EACH_OF(V) t.v[j] = float_to_half(x[j]);
        else EACH_OF(V) t.v[j] = ac_f32_to_bf16(x[j]);
        *(pack<uint16_t, V> *)((uint16_t *)p + i) = t;
    }
}

/* U runs of bulk dtypes, in flight together: the switch over the dtype stands around them. */
template <int U, int V> DEV void load_runs(const void *p, int dtype, const int64_t *at, float (*x)[V]) {
    if (dtype == AC_float32) {
#pragma unroll
        for (int u = 0; u < U; u++) load_run<V>(p, AC_float32, at[u], x[u]);
    } else if (dtype == AC_float16) {
#pragma unroll
        for (int u = 0; u < U; u++) load_run<V>(p, AC_float16, at[u], x[u]);
    } else {
#pragma unroll
        for (int u = 0; u < U; u++) load_run<V>(p, AC_bfloat16, at[u], x[u]);
    }
}

/* A real value of any floating dtype. */
template <class R> DEV R load_real(const ac_gpu_ref &r, int64_t i) {
    switch (r.dtype) {
    case AC_float32: return (R)((const float *)r.data)[i];
    case AC_float64: return (R)((const double *)r.data)[i];
    case AC_float16: return (R)half_to_float(((const uint16_t *)r.data)[i]);
    default: return (R)ac_bf16_to_f32(((const uint16_t *)r.data)[i]);
    }
}
template <class R> DEV void store_real(const ac_gpu_ref &r, int64_t i, R x) {
    switch (r.dtype) {
    case AC_float32: ((float *)r.data)[i] = (float)x; return;
    case AC_float64: ((double *)r.data)[i] = (double)x; return;
    case AC_float16: ((uint16_t *)r.data)[i] = float_to_half((float)x); return;
    default: ((uint16_t *)r.data)[i] = ac_f32_to_bf16((float)x);
    }
}

/* -- elements ----------------------------------------------------------------------------------------- */

/* Divisions of 32 bits where they do: those of 64 cost four times as much. */
template <class I> DEV_CALL int64_t space_offset_in(const ac_space &s, I index) {
    int64_t at = 0;
#pragma unroll 1
    for (int d = s.n - 1; d > 0; d--) {
        I size = (I)s.size[d], rest = index / size;
        at += (int64_t)(index - rest * size) * s.stride[d];
        index = rest;
    }
    return at + (int64_t)index * s.stride[0];
}
DEV int64_t space_offset(const ac_space &s, int64_t index) {
    if (s.n == 1) return index * s.stride[0];
    return s.numel <= INT32_MAX ? space_offset_in<uint32_t>(s, (uint32_t)index) : space_offset_in<int64_t>(s, index);
}

DEV int64_t quotient(int64_t a, int64_t b) { return ac_quotient(a, b); }

/* n / d of n below 2^31. */
DEV uint32_t quotient(uint32_t n, const ac_gpu_divisor &d) {
    return ((uint32_t)((uint64_t)n * d.multiplier >> 32) + n) >> d.shift;
}

DEV int64_t thread_index(void) { return (int64_t)blockIdx.x * blockDim.x + threadIdx.x; }
DEV int64_t thread_count(void) { return (int64_t)gridDim.x * blockDim.x; }
#define EACH_OF_N(i, n) for (int64_t i = thread_index(); i < (n); i += thread_count())

/* -- a group of T threads, neighbours along x: a part of a warp (1, 2, ... 32), or 2, 4 or 8 warps -- */

/* What the lane has whose number differs in the bits of `with`; of what is not one number, overloads say it. */
template <class V> DEV V of_lane(V v, int with) { return __shfl_xor_sync(0xFFFFFFFFu, v, with); }

template <class S> DEV S words_of_lane(const S &s, int with) {
    enum { WORDS = sizeof(S) / 4 };
    uint32_t words[WORDS];
    memcpy(words, &s, sizeof s);
    EACH_OF(WORDS) words[j] = of_lane(words[j], with);
    S other;
    memcpy(&other, words, sizeof other);
    return other;
}

template <class V, class Join> DEV V warp_join(V v, Join join) {
    for (int step = 16; step; step /= 2) v = join(v, of_lane(v, step));
    return v;
}
/* The same value for every thread; all threads of a warp call. `room` holds one V for each warp of the block. */
template <class V, class Join> DEV V group_join(int T, V v, V *room, Join join) {
    if (T < 32) {
        for (int step = T / 2; step; step /= 2) v = join(v, of_lane(v, step));
        return v;
    }
    v = warp_join(v, join);
    if (T == 32) return v;
    int warp = threadIdx.x / 32;
    __syncthreads(); /* nobody reads what an earlier call left any more */
    if (threadIdx.x % 32 == 0) room[warp] = v;
    __syncthreads();
    int first = warp & -(T / 32); /* of the group's warps */
    v = room[first];
    for (int w = 1; w < T / 32; w++) v = join(v, room[first + w]);
    return v;
}
template <class V, class Join> DEV V block_join(V v, Join join) {
    return group_join(AC_GPU_THREADS, v, (V *)ac_shared_memory, join);
}

/* The sum of what the lanes before this one have; and that of all lanes, in place of `all`. */
template <class V> DEV V warp_scan(V *all) {
    V before = 0;
    for (int step = 1; step < 32; step *= 2) {
        V other = of_lane(*all, step);
        if (threadIdx.x & step) before += other;
        *all += other;
    }
    return before;
}
/* The same of a block's threads. `room` holds one V for each warp. */
template <class V> DEV V block_scan(V *all, V *room) {
    int warp = threadIdx.x / 32;
    V before = warp_scan(all);
    __syncthreads(); /* nobody reads what an earlier call left any more */
    if (threadIdx.x % 32 == 0) room[warp] = *all;
    __syncthreads();
    *all = 0;
    for (int w = 0; w < AC_GPU_THREADS / 32; w++) {
        if (w == warp) before += *all;
        *all += room[w];
    }
    return before;
}

struct Add {
    template <class V> DEV_METHOD V operator()(V a, V b) const { return a + b; }
};
/* a nan, once seen, stays */
struct Larger {
    template <class V> DEV_METHOD V operator()(V a, V b) const { return b > a || b != b ? b : a; }
};
struct Smaller {
    template <class V> DEV_METHOD V operator()(V a, V b) const { return b < a || b != b ? b : a; }
};

/* Notes a bad index; the first one stands. */
DEV void note_trouble(ac_gpu_trouble *t, int op, int input, int64_t value, int64_t size) {
    if (atomicCAS(&t->flag, 0, 2) != 0) return;
    t->op = op, t->input = input, t->value = value, t->size = size;
    __threadfence_system();
    *(volatile int32_t *)&t->flag = 1;
}
