/* im2col and col2im, pooling and resampling kernels: one thread for each value of the result, or for a few. */
#include "cuda/device.cuh"

template <class R> DEV void im2col(const ac_gpu_columned &a) {
    const ac_windows &w = a.w;
    int64_t taps = ac_product3(w.kernel), positions = ac_product3(w.out), n = a.images * a.channels * taps * positions;
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        int64_t rest = quotient(i, positions), position = i - rest * positions;
        int64_t row = rest % (a.channels * taps), image = rest / (a.channels * taps);
        int64_t tap = row % taps, channel = row / taps;
        int64_t k2 = tap % w.kernel[2], k1 = tap / w.kernel[2] % w.kernel[1], k0 = tap / (w.kernel[2] * w.kernel[1]);
        int64_t o2 = position % w.out[2], o1 = position / w.out[2] % w.out[1], o0 = position / (w.out[2] * w.out[1]);
        int64_t i0 = ac_window_tap(&w, 0, o0, k0), i1 = ac_window_tap(&w, 1, o1, k1), i2 = ac_window_tap(&w, 2, o2, k2);
        R v = 0;
        if (i0 >= 0 && i1 >= 0 && i2 >= 0)
            v = load_real<R>(a.x, image * a.x_stride[0] + channel * a.x_stride[1] + i0 * a.x_stride[2] +
                                      i1 * a.x_stride[3] + i2 * a.x_stride[4]);
        store_real<R>(a.columns, image * a.image_stride + row * a.row_stride + position, v);
    }
}
AC_KERNEL(ac_im2col_f32, ac_gpu_columned) { im2col<float>(a); }
AC_KERNEL(ac_im2col_f64, ac_gpu_columned) { im2col<double>(a); }

/* Every value of x gathers the columns it went into, always in the same order. */
template <class R> DEV void col2im(const ac_gpu_columned &a) {
    const ac_windows &w = a.w;
    int64_t pixels = ac_product3(w.in), taps = ac_product3(w.kernel), n = a.images * a.channels * pixels;
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        int64_t rest = quotient(i, pixels), pixel = i - rest * pixels, channel = rest % a.channels,
                image = rest / a.channels;
        int64_t i2 = pixel % w.in[2], i1 = pixel / w.in[2] % w.in[1], i0 = pixel / (w.in[2] * w.in[1]);
        R sum = a.bias.data ? load_real<R>(a.bias, channel) : (R)0;
        int64_t row = channel * taps;
        for (int64_t k0 = 0; k0 < w.kernel[0]; k0++)
            for (int64_t k1 = 0; k1 < w.kernel[1]; k1++)
                for (int64_t k2 = 0; k2 < w.kernel[2]; k2++, row++) {
                    int64_t o0 = ac_window_position(&w, 0, i0, k0), o1 = ac_window_position(&w, 1, i1, k1),
                            o2 = ac_window_position(&w, 2, i2, k2);
                    if (o0 < 0 || o1 < 0 || o2 < 0) continue;
                    int64_t position = (o0 * w.out[1] + o1) * w.out[2] + o2;
                    sum += load_real<R>(a.columns, image * a.image_stride + row * a.row_stride + position);
                }
        store_real<R>(a.x,
                      image * a.x_stride[0] + channel * a.x_stride[1] + i0 * a.x_stride[2] + i1 * a.x_stride[3] +
                          i2 * a.x_stride[4],
                      sum);
    }
}
AC_KERNEL(ac_col2im_f32, ac_gpu_columned) { col2im<float>(a); }
AC_KERNEL(ac_col2im_f64, ac_gpu_columned) { col2im<double>(a); }

