/* What the implicit-product convolutions share (conv_implicit.c, conv_wgrad.c). Both run on the matrix product's
 * micro-kernels, which read padded channels: the rows of positions of one channel with their padding, as in memory or
 * packed into panels. */
#ifndef AC_CPU_CONV_CONV_IMPLICIT_H
#define AC_CPU_CONV_CONV_IMPLICIT_H

#include "cpu/kernels.h"

#include "cpu/conv/im2col.h"
#include "cpu/gemm/micro.h"

typedef struct {
    const ac_micro *micro;
    ac_panel_kind kind;   /* that values are packed for: the kernel's own, or the split */
    int64_t parts, depth; /* numbers that a value is the sum of, each packed apart; values along k in a k step */
} ac_conv_kernel;

/* For operands rounded to dtype; `finite` allows the split, as ac_micro_for says. */
ac_conv_kernel ac_conv_kernel_for(ac_dtype dtype, bool finite);

/* Whether values of dtype along k are the kernel's cells as they are. */
bool ac_values_are_cells(const ac_conv_kernel *k, ac_dtype dtype);

/* Packs `k_steps` k steps of one panel, its parts `apart` bytes from each other; false as ac_pack. */
bool ac_pack_channels(const ac_conv_kernel *k, const ac_operand *padded, bool columns, int64_t k_steps, int64_t apart,
                      char *to);

/* Values of dimension d that windows read, from the first on: a stride may leave some at the end. Those are not laid
 * out, for sums over pixels multiply what lies there by zeros, and it may be infinite. */
static inline int64_t ac_values_read(const ac_windows *w, int d) {
    int64_t last = (w->out[d] - 1) * w->stride[d] + w->dilation[d] * (w->kernel[d] - 1) - w->padding[d];
    return ac_least(w->in[d], last + 1);
}

/* A convolution over padded channels: pixel z of the input lies at position z spread + before, windows are stride
 * apart. The transposed way is one too, of spread-out input. */
typedef struct {
    bool turned;
    int64_t kernel[3], stride[3], dilation[3], spread[3], before[3], in[3], out[3];
    int64_t size[3]; /* positions of a phase that windows reach */
} ac_geometry;

ac_geometry ac_geometry_of(const ac_windows *w, bool turned);

/* Where tap `tap` of a window reads, from the window's first position on: in which phase of the strides, and how far
 * on in it, positions being laid out as size[]. */
int64_t ac_tap_at(const int64_t kernel[3], const int64_t stride[3], const int64_t dilation[3], const int64_t size[3],
                  int64_t tap, int64_t *phase);

/* Positions at + j stride of a padded dimension hold pixels from + j every of a tensor, for j < n. */
typedef struct {
    int64_t at, stride, n, from, every;
} ac_span;

/* Positions [begin, begin + count) of one dimension, where pixel z lies at (z spread + before) / every if that is
 * whole: one of spread (zeros between pixels) and every (a phase of a stride) is 1. */
ac_span ac_span_of(int64_t begin, int64_t count, int64_t before, int64_t spread, int64_t every, int64_t size);

/* Copies pixels of t [lanes, up to 3 sizes] to channels `channel_stride` values apart, in rows of `row`. Of the first
 * span one pixel is taken, and its position does not count. */
void ac_copy_padded(const ac_tensor *t, const ac_span s[3], ac_dtype dtype, int64_t channel_stride, int64_t row,
                    char *padded);

/* Pairs of the channels of t, of 16-bit values, as cells: channels 2i and 2i + 1 in row i, `channel_stride` cells from
 * the one before. Spans and `row` as above. */
void ac_pair_channels(const ac_tensor *t, const ac_span s[3], int64_t channel_stride, int64_t row, char *cells);

/* Memory that is packed next, which products fetch on the way. */
typedef struct {
    const char *at, *end;
} ac_ahead;

ac_ahead ac_ahead_of(const ac_tensor *t, int64_t image, int64_t images, int64_t channel, int64_t channels);

/* What a run of the kernel may fetch, `bytes` at most; `here`, where it is anyway, when all is there. */
static inline const char *ac_ahead_take(ac_ahead *a, int64_t bytes, const char *here) {
    const char *at = a->at;
    if (at >= a->end) return here;
    a->at += bytes;
    return at;
}

#endif
