/* Tables of resampling along one dimension: each result is a weighted sum of values, given by the tensors index (int64)
 * and weight (float64), [results, taps]. An index of -1 adds nothing. Each table comes with that of its adjoint, so
 * that gradients are resamplings, too. */
#ifndef AC_DISPATCH_RESAMPLE_TABLES_H
#define AC_DISPATCH_RESAMPLE_TABLES_H

#include "dispatch/compose.h"

typedef enum {
    AC_TABLE_WINDOWS, /* means of windows */
    AC_TABLE_PARTS,   /* means of `out` parts */
    AC_TABLE_NEAREST, /* of scaled positions moved by `half` */
    AC_TABLE_LINEAR,
    AC_TABLE_CUBIC,    /* Keys' convolution kernel (1981) */
    AC_TABLE_SMOOTHED, /* linear or cubic, stretched to the scale when it shrinks, as PIL does */
} ac_table_kind;

/* What says which values with which weights add up to each result. Eight bytes each, so that tables can be compared. */
typedef struct {
    int64_t kind, size, out; /* of `size` values `out` results */
    int64_t window, step, around, counts_padding;
    double scale, half;
    int64_t corners, cubic;
    int64_t bits; /* weights are whole numbers, that many binary places moved, where it is not 0 */
} ac_table;

/* x with dimension `dim` resampled. */
T ac_c_resample(ac_scratch *s, T x, int64_t dim, const ac_table *table);
/* Where the results of a table of one tap come from: int64 [out]. */
T ac_c_table_index(ac_scratch *s, T x, const ac_table *table);
/* How many bits after the point the weights may have so that the largest fits 16 bits; -1 after a failure. */
int64_t ac_table_bits(const ac_table *table);

#endif
