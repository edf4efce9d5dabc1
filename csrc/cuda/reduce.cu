/* Reduction kernels. By rows, where the reduced dimension is closest in memory: a group of threads computes one result,
 * or a part of one; short rows share a block. By columns, where a kept dimension is closest: 32 neighbours (or runs of
 * four) side by side, 8 threads deep. A second launch joins the parts in order, so sums never depend on timing. Threads
 * sum in the opmath type and join in double. */
#include "cuda/device.cuh"

struct Total {
    double f;
    int64_t i;
};

template <class R> struct accumulator_of {
    typedef double wide;
};
template <> struct accumulator_of<int64_t> {
    typedef int64_t wide;
};

/* What a fold does: its neutral value, what it makes of an element, how two are joined. */
#define FOLD(Name, START_REAL, START_INT, MAP, JOIN)                                                                   \
    struct Name {                                                                                                      \
        template <class V> DEV_METHOD static V start(void) { return START_REAL; }                                      \
        template <class V> DEV_METHOD static V map(V x, V p) {                                                         \
            (void)p;                                                                                                   \
            return MAP;                                                                                                \
        }                                                                                                              \
        template <class V> DEV_METHOD V operator()(V a, V b) const { return JOIN; }                                    \
    };                                                                                                                 \
    template <> DEV_METHOD int64_t Name::start<int64_t>(void) { return START_INT; }

#define MAGNITUDE (x <= 0 ? 0 - x : x) /* of -0 it is 0 */
#define LARGER (b > a || b != b ? b : a)
#define SMALLER (b < a || b != b ? b : a)
FOLD(Sum, 0, 0, x, a + b)
FOLD(SumSquares, 0, 0, (x - p) * (x - p), a + b)
FOLD(SumAbs, 0, 0, MAGNITUDE, a + b)
FOLD(SumPowers, 0, 0, (V)pow((double)MAGNITUDE, (double)p), a + b)
FOLD(Count, 0, 0, (V)(x != 0), a + b)
FOLD(Prod, 1, 1, x, a *b)
FOLD(Max, (V)-INFINITY, INT64_MIN, x, LARGER)
FOLD(Min, (V)INFINITY, INT64_MAX, x, SMALLER)
FOLD(MaxAbs, 0, 0, MAGNITUDE, LARGER)
FOLD(MinAbs, (V)INFINITY, INT64_MAX, MAGNITUDE, SMALLER)

DEV_CALL void finish_integer(const ac_gpu_reduce &a, int64_t o, int64_t t) {
    switch (a.finish) {
    case AC_GPU_ANY: store<int64_t>(a.out, o, t > 0); return;
    case AC_GPU_ALL: store<int64_t>(a.out, o, t == a.inner.numel); return;
    case AC_GPU_MEAN: store<double>(a.out, o, (double)t / (double)a.inner.numel); return;
    default: store<int64_t>(a.out, o, t);
    }
}
DEV_CALL void finish_real(const ac_gpu_reduce &a, int64_t o, double t) {
    double n = (double)a.inner.numel, rest = n - a.correction;
    switch (a.finish) {
    case AC_GPU_MEAN: t /= n; break;
    case AC_GPU_ROOT: t = sqrt(t); break;
    case AC_GPU_POWER_ROOT: t = pow(t, 1 / a.p); break;
    case AC_GPU_VARIANCE:
    case AC_GPU_DEVIATION:
        t /= rest > 0 ? rest : 0;
        if (a.finish == AC_GPU_DEVIATION) t = sqrt(t);
        break;
    case AC_GPU_ANY: t = t > 0; break;
    case AC_GPU_ALL: t = t == n; break;
    default: break;
    }
    store<double>(a.out, o, t);
}
DEV void finish(const ac_gpu_reduce &a, int64_t o, double t) { finish_real(a, o, t); }
DEV void finish(const ac_gpu_reduce &a, int64_t o, int64_t t) { finish_integer(a, o, t); }

