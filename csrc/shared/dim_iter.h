/* Some of a tensor's dimensions, such as the reduced ones: their sizes and strides. */
#ifndef AC_SHARED_DIM_ITER_H
#define AC_SHARED_DIM_ITER_H

#include "tensor/shape.h"

/* The kept or the reduced dimensions of a tensor, say. */
typedef struct {
    int n;
    int64_t numel;
    int64_t size[AC_MAX_DIMS], stride[AC_MAX_DIMS];
} ac_space;

#endif
