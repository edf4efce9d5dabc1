/* Builds the geometry of windows (shared/windows.h) from the lists of numbers that users pass. */
#ifndef AC_OPS_WINDOW_ARGS_H
#define AC_OPS_WINDOW_ARGS_H

#include "ops/op.h"

#include "shared/windows.h"

/* What a shape function or kernel has of it: each list holds one number for all dimensions, or one for each. */
typedef struct {
    const char *what;
    const ac_dims *kernel, *stride, *padding, *dilation; /* stride empty: the kernel's */
    bool ceil_mode;                                      /* positions that begin within input or left padding count */
} ac_window_lists;

/* Windows over `in` (nd sizes). RuntimeError where they do not fit. */
int ac_windows_of(ac_windows *w, const ac_window_lists *l, const int64_t *in, int64_t nd) AC_CHECKED;
/* The same for the input of windows whose positions are `out`: the transposed way. */
int ac_windows_onto(ac_windows *w, const ac_window_lists *l, const int64_t *out, const ac_dims *output_padding,
                    int64_t nd) AC_CHECKED;

int ac_max_pool_windows(ac_windows *w, const ac_tensor *x, const ac_attrs_max_pool *a) AC_CHECKED;
int ac_max_pool_backward_windows(ac_windows *w, const ac_attrs_max_pool_backward *a) AC_CHECKED;
/* Of average pooling, over the last sizes of a tensor. */
int ac_avg_pool_windows(ac_windows *w, const int64_t *size, const ac_attrs_means *a) AC_CHECKED;
static inline ac_attrs_means ac_means_forward(const ac_attrs_means_backward *a) {
    return (ac_attrs_means){a->kernel, a->stride, a->padding, a->ceil_mode, a->adaptive, a->counts_padding, a->divisor};
}

/* A convolution's windows: conv's input, kernel and positions, whichever way it is walked. */
int ac_convolution_windows(ac_windows *w, const ac_tensor *x, const ac_dims *kernel,
                           const ac_attrs_convolution *a) AC_CHECKED;

#endif