template <class R> DEV void max_pool(const ac_gpu_pool &a) {
    const ac_windows &w = a.w;
    int64_t positions = ac_product3(w.out), n = a.planes.numel * positions;
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        int64_t plane = quotient(i, positions), position = i - plane * positions, base = space_offset(a.planes, plane);
        int64_t o[3] = {position / (w.out[2] * w.out[1]), position / w.out[2] % w.out[1], position % w.out[2]};
        int64_t begin[3], end[3], dilation[3], best = -1;
        R top = 0;
        for (int d = 0; d < 3; d++) ac_window_span(&w, d, o[d], &begin[d], &end[d], &dilation[d]);
        for (int64_t x = begin[0]; x < end[0]; x += dilation[0])
            for (int64_t y = begin[1]; y < end[1]; y += dilation[1])
                for (int64_t z = begin[2]; z < end[2]; z += dilation[2]) {
                    R v = load<R>(a.x, base + x * a.stride[0] + y * a.stride[1] + z * a.stride[2]);
                    if (best < 0 || v > top || v != v) top = v, best = (x * w.in[1] + y) * w.in[2] + z;
                }
        store<R>(a.values, i, top);
        a.indices[i] = best;
    }
}
AC_KERNEL(ac_max_pool_f32, ac_gpu_pool) { max_pool<float>(a); }
AC_KERNEL(ac_max_pool_f64, ac_gpu_pool) { max_pool<double>(a); }
AC_KERNEL(ac_max_pool_i64, ac_gpu_pool) { max_pool<int64_t>(a); }

/* Every value of x gathers from the windows that cover it those that took it, always in the same order. */
template <class R> DEV void max_pool_backward(const ac_gpu_unpool &a) {
    const ac_windows &w = a.w;
    int64_t pixels = ac_product3(w.in), positions = ac_product3(w.out), n = a.planes * pixels;
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        int64_t plane = quotient(i, pixels), pixel = i - plane * pixels, row = quotient(pixel, w.in[2]);
        int64_t at[3] = {quotient(row, w.in[1]), 0, pixel - row * w.in[2]}, first[3], last[3];
        at[1] = row - at[0] * w.in[1];
#pragma unroll
        for (int d = 0; d < 3; d++) ac_windows_over(&w, d, at[d], &first[d], &last[d]);
        R sum = 0;
        for (int64_t x = first[0]; x <= last[0]; x++)
            for (int64_t y = first[1]; y <= last[1]; y++)
                for (int64_t z = first[2]; z <= last[2]; z++) {
                    int64_t from = plane * positions + (x * w.out[1] + y) * w.out[2] + z;
                    if (a.indices[from] == pixel) sum += load_real<R>(a.g, from);
                }
        store_real<R>(a.x, i, sum);
    }
}
AC_KERNEL(ac_max_pool_backward_f32, ac_gpu_unpool) { max_pool_backward<float>(a); }
AC_KERNEL(ac_max_pool_backward_f64, ac_gpu_unpool) { max_pool_backward<double>(a); }

/* -- max pooling in two dimensions and bulk dtypes -- */

DEV int32_t at_least_0(int32_t v) { return v > 0 ? v : 0; }
DEV bool lies_in(int32_t i, int32_t size) { return (uint32_t)i < (uint32_t)size; }

/* The place of job q: its plane, row and column of jobs. */
struct Job {
    int32_t plane, row, column;
    DEV_METHOD Job(const ac_gpu_flat_windows &w, uint32_t q) {
        uint32_t line = quotient(q, w.by_columns);
        plane = (int32_t)quotient(line, w.by_rows);
        row = (int32_t)line - plane * w.rows, column = (int32_t)(q - line * (uint32_t)w.columns);
    }
};

