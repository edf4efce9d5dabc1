/* Batch norm and group norm kernels. Sets of values share statistics. A set is cut into parts, by sizes alone, and
 * several blocks take one; a second launch joins the parts in order, so results never depend on timing. The statistics
 * read x once: every few values give their mean and the squares around it, which are joined with those before
 * (Chan, Golub and LeVeque 1983). */
#include "cuda/device.cuh"

enum { WIDE = 32, DEEP = AC_GPU_THREADS / WIDE };

/* -- where the values of a set lie ------------------------------------------------------------------ */

/* Line l of a set, position p: base + l * line + p * position. */
struct Place {
    int64_t base, line, position;
};
DEV Place place_of(const ac_gpu_channels &a, const ac_gpu_planes &t, int64_t set) {
    int64_t image = quotient(set, a.sets_of_image), channel = (set - image * a.sets_of_image) * a.width;
    return {image * t.image + channel * t.channel, a.groups ? t.channel : t.image, t.position};
}

/* The values k of a set that a thread takes: from `k` to `end`, each `step` further. It goes from line to line without
 * a division. */
struct Walk {
    int64_t set, k, end, step, line, at, length, step_lines, step_at;

    DEV_METHOD Walk(const ac_gpu_channels &a, int64_t set_, int64_t begin, int64_t end_, int64_t step_)
        : set(set_), k(begin), end(end_), step(step_), length(a.inner > 0 ? a.inner : 1) { /* 0: there are no values */
        line = quotient(k, length), at = k - line * length;
        step_lines = quotient(step, length), step_at = step - step_lines * length;
    }
    DEV_METHOD bool inside(void) const { return k < end; }
    DEV_METHOD void next(void) {
        k += step, line += step_lines, at += step_at;
        if (at >= length) at -= length, line++;
    }
    DEV_METHOD int64_t in(const Place &p) const { return p.base + line * p.line + at * p.position; }
};

/* V neighbours; so many values at once. */
template <class R, int V> struct Neighbours {
    static constexpr int AT_ONCE = V > 1 ? 2 * V : 8;
    DEV_METHOD static void store(const ac_gpu_ref &r, int64_t i, const R *v) {
        if constexpr (V > 1) store_run<V>(r.data, r.dtype, i, v);
        else store_real<R>(r, i, *v);
    }
};

/* The next values of a walk that is inside, up to AT_ONCE, V neighbours at a time; how many. The rest of v is 0. Runs
 * are on the way together. */
template <class R, int V> DEV int gather(const ac_gpu_ref &r, const Place &p, Walk &w, R *v) {
    constexpr int N = Neighbours<R, V>::AT_ONCE, U = N / V;
    int64_t at[U];
    int n = 0;
#pragma unroll
    for (int u = 0; u < U; u++) {
        at[u] = u > 0 ? at[0] : w.in(p);
        if (!w.inside()) continue;
        if (u > 0) at[u] = w.in(p);
        n = (u + 1) * V;
        w.next();
    }
    if constexpr (V > 1) load_runs<U, V>(r.data, r.dtype, at, (float (*)[V])v);
    else EACH_OF(U) v[j] = load_real<R>(r, at[j]);
    EACH_OF(N) if (j >= n) v[j] = 0;
    return n;
}

/* body(walk, count, first) for this thread's share of every part of every set that its block takes: count values are
 * in the part, and the first of its threads notes results. By columns, neighbouring threads take neighbouring channels
 * instead of positions. */
template <int V, bool COLUMNS, class F> DEV void each_share(const ac_gpu_channels &a, F body) {
    int64_t all = a.lines * a.inner, sets = COLUMNS ? (a.sets + WIDE - 1) / WIDE : a.sets;
    int threads = COLUMNS ? AC_GPU_THREADS : a.group, groups = AC_GPU_THREADS / threads;
    int own = COLUMNS ? (int)threadIdx.x / WIDE : (int)threadIdx.x % threads, step = COLUMNS ? DEEP : threads * V;
    for (int64_t job = (int64_t)blockIdx.x * groups + threadIdx.x / threads; job < sets * a.parts;
         job += (int64_t)gridDim.x * groups) {
        int64_t set = quotient(job, a.parts), begin = (job - set * a.parts) * a.part, end = begin + a.part;
        if (end > all) end = all;
        int64_t count = end - begin;
        if (COLUMNS) set = set * WIDE + threadIdx.x % WIDE;
        if (COLUMNS && set >= a.sets) set = a.sets - 1, end = begin; /* a thread without a set only waits */
        body(Walk(a, set, begin + own * V, end, step), count, own == 0 && (!COLUMNS || begin < end || count == 0));
    }
}