/* This part's reduced elements. */
DEV void part_of(const ac_gpu_reduce &a, int64_t part, int64_t *begin, int64_t *end) {
    int64_t each = (a.inner.numel + a.parts - 1) / a.parts;
    each = (each + 7) / 8 * 8;
    *begin = part * each < a.inner.numel ? part * each : a.inner.numel;
    *end = *begin + each < a.inner.numel ? *begin + each : a.inner.numel;
}

template <class R, class Fold>
DEV R fold_elements(const ac_gpu_reduce &a, int64_t base, R p, int64_t first, int64_t stride, int64_t end) {
    R acc = Fold::template start<R>();
    for (int64_t i = first; i < end; i += stride)
        acc = Fold()(acc, Fold::template map<R>(load<R>(a.x, base + space_offset(a.inner, i)), p));
    return acc;
}

/* What a thread of a group takes of a part. */
template <class R, class Fold> struct Range {
    DEV_METHOD static R fold(const ac_gpu_reduce &a, int64_t base, R p, int64_t begin, int64_t end) {
        return fold_elements<R, Fold>(a, base, p, begin + threadIdx.x % a.group, a.group, end);
    }
};
enum { RUN = 4, IN_FLIGHT = 4 };
/* By runs of neighbours where they are; the thread whose run is cut short by the end takes what is there. */
template <class Fold> struct Range<float, Fold> {
    DEV_METHOD static float fold(const ac_gpu_reduce &a, int64_t base, float p, int64_t begin, int64_t end) {
        int own = threadIdx.x % a.group, step = a.group * RUN;
        if (!a.vector) return fold_elements<float, Fold>(a, base, p, begin + own, a.group, end);
        Fold fold;
        float acc[RUN], x[IN_FLIGHT][RUN];
        EACH_OF(RUN) acc[j] = Fold::template start<float>();
        int64_t i = begin + own * RUN, at[IN_FLIGHT];
        for (; i + (IN_FLIGHT - 1) * step + RUN <= end; i += IN_FLIGHT * step) {
            for (int u = 0; u < IN_FLIGHT; u++) at[u] = base + space_offset(a.inner, i + u * step);
            load_runs<IN_FLIGHT, RUN>(a.x.data, a.x.dtype, at, x);
#pragma unroll
            for (int u = 0; u < IN_FLIGHT; u++)
                EACH_OF(RUN) acc[j] = fold(acc[j], Fold::template map<float>(x[u][j], p));
        }
        for (; i + RUN <= end; i += step) {
            load_run<RUN>(a.x.data, a.x.dtype, base + space_offset(a.inner, i), x[0]);
            EACH_OF(RUN) acc[j] = fold(acc[j], Fold::template map<float>(x[0][j], p));
        }
        for (int half = RUN / 2; half; half /= 2)
            for (int j = 0; j < half; j++) acc[j] = fold(acc[j], acc[j + half]);
        return fold(acc[0], fold_elements<float, Fold>(a, base, p, i, 1, end));
    }
};

/* body(job, first) for jobs that groups of threads take; all threads of a block go round together, and a group without
 * a job works on the last one, and writes nothing. */
template <class F> DEV void each_group(const ac_gpu_reduce &a, int64_t jobs, F body) {
    int64_t groups = AC_GPU_THREADS / a.group, own = threadIdx.x / a.group;
    for (int64_t first = blockIdx.x * groups; first < jobs; first += gridDim.x * groups) {
        bool has_job = first + own < jobs;
        body(has_job ? first + own : jobs - 1, has_job && threadIdx.x % a.group == 0);
    }
}

template <class R, class Fold> DEV void reduce_rows(const ac_gpu_reduce &a) {
    typedef typename accumulator_of<R>::wide W;
    each_group(a, a.kept.numel * a.parts, [&](int64_t job, bool first) {
        int64_t part = quotient(job, a.kept.numel), o = job - part * a.kept.numel, begin, end;
        part_of(a, part, &begin, &end);
        R p = a.each ? (R)a.each[o] : (R)a.p;
        W t = (W)Range<R, Fold>::fold(a, space_offset(a.kept, o), p, begin, end);
        t = group_join(a.group, t, (W *)ac_shared_memory, Fold());
        if (!first) return;
        if (a.parts > 1) ((W *)a.partial)[job] = t;
        else finish(a, o, t);
    });
}