/* The largest value of a window, and where it lies. A window has a value. */
template <int DTYPE> struct Largest {
    typedef typename stored<DTYPE>::type E;
    const ac_gpu_flat_windows &w;
    int32_t left, row_stride, column_stride;

    /* of K x K side by side */
    template <int K> DEV_METHOD float of(const E *x, int32_t above, int32_t *best) const {
        E bits[K][K];
        float top = -INFINITY;
        int32_t tap = (at_least_0(above) - above) * K + at_least_0(left) - left;
#pragma unroll
        for (int i = 0; i < K; i++) {
            const E *from = x + ((above + i) * row_stride + left);
#pragma unroll
            for (int k = 0; k < K; k++) {
                bits[i][k] = stored<DTYPE>::of(-INFINITY);
                if (lies_in(above + i, w.in[0]) && lies_in(left + k, w.in[1])) bits[i][k] = from[k];
            }
        }
#pragma unroll
        for (int t = 0; t < K * K; t++) {
            float v = stored<DTYPE>::value(bits[t / K][t % K]);
            if (v > top || v != v) top = v, tap = t;
        }
        *best = (above + tap / K) * w.in[1] + left + tap % K;
        return top;
    }
    /* of any size */
    DEV_METHOD float of_any(const E *x, int32_t above, int32_t *best) const {
        float top = -INFINITY;
        *best = at_least_0(above) * w.in[1] + at_least_0(left);
        for (int i = 0, row = above; i < w.kernel[0]; i++, row += w.dilation[0])
            for (int k = 0, column = left; k < w.kernel[1]; k++, column += w.dilation[1]) {
                if (!lies_in(row, w.in[0]) || !lies_in(column, w.in[1])) continue;
                float v = stored<DTYPE>::value(x[row * row_stride + column * column_stride]);
                if (v > top || v != v) top = v, *best = row * w.in[1] + column;
            }
        return top;
    }
};

/* Results of a column, one below the other; K: the windows' size, or 0. */
template <int DTYPE, int K> DEV void max_pool_flat(const ac_gpu_pool &a) {
    typedef typename stored<DTYPE>::type E;
    const ac_gpu_flat_windows &w = a.flat;
    for (uint32_t q = (uint32_t)thread_index(); q < w.jobs; q += (uint32_t)thread_count()) {
        Job job(w, q);
        const E *x = (const E *)a.x.data + space_offset(a.planes, job.plane);
        Largest<DTYPE> largest = {w, job.column * w.stride[1] - w.padding[1], (int32_t)a.stride[1],
                                  (int32_t)a.stride[2]};
        int32_t y = job.row * AC_GPU_POOL_COLUMN,
                end = y + AC_GPU_POOL_COLUMN < w.out[0] ? y + AC_GPU_POOL_COLUMN : w.out[0];
        int64_t to = ((int64_t)job.plane * w.out[0] + y) * w.out[1] + job.column;
#pragma unroll 1
        for (; y < end; y++, to += w.out[1]) {
            int32_t above = y * w.stride[0] - w.padding[0], best;
            float top;
            if constexpr (K > 0) top = largest.template of<K>(x, above, &best);
            else top = largest.of_any(x, above, &best);
            ((E *)a.values.data)[to] = stored<DTYPE>::of(top);
            a.indices[to] = best;
        }
    }
}
template <int DTYPE> DEV void max_pool_flat_by_size(const ac_gpu_pool &a) {
    const ac_gpu_flat_windows &w = a.flat;
    bool near = a.stride[2] == 1 && w.dilation[0] == 1 && w.dilation[1] == 1;
    int32_t size = near && w.kernel[0] == w.kernel[1] ? w.kernel[0] : 0;
    if (size == 3) max_pool_flat<DTYPE, 3>(a);
    else if (size == 2) max_pool_flat<DTYPE, 2>(a);
    else max_pool_flat<DTYPE, 0>(a);
}
AC_KERNEL(ac_max_pool_flat, ac_gpu_pool) {
    if (a.x.dtype == AC_float16) max_pool_flat_by_size<AC_float16>(a);
    else if (a.x.dtype == AC_float32) max_pool_flat_by_size<AC_float32>(a);
    else max_pool_flat_by_size<AC_bfloat16>(a);
}

/* The windows of dimension d that may cover [begin, end] of the input. */
DEV void windows_over(const ac_gpu_flat_windows &w, int d, int32_t begin, int32_t end, int32_t *first, int32_t *last) {
    int32_t from = begin + w.padding[d] - (w.kernel[d] - 1) * w.dilation[d];
    *first = from > 0 ? (int32_t)quotient((uint32_t)(from + w.stride[d] - 1), w.by_stride[d]) : 0;
    *last = (int32_t)quotient((uint32_t)(end + w.padding[d]), w.by_stride[d]);
    if (*last >= w.out[d]) *last = w.out[d] - 1;
}