/* The sum of what the threads of a share have, for all of them. */
template <bool COLUMNS> DEV double together(const ac_gpu_channels &a, double v) {
    double *room = (double *)ac_shared_memory;
    if (!COLUMNS) return group_join(a.group, v, room, Add());
    __syncthreads(); /* nobody reads what an earlier call left any more */
    room[threadIdx.x] = v;
    __syncthreads();
    v = room[threadIdx.x % WIDE];
    for (int d = 1; d < DEEP; d++) v += room[d * WIDE + threadIdx.x % WIDE];
    return v;
}

/* Where a part's pair of sums lies. */
DEV double *pair_of(const ac_gpu_channels &a, int64_t set, int64_t part) {
    return a.partial + 2 * (set * a.parts + part);
}

/* By runs where the host found them, by columns or by single elements elsewhere. */
#define BY_LAYOUT(name)                                                                                                \
    AC_KERNEL(ac_##name##_f32, ac_gpu_channels) {                                                                      \
        if (a.columns) name<float, 1, true>(a);                                                                        \
        else if (a.vector == 8) name<float, 8, false>(a);                                                              \
        else if (a.vector == 4) name<float, 4, false>(a);                                                              \
        else name<float, 1, false>(a);                                                                                 \
    }                                                                                                                  \
    AC_KERNEL(ac_##name##_f64, ac_gpu_channels) {                                                                      \
        if (a.columns) name<double, 1, true>(a);                                                                       \
        else name<double, 1, false>(a);                                                                                \
    }

/* -- statistics ------------------------------------------------------------------------------------- */

DEV void finish_statistics(const ac_gpu_channels &a, int64_t set, double mean, double var) {
    double count = (double)(a.lines * a.inner);
    store_real<double>(a.mean, set, mean);
    store_real<double>(a.rstd, set, 1 / sqrt(var + a.eps));
    if (!a.training || count == 0 || !a.running_mean.data || !a.running_var.data) return;
    double keep = 1 - a.momentum, unbiased = var * count / (count - 1);
    double m = load_real<double>(a.running_mean, set * a.mean_stride),
           v = load_real<double>(a.running_var, set * a.var_stride);
    store_real<double>(a.running_mean, set * a.mean_stride, keep * m + a.momentum * mean);
    store_real<double>(a.running_var, set * a.var_stride, keep * v + a.momentum * unbiased);
}

/* The sum of a thread's values, and their squares around their mean. */
template <class R, int N> struct Moments {
    double sum = 0, squares = 0;
    R count = 0, inverse = 0; /* 1 / count */

    DEV_METHOD void add(const R *v, int n) {
        R total = 0, around = 0;
        EACH_OF(N) total += v[j];
        R mean = n == N ? total / N : total / (R)n, apart = count > 0 ? mean - (R)(sum * (double)inverse) : 0;
        EACH_OF(N) around += j < n ? (v[j] - mean) * (v[j] - mean) : 0;
        R both = count + (R)n;
        inverse = 1 / both;
        squares += (double)(around + apart * apart * (count * (R)n * inverse));
        sum += (double)total, count = both;
    }
};

template <class R, int V, bool COLUMNS> DEV void channel_statistics(const ac_gpu_channels &a) {
    each_share<V, COLUMNS>(a, [&](Walk w, int64_t count, bool first) {
        Place x = place_of(a, a.x, w.set);
        Moments<R, Neighbours<R, V>::AT_ONCE> own;
        int64_t part = a.parts > 1 ? quotient(w.k, a.part) : 0;
        while (w.inside()) {
            R v[Neighbours<R, V>::AT_ONCE];
            int n = gather<R, V>(a.x.ref, x, w, v);
            own.add(v, n);
        }
        double sum = together<COLUMNS>(a, own.sum), mean = count ? sum / (double)count : 0;
        double apart = own.count > 0 ? own.sum / (double)own.count - mean : 0;
        double squares = together<COLUMNS>(a, own.squares + (double)own.count * apart * apart);
        if (!first) return;
        if (a.parts == 1) finish_statistics(a, w.set, mean, count ? squares / (double)count : 0);
        else pair_of(a, w.set, part)[0] = sum, pair_of(a, w.set, part)[1] = squares;
    });
}
BY_LAYOUT(channel_statistics)

