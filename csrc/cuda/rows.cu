/* Operators on rows: softmax and its relatives, cross entropy, layer norm. a.group threads compute a row: a warp or
 * several for rows that their registers hold, a warp or the whole block for others, one thread where neighbouring rows
 * lie side by side. A row that is held is read once. Others are read in every pass; each thread reads again only what
 * it writes itself. Softmax of those takes the largest value and the sum of exponentials in one pass (Milakov and
 * Gimelshein 2018). */
#include "cuda/classes.cuh"

/* Which inputs a pass reads. */
enum { FIRST = 1, BOTH = 3 };

/* A row by single elements, of any floating dtype and at any strides. Passes call f(i, v) with W values of each input
 * from element i on; `write` calls f(i, v, y), which leaves the results in y. */
template <class Real, int INPUTS> struct Elements {
    typedef Real R;
    static constexpr int W = 1;
    static constexpr bool HELD = false; /* what f changes in v is there in the next pass */
    const ac_gpu_rows &a;
    int64_t r;

    DEV_METHOD Elements(const ac_gpu_rows &args, int64_t row) : a(args), r(row) {}
    DEV_METHOD uint32_t thread(void) const { return threadIdx.x % (uint32_t)a.group; }

    template <int MASK, class F> DEV_METHOD void each(F f) {
        int64_t base[INPUTS];
        for (int k = 0; k < INPUTS; k++) base[k] = space_offset(a.in[k].kept, r);
        for (int64_t i = thread(); i < a.n; i += a.group) {
            R v[INPUTS][W] = {};
            for (int k = 0; k < INPUTS; k++)
                if (MASK >> k & 1) v[k][0] = load_real<R>(a.in[k].ref, base[k] + space_offset(a.in[k].inner, i));
            f(i, v);
        }
    }
    template <class F> DEV_METHOD void write(F f) {
        int64_t base = space_offset(a.out.kept, r);
        each<(1 << INPUTS) - 1>([&](int64_t i, R(&v)[INPUTS][W]) {
            R y[W];
            f(i, v, y);
            store_real<R>(a.out.ref, base + space_offset(a.out.inner, i), y[0]);
        });
    }
};

/* The same by runs of neighbours, in bulk dtypes, which are one for all inputs. Threads have RUNS of them at a time,
 * a.group runs apart: those of the whole row, where it is held. */
template <int INPUTS, bool HELD_> struct Runs {
    typedef float R;
    static constexpr int W = 8, RUNS = AC_GPU_HELD / W;
    static constexpr bool HELD = HELD_;
    const ac_gpu_rows &a;
    int64_t r, start; /* start: of this thread's runs */
    int32_t left;     /* elements from there to the row's end */
    float v[RUNS][INPUTS][W];

    DEV_METHOD Runs(const ac_gpu_rows &args, int64_t row) : a(args), r(row) {
        if (HELD) load<(1 << INPUTS) - 1>(0);
    }
    DEV_METHOD uint32_t thread(void) const { return threadIdx.x % (uint32_t)a.group; }
    DEV_METHOD int32_t pace(void) const { return a.group * W; }

    /* All runs are on the way before the first is converted. */
    template <int DTYPE, int MASK> DEV_METHOD void load_as(void) {
        typedef typename stored<DTYPE>::type E;
        pack<E, W> t[INPUTS][RUNS] = {};
        for (int k = 0; k < INPUTS; k++) {
            if (!(MASK >> k & 1)) continue;
            const E *from = (const E *)a.in[k].ref.data + space_offset(a.in[k].kept, r) + start;
#pragma unroll
            for (int u = 0; u < RUNS; u++)
                if (u * pace() < left) t[k][u] = *(const pack<E, W> *)(from + u * pace());
        }
#pragma unroll
        for (int k = 0; k < INPUTS; k++)
#pragma unroll
            for (int u = 0; u < RUNS; u++) EACH_OF(W) v[u][k][j] = stored<DTYPE>::value(t[k][u].v[j]);
    }
    /* those of [begin, begin + RUNS * pace()) */
    template <int MASK> DEV_METHOD void load(int64_t begin) {
        start = begin + (int64_t)thread() * W;
        left = a.n - start < INT32_MAX ? (int32_t)(a.n - start) : INT32_MAX;
        int dtype = a.in[0].ref.dtype;
        if (dtype == AC_float16) load_as<AC_float16, MASK>();
        else if (dtype == AC_float32) load_as<AC_float32, MASK>();
        else load_as<AC_bfloat16, MASK>();
    }
    template <class F> DEV_METHOD void each_loaded(F f) {
#pragma unroll
        for (int u = 0; u < RUNS; u++)
            if (u * pace() < left) f(start + u * pace(), v[u]);
    }
    template <int MASK, class F> DEV_METHOD void each(F f) {
        if constexpr (HELD) each_loaded(f);
        else
#pragma unroll 1
            for (int64_t begin = 0; begin < a.n; begin += RUNS * pace()) {
                load<MASK>(begin);
                each_loaded(f);
            }
    }
    template <class F> DEV_METHOD void write(F f) {
        int64_t base = space_offset(a.out.kept, r);
        each<(1 << INPUTS) - 1>([&](int64_t i, float (&x)[INPUTS][W]) {
            float y[W];
            f(i, x, y);
            store_run<W>(a.out.ref.data, a.out.ref.dtype, base + i, y);
        });
    }
};