enum { WIDE = 32, DEEP = AC_GPU_THREADS / WIDE };

/* The totals of V columns from `o` on that a thread of eight finds, over [begin, end). */
template <class R, class Fold, int V> struct Column {
    DEV_METHOD static void fold(const ac_gpu_reduce &a, int64_t o, int64_t begin, int64_t end, R *t) {
        Fold fold;
        int64_t base = space_offset(a.kept, o);
        R p = a.each ? (R)a.each[o] : (R)a.p;
        for (int64_t i = begin; i < end; i += DEEP)
            *t = fold(*t, Fold::template map<R>(load<R>(a.x, base + space_offset(a.inner, i)), p));
    }
};
template <class Fold> struct Column<float, Fold, RUN> {
    DEV_METHOD static void fold(const ac_gpu_reduce &a, int64_t o, int64_t begin, int64_t end, float *t) {
        Fold fold;
        int64_t base = space_offset(a.kept, o), i = begin, at[IN_FLIGHT];
        float x[IN_FLIGHT][RUN], p[RUN];
        EACH_OF(RUN) p[j] = a.each ? (float)a.each[o + j] : (float)a.p;
        for (; i + (IN_FLIGHT - 1) * DEEP < end; i += IN_FLIGHT * DEEP) {
            for (int u = 0; u < IN_FLIGHT; u++) at[u] = base + space_offset(a.inner, i + u * DEEP);
            load_runs<IN_FLIGHT, RUN>(a.x.data, a.x.dtype, at, x);
#pragma unroll
            for (int u = 0; u < IN_FLIGHT; u++)
                EACH_OF(RUN) t[j] = fold(t[j], Fold::template map<float>(x[u][j], p[j]));
        }
        for (; i < end; i += DEEP) {
            load_run<RUN>(a.x.data, a.x.dtype, base + space_offset(a.inner, i), x[0]);
            EACH_OF(RUN) t[j] = fold(t[j], Fold::template map<float>(x[0][j], p[j]));
        }
    }
};

template <class R, class Fold, int V> DEV void reduce_columns_of(const ac_gpu_reduce &a) {
    typedef typename accumulator_of<R>::wide W;
    W *room = (W *)ac_shared_memory; /* [DEEP][WIDE][V] */
    Fold fold;
    int column = threadIdx.x % WIDE * V, deep = threadIdx.x / WIDE;
    int64_t blocks = (a.kept.numel + WIDE * V - 1) / (WIDE * V);
    for (int64_t job = blockIdx.x; job < blocks * a.parts; job += gridDim.x) {
        int64_t part = quotient(job, blocks), left = (job - part * blocks) * WIDE * V, begin, end;
        part_of(a, part, &begin, &end);
        R t[V];
        EACH_OF(V) t[j] = Fold::template start<R>();
        if (left + column < a.kept.numel) Column<R, Fold, V>::fold(a, left + column, begin + deep, end, t);
        __syncthreads();
        EACH_OF(V) room[threadIdx.x * V + j] = (W)t[j];
        __syncthreads();
        int64_t o = left + threadIdx.x;
        if (threadIdx.x >= WIDE * V || o >= a.kept.numel) continue;
        W total = room[threadIdx.x];
        for (int d = 1; d < DEEP; d++) total = fold(total, room[d * WIDE * V + threadIdx.x]);
        if (a.parts > 1) ((W *)a.partial)[part * a.kept.numel + o] = total;
        else finish(a, o, total);
    }
}
template <class R, class Fold> struct Columns {
    DEV_METHOD static void reduce(const ac_gpu_reduce &a) { reduce_columns_of<R, Fold, 1>(a); }
};
template <class Fold> struct Columns<float, Fold> {
    DEV_METHOD static void reduce(const ac_gpu_reduce &a) {
        if (a.vector) reduce_columns_of<float, Fold, RUN>(a);
        else reduce_columns_of<float, Fold, 1>(a);
    }
};

