/* im2col for one image, what the convolution kernels offer each other, and tensors over a kernel's temporary memory. */
#ifndef AC_CPU_CONV_IM2COL_H
#define AC_CPU_CONV_IM2COL_H

#include "backend/backend.h"
#include "base/alloc.h"
#include "ops/window_args.h"
#include "cpu/loops.h"

/* columns [channels * taps, positions] of image [channels, in...], values of `item` bytes. */
void ac_cpu_unfold_image(const ac_windows *w, int64_t channels, int64_t item, const char *image, char *columns);
/* image [channels, in...] = bias (or 0) + the columns added up where they came from, both in opmath type. */
void ac_cpu_fold_image(const ac_windows *w, int64_t channels, ac_opmath opmath, const char *columns, const double *bias,
                       char *image);

/* A contiguous tensor over memory of the caller's, which lives no longer than `storage` does. */
ac_tensor ac_tensor_over(ac_storage *storage, void *data, ac_dtype dtype, const ac_dims *shape);
/* t[image, channel : channel + channels], borrowed. */
ac_tensor ac_part_of(const ac_tensor *t, int64_t image, int64_t channel, int64_t channels);

/* The direct way (conv_implicit.c), where channels are many enough: false where it does not fit. */
bool ac_direct_fits(const ac_windows *w, int64_t inner, int64_t outer, ac_dtype compute);
/* y = convolution of x with weight (or its transposed), + bias; all checked, of the row's call. */
int ac_direct_convolution(const ac_run *r, const ac_windows *w) AC_CHECKED;
int ac_direct_convolution_weight(const ac_run *r, const ac_windows *w) AC_CHECKED;

/* The same for groups of few channels (conv_depthwise.c). */
bool ac_depthwise_fits(const ac_windows *w, int64_t groups, int64_t inner, int64_t outer, ac_dtype compute);
int ac_depthwise_convolution(const ac_run *r, const ac_windows *w) AC_CHECKED;
int ac_depthwise_convolution_weight(const ac_run *r, const ac_windows *w) AC_CHECKED;

/* Whether both ways' padded channels hold the padding, which for the transposed one is within the window's reach. */
bool ac_padding_fits(const ac_windows *w);

#endif