/* Values of columns from i on, 1 or 0 where there are none. */
DEV void load_columns(const ac_gpu_ref &x, int64_t i, float none, float (&v)[8]) {
    if (x.data) load_run<8>(x.data, x.dtype, i, v);
    else EACH_OF(8) v[j] = none;
}
template <class R> DEV void load_columns(const ac_gpu_ref &x, int64_t i, R none, R (&v)[1]) {
    v[0] = x.data ? load_real<R>(x, i) : none;
}

DEV float exponential(float x) { return expf(x); }
DEV double exponential(double x) { return exp(x); }
/* of what a sum takes: its argument is rounded, so that small ones are less exact, as the sum may have them */
DEV float summand(float x) { return power_of_2(x * 1.44269504f); }
DEV double summand(double x) { return exp(x); }
DEV float greater(float a, float b) { return fmaxf(a, b); }
DEV double greater(double a, double b) { return fmax(a, b); }

/* body(row) for the rows of this group; all threads of a block go round together. A group without a row works on the
 * last one and writes the same. */
template <class Row, class F> DEV void each_row(const ac_gpu_rows &a, F body) {
    int64_t group = threadIdx.x / a.group, groups = AC_GPU_THREADS / a.group;
    for (int64_t r = (int64_t)blockIdx.x * groups; r < a.rows; r += (int64_t)gridDim.x * groups) {
        Row row(a, r + group < a.rows ? r + group : a.rows - 1);
        body(row);
    }
}
template <class Row, class V, class Join> DEV V row_join(const Row &row, V v, Join join) {
    return group_join(row.a.group, v, (V *)ac_shared_memory, join);
}

/* Exponentials are of what values are above the row's largest, or above 0 where that is infinite: then their sum is 0,
 * infinity or nan, as that of the values' own. */
template <class R> DEV R shift_of(R top) { return top - top == 0 ? top : (R)0; }

/* The row's largest value, nans aside, and the sum of exponentials in float64. `also` is given each value once, and the
 * shift so far; it is told of every change of that. `KEEP`: exponentials stand in the values' place, where the row is
 * held. */