/* Tiles of two rows gather, as above, from the windows over any of their values; three windows are on the way at a
 * time. */
template <int DTYPE> DEV void max_pool_backward_flat(const ac_gpu_unpool &a) {
    typedef typename stored<DTYPE>::type E;
    constexpr int V = AC_GPU_POOL_RUN, U = 3;
    const ac_gpu_flat_windows &w = a.flat;
    for (uint32_t q = (uint32_t)thread_index(); q < w.jobs; q += (uint32_t)thread_count()) {
        Job job(w, q);
        int32_t begin = job.column * V, row = job.row * 2, pixel = row * w.in[1] + begin, first[2], last[2];
        windows_over(w, 0, row, row + 1, &first[0], &last[0]);
        windows_over(w, 1, begin, begin + V - 1, &first[1], &last[1]);
        int64_t plane = (int64_t)job.plane * (w.out[0] * w.out[1]);
        const int64_t *indices = a.indices + plane;
        const E *gradients = (const E *)a.g.data + plane;
        float sum[2][V] = {{0}};
        for (int32_t y = first[0]; y <= last[0]; y++)
            for (int32_t z = first[1]; z <= last[1]; z += U) {
                int32_t at[U];
                float g[U];
                E bits[U];
#pragma unroll
                for (int u = 0; u < U; u++) {
                    int32_t from = y * w.out[1] + (z + u <= last[1] ? z + u : z);
                    at[u] = (int32_t)indices[from], bits[u] = gradients[from];
                }
#pragma unroll
                for (int u = 0; u < U; u++) {
                    g[u] = stored<DTYPE>::value(bits[u]), at[u] = z + u <= last[1] ? at[u] - pixel : -1;
                    EACH_OF(V) sum[0][j] += at[u] == j ? g[u] : 0.0f, sum[1][j] += at[u] == w.in[1] + j ? g[u] : 0.0f;
                }
            }
        E *to = (E *)a.x.data + ((int64_t)job.plane * (w.in[0] * w.in[1]) + pixel);
#pragma unroll
        for (int r = 0; r < 2; r++, to += w.in[1]) {
            if (row + r >= w.in[0]) continue;
            pack<E, V> run;
            EACH_OF(V) run.v[j] = stored<DTYPE>::of(sum[r][j]);
            if (a.vector) *(pack<E, V> *)to = run;
            else EACH_OF(V) if (begin + j < w.in[1]) to[j] = run.v[j];
        }
    }
}
AC_KERNEL(ac_max_pool_backward_flat, ac_gpu_unpool) {
    if (a.x.dtype == AC_float16) max_pool_backward_flat<AC_float16>(a);
    else if (a.x.dtype == AC_float32) max_pool_backward_flat<AC_float32>(a);
    else max_pool_backward_flat<AC_bfloat16>(a);
}

/* Divisors of means; one count for all dimensions. */
template <class R> DEV R divisor_of(const ac_gpu_means &a, const int64_t *o) {
    if (a.divisor != 0) return (R)a.divisor;
    int64_t count = 1;
#pragma unroll
    for (int d = 0; d < 3; d++) count *= ac_window_count(&a.w, d, o[d], a.counts_padding);
    return (R)count;
}
/* A plane's value i as its place in three dimensions. */
DEV void place_in(const int64_t *size, int64_t i, int64_t *at) {
    int64_t row = quotient(i, size[2]);
    at[0] = quotient(row, size[1]), at[1] = row - at[0] * size[1], at[2] = i - row * size[2];
}