/* body(job, lane) for jobs that a warp takes each. */
template <class F> DEV void each_warp(int64_t jobs, F body) {
    for (int64_t job = thread_index() / 32; job < jobs; job += thread_count() / 32) body(job, (int)threadIdx.x % 32);
}

/* The statistics of sets from those of their parts; without training, from the running ones. */
AC_KERNEL(ac_channel_statistics_join, ac_gpu_channels) {
    each_warp(a.sets, [&](int64_t set, int lane) {
        double sum = 0, squares = 0, all = (double)(a.lines * a.inner);
        if (!a.training) {
            if (lane == 0)
                finish_statistics(a, set, load_real<double>(a.running_mean, set * a.mean_stride),
                                  load_real<double>(a.running_var, set * a.var_stride));
            return;
        }
        for (int64_t p = lane; p < a.parts; p += 32) sum += pair_of(a, set, p)[0];
        double mean = warp_join(sum, Add()) / all;
        for (int64_t p = lane; p < a.parts; p += 32) {
            double count = p + 1 < a.parts ? (double)a.part : all - (double)(p * a.part);
            double apart = pair_of(a, set, p)[0] / count - mean;
            squares += pair_of(a, set, p)[1] + count * apart * apart;
        }
        squares = warp_join(squares, Add());
        if (lane == 0) finish_statistics(a, set, mean, squares / all);
    });
}

/* -- the result ------------------------------------------------------------------------------------- */

/* The channel of a set's line. */
DEV int64_t channel_of(const ac_gpu_channels &a, int64_t set, int64_t line) {
    return a.groups ? set % a.sets_of_image * a.width + line : set;
}
template <class R> DEV R weight_of(const ac_gpu_channels &a, int64_t channel) {
    return a.weight.data ? load_real<R>(a.weight, channel * a.weight_stride) : (R)1;
}

template <class R, int V, bool COLUMNS> DEV void channel_normalize(const ac_gpu_channels &a) {
    each_share<V, COLUMNS>(a, [&](Walk w, int64_t, bool) {
        Place x = place_of(a, a.x, w.set), y = place_of(a, a.y, w.set);
        R mean = load_real<R>(a.mean, w.set), rstd = load_real<R>(a.rstd, w.set);
        while (w.inside()) {
            Walk to = w;
            R v[Neighbours<R, V>::AT_ONCE];
            int n = gather<R, V>(a.x.ref, x, w, v);
#pragma unroll
            for (int i = 0; i < Neighbours<R, V>::AT_ONCE; i += V) {
                if (i >= n) continue;
                int64_t channel = channel_of(a, w.set, to.line);
                R scale = rstd * weight_of<R>(a, channel),
                  shift = a.bias.data ? load_real<R>(a.bias, channel * a.bias_stride) : 0;
                EACH_OF(V) v[i + j] = (v[i + j] - mean) * scale + shift;
                Neighbours<R, V>::store(a.y.ref, to.in(y), v + i);
                to.next();
            }
        }
    });
}
BY_LAYOUT(channel_normalize)

/* -- backward --------------------------------------------------------------------------------------- */

/* The gradients of a channel's weight and bias; of batch norm, what its inputs' gradients need of them. */
DEV void finish_gradients(const ac_gpu_channels &a, int64_t channel, double sum, double hat) {
    store_real<double>(a.dbias, channel, sum);
    store_real<double>(a.dweight, channel, hat);
    if (a.groups) return;
    double scale = weight_of<double>(a, channel) / (double)(a.lines * a.inner);
    a.means[2 * channel] = scale * sum, a.means[2 * channel + 1] = scale * hat;
}