template <bool KEEP, class Row, class R, class F> DEV double sum_exponentials(Row &row, R *largest, F &&also) {
    constexpr int W = Row::W;
    R top = (R)-INFINITY, part = 0, own = top;
    if (Row::HELD) {
        row.template each<FIRST>([&](int64_t, auto &v) { EACH_OF(W) top = greater(top, v[0][j]); });
        own = top = row_join(row, top, Larger());
    }
    row.template each<FIRST>([&](int64_t i, auto &v) {
        if (!Row::HELD) {
            R most = v[0][0];
            EACH_OF(W) most = greater(most, v[0][j]);
            if (most > top) {
                part *= exponential(top - most), also.moved(shift_of(most) - shift_of(top));
                top = most;
            }
        }
        R shift = shift_of(top);
        also(i, v[0], shift);
        EACH_OF(W) {
            R e = KEEP ? exponential(v[0][j] - shift) : summand(v[0][j] - shift);
            part += e;
            if (KEEP) v[0][j] = e;
        }
    });
    if (!Row::HELD) {
        own = top, top = row_join(row, top, Larger());
        if (own != top) part *= exponential(own - top), also.moved(shift_of(top) - shift_of(own));
    }
    *largest = top;
    return row_join(row, (double)part, Add());
}
struct Nothing {
    template <class V, class R> DEV_METHOD void operator()(int64_t, V &, R) const {}
    template <class R> DEV_METHOD void moved(R) const {}
};
/* of softmax: an infinity among the values leaves nan */
DEV double without_infinity(double sum) { return sum - sum == 0 ? sum : (double)NAN; }

/* A row of -inf alone gives nan, as it must; a.safe: 0. */
template <class Row> DEV void softmax(const ac_gpu_rows &a) {
    typedef typename Row::R R;
    each_row<Row>(a, [&](Row &row) {
        R top;
        double sum = without_infinity(sum_exponentials<Row::HELD>(row, &top, Nothing()));
        R scale = a.safe && sum == 0 ? (R)0 : (R)(1 / sum), shift = shift_of(top);
        row.write([&](int64_t, auto &v, auto &y) {
            EACH_OF(Row::W) y[j] = scale * (Row::HELD ? v[0][j] : exponential(v[0][j] - shift));
        });
    });
}

/* Subtracts in two parts, so that large logits keep their differences. */
template <class Row> DEV void log_softmax(const ac_gpu_rows &a) {
    typedef typename Row::R R;
    each_row<Row>(a, [&](Row &row) {
        R top, rest = (R)log(without_infinity(sum_exponentials<false>(row, &top, Nothing())));
        row.write([&](int64_t, auto &v, auto &y) { EACH_OF(Row::W) y[j] = (v[0][j] - top) - rest; });
    });
}

template <class Row> DEV void logsumexp(const ac_gpu_rows &a) {
    each_row<Row>(a, [&](Row &row) {
        typename Row::R top;
        double sum = sum_exponentials<false>(row, &top, Nothing()); /* infinities and nan stand as they are */
        if (row.thread() == 0) store_real<double>(a.out.ref, row.r, (double)top + log(sum));
    });
}

/* in: g, y */
template <class Row> DEV void softmax_backward(const ac_gpu_rows &a) {
    typedef typename Row::R R;
    each_row<Row>(a, [&](Row &row) {
        R part = 0;
        row.template each<BOTH>([&](int64_t, auto &v) { EACH_OF(Row::W) part += v[0][j] * v[1][j]; });
        R along = (R)row_join(row, (double)part, Add());
        row.write([&](int64_t, auto &v, auto &y) { EACH_OF(Row::W) y[j] = v[1][j] * (v[0][j] - along); });
    });
}

template <class Row> DEV void log_softmax_backward(const ac_gpu_rows &a) {
    typedef typename Row::R R;
    each_row<Row>(a, [&](Row &row) {
        R part = 0;
        row.template each<FIRST>([&](int64_t, auto &v) { EACH_OF(Row::W) part += v[0][j]; });
        R total = (R)row_join(row, (double)part, Add());
        row.write([&](int64_t, auto &v, auto &y) { EACH_OF(Row::W) y[j] = v[0][j] - exponential(v[1][j]) * total; });
    });
}

