/* Cumulative operators along rows. A warp or a block goes along a row, tile by tile: a thread joins a run of
 * neighbours, gets from the others what comes before it, and writes its values. One thread takes a row where rows are
 * short, or lie side by side. */
#include "cuda/device.cuh"

/* A total is a thing that joins with what comes after it: `start` joined with x is x. */
template <class V> struct Sum {
    V v;
    static DEV_METHOD Sum start(void) { return {0}; }
    static DEV_METHOD Sum at(const ac_gpu_running &, V x, V, int64_t) { return {x}; }
    DEV_METHOD Sum then(const Sum &next) const { return {added(v, next.v)}; }
};
template <class V> struct Product {
    V v;
    static DEV_METHOD Product start(void) { return {1}; }
    static DEV_METHOD Product at(const ac_gpu_running &, V x, V, int64_t) { return {x}; }
    DEV_METHOD Product then(const Product &next) const { return {multiplied(v, next.v)}; }
};
DEV_CALL double log_of_sum(double a, double b) {
    double high = a > b ? a : b, low = a > b ? b : a;
    if (a != a || b != b) return a + b;
    return high == low && high - high != 0 ? high : high + log1p(exp(low - high));
}
struct LogSum {
    double v;
    static DEV_METHOD LogSum start(void) { return {-INFINITY}; }
    static DEV_METHOD LogSum at(const ac_gpu_running &, double x, double, int64_t) { return {x}; }
    DEV_METHOD LogSum then(const LogSum &next) const { return {log_of_sum(v, next.v)}; }
};
/* v after a step is decay * (v before) + x; steps joined are such a step again. */
struct Linear {
    double v, decay;
    static DEV_METHOD Linear start(void) { return {0, 1}; }
    static DEV_METHOD Linear at(const ac_gpu_running &, double x, double decay, int64_t) { return {x, decay}; }
    DEV_METHOD Linear then(const Linear &next) const { return {next.decay * v + next.v, decay * next.decay}; }
};
/* The last of equal ones; a nan stays. */
template <class V> struct Extreme {
    V v;
    int32_t smallest;
    int64_t at_; /* -1: nothing yet */
    static DEV_METHOD Extreme start(void) { return {0, 0, -1}; }
    static DEV_METHOD Extreme at(const ac_gpu_running &a, V x, V, int64_t i) { return {x, a.smallest, i}; }
    DEV_METHOD Extreme then(const Extreme &next) const {
        if (at_ < 0 || next.at_ < 0) return at_ < 0 ? next : *this;
        bool better = next.v != next.v || (next.smallest ? next.v <= v : next.v >= v);
        return better ? next : *this;
    }
};
template <class S> DEV void note_index(const ac_gpu_running &, int64_t, const S &) {}
template <class V> DEV void note_index(const ac_gpu_running &a, int64_t offset, const Extreme<V> &s) {
    a.indices[offset] = s.at_;
}

/* Step i of a row, counted the way it is walked. A reversed one multiplies by the decay of the element before. */
template <class S, class V> DEV S step_of(const ac_gpu_running &a, int64_t row, int64_t i) {
    int64_t at = a.reverse ? a.n - 1 - i : i, with = a.reverse ? at + 1 : at;
    V x = load<V>(a.x.ref, space_offset(a.x.kept, row) + space_offset(a.x.inner, at)), decay = 0;
    if (a.with.ref.data && with < a.n)
        decay = load<V>(a.with.ref, space_offset(a.with.kept, row) + space_offset(a.with.inner, with));
    return S::at(a, x, decay, at);
}

/* Where step i of a row is written. */
DEV int64_t place_of(const ac_gpu_running &a, int64_t row, int64_t i) {
    return space_offset(a.out.kept, row) + space_offset(a.out.inner, a.reverse ? a.n - 1 - i : i);
}
template <class S, class V> DEV void put(const ac_gpu_running &a, int64_t offset, const S &s) {
    store<V>(a.out.ref, offset, s.v);
    note_index(a, offset, s);
}

enum { RUN = 4, WARP = 32, WARPS = AC_GPU_THREADS / WARP };

/* Runs of a row, where the host found that they are of a bulk dtype and on their boundaries, or step by step. A step
 * behind the row's end changes nothing. */