/* Sums of g and of g xhat: of a channel, or (groups) of a channel of an image. */
template <class R, int V, bool COLUMNS> DEV void channel_gradients(const ac_gpu_channels &a) {
    each_share<V, COLUMNS>(a, [&](Walk w, int64_t, bool first) {
        Place x = place_of(a, a.x, w.set), g = place_of(a, a.g, w.set);
        int64_t part = a.parts > 1 ? quotient(w.k, a.part) : 0, statistics = w.set;
        if (a.groups) statistics = quotient(w.set, a.channels) * a.groups + quotient(w.set % a.channels, a.depth);
        R mean = load_real<R>(a.mean, statistics);
        double sum = 0, hat = 0, rstd = load_real<double>(a.rstd, statistics);
        while (w.inside()) {
            Walk same = w;
            constexpr int N = Neighbours<R, V>::AT_ONCE;
            R v[N], u[N], s = 0, h = 0;
            int n = gather<R, V>(a.g.ref, g, w, v);
            gather<R, V>(a.x.ref, x, same, u);
            EACH_OF(N) {
                s += v[j];
                if (j < n) h += v[j] * (u[j] - mean);
            }
            sum += (double)s, hat += (double)h;
        }
        sum = together<COLUMNS>(a, sum), hat = together<COLUMNS>(a, hat) * rstd;
        if (!first) return;
        if (a.parts == 1 && !a.groups) finish_gradients(a, w.set, sum, hat);
        else pair_of(a, w.set, part)[0] = sum, pair_of(a, w.set, part)[1] = hat;
    });
}
BY_LAYOUT(channel_gradients)

/* A channel's sums from those of its parts and images; then those of every group. */
AC_KERNEL(ac_channel_gradients_join, ac_gpu_channels) {
    int64_t images = a.groups ? a.batch : 1;
    each_warp(a.channels + a.batch * a.groups, [&](int64_t job, int lane) {
        int64_t group = job - a.channels, first = (group < 0 ? job : group * a.depth) * a.parts;
        double sum = 0, hat = 0;
        for (int64_t i = lane; i < (group < 0 ? images : a.depth) * a.parts; i += 32) {
            int64_t outer = quotient(i, a.parts), at = i - outer * a.parts;
            int64_t set = group < 0 ? outer * a.channels * a.parts + first + at : first + i;
            double w = group < 0 ? 1 : weight_of<double>(a, group % a.groups * a.depth + outer);
            sum += w * a.partial[2 * set], hat += w * a.partial[2 * set + 1];
        }
        sum = warp_join(sum, Add()), hat = warp_join(hat, Add());
        if (lane != 0) return;
        double count = (double)(a.depth * a.inner);
        if (group < 0) finish_gradients(a, job, sum, hat);
        else a.means[2 * group] = sum / count, a.means[2 * group + 1] = hat / count;
    });
}

template <class R, int V, bool COLUMNS> DEV void channel_backward(const ac_gpu_channels &a) {
    bool trains = a.groups || a.training;
    each_share<V, COLUMNS>(a, [&](Walk w, int64_t, bool) {
        Place x = place_of(a, a.x, w.set), g = place_of(a, a.g, w.set), y = place_of(a, a.y, w.set);
        R mean = load_real<R>(a.mean, w.set), rstd = load_real<R>(a.rstd, w.set);
        R m1 = trains ? (R)a.means[2 * w.set] : 0, m2 = trains ? (R)a.means[2 * w.set + 1] * rstd : 0;
        while (w.inside()) {
            Walk same = w, to = w;
            R v[Neighbours<R, V>::AT_ONCE], u[Neighbours<R, V>::AT_ONCE];
            int n = gather<R, V>(a.g.ref, g, w, v);
            if (trains) gather<R, V>(a.x.ref, x, same, u);
#pragma unroll
            for (int i = 0; i < Neighbours<R, V>::AT_ONCE; i += V) {
                if (i >= n) continue;
                R weight = weight_of<R>(a, channel_of(a, w.set, to.line));
                EACH_OF(V) {
                    v[i + j] *= weight;
                    if (trains) v[i + j] -= m1 + (u[i + j] - mean) * m2;
                    v[i + j] *= rstd;
                }
                Neighbours<R, V>::store(a.y.ref, to.in(y), v + i);
                to.next();
            }
        }
    });
}
BY_LAYOUT(channel_backward)