/* Ba, Kiros and Hinton 2016. Two passes over the row: the mean, then the squares around it. */
template <class Row> DEV void layer_norm(const ac_gpu_rows &a) {
    typedef typename Row::R R;
    constexpr int W = Row::W;
    each_row<Row>(a, [&](Row &row) {
        R sum = 0, squares = 0;
        row.template each<FIRST>([&](int64_t, auto &v) { EACH_OF(W) sum += v[0][j]; });
        double mean = row_join(row, (double)sum, Add()) / (double)a.n;
        R m = (R)mean;
        row.template each<FIRST>([&](int64_t, auto &v) { EACH_OF(W) squares += (v[0][j] - m) * (v[0][j] - m); });
        double rstd = 1 / sqrt(row_join(row, (double)squares, Add()) / (double)a.n + a.eps);
        R s = (R)rstd;
        if (row.thread() == 0) {
            store_real<double>(a.mean, row.r, mean);
            store_real<double>(a.rstd, row.r, rstd);
        }
        row.write([&](int64_t i, auto &v, auto &y) {
            R w[W], b[W];
            load_columns(a.weight, i, (R)1, w);
            load_columns(a.bias, i, (R)0, b);
            EACH_OF(W) y[j] = (v[0][j] - m) * s * w[j] + b[j];
        });
    });
}

/* in: g, x. A row that is held keeps g times the weight, and x normalized. */
template <class Row> DEV void layer_norm_backward(const ac_gpu_rows &a) {
    typedef typename Row::R R;
    constexpr int W = Row::W;
    each_row<Row>(a, [&](Row &row) {
        R m = load_real<R>(a.mean, row.r), s = load_real<R>(a.rstd, row.r), sum = 0, dot = 0;
        auto normalize = [&](int64_t i, auto &v) {
            R w[W];
            load_columns(a.weight, i, (R)1, w);
            EACH_OF(W) v[0][j] *= w[j], v[1][j] = (v[1][j] - m) * s;
        };
        row.template each<BOTH>([&](int64_t i, auto &v) {
            normalize(i, v);
            EACH_OF(W) sum += v[0][j], dot += v[0][j] * v[1][j];
        });
        R m1 = (R)(row_join(row, (double)sum, Add()) / (double)a.n),
          m2 = (R)(row_join(row, (double)dot, Add()) / (double)a.n);
        row.write([&](int64_t i, auto &v, auto &y) {
            if (!Row::HELD) normalize(i, v);
            EACH_OF(W) y[j] = s * (v[0][j] - m1 - v[1][j] * m2);
        });
    });
}

