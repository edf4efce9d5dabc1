/* Operators on rows: softmax and its relatives, cross entropy, layer norm. a.group threads compute a row: a warp for
 * short rows (8 rows a block), the whole block for long ones, one thread where neighbouring rows lie side by side. A
 * row that fits is read once and kept in shared memory; each thread reads again only what it wrote itself. Softmax of a
 * row that does not fit reads it twice: the largest value and the sum of exponentials take one read (Milakov and
 * Gimelshein 2018). */
#include "cuda/classes.cuh"

/* An element of a row, and where it is kept: what neighbouring threads keep at a time lies side by side, so that
 * shared memory serves them at once. */
struct Element {
    int64_t i;
    uint32_t slot;
};

template <class R> struct Row;
template <int INPUTS, class F> DEV void put(const Row<double> &row, F f);
template <int INPUTS, class F> DEV void put(const Row<float> &row, F f);

/* The elements of a row that this thread owns, in the same order in every pass. */
template <class R> struct Row {
    const ac_gpu_rows &a;
    int64_t r;
    R *room; /* a.slots values for each cached input */

    static constexpr int V = 8;

    DEV_METHOD Row(const ac_gpu_rows &args, int64_t row, char *shared, int inputs)
        : a(args), r(row), room((R *)shared + (int64_t)(threadIdx.x / args.group) * inputs * args.slots) {}

    DEV_METHOD uint32_t thread(void) const { return threadIdx.x % (uint32_t)a.group; }
    DEV_METHOD bool is_first(void) const { return thread() == 0; }

    DEV_METHOD void keep(int k, Element p, R v) const {
        if (a.cached) room[k * a.slots + p.slot] = v;
    }
    /* one value of input k, where it is kept or in memory */
    DEV_METHOD R value(int k, Element p) const {
        if (a.cached) return room[k * a.slots + p.slot];
        return load_real<R>(a.in[k].ref, space_offset(a.in[k].kept, r) + space_offset(a.in[k].inner, p.i));
    }

    /* run(i, slot) for this thread's runs of neighbours, whose slots are a.group apart; one(element) for single
     * elements
     */
    template <class F> DEV_METHOD void each_run(F run) const {
        uint32_t slot = thread();
        for (int64_t i = (int64_t)slot * V; i < a.n; i += a.group * V, slot += (uint32_t)a.group * V) run(i, slot);
    }
    template <class F> DEV_METHOD void each_element(F one) const {
        uint32_t slot = thread();
        for (int64_t i = slot; i < a.n; i += a.group, slot += (uint32_t)a.group) one(Element{i, slot});
    }

    /* f(element, value) for input k, read from memory and kept */
    template <class F> DEV_METHOD void first(int k, F f) const { read(*this, k, f); }
    /* the same, from where it was kept */
    template <class F> DEV_METHOD void again(int k, F f) const {
        if (!a.cached) first(k, f);
        else if (!a.vector) each_element([&](Element p) { f(p, value(k, p)); });
        else
            each_run([&](int64_t i, uint32_t slot) {
                for (int j = 0; j < V; j++) {
                    Element p = {i + j, slot + (uint32_t)(j * a.group)};
                    f(p, value(k, p));
                }
            });
    }
    /* what later passes want of input k, where it is kept */
    DEV_METHOD void fetch(int k) const {
        if (a.cached) first(k, [](Element, R) {});
    }
    /* result[i] = f(element, values of INPUTS inputs) */
    template <int INPUTS, class F> DEV_METHOD void write(F f) const { put<INPUTS>(*this, f); }
};

