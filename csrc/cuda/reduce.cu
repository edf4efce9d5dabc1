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

#define MAGNITUDE (x <= 0 ? subtracted((V)0, x) : x) /* of -0 it is 0 */
#define LARGER (b > a || b != b ? b : a)
#define SMALLER (b < a || b != b ? b : a)
FOLD(Sum, 0, 0, x, added(a, b))
FOLD(SumSquares, 0, 0, multiplied(subtracted(x, p), subtracted(x, p)), added(a, b))
FOLD(SumAbs, 0, 0, MAGNITUDE, added(a, b))
FOLD(SumPowers, 0, 0, (V)pow((double)MAGNITUDE, (double)p), added(a, b))
FOLD(Count, 0, 0, (V)(x != 0), added(a, b))
FOLD(Prod, 1, 1, x, multiplied(a, b))
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
    *begin = part * a.part < a.inner.numel ? part * a.part : a.inner.numel;
    *end = *begin + a.part < a.inner.numel ? *begin + a.part : a.inner.numel;
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
/* What a thread folds of packs: in several chains, which are joined by halves. */
template <class Fold> struct Chains {
    enum { MOST = 8 };
    float p, acc[MOST];
    DEV_METHOD explicit Chains(float p_) : p(p_) { EACH_OF(MOST) acc[j] = Fold::template start<float>(); }
    template <int U, int N> DEV_METHOD void take(const float *x, int64_t, int64_t) {
#pragma unroll
        for (int u = 0; u < U; u++) EACH_OF(N) acc[j] = Fold()(acc[j], Fold::template map<float>(x[u * N + j], p));
    }
    DEV_METHOD float joined(void) {
#pragma unroll
        for (int half = MOST / 2; half; half /= 2) EACH_OF(half) acc[j] = Fold()(acc[j], acc[j + half]);
        return acc[0];
    }
};
/* By packs or by runs of neighbours where they are; the thread whose run is cut short by the end takes what is
 * there. */
