/* im2col and col2im, max pooling and resampling kernels: one thread for each value of the result. */
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

/* The windows of dimension d that may cover value i: from `first` to `last`. */
DEV void windows_over(const ac_windows &w, int d, int64_t i, int64_t *first, int64_t *last) {
    if (w.adaptive) {
        *first = quotient(i * w.out[d], w.in[d]), *last = quotient((i + 1) * w.out[d] + w.in[d] - 1, w.in[d]) - 1;
    } else {
        int64_t end = i + w.padding[d], begin = end - (w.kernel[d] - 1) * w.dilation[d];
        *first = begin > 0 ? quotient(begin + w.stride[d] - 1, w.stride[d]) : 0, *last = quotient(end, w.stride[d]);
    }
    if (*last >= w.out[d]) *last = w.out[d] - 1;
}

/* Every value of x gathers from the windows that cover it those that took it, always in the same order. */
template <class R> DEV void max_pool_backward(const ac_gpu_unpool &a) {
    const ac_windows &w = a.w;
    int64_t pixels = ac_product3(w.in), positions = ac_product3(w.out), n = a.planes * pixels;
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        int64_t plane = quotient(i, pixels), pixel = i - plane * pixels, row = quotient(pixel, w.in[2]);
        int64_t at[3] = {quotient(row, w.in[1]), 0, pixel - row * w.in[2]}, first[3], last[3];
        at[1] = row - at[0] * w.in[1];
#pragma unroll
        for (int d = 0; d < 3; d++) windows_over(w, d, at[d], &first[d], &last[d]);
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