template <class R, class F> DEV void read_elements(const Row<R> &row, int k, F f) {
    const ac_gpu_rows_of &x = row.a.in[k];
    int64_t base = space_offset(x.kept, row.r);
    row.each_element([&](Element p) {
        R v = load_real<R>(x.ref, base + space_offset(x.inner, p.i));
        row.keep(k, p, v);
        f(p, v);
    });
}
template <class F> DEV void read(const Row<double> &row, int k, F f) { read_elements(row, k, f); }
template <class F> DEV void read(const Row<float> &row, int k, F f) {
    constexpr int V = Row<float>::V;
    if (!row.a.vector) {
        read_elements(row, k, f);
        return;
    }
    const ac_gpu_rows_of &x = row.a.in[k];
    int64_t base = space_offset(x.kept, row.r);
    row.each_run([&](int64_t i, uint32_t slot) {
        float v[V];
        load_run<V>(x.ref.data, x.ref.dtype, base + i, v);
        EACH_OF(V) {
            Element p = {i + j, slot + (uint32_t)(j * row.a.group)};
            row.keep(k, p, v[j]);
            f(p, v[j]);
        }
    });
}

template <int INPUTS, class R, class F> DEV void put_elements(const Row<R> &row, F f) {
    int64_t base = space_offset(row.a.out.kept, row.r);
    row.each_element([&](Element p) {
        R y = f(p, row.value(0, p), INPUTS > 1 ? row.value(1, p) : 0);
        store_real<R>(row.a.out.ref, base + space_offset(row.a.out.inner, p.i), y);
    });
}
template <int INPUTS, class F> DEV void put(const Row<double> &row, F f) { put_elements<INPUTS>(row, f); }
template <int INPUTS, class F> DEV void put(const Row<float> &row, F f) {
    constexpr int V = Row<float>::V;
    if (!row.a.vector) {
        put_elements<INPUTS>(row, f);
        return;
    }
    int64_t base = space_offset(row.a.out.kept, row.r), from[2];
    for (int k = 0; k < INPUTS; k++) from[k] = space_offset(row.a.in[k].kept, row.r);
    row.each_run([&](int64_t i, uint32_t slot) {
        float v[2][V] = {{0}, {0}}, y[V];
        for (int k = 0; k < INPUTS; k++) {
            if (!row.a.cached) load_run<V>(row.a.in[k].ref.data, row.a.in[k].ref.dtype, from[k] + i, v[k]);
            else EACH_OF(V) v[k][j] = row.value(k, Element{i + j, slot + (uint32_t)(j * row.a.group)});
        }
        EACH_OF(V) y[j] = f(Element{i + j, slot + (uint32_t)(j * row.a.group)}, v[0][j], v[1][j]);
        store_run<V>(row.a.out.ref.data, row.a.out.ref.dtype, base + i, y);
    });
}

DEV float exponential(float x) { return expf(x); }
DEV double exponential(double x) { return exp(x); }

/* Memory for joining lies before that of the rows. */
enum { ROOM_BYTES = AC_GPU_THREADS / 32 * 8 };

/* body(row) for the rows of this group; all threads of a block go round together. */
template <class R, class F> DEV void each_row(const ac_gpu_rows &a, int inputs, F body) {
    int64_t group = threadIdx.x / a.group, groups = AC_GPU_THREADS / a.group;
    for (int64_t r = (int64_t)blockIdx.x * groups; r < a.rows; r += (int64_t)gridDim.x * groups) {
        bool real = r + group < a.rows; /* a group without a row works on the last one and writes the same */
        Row<R> row(a, real ? r + group : a.rows - 1, ac_shared_memory + ROOM_BYTES, inputs);
        body(row);
    }
}
template <class R, class V, class Join> DEV V row_join(const Row<R> &row, V v, Join join) {
    return group_join(row.a.group, v, (V *)ac_shared_memory, join);
}

/* The largest value so far, and the sum of the exponentials of what all are above it. */
template <class R> struct Exponentials {
    R top = (R)-INFINITY, part = 0;

    DEV_METHOD void add(R v) {
        if (v == (R)-INFINITY) return;
        if (v > top || v != v) part *= exponential(top - v), top = v;
        part += exponential(v - top);
    }
    /* those of the whole row, as a float64 sum */
    DEV_METHOD double of_row(const Row<R> &row) {
        R own = top;
        top = row_join(row, top, Larger());
        return row_join(row, own == (R)-INFINITY ? 0.0 : (double)(part * exponential(own - top)), Add());
    }
};
template <class R> DEV Exponentials<R> exponentials_of(const Row<R> &row, double *sum) {
    Exponentials<R> e;
    row.first(0, [&](Element, R v) { e.add(v); });
    *sum = e.of_row(row);
    return e;
}