/* Of any rows in float32 and float64; of those that registers hold. */
#define ROWS(name, inputs)                                                                                             \
    AC_KERNEL(ac_##name##_f32, ac_gpu_rows) {                                                                          \
        if (a.vector) name<Runs<inputs, false>>(a);                                                                    \
        else name<Elements<float, inputs>>(a);                                                                         \
    }                                                                                                                  \
    AC_KERNEL(ac_##name##_f64, ac_gpu_rows) { name<Elements<double, inputs>>(a); }                                     \
    AC_KERNEL(ac_##name##_held, ac_gpu_rows) { name<Runs<inputs, true>>(a); }
ROWS(softmax, 1)
ROWS(log_softmax, 1)
ROWS(logsumexp, 1)
ROWS(softmax_backward, 2)
ROWS(log_softmax_backward, 2)
ROWS(layer_norm, 1)
ROWS(layer_norm_backward, 2)

/* -- cross entropy: a row a sample ------------------------------------------------------------------ */

/* Shares of a row's classes in its loss, of all classes evenly: their weights. */
template <class R> struct EvenShares {
    const ac_gpu_classes &of;
    template <int W> DEV_METHOD void operator()(int64_t i, R (&q)[W]) const {
        EACH_OF(W) q[j] = weight_of<R>(of, i + j);
    }
};
/* Those of the probabilities in[1]: w ((1 - s) t + s / classes). */
template <class R> struct TargetShares {
    const ac_gpu_entropy &a;
    int64_t base;
    R keep, even;
    DEV_METHOD TargetShares(const ac_gpu_entropy &args, int64_t r)
        : a(args), base(space_offset(args.rows.in[1].kept, r)), keep((R)(1 - args.smoothing)),
          even((R)(args.smoothing / (double)args.rows.n)) {}
    template <int W> DEV_METHOD void operator()(int64_t i, R (&q)[W]) const {
        const ac_gpu_rows_of &t = a.rows.in[1];
        if constexpr (W > 1) load_run<W>(t.ref.data, t.ref.dtype, base + i, q);
        else q[0] = load_real<R>(t.ref, base + space_offset(t.inner, i));
        EACH_OF(W) q[j] = (keep * q[j] + even) * weight_of<R>(a.of, i + j);
    }
};

/* The sum of the shares q of a row's values x, and that of q times what x is below the row's shift: so large logits
 * keep their differences. */
template <class R, class Shares> struct Below {
    Shares shares;
    R all = 0, part = 0;
    DEV_METHOD Below(const Shares &of) : shares(of) {}
    template <int W> DEV_METHOD void operator()(int64_t i, R (&x)[W], R shift) {
        R q[W];
        shares(i, q);
        EACH_OF(W) all += q[j], part += q[j] * (shift - x[j]);
    }
    DEV_METHOD void moved(R by) { part += all * by; }
};
/* The sum of q (lse - x) over the row, of which `rest` is the logarithm of the sum, and that of q. */
template <class Row, class B> DEV double shared_loss(const Row &row, const B &below, double rest, double *all) {
    *all = row_join(row, (double)below.all, Add());
    return *all * rest + row_join(row, (double)below.part, Add());
}

/* A sample's loss, and what it counts in the mean. */
DEV void note_loss(const ac_gpu_entropy &a, int64_t r, double loss, double weight) {
    if (a.each) a.each[2 * r] = loss, a.each[2 * r + 1] = weight;
    else store_real<double>(a.loss, r, loss);
}

/* The loss of a sample is w (lse - x[target]), where lse has two parts: the largest logit, and the logarithm of the
 * sum. Label smoothing takes 1 - s of that, and s / classes of w[c] (lse - x[c]) of every class c. */
template <class Row> DEV void entropy(const ac_gpu_entropy &a) {
    typedef typename Row::R R;
    each_row<Row>(a.rows, [&](Row &row) {
        const ac_gpu_rows_of &x = a.rows.in[0];
        int64_t c = class_of(a.of, row.r);
        R named = c < 0 ? 0 : load_real<R>(x.ref, space_offset(x.kept, row.r) + space_offset(x.inner, c)), largest;
        Below<R, EvenShares<R>> others(EvenShares<R>{a.of});
        double sum = a.smoothing == 0 ? sum_exponentials<false>(row, &largest, Nothing())
                                      : sum_exponentials<false>(row, &largest, others);
        double rest = log(without_infinity(sum)), top = (double)largest, w = c < 0 ? 0 : weight_of<double>(a.of, c);
        double loss = w * ((top - (double)named) + rest), all;
        if (a.smoothing != 0) loss += a.smoothing * (shared_loss(row, others, rest, &all) / (double)a.rows.n - loss);
        if (row.thread() != 0) return;
        a.lse[2 * row.r] = top, a.lse[2 * row.r + 1] = rest;
        note_loss(a, row.r, c < 0 ? 0 : loss, w);
    });
}
AC_KERNEL(ac_entropy_f32, ac_gpu_entropy) {
    if (a.rows.vector) entropy<Runs<1, false>>(a);
    else entropy<Elements<float, 1>>(a);
}
AC_KERNEL(ac_entropy_f64, ac_gpu_entropy) { entropy<Elements<double, 1>>(a); }
AC_KERNEL(ac_entropy_held, ac_gpu_entropy) { entropy<Runs<1, true>>(a); }

/* Of targets that are probabilities: the sum of q (lse - x). Backward is told the sum of q beside the parts of lse. */
template <class Row> DEV void soft_entropy(const ac_gpu_entropy &a) {
    typedef typename Row::R R;
    each_row<Row>(a.rows, [&](Row &row) {
        Below<R, TargetShares<R>> below(TargetShares<R>(a, row.r));
        R largest;
        double rest = log(without_infinity(sum_exponentials<false>(row, &largest, below))), all;
        double loss = shared_loss(row, below, rest, &all);
        if (row.thread() != 0) return;
        double *lse = a.lse + 3 * row.r;
        lse[0] = (double)largest, lse[1] = rest, lse[2] = all;
        note_loss(a, row.r, a.rows.n ? loss : 0, a.rows.n ? 1 : 0); /* without classes the mean is nan */
    });
}
AC_KERNEL(ac_soft_entropy_f32, ac_gpu_entropy) {
    if (a.rows.vector) soft_entropy<Runs<1, false>>(a);
    else soft_entropy<Elements<float, 1>>(a);
}
AC_KERNEL(ac_soft_entropy_f64, ac_gpu_entropy) { soft_entropy<Elements<double, 1>>(a); }
AC_KERNEL(ac_soft_entropy_held, ac_gpu_entropy) { soft_entropy<Runs<1, true>>(a); }

/* The sum of pairs [begin, end), by all of a block. */
DEV void pair_sum(const double *pairs, int64_t begin, int64_t end, double *one, double *two) {
    double x = 0, y = 0;
    for (int64_t i = begin + threadIdx.x; i < end; i += AC_GPU_THREADS) x += pairs[2 * i], y += pairs[2 * i + 1];
    *one = block_join(x, Add()), *two = block_join(y, Add());
}

/* Parts of so many samples each. */
AC_KERNEL(ac_entropy_parts, ac_gpu_entropy) {
    for (int64_t part = blockIdx.x; part * AC_GPU_LOSSES < a.n; part += gridDim.x) {
        int64_t end = (part + 1) * AC_GPU_LOSSES;
        double loss, weight;
        pair_sum(a.each, part * AC_GPU_LOSSES, end < a.n ? end : a.n, &loss, &weight);
        if (threadIdx.x == 0) a.parts[2 * part] = loss, a.parts[2 * part + 1] = weight;
    }
}

/* By one block: the loss of all, and the weights of the samples that count and of all classes. */
AC_KERNEL(ac_entropy_join, ac_gpu_entropy) {
    double loss, weight, all = 0;
    pair_sum(a.each, 0, a.n, &loss, &weight);
    for (int64_t c = threadIdx.x; c < a.of.classes; c += AC_GPU_THREADS) all += weight_of<double>(a.of, c);
    all = block_join(all, Add());
    if (threadIdx.x != 0) return;
    if (a.totals) a.totals[0] = weight, a.totals[1] = all;
    if (a.mean) loss = (weight == 0 ? 0 : loss) / weight; /* nan, also where label smoothing leaves a loss */
    if (a.loss.data) store_real<double>(a.loss, 0, loss);
}

/* g times the shares of the classes minus the target: each logit is read once, its gradient is written once. */
template <class Row> DEV void entropy_backward(const ac_gpu_entropy &a) {
    typedef typename Row::R R;
    each_row<Row>(a.rows, [&](Row &row) {
        int64_t c = class_of(a.of, row.r);
        double g = load_real<double>(a.g, space_offset(a.g_at, row.r));
        if (a.mean) g /= a.totals[0];
        double hit = c < 0 ? 0 : g * (1 - a.smoothing) * weight_of<double>(a.of, c);
        R even = c < 0 ? 0 : (R)(g * a.smoothing / (double)a.rows.n), take = (R)hit;
        R by = (R)(hit + (a.smoothing == 0 ? 0 : (double)even * a.totals[1]));
        R top = (R)a.lse[2 * row.r], rest = (R)a.lse[2 * row.r + 1];
        auto share = [&](int64_t i, auto &v, auto &y) {
            if (c < 0) EACH_OF(Row::W) y[j] = 0;
            else EACH_OF(Row::W) y[j] = by * exponential((v[0][j] - top) - rest);
            if (c >= i && c < i + Row::W) EACH_OF(Row::W) y[j] -= c == i + j ? take : (R)0;
        };
        if (a.smoothing == 0) row.write(share);
        else
            row.write([&](int64_t i, auto &v, auto &y) {
                share(i, v, y);
                if (c >= 0) EACH_OF(Row::W) y[j] -= even * weight_of<R>(a.of, i + j);
            });
    });
}
AC_KERNEL(ac_entropy_backward_f32, ac_gpu_entropy) {
    if (a.rows.vector) entropy_backward<Runs<1, false>>(a);
    else entropy_backward<Elements<float, 1>>(a);
}
AC_KERNEL(ac_entropy_backward_f64, ac_gpu_entropy) { entropy_backward<Elements<double, 1>>(a); }

template <class Row> DEV void soft_entropy_backward(const ac_gpu_entropy &a) {
    typedef typename Row::R R;
    each_row<Row>(a.rows, [&](Row &row) {
        TargetShares<R> shares(a, row.r);
        const double *lse = a.lse + 3 * row.r;
        double g = load_real<double>(a.g, space_offset(a.g_at, row.r));
        if (a.mean) g /= (double)a.rows.rows;
        R top = (R)lse[0], rest = (R)lse[1], by = (R)(g * lse[2]), take = (R)g;
        row.write([&](int64_t i, auto &v, auto &y) {
            R q[Row::W];
            shares(i, q);
            EACH_OF(Row::W) y[j] = by * exponential((v[0][j] - top) - rest) - take * q[j];
        });
    });
}
AC_KERNEL(ac_soft_entropy_backward_f32, ac_gpu_entropy) {
    if (a.rows.vector) soft_entropy_backward<Runs<1, false>>(a);
    else soft_entropy_backward<Elements<float, 1>>(a);
}
AC_KERNEL(ac_soft_entropy_backward_f64, ac_gpu_entropy) { soft_entropy_backward<Elements<double, 1>>(a); }

/* -- the gradients of layer norm's weight and bias: sums down the columns, in parts ----------------- */

enum { WIDE = 32, DEEP = AC_GPU_THREADS / WIDE, RUN = 8 };

/* A thread's rows, every eighth of [i, end): dw += g * xhat and db += g of the columns from j on. */
template <class R>
DEV void add_rows(const ac_gpu_columns &a, int64_t j, int64_t i, int64_t end, R (&dw)[1], R (&db)[1]) {
    for (; i < end; i += DEEP) {
        R g = load_real<R>(a.g, i * a.n + j), x = load_real<R>(a.x, i * a.n + j);
        dw[0] += g * ((x - load_real<R>(a.mean, i)) * load_real<R>(a.rstd, i)), db[0] += g;
    }
}
/* Four rows are on the way at a time; rows past the end are those of `i`, and count nothing. */
template <int DTYPE>
DEV void add_runs(const ac_gpu_columns &a, int64_t j, int64_t i, int64_t end, float (&dw)[RUN], float (&db)[RUN]) {
    constexpr int U = 4;
    typedef typename stored<DTYPE>::type E;
    for (; i < end; i += U * DEEP) {
        pack<E, RUN> g[U], x[U];
        float mean[U], rstd[U];
#pragma unroll
        for (int u = 0; u < U; u++) {
            int64_t row = i + u * DEEP < end ? i + u * DEEP : i;
            mean[u] = load_real<float>(a.mean, row), rstd[u] = load_real<float>(a.rstd, row);
        }
#pragma unroll
        for (int u = 0; u < U; u++) {
            int64_t at = (i + u * DEEP < end ? i + u * DEEP : i) * a.n + j;
            g[u] = *(const pack<E, RUN> *)((const E *)a.g.data + at);
            x[u] = *(const pack<E, RUN> *)((const E *)a.x.data + at);
        }
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (i + u * DEEP >= end) continue;
            EACH_OF(RUN) {
                float gj = stored<DTYPE>::value(g[u].v[j]), xj = stored<DTYPE>::value(x[u].v[j]);
                dw[j] += gj * ((xj - mean[u]) * rstd[u]), db[j] += gj;
            }
        }
    }
}
DEV void add_rows(const ac_gpu_columns &a, int64_t j, int64_t i, int64_t end, float (&dw)[RUN], float (&db)[RUN]) {
    if (a.x.dtype == AC_float16) add_runs<AC_float16>(a, j, i, end, dw, db);
    else if (a.x.dtype == AC_float32) add_runs<AC_float32>(a, j, i, end, dw, db);
    else add_runs<AC_bfloat16>(a, j, i, end, dw, db);
}

template <class R, int V> DEV void norm_columns(const ac_gpu_columns &a) {
    R *room = (R *)ac_shared_memory; /* [DEEP][WIDE][V], of dw and of db */
    int column = threadIdx.x % WIDE * V, deep = threadIdx.x / WIDE, behind = AC_GPU_THREADS * V;
    int64_t blocks = (a.n + WIDE * V - 1) / (WIDE * V), each = (a.rows + a.parts - 1) / a.parts;
    for (int64_t job = blockIdx.x; job < blocks * a.parts; job += gridDim.x) {
        int64_t part = quotient(job, blocks), left = (job - part * blocks) * WIDE * V;
        int64_t end = (part + 1) * each < a.rows ? (part + 1) * each : a.rows;
        R dw[V] = {0}, db[V] = {0};
        if (left + column < a.n) add_rows(a, left + column, part * each + deep, end, dw, db);
        __syncthreads();
        EACH_OF(V) room[threadIdx.x * V + j] = dw[j], room[behind + threadIdx.x * V + j] = db[j];
        __syncthreads();
        int64_t j = left + threadIdx.x;
        if (threadIdx.x >= WIDE * V || j >= a.n) continue;
        double w = 0, b = 0;
        for (int d = 0; d < DEEP; d++)
            w += room[d * WIDE * V + threadIdx.x], b += room[behind + d * WIDE * V + threadIdx.x];
        a.partial[(part * 2) * a.n + j] = w, a.partial[(part * 2 + 1) * a.n + j] = b;
    }
}
AC_KERNEL(ac_norm_columns_f32, ac_gpu_columns) {
    if (a.vector) norm_columns<float, RUN>(a);
    else norm_columns<float, 1>(a);
}
AC_KERNEL(ac_norm_columns_f64, ac_gpu_columns) { norm_columns<double, 1>(a); }

/* Blocks of 32 columns, eight threads deep along the parts. */
AC_KERNEL(ac_norm_columns_join, ac_gpu_columns) {
    double *room = (double *)ac_shared_memory;
    int deep = threadIdx.x / WIDE;
    for (int64_t left = (int64_t)blockIdx.x * WIDE; left < a.n; left += (int64_t)gridDim.x * WIDE) {
        int64_t j = left + threadIdx.x % WIDE;
        double dw = 0, db = 0;
#pragma unroll 4
        for (int64_t part = deep; j < a.n && part < a.parts; part += DEEP)
            dw += a.partial[(part * 2) * a.n + j], db += a.partial[(part * 2 + 1) * a.n + j];
        __syncthreads();
        room[threadIdx.x] = dw, room[AC_GPU_THREADS + threadIdx.x] = db;
        __syncthreads();
        if (deep != 0 || j >= a.n) continue;
        for (int d = 1; d < DEEP; d++)
            dw += room[d * WIDE + threadIdx.x], db += room[AC_GPU_THREADS + d * WIDE + threadIdx.x];
        store_real<double>(a.dweight, j, dw);
        store_real<double>(a.dbias, j, db);
    }
}
