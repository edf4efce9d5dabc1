/* The geometry of windows that slide over up to three dimensions, for convolution and pooling on both backends. */
#ifndef AC_SHARED_WINDOWS_H
#define AC_SHARED_WINDOWS_H

#include "base/inline.h"

#include <stdbool.h>
#include <stdint.h>

/* Always three dimensions, the leading ones of size 1 where there are fewer. */
typedef struct {
    int64_t in[3], out[3], kernel[3], stride[3], padding[3], dilation[3];
    int32_t adaptive; /* windows from floor(o in / out) to ceil((o + 1) in / out) */
} ac_windows;

AC_INLINE int64_t ac_product3(const int64_t *v) { return v[0] * v[1] * v[2]; }

/* Where tap k of the window of position o lies in dimension d; -1 in the padding. */
AC_INLINE int64_t ac_window_tap(const ac_windows *w, int d, int64_t o, int64_t k) {
    int64_t at = o * w->stride[d] - w->padding[d] + k * w->dilation[d];
    return at < 0 || at >= w->in[d] ? -1 : at;
}

/* The positions [begin, end) of dimension d whose tap k is not in the padding. */
AC_INLINE void ac_window_inside(const ac_windows *w, int d, int64_t k, int64_t *begin, int64_t *end) {
    int64_t from = k * w->dilation[d] - w->padding[d], stride = w->stride[d];
    *begin = from < 0 ? (-from + stride - 1) / stride : 0;
    *end = w->in[d] > from ? (w->in[d] - from + stride - 1) / stride : 0;
    if (*end > w->out[d]) *end = w->out[d];
    if (*begin > *end) *begin = *end;
}

/* The position whose window has input i as its tap k in dimension d; -1 when there is none. */
AC_INLINE int64_t ac_window_position(const ac_windows *w, int d, int64_t i, int64_t k) {
    int64_t from = i + w->padding[d] - k * w->dilation[d];
    if (from < 0 || from % w->stride[d]) return -1;
    from /= w->stride[d];
    return from < w->out[d] ? from : -1;
}

/* The inputs that the window of position o covers in dimension d: begin, end and dilation. */
AC_INLINE void ac_window_span(const ac_windows *w, int d, int64_t o, int64_t *begin, int64_t *end, int64_t *dilation) {
    if (w->adaptive) {
        *begin = o * w->in[d] / w->out[d], *end = ((o + 1) * w->in[d] + w->out[d] - 1) / w->out[d], *dilation = 1;
        return;
    }
    *dilation = w->dilation[d];
    *begin = o * w->stride[d] - w->padding[d];
    *end = *begin + (w->kernel[d] - 1) * *dilation + 1;
    if (*begin < 0) *begin += (-*begin + *dilation - 1) / *dilation * *dilation;
    if (*end > w->in[d]) *end = w->in[d];
}

/* a / b for 0 <= a, 0 < b, in 32 bits where they do: those of 64 cost a GPU four times as much. */
AC_INLINE int64_t ac_quotient(int64_t a, int64_t b) {
    return (a | b) >> 32 ? a / b : (int64_t)((uint32_t)a / (uint32_t)b);
}

/* The windows of dimension d that may cover input i, from `first` to `last`; without dilation they do. */
AC_INLINE void ac_windows_over(const ac_windows *w, int d, int64_t i, int64_t *first, int64_t *last) {
    if (w->adaptive) {
        *first = ac_quotient(i * w->out[d], w->in[d]);
        *last = ac_quotient((i + 1) * w->out[d] + w->in[d] - 1, w->in[d]) - 1;
    } else {
        int64_t end = i + w->padding[d], begin = end - (w->kernel[d] - 1) * w->dilation[d];
        *first = begin > 0 ? ac_quotient(begin + w->stride[d] - 1, w->stride[d]) : 0;
        *last = ac_quotient(end, w->stride[d]);
    }
    if (*last >= w->out[d]) *last = w->out[d] - 1;
}

/* By how many values a mean over the window of position o divides in dimension d: those of the input, or of the padding
 * on both sides as well. */
AC_INLINE int64_t ac_window_count(const ac_windows *w, int d, int64_t o, int counts_padding) {
    int64_t begin, end, dilation;
    ac_window_span(w, d, o, &begin, &end, &dilation);
    if (!counts_padding || w->adaptive) return end > begin ? end - begin : 0;
    begin = o * w->stride[d] - w->padding[d], end = begin + w->kernel[d];
    return (end < w->in[d] + w->padding[d] ? end : w->in[d] + w->padding[d]) - begin;
}

#endif