template <class Fold> struct Range<float, Fold> {
    DEV_METHOD static float fold(const ac_gpu_reduce &a, int64_t base, float p, int64_t begin, int64_t end) {
        int own = threadIdx.x % a.group, step = a.group * RUN;
        if (a.dense) {
            Chains<Fold> chains(p);
            each_pack(a.x, base, begin, end, a.group, chains);
            return chains.joined();
        }
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

/* Bytes that are not 0, which truth values are counted by, four at a time. */
DEV int true_bytes(uint32_t word) {
    uint32_t low = 0x7F7F7F7Fu;
    return (int)((((((word & low) + low) | word) & ~low) >> 7) * 0x01010101u >> 24);
}
template <> struct Range<int64_t, Count> {
    DEV_METHOD static int64_t fold(const ac_gpu_reduce &a, int64_t base, int64_t p, int64_t begin, int64_t end) {
        enum { BYTES = 16 };
        int64_t own = threadIdx.x % a.group, step = (int64_t)a.group * BYTES, i = begin + own * BYTES, count = 0;
        if (!a.dense) return fold_elements<int64_t, Count>(a, base, p, begin + own, a.group, end);
        const uint8_t *x = (const uint8_t *)a.x.data + base;
#pragma unroll 4
        for (; i + BYTES <= end; i += step) {
            uint4 t = *(const uint4 *)(x + i);
            count += true_bytes(t.x) + true_bytes(t.y) + true_bytes(t.z) + true_bytes(t.w);
        }
        for (; i < end; i++) count += x[i] != 0;
        return count;
    }
};

/* body(job, first) for jobs that groups of threads take; all threads of a block go round together, and a group without
 * a job works on the last one, and writes nothing. */
template <class F> DEV void each_group(int group, int64_t jobs, F body) {
    int64_t groups = AC_GPU_THREADS / group, own = threadIdx.x / group;
    for (int64_t first = blockIdx.x * groups; first < jobs; first += gridDim.x * groups) {
        bool has_job = first + own < jobs;
        body(has_job ? first + own : jobs - 1, has_job && threadIdx.x % group == 0);
    }
}

template <class R, class Fold> DEV void reduce_rows(const ac_gpu_reduce &a) {
    typedef typename accumulator_of<R>::wide W;
    each_group(a.group, a.kept.numel * a.parts, [&](int64_t job, bool first) {
        int64_t part = a.parts > 1 ? quotient(job, a.kept.numel) : 0, o = job - part * a.kept.numel, begin, end;
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
    each_group(a.group, a.kept.numel, [&](int64_t o, bool first) {
        W total = Fold::template start<W>();
#pragma unroll 4
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

/* -- variance of rows ------------------------------------------------------------------------------- */

/* Sums of values and of their squares around the row's first value, which is among them, so that the squares around
 * the mean lose few bits (Chan, Golub and LeVeque 1983). The values of a few packs give the squares around their own
 * mean in float32; all else is float64. */
struct Moments {
    float first;
    double sum, squares;
    DEV_METHOD explicit Moments(float first_) : first(first_), sum(0), squares(0) {}
    template <int U, int N> DEV_METHOD void take(const float *x, int64_t, int64_t) {
        enum { ALL = U * N, CHAINS = N < 4 ? N : 4 };
        float y[ALL], s[CHAINS], q[CHAINS];
        EACH_OF(ALL) y[j] = x[j] - first;
        EACH_OF(CHAINS) s[j] = y[j], q[j] = 0;
#pragma unroll
        for (int j = CHAINS; j < ALL; j++) s[j % CHAINS] += y[j];
        float total = CHAINS == 1 ? *s : (s[0] + s[1 % CHAINS]) + (s[2 % CHAINS] + s[3 % CHAINS]);
        float mean = total * (1.0f / ALL);
        EACH_OF(ALL) q[j % CHAINS] += (y[j] - mean) * (y[j] - mean);
        double around = 0;
        EACH_OF(CHAINS) around += (double)q[j];
        sum += (double)total, squares += (double)total * (double)mean + around;
    }
};

/* The row's sum of squares around its mean, in float64 throughout. */
DEV double squares_around_mean(const ac_gpu_reduce &a, int64_t base, double *room) {
    double mean = 0, squares = 0;
    for (int64_t i = threadIdx.x % a.group; i < a.inner.numel; i += a.group)
        mean += (double)load<float>(a.x, base + space_offset(a.inner, i));
    mean = group_join(a.group, mean, room, Add()) / (double)a.inner.numel;
    for (int64_t i = threadIdx.x % a.group; i < a.inner.numel; i += a.group) {
        double y = (double)load<float>(a.x, base + space_offset(a.inner, i)) - mean;
        squares += y * y;
    }
    return group_join(a.group, squares, room, Add());
}

/* All threads of a block call. Those that join values with another's look at its row again where either must. */
DEV void finish_moments(const ac_gpu_reduce &a, int64_t o, double sum, double squares, bool first, double *room) {
    double around = squares - sum * (sum / (double)a.inner.numel);
    int lost =
        !(around < INFINITY && around >= 1e-30 * (double)a.inner.numel); /* squares may have left float32's range */
    if (group_join(a.group > 32 ? AC_GPU_THREADS : 32, lost, (int *)room, Add())) {
        double exact = squares_around_mean(a, space_offset(a.kept, o), room);
        if (lost) around = exact;
    }
    if (first) finish(a, o, around < 0 ? 0 : around);
}

AC_KERNEL(ac_rows_moments, ac_gpu_reduce) {
    double *room = (double *)ac_shared_memory;
    each_group(a.group, a.kept.numel * a.parts, [&](int64_t job, bool first) {
        int64_t part = a.parts > 1 ? quotient(job, a.kept.numel) : 0, o = job - part * a.kept.numel, begin, end;
        int64_t base = space_offset(a.kept, o);
        part_of(a, part, &begin, &end);
        Moments m(a.inner.numel ? load<float>(a.x, base) : 0);
        if (a.dense) each_pack(a.x, base, begin, end, a.group, m);
        else
            for (int64_t i = begin + threadIdx.x % a.group; i < end; i += a.group) {
                float x = load<float>(a.x, base + space_offset(a.inner, i));
                m.take<1, 1>(&x, i, 0);
            }
        double sum = group_join(a.group, m.sum, room, Add()), squares = group_join(a.group, m.squares, room, Add());
        if (a.parts == 1) finish_moments(a, o, sum, squares, first, room);
        else if (first) ((double *)a.partial)[job] = sum, ((double *)a.partial)[a.parts * a.kept.numel + job] = squares;
    });
}

AC_KERNEL(ac_join_moments, ac_gpu_reduce) {
    double *room = (double *)ac_shared_memory;
    each_group(a.group, a.kept.numel, [&](int64_t o, bool first) {
        const double *sums = (const double *)a.partial, *all_squares = sums + a.parts * a.kept.numel;
        double sum = 0, squares = 0;
        for (int64_t part = threadIdx.x % a.group; part < a.parts; part += a.group)
            sum += sums[part * a.kept.numel + o], squares += all_squares[part * a.kept.numel + o];
        sum = group_join(a.group, sum, room, Add()), squares = group_join(a.group, squares, room, Add());
        finish_moments(a, o, sum, squares, first, room);
    });
}

/* -- the position of the largest or smallest -------------------------------------------------------- */

/* The smallest is the largest of values whose order is turned around. */
template <class R> DEV R turned(R x, int smallest) { return smallest ? -x : x; }
template <> DEV_METHOD int64_t turned<int64_t>(int64_t x, int smallest) { return smallest ? ~x : x; }

/* The largest so far, and where: so many values from the row's first. Ties go to the first; the first nan wins over
 * all. A thread without values has a place behind all others. */
template <class R> struct Best {
    R v;
    int64_t at;
};
template <class R> DEV Best<R> of_lane(const Best<R> &b, int with) { return {of_lane(b.v, with), of_lane(b.at, with)}; }
struct Better {
    template <class R> DEV_METHOD Best<R> operator()(const Best<R> &a, const Best<R> &b) const {
        bool an = a.v != a.v, bn = b.v != b.v, first = a.at < b.at;
        if (an || bn) return an && (!bn || first) ? a : b;
        return (a.v == b.v ? first : a.v > b.v) ? a : b;
    }
};

/* What a thread finds: its values come in order, from `first` on. */
template <class R> struct Search {
    R v;
    int64_t at;
    int smallest;
    DEV_METHOD Search(int64_t first, int64_t n, int smallest_)
        : v(Max::start<R>()), at(first < n ? first : INT64_MAX), smallest(smallest_) {}
    DEV_METHOD bool see(R x) { /* whether it is the best so far */
        x = turned(x, smallest);
        bool better = v == v && !(x <= v);
        if (better) v = x;
        return better;
    }
    template <int U, int N> DEV_METHOD void take(const float *x, int64_t i, int64_t apart) {
        int found = -1;
        EACH_OF(U * N) if (see(x[j])) found = j;
        if (found >= 0) at = i + found / N * apart + found % N;
    }
};
template <class R> DEV void search_packs(const ac_gpu_best &, int64_t, Search<R> &) {}
template <> DEV_METHOD void search_packs<float>(const ac_gpu_best &a, int64_t base, Search<float> &search) {
    each_pack(a.x, base, 0, a.along.numel, a.group, search);
}

template <class R> DEV void pick_best(const ac_gpu_best &a) {
    each_group(a.group, a.kept.numel, [&](int64_t o, bool first) {
        int64_t own = threadIdx.x % a.group, base = space_offset(a.kept, o);
        Search<R> search(a.dense ? own * a.dense : own, a.along.numel, a.smallest);
        if (a.dense) search_packs(a, base, search);
        else
            for (int64_t i = own; i < a.along.numel; i += a.group)
                if (search.see(load<R>(a.x, base + space_offset(a.along, i)))) search.at = i;
        Best<R> best = {search.v, search.at};
        best = group_join(a.group, best, (Best<R> *)ac_shared_memory, Better());
        if (!first) return;
        if (a.values.data) store<R>(a.values, o, turned(best.v, a.smallest));
        a.indices[o] = best.at < a.along.numel ? best.at : 0;
    });
}

AC_KERNEL(ac_best_f32, ac_gpu_best) { pick_best<float>(a); }
AC_KERNEL(ac_best_f64, ac_gpu_best) { pick_best<double>(a); }
AC_KERNEL(ac_best_i64, ac_gpu_best) { pick_best<int64_t>(a); }