/* A row of -inf alone shifts by -inf and gives nan, as it must; a.safe: it shifts by 0 and gives 0. */
template <class R> DEV R shift_of(const ac_gpu_rows &a, R top) { return a.safe && top == (R)-INFINITY ? (R)0 : top; }

/* A row that is kept takes one exponential a value. */
template <class R> DEV void softmax(const ac_gpu_rows &a) {
    each_row<R>(a, 1, [&](const Row<R> &row) {
        R top = (R)-INFINITY, part = 0;
        double sum;
        if (a.cached) {
            row.first(0, [&](Element, R v) { top = v > top ? v : top; });
            top = shift_of(a, row_join(row, top, Larger()));
            row.again(0, [&](Element p, R v) {
                R e = exponential(v - top);
                row.keep(0, p, e); /* instead of the value */
                part += e;
            });
            sum = row_join(row, (double)part, Add());
        } else top = shift_of(a, exponentials_of(row, &sum).top);
        R scale = a.safe && sum == 0 ? (R)0 : (R)(1 / sum);
        row.template write<1>([&](Element, R v, R) { return scale * (a.cached ? v : exponential(v - top)); });
    });
}

/* Subtracts in two parts, so that large logits keep their differences. */
template <class R> DEV void log_softmax(const ac_gpu_rows &a) {
    each_row<R>(a, 1, [&](const Row<R> &row) {
        double sum;
        R top = exponentials_of(row, &sum).top, rest = (R)log(sum);
        row.template write<1>([&](Element, R v, R) { return (v - top) - rest; });
    });
}

template <class R> DEV void logsumexp(const ac_gpu_rows &a) {
    each_row<R>(a, 1, [&](const Row<R> &row) {
        double sum, top = (double)exponentials_of(row, &sum).top; /* infinities and nan stand as they are */
        if (row.is_first()) store_real<double>(a.out.ref, row.r, top - top == 0 ? top + log(sum) : top);
    });
}

/* in: g, y */
template <class R> DEV void softmax_backward(const ac_gpu_rows &a) {
    each_row<R>(a, 2, [&](const Row<R> &row) {
        R part = 0;
        row.fetch(0);
        row.first(1, [&](Element p, R y) { part += row.value(0, p) * y; });
        R along = (R)row_join(row, (double)part, Add());
        row.template write<2>([&](Element, R g, R y) { return y * (g - along); });
    });
}

template <class R> DEV void log_softmax_backward(const ac_gpu_rows &a) {
    each_row<R>(a, 2, [&](const Row<R> &row) {
        R part = 0;
        row.first(0, [&](Element, R g) { part += g; });
        row.fetch(1);
        R total = (R)row_join(row, (double)part, Add());
        row.template write<2>([&](Element, R g, R y) { return g - exponential(y) * total; });
    });
}

/* Ba, Kiros and Hinton 2016. Two passes over the row: the mean, then the squares around it. */
template <class R> DEV void layer_norm(const ac_gpu_rows &a) {
    each_row<R>(a, 1, [&](const Row<R> &row) {
        R sum = 0, squares = 0;
        row.first(0, [&](Element, R v) { sum += v; });
        double mean = row_join(row, (double)sum, Add()) / (double)a.n;
        R m = (R)mean;
        row.again(0, [&](Element, R v) { squares += (v - m) * (v - m); });
        double rstd = 1 / sqrt(row_join(row, (double)squares, Add()) / (double)a.n + a.eps);
        R s = (R)rstd;
        if (row.is_first()) {
            store_real<double>(a.mean, row.r, mean);
            store_real<double>(a.rstd, row.r, rstd);
        }
        row.template write<1>([&](Element p, R x, R) {
            R y = (x - m) * s;
            if (a.weight.data) y *= load_real<R>(a.weight, p.i);
            return a.bias.data ? y + load_real<R>(a.bias, p.i) : y;
        });
    });
}