template <class R, class Fold> DEV void reduce_join(const ac_gpu_reduce &a) {
    typedef typename accumulator_of<R>::wide W;
    Fold fold;
    each_group(a, a.kept.numel, [&](int64_t o, bool first) {
        W total = Fold::template start<W>();
        for (int64_t part = threadIdx.x % a.group; part < a.parts; part += a.group)
            total = fold(total, ((const W *)a.partial)[part * a.kept.numel + o]);
        total = group_join(a.group, total, (W *)ac_shared_memory, fold);
        if (first) finish(a, o, total);
    });
}

#define OPMATH(name, Fold, R, opmath)                                                                                  \
    AC_KERNEL(ac_rows_##name##_##opmath, ac_gpu_reduce) { reduce_rows<R, Fold>(a); }                                   \
    AC_KERNEL(ac_columns_##name##_##opmath, ac_gpu_reduce) { Columns<R, Fold>::reduce(a); }                            \
    AC_KERNEL(ac_join_##name##_##opmath, ac_gpu_reduce) { reduce_join<R, Fold>(a); }
#define REDUCTION(name, Fold)                                                                                          \
    OPMATH(name, Fold, float, f32) OPMATH(name, Fold, double, f64) OPMATH(name, Fold, int64_t, i64)
REDUCTION(sum, Sum)
REDUCTION(sum_squares, SumSquares)
REDUCTION(sum_abs, SumAbs)
REDUCTION(sum_powers, SumPowers)
REDUCTION(count, Count)
REDUCTION(prod, Prod)
REDUCTION(max, Max)
REDUCTION(min, Min)
REDUCTION(max_abs, MaxAbs)
REDUCTION(min_abs, MinAbs)

/* -- the position of the largest or smallest -------------------------------------------------------- */

template <class R> struct Best {
    R v;
    int64_t at; /* -1: none yet */
};

/* Ties go to the first; the first nan wins over all. */
template <class R> DEV bool better(R a, int64_t at, R b, int64_t bt, int smallest) {
    if (bt < 0) return true;
    if (at < 0) return false;
    bool an = a != a, bn = b != b;
    if (an || bn) return an && (!bn || at < bt);
    if (a == b) return at < bt;
    return smallest ? a < b : a > b;
}

template <class R> DEV void pick_best(const ac_gpu_best &a) {
    R *values = (R *)ac_shared_memory;
    int64_t *indices = (int64_t *)(values + AC_GPU_THREADS);
    for (int64_t o = blockIdx.x; o < a.kept.numel; o += gridDim.x) {
        int64_t base = space_offset(a.kept, o), at = -1;
        R v = 0;
        for (int64_t i = threadIdx.x; i < a.along.numel; i += AC_GPU_THREADS) {
            R x = load<R>(a.x, base + space_offset(a.along, i));
            if (better(x, i, v, at, a.smallest)) v = x, at = i;
        }
        __syncthreads();
        values[threadIdx.x] = v, indices[threadIdx.x] = at;
        __syncthreads();
        for (int half = AC_GPU_THREADS / 2; half; half /= 2) {
            int other = threadIdx.x + half;
            if ((int)threadIdx.x < half &&
                better(values[other], indices[other], values[threadIdx.x], indices[threadIdx.x], a.smallest))
                values[threadIdx.x] = values[other], indices[threadIdx.x] = indices[other];
            __syncthreads();
        }
        if (threadIdx.x != 0) continue;
        if (a.values.data) store<R>(a.values, o, values[0]);
        a.indices[o] = indices[0] < 0 ? 0 : indices[0];
    }
}

AC_KERNEL(ac_best_f32, ac_gpu_best) { pick_best<float>(a); }
AC_KERNEL(ac_best_f64, ac_gpu_best) { pick_best<double>(a); }
AC_KERNEL(ac_best_i64, ac_gpu_best) { pick_best<int64_t>(a); }