template <class S, class V> struct Runs {
    DEV_METHOD static void load(const ac_gpu_running &a, int64_t row, int64_t i, S *s) {
        EACH_OF(RUN) s[j] = i + j < a.n ? step_of<S, V>(a, row, i + j) : S::start();
    }
    DEV_METHOD static void store(const ac_gpu_running &a, int64_t row, int64_t i, const S *s) {
        EACH_OF(RUN) if (i + j < a.n) put<S, V>(a, place_of(a, row, i + j), s[j]);
    }
};
template <class S> struct Runs<S, double> {
    DEV_METHOD static void load(const ac_gpu_running &a, int64_t row, int64_t i, S *s) {
        float x[RUN];
        EACH_OF(RUN) s[j] = S::start();
        if (i >= a.n) return;
        if (!a.vector) {
            EACH_OF(RUN) if (i + j < a.n) s[j] = step_of<S, double>(a, row, i + j);
            return;
        }
        load_run<RUN>(a.x.ref.data, a.x.ref.dtype, space_offset(a.x.kept, row) + i, x);
        EACH_OF(RUN) s[j] = S::at(a, (double)x[j], 0, i + j);
    }
    DEV_METHOD static void store(const ac_gpu_running &a, int64_t row, int64_t i, const S *s) {
        float x[RUN];
        if (i >= a.n) return;
        if (!a.vector) {
            EACH_OF(RUN) if (i + j < a.n) put<S, double>(a, place_of(a, row, i + j), s[j]);
            return;
        }
        int64_t offset = space_offset(a.out.kept, row) + i;
        EACH_OF(RUN) x[j] = (float)s[j].v, note_index(a, offset + j, s[j]);
        store_run<RUN>(a.out.ref.data, a.out.ref.dtype, offset, x);
    }
};

/* What the lanes before this one have, joined in order; and what all of them have, in place of `all`. */
template <class S> DEV S lanes_before(S *all) {
    S before = S::start();
    for (int step = 1; step < WARP; step *= 2) {
        S other = words_of_lane(*all, step);
        bool behind = threadIdx.x & step;
        if (behind) before = other.then(before);
        *all = behind ? other.then(*all) : all->then(other);
    }
    return before;
}
/* The same of a block's threads; `room` holds a total for each warp, and is another one in the next call. */
template <class S> DEV S threads_before(S *all, S *room) {
    int warp = threadIdx.x / WARP;
    S before = lanes_before(all), earlier = S::start();
    if (threadIdx.x % WARP == 0) room[warp] = *all;
    __syncthreads();
    *all = S::start();
    for (int w = 0; w < WARPS; w++) {
        if (w == warp) earlier = *all;
        *all = all->then(room[w]);
    }
    return earlier.then(before);
}

template <class S, class V> DEV void running_alone(const ac_gpu_running &a) {
    EACH_OF_N(row, a.rows) {
        S so_far = S::start();
        for (int64_t i = 0; i < a.n; i++) {
            so_far = so_far.then(step_of<S, V>(a, row, i));
            put<S, V>(a, place_of(a, row, i), so_far);
        }
    }
}

template <class S, class V> DEV void running_together(const ac_gpu_running &a) {
    S *room = (S *)ac_shared_memory; /* [2][WARPS] */
    int group = a.group, own = (int)threadIdx.x % group * RUN, tile = 0;
    int64_t groups = AC_GPU_THREADS / group;
    for (int64_t row = blockIdx.x * groups + threadIdx.x / group; row < a.rows; row += gridDim.x * groups) {
        S so_far = S::start();
        for (int64_t i = own; i < a.n + own; i += group * RUN, tile++) { /* as often for every thread */
            S s[RUN];
            Runs<S, V>::load(a, row, i, s);
#pragma unroll
            for (int j = 1; j < RUN; j++) s[j] = s[j - 1].then(s[j]);
            S all = s[RUN - 1];
            S before = so_far.then(group == WARP ? lanes_before(&all) : threads_before(&all, room + tile % 2 * WARPS));
            EACH_OF(RUN) s[j] = before.then(s[j]);
            Runs<S, V>::store(a, row, i, s);
            so_far = so_far.then(all);
        }
    }
}

template <class S, class V> DEV void running(const ac_gpu_running &a) {
    if (a.group == 1) running_alone<S, V>(a);
    else running_together<S, V>(a);
}

AC_KERNEL(ac_running_sum_f64, ac_gpu_running) { running<Sum<double>, double>(a); }
AC_KERNEL(ac_running_sum_i64, ac_gpu_running) { running<Sum<int64_t>, int64_t>(a); }
AC_KERNEL(ac_running_product_f64, ac_gpu_running) { running<Product<double>, double>(a); }
AC_KERNEL(ac_running_product_i64, ac_gpu_running) { running<Product<int64_t>, int64_t>(a); }
AC_KERNEL(ac_running_log_sum_f64, ac_gpu_running) { running<LogSum, double>(a); }
AC_KERNEL(ac_running_linear_f64, ac_gpu_running) { running<Linear, double>(a); }
AC_KERNEL(ac_running_extreme_f64, ac_gpu_running) { running<Extreme<double>, double>(a); }
AC_KERNEL(ac_running_extreme_i64, ac_gpu_running) { running<Extreme<int64_t>, int64_t>(a); }