/* A large window is a warp's, whose lanes take its values in turn; a small one is a thread's. */
template <class R> DEV void avg_pool(const ac_gpu_means &a) {
    const ac_windows &w = a.w;
    int64_t positions = ac_product3(w.out), lane = a.group == 1 ? 0 : (int64_t)threadIdx.x % a.group;
    for (int64_t i = quotient(thread_index(), a.group); i < a.results; i += quotient(thread_count(), a.group)) {
        int64_t plane = quotient(i, positions), o[3], begin[3], size[3], end, dilation;
        place_in(w.out, i - plane * positions, o);
        int64_t base = space_offset(a.planes, plane);
#pragma unroll
        for (int d = 0; d < 3; d++) {
            ac_window_span(&w, d, o[d], &begin[d], &end, &dilation);
            size[d] = end > begin[d] ? end - begin[d] : 0, base += begin[d] * a.stride[d];
        }
        R sum = 0;
        int64_t n = ac_product3(size), at[3];
        if (a.group == 1) {
            for (int64_t x = 0; x < size[0]; x++)
                for (int64_t y = 0; y < size[1]; y++)
                    for (int64_t z = 0; z < size[2]; z++)
                        sum += load_real<R>(a.from, base + x * a.stride[0] + y * a.stride[1] + z * a.stride[2]);
        } else {
            for (int64_t v = lane; v < n; v += a.group) {
                place_in(size, v, at);
                sum += load_real<R>(a.from, base + at[0] * a.stride[0] + at[1] * a.stride[1] + at[2] * a.stride[2]);
            }
            sum = warp_join(sum, Add());
        }
        if (lane == 0) store_real<R>(a.to, i, n ? sum / divisor_of<R>(a, o) : 0);
    }
}
AC_KERNEL(ac_avg_pool_f32, ac_gpu_means) { avg_pool<float>(a); }
AC_KERNEL(ac_avg_pool_f64, ac_gpu_means) { avg_pool<double>(a); }

/* Every value gathers its share of the windows that cover it, always in the same order. */
template <class R> DEV void avg_pool_backward(const ac_gpu_means &a) {
    const ac_windows &w = a.w;
    int64_t pixels = ac_product3(w.in);
    for (int64_t i = thread_index(); i < a.results; i += thread_count()) {
        int64_t plane = quotient(i, pixels), at[3], first[3], last[3], o[3], base = space_offset(a.planes, plane);
        place_in(w.in, i - plane * pixels, at);
#pragma unroll
        for (int d = 0; d < 3; d++) ac_windows_over(&w, d, at[d], &first[d], &last[d]);
        R sum = 0;
        for (o[0] = first[0]; o[0] <= last[0]; o[0]++)
            for (o[1] = first[1]; o[1] <= last[1]; o[1]++)
                for (o[2] = first[2]; o[2] <= last[2]; o[2]++) {
                    int64_t from = base + o[0] * a.stride[0] + o[1] * a.stride[1] + o[2] * a.stride[2];
                    sum += load_real<R>(a.from, from) / divisor_of<R>(a, o);
                }
        store_real<R>(a.to, i, sum);
    }
}
AC_KERNEL(ac_avg_pool_backward_f32, ac_gpu_means) { avg_pool_backward<float>(a); }
AC_KERNEL(ac_avg_pool_backward_f64, ac_gpu_means) { avg_pool_backward<double>(a); }

template <class R> DEV void resample(const ac_gpu_resample &a) {
    int64_t n = a.outer * a.out * a.inner;
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        int64_t row = quotient(i, a.inner), in_row = i - row * a.inner, outer = quotient(row, a.out),
                o = row - outer * a.out;
        int64_t begin = space_offset(a.rows, outer * a.inner + in_row);
        R sum = 0;
        for (int64_t t = o * a.taps; t < (o + 1) * a.taps; t++) {
            int64_t at = a.index[t];
            if (at < 0 || at >= a.in || a.weight[t] == 0) continue;
            sum += (R)a.weight[t] * load_real<R>(a.x, begin + at * a.stride);
        }
        store_real<R>(a.y, i, sum);
    }
}
AC_KERNEL(ac_resample_f32, ac_gpu_resample) { resample<float>(a); }
AC_KERNEL(ac_resample_f64, ac_gpu_resample) { resample<double>(a); }
