/* Operators on rows: softmax and its relatives, layer norm. a.group threads compute a row: a warp for short rows (8
 * rows a block), the whole block for long ones. A row that fits is read once and kept in shared memory; each thread
 * reads again only what it wrote itself. */
#include "cuda/device.cuh"

/* An element of a row, and where it is kept: what neighbouring threads keep at a time lies side by side, so that
 * shared memory serves them at once. */
struct Element {
    int64_t i;
    uint32_t slot;
};

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
    /* result[i] = f(element) */
    template <class F> DEV_METHOD void write(F f) const { put(*this, f); }
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

template <class R, class F> DEV void put_elements(const Row<R> &row, F f) {
    int64_t base = space_offset(row.a.out.kept, row.r);
    row.each_element([&](Element p) { store_real<R>(row.a.out.ref, base + space_offset(row.a.out.inner, p.i), f(p)); });
}
template <class F> DEV void put(const Row<double> &row, F f) { put_elements(row, f); }
template <class F> DEV void put(const Row<float> &row, F f) {
    constexpr int V = Row<float>::V;
    if (!row.a.vector) {
        put_elements(row, f);
        return;
    }
    int64_t base = space_offset(row.a.out.kept, row.r);
    row.each_run([&](int64_t i, uint32_t slot) {
        float v[V];
        EACH_OF(V) v[j] = f(Element{i + j, slot + (uint32_t)(j * row.a.group)});
        store_run<V>(row.a.out.ref.data, row.a.out.ref.dtype, base + i, v);
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

/* A row of -inf alone shifts by -inf and gives nan, as it must. */
template <class R> DEV R row_top(const Row<R> &row) {
    R top = (R)-INFINITY;
    row.first(0, [&](Element, R v) { top = v > top ? v : top; });
    return row_join(row, top, Larger());
}

template <class R> DEV void softmax(const ac_gpu_rows &a) {
    each_row<R>(a, 1, [&](const Row<R> &row) {
        R top = row_top(row), part = 0;
        row.again(0, [&](Element p, R v) {
            R e = exponential(v - top);
            row.keep(0, p, e); /* instead of the value */
            part += e;
        });
        R scale = (R)(1 / row_join(row, (double)part, Add()));
        row.write([&](Element p) { return scale * (a.cached ? row.value(0, p) : exponential(row.value(0, p) - top)); });
    });
}

/* Subtracts in two parts, so that large logits keep their differences. */
template <class R> DEV void log_softmax(const ac_gpu_rows &a) {
    each_row<R>(a, 1, [&](const Row<R> &row) {
        R top = row_top(row), part = 0;
        row.again(0, [&](Element, R v) { part += exponential(v - top); });
        R rest = (R)log(row_join(row, (double)part, Add()));
        row.write([&](Element p) { return (row.value(0, p) - top) - rest; });
    });
}

template <class R> DEV void logsumexp(const ac_gpu_rows &a) {
    each_row<R>(a, 1, [&](const Row<R> &row) {
        R top = (R)-INFINITY, part = 0;
        row.first(0, [&](Element, R v) { top = Larger()(top, v); });
        top = row_join(row, top, Larger());
        R shift = top - top == 0 ? top : 0; /* infinities and nan stand as they are */
        row.again(0, [&](Element, R v) { part += exponential(v - shift); });
        double total = row_join(row, (double)part, Add());
        double result = shift == top ? (double)top + log(total) : total != total ? total : (double)top;
        if (row.is_first()) store_real<double>(a.out.ref, row.r, a.n > 0 ? result : (double)-INFINITY);
    });
}

/* in: g, y */
template <class R> DEV void softmax_backward(const ac_gpu_rows &a) {
    each_row<R>(a, 2, [&](const Row<R> &row) {
        R part = 0;
        row.first(0, [&](Element, R) {});
        row.first(1, [&](Element p, R y) { part += row.value(0, p) * y; });
        R along = (R)row_join(row, (double)part, Add());
        row.write([&](Element p) { return row.value(1, p) * (row.value(0, p) - along); });
    });
}

template <class R> DEV void log_softmax_backward(const ac_gpu_rows &a) {
    each_row<R>(a, 2, [&](const Row<R> &row) {
        R part = 0;
        row.first(0, [&](Element, R g) { part += g; });
        row.first(1, [&](Element, R) {});
        R total = (R)row_join(row, (double)part, Add());
        row.write([&](Element p) { return row.value(0, p) - exponential(row.value(1, p)) * total; });
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
        row.write([&](Element p) {
            R y = (row.value(0, p) - m) * s;
            if (a.weight.data) y *= load_real<R>(a.weight, p.i);
            return a.bias.data ? y + load_real<R>(a.bias, p.i) : y;
        });
    });
}

/* in: g, x */
template <class R> DEV void layer_norm_backward(const ac_gpu_rows &a) {
    each_row<R>(a, 2, [&](const Row<R> &row) {
        R m = load_real<R>(a.mean, row.r), s = load_real<R>(a.rstd, row.r), sum = 0, dot = 0;
        auto weighted = [&](Element p) {
            return a.weight.data ? row.value(0, p) * load_real<R>(a.weight, p.i) : row.value(0, p);
        };
        row.first(0, [&](Element, R) {});
        row.first(1, [&](Element p, R x) {
            R gw = weighted(p);
            sum += gw, dot += gw * ((x - m) * s);
        });
        R m1 = (R)(row_join(row, (double)sum, Add()) / (double)a.n),
          m2 = (R)(row_join(row, (double)dot, Add()) / (double)a.n);
        row.write([&](Element p) { return s * (weighted(p) - m1 - (row.value(1, p) - m) * s * m2); });
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

/* -- the gradients of layer norm's weight and bias: sums down the columns, in parts ----------------- */

enum { WIDE = 32, DEEP = AC_GPU_THREADS / WIDE };

AC_KERNEL(ac_norm_columns, ac_gpu_columns) {
    double *room = (double *)ac_shared_memory; /* [2][threads] */
    int lane = threadIdx.x % WIDE, deep = threadIdx.x / WIDE;
    int64_t blocks = (a.n + WIDE - 1) / WIDE, each = (a.rows + a.parts - 1) / a.parts;
    for (int64_t job = blockIdx.x; job < blocks * a.parts; job += gridDim.x) {
        int64_t part = job / blocks, j = job % blocks * WIDE + lane;
        int64_t end = (part + 1) * each < a.rows ? (part + 1) * each : a.rows;
        double dw = 0, db = 0;
        for (int64_t i = part * each + deep; j < a.n && i < end; i += DEEP) {
            double g = load_real<double>(a.g, i * a.n + j), x = load_real<double>(a.x, i * a.n + j);
            dw += g * ((x - load_real<double>(a.mean, i)) * load_real<double>(a.rstd, i)), db += g;
        }
        __syncthreads();
        room[threadIdx.x] = dw, room[AC_GPU_THREADS + threadIdx.x] = db;
        __syncthreads();
        if (deep != 0 || j >= a.n) continue;
        for (int d = 1; d < DEEP; d++) dw += room[d * WIDE + lane], db += room[AC_GPU_THREADS + d * WIDE + lane];
        a.partial[(part * 2) * a.n + j] = dw, a.partial[(part * 2 + 1) * a.n + j] = db;
    }
}

AC_KERNEL(ac_norm_columns_join, ac_gpu_columns) {
    for (int64_t j = thread_index(); j < a.n; j += thread_count()) {
        double dw = 0, db = 0;
        for (int64_t part = 0; part < a.parts; part++) {
            dw += a.partial[(part * 2) * a.n + j], db += a.partial[(part * 2 + 1) * a.n + j];
        }
        store_real<double>(a.dweight, j, dw);
        store_real<double>(a.dbias, j, db);
    }
}
