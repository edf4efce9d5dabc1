/* Cumulative operators along rows. Each thread computes a part of a row: first its total, then, from the totals of
 * the parts before, the values one by one. One thread a row where rows are short, a whole block where they are long. */
#include "cuda/device.cuh"

/* A total is a thing that joins with what comes after it: `start` joined with x is x. */
template <class V> struct Sum {
    V v;
    static DEV_METHOD Sum start(void) { return {0}; }
    static DEV_METHOD Sum at(const ac_gpu_running &, V x, V, int64_t) { return {x}; }
    DEV_METHOD Sum then(const Sum &next) const { return {(V)(v + next.v)}; }
};
template <class V> struct Product {
    V v;
    static DEV_METHOD Product start(void) { return {1}; }
    static DEV_METHOD Product at(const ac_gpu_running &, V x, V, int64_t) { return {x}; }
    DEV_METHOD Product then(const Product &next) const { return {(V)(v * next.v)}; }
};
struct LogSum {
    double v;
    static DEV_METHOD LogSum start(void) { return {-INFINITY}; }
    static DEV_METHOD LogSum at(const ac_gpu_running &, double x, double, int64_t) { return {x}; }
    DEV_METHOD LogSum then(const LogSum &next) const {
        double high = v > next.v ? v : next.v, low = v > next.v ? next.v : v;
        if (v != v || next.v != next.v) return {v + next.v};
        return {high == low && high - high != 0 ? high : high + log1p(exp(low - high))};
    }
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

template <class S, class V> DEV void running(const ac_gpu_running &a) {
    S *totals = (S *)ac_shared_memory; /* of the parts of this block's rows */
    int group = (int)a.group, part = (int)threadIdx.x % group, first = (int)threadIdx.x - part;
    int64_t groups = AC_GPU_THREADS / group, size = (a.n + group - 1) / group;
    for (int64_t base = (int64_t)blockIdx.x * groups; base < a.rows; base += (int64_t)gridDim.x * groups) {
        int64_t row = base + threadIdx.x / group, begin = part * size, end = begin + size < a.n ? begin + size : a.n;
        bool here = row < a.rows;
        S so_far = S::start();
        if (here && group > 1) {
            for (int64_t i = begin; i < end; i++) so_far = so_far.then(step_of<S, V>(a, row, i));
            totals[threadIdx.x] = so_far;
        }
        __syncthreads();
        if (group > 1) so_far = S::start();
        for (int p = 0; here && p < part; p++) so_far = so_far.then(totals[first + p]);
        __syncthreads();
        for (int64_t i = begin; here && i < end; i++) {
            so_far = so_far.then(step_of<S, V>(a, row, i));
            int64_t at = a.reverse ? a.n - 1 - i : i;
            int64_t offset = space_offset(a.out.kept, row) + space_offset(a.out.inner, at);
            store<V>(a.out.ref, offset, so_far.v);
            note_index(a, offset, so_far);
        }
    }
}

AC_KERNEL(ac_running_sum_f64, ac_gpu_running) { running<Sum<double>, double>(a); }
AC_KERNEL(ac_running_sum_i64, ac_gpu_running) { running<Sum<int64_t>, int64_t>(a); }
AC_KERNEL(ac_running_product_f64, ac_gpu_running) { running<Product<double>, double>(a); }
AC_KERNEL(ac_running_product_i64, ac_gpu_running) { running<Product<int64_t>, int64_t>(a); }
AC_KERNEL(ac_running_log_sum_f64, ac_gpu_running) { running<LogSum, double>(a); }
AC_KERNEL(ac_running_linear_f64, ac_gpu_running) { running<Linear, double>(a); }
AC_KERNEL(ac_running_extreme_f64, ac_gpu_running) { running<Extreme<double>, double>(a); }
AC_KERNEL(ac_running_extreme_i64, ac_gpu_running) { running<Extreme<int64_t>, int64_t>(a); }