/* in: g, x */
template <class R> DEV void layer_norm_backward(const ac_gpu_rows &a) {
    each_row<R>(a, 2, [&](const Row<R> &row) {
        R m = load_real<R>(a.mean, row.r), s = load_real<R>(a.rstd, row.r), sum = 0, dot = 0;
        auto weighted = [&](Element p, R g) { return a.weight.data ? g * load_real<R>(a.weight, p.i) : g; };
        row.fetch(0);
        row.first(1, [&](Element p, R x) {
            R gw = weighted(p, row.value(0, p));
            sum += gw, dot += gw * ((x - m) * s);
        });
        R m1 = (R)(row_join(row, (double)sum, Add()) / (double)a.n),
          m2 = (R)(row_join(row, (double)dot, Add()) / (double)a.n);
        row.template write<2>([&](Element p, R g, R x) { return s * (weighted(p, g) - m1 - (x - m) * s * m2); });
    });
}

#define ROWS(name)                                                                                                     \
    AC_KERNEL(ac_##name##_f32, ac_gpu_rows) { name<float>(a); }                                                        \
    AC_KERNEL(ac_##name##_f64, ac_gpu_rows) { name<double>(a); }
ROWS(softmax)
ROWS(log_softmax)
ROWS(logsumexp)
ROWS(softmax_backward)
ROWS(log_softmax_backward)
ROWS(layer_norm)
ROWS(layer_norm_backward)

/* -- cross entropy: a row a sample ------------------------------------------------------------------ */

/* The loss of a sample is w (lse - x[target]), where lse has two parts: the largest logit, and the logarithm of the
 * sum. Label smoothing takes 1 - s of that, and s / classes of w[c] (lse - x[c]) of every class c: the sum of the
 * latter is around x[target], so that large logits keep their differences. */
template <class R> DEV void entropy(const ac_gpu_entropy &a) {
    each_row<R>(a.rows, 1, [&](const Row<R> &row) {
        const ac_gpu_rows_of &x = a.rows.in[0];
        int64_t c = class_of(a.of, row.r);
        R named = c < 0 ? 0 : load_real<R>(x.ref, space_offset(x.kept, row.r) + space_offset(x.inner, c));
        R from = named - named == 0 ? named : 0, weights = 0, part = 0;
        Exponentials<R> e;
        row.first(0, [&](Element p, R v) {
            e.add(v);
            if (a.smoothing == 0) return;
            R w = weight_of<R>(a.of, p.i);
            weights += w, part += w * (v - from);
        });
        double rest = log(e.of_row(row)), top = (double)e.top, w = c < 0 ? 0 : weight_of<double>(a.of, c);
        double loss = w * ((top - (double)named) + rest);
        if (a.smoothing != 0) {
            double all = row_join(row, (double)weights, Add()), others = row_join(row, (double)part, Add());
            loss += a.smoothing * ((all * ((top - (double)from) + rest) - others) / (double)a.rows.n - loss);
        }
        if (!row.is_first()) return;
        if (c < 0) loss = 0;
        a.lse[2 * row.r] = top, a.lse[2 * row.r + 1] = rest;
        if (a.each) a.each[2 * row.r] = loss, a.each[2 * row.r + 1] = w;
        else store_real<double>(a.loss, row.r, loss);
    });
}
AC_KERNEL(ac_entropy_f32, ac_gpu_entropy) { entropy<float>(a); }
AC_KERNEL(ac_entropy_f64, ac_gpu_entropy) { entropy<double>(a); }

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
    a.totals[0] = weight, a.totals[1] = all;
    if (a.mean) loss = (weight == 0 ? 0 : loss) / weight; /* nan, also where label smoothing leaves a loss */
    if (a.loss.data) store_real<double>(a.loss, 0, loss);
}

/* g times the shares of the classes minus the target: each logit is read once, its gradient is written once. */
template <class R> DEV void entropy_backward(const ac_gpu_entropy &a) {
    each_row<R>(a.rows, 1, [&](const Row<R> &row) {
        int64_t c = class_of(a.of, row.r);
        double g = load_real<double>(a.g, space_offset(a.g_at, row.r));
        if (a.mean) g /= a.totals[0];
        double hit = c < 0 ? 0 : g * (1 - a.smoothing) * weight_of<double>(a.of, c);
        R even = c < 0 ? 0 : (R)(g * a.smoothing / (double)a.rows.n), take = (R)hit;
        R by = (R)(hit + (a.smoothing == 0 ? 0 : (double)even * a.totals[1]));
        R top = (R)a.lse[2 * row.r], rest = (R)a.lse[2 * row.r + 1];
        row.template write<1>([&](Element p, R v, R) {
            if (c < 0) return (R)0;
            R y = by * exponential((v - top) - rest);
            if (a.smoothing != 0) y -= even * weight_of<R>(a.of, p.i);
            return p.i == c ? y - take : y;
        });
    });
}
AC_KERNEL(ac_entropy_backward_f32, ac_gpu_entropy) { entropy_backward<float>(a); }
AC_KERNEL(ac_entropy_backward_f64, ac_gpu_entropy) { entropy_backward<double>(a); }

/* -- the gradients of layer norm's weight and bias: sums down the columns, in parts ----------------- */

enum { WIDE = 32, DEEP = AC_GPU_THREADS / WIDE, RUN = 4 };

/* A thread's rows, every eighth of [i, end): dw += g * xhat and db += g of V columns from j on. */
template <class R, int V> struct Columns {
    DEV_METHOD static void add(const ac_gpu_columns &a, int64_t j, int64_t i, int64_t end, R *dw, R *db) {
        for (; i < end; i += DEEP) {
            R g = load_real<R>(a.g, i * a.n + j), x = load_real<R>(a.x, i * a.n + j);
            *dw += g * ((x - load_real<R>(a.mean, i)) * load_real<R>(a.rstd, i)), *db += g;
        }
    }
};
template <> struct Columns<float, RUN> {
    DEV_METHOD static void add(const ac_gpu_columns &a, int64_t j, int64_t i, int64_t end, float *dw, float *db) {
        constexpr int U = 4; /* rows in flight */
        for (; i < end; i += U * DEEP) {
            int64_t at[U];
            float g[U][RUN], x[U][RUN];
            for (int u = 0; u < U; u++) at[u] = (i + u * DEEP < end ? i + u * DEEP : i) * a.n + j;
            load_runs<U, RUN>(a.g.data, a.g.dtype, at, g);
            load_runs<U, RUN>(a.x.data, a.x.dtype, at, x);
#pragma unroll
            for (int u = 0; u < U; u++) {
                if (i + u * DEEP >= end) continue;
                float mean = load_real<float>(a.mean, i + u * DEEP), rstd = load_real<float>(a.rstd, i + u * DEEP);
                EACH_OF(RUN) dw[j] += g[u][j] * ((x[u][j] - mean) * rstd), db[j] += g[u][j];
            }
        }
    }
};

template <class R, int V> DEV void norm_columns(const ac_gpu_columns &a) {
    double *room = (double *)ac_shared_memory; /* [DEEP][WIDE][V], of dw and of db */
    int column = threadIdx.x % WIDE * V, deep = threadIdx.x / WIDE, behind = AC_GPU_THREADS * V;
    int64_t blocks = (a.n + WIDE * V - 1) / (WIDE * V), each = (a.rows + a.parts - 1) / a.parts;
    for (int64_t job = blockIdx.x; job < blocks * a.parts; job += gridDim.x) {
        int64_t part = quotient(job, blocks), left = (job - part * blocks) * WIDE * V;
        int64_t end = (part + 1) * each < a.rows ? (part + 1) * each : a.rows;
        R dw[V] = {0}, db[V] = {0};
        if (left + column < a.n) Columns<R, V>::add(a, left + column, part * each + deep, end, dw, db);
        __syncthreads();
        EACH_OF(V) room[threadIdx.x * V + j] = (double)dw[j], room[behind + threadIdx.x * V + j] = (double)db[j];
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
