/* Shape algebra: lists of sizes, and what broadcasting, reshaping and reducing make of them. */
#ifndef AC_TENSOR_SHAPE_H
#define AC_TENSOR_SHAPE_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum { AC_MAX_DIMS = 12 };

/* A list of integers. Also the type of `int[]` attributes, where n = -1 says "not given". */
typedef struct {
    int64_t n;
    int64_t v[AC_MAX_DIMS];
} ac_dims;

/* Number of elements; -1 with an error when a size is negative or the product overflows. */
int64_t ac_dims_numel(const ac_dims *d) AC_CHECKED;
bool ac_dims_equal(const ac_dims *a, const ac_dims *b);
ac_dims ac_dims_contiguous(const ac_dims *shape); /* row-major strides, in elements */

/* Broadcasts `with` into `shape` (NumPy's rules); `what` names the operator in the error. */
int ac_dims_broadcast(ac_dims *shape, const ac_dims *with, const char *what) AC_CHECKED;
/* `dim` in [-n, n) to [0, n); a 0-d tensor accepts -1 and 0. */
int ac_dim_wrap(int64_t *dim, int64_t n, const char *what) AC_CHECKED;
/* What to add to the text of an error about index i along a dimension of `size`, from whose end none counts. */
const char *ac_index_hint(int64_t i, int64_t size);
/* Bit i set for every dimension in `dims` (all when empty or absent). */
int ac_dims_mask(const ac_dims *dims, int64_t n, const char *what, uint32_t *mask) AC_CHECKED;
/* Replaces one -1 by what makes `numel` elements. */
int ac_dims_infer(ac_dims *shape, int64_t numel, const char *what) AC_CHECKED;

enum { AC_SHAPE_TEXT = 160 };
/* "[2, 3]" into buffer (AC_SHAPE_TEXT bytes), which is returned. */
const char *ac_dims_text(const ac_dims *d, char *buffer);

#endif
