/* View operators: tensors of another geometry over the same memory. */
#ifndef AC_OPS_VIEWS_H
#define AC_OPS_VIEWS_H

#include "ops/op.h"

/* new: the view; x is in[0] of the call */
#define VIEW(name, ...) ac_tensor *ac_view_##name(const ac_tensor *x, const void *attrs) AC_CHECKED;
#include "ops/ops.def"

/* The function of a VIEW operator. */
typedef ac_tensor *(*ac_view_fn)(const ac_tensor *x, const void *attrs);
extern const ac_view_fn ac_views[AC_N_OPS];

/* Strides that give t the shape `shape` without a copy; false when there are none. */
bool ac_view_strides(const ac_tensor *t, const ac_dims *shape, ac_dims *strides);

/* Where the view t would lie in its base if that lay in memory row by row. False when no strides say it, or when
 * elements of the base share memory. */
bool ac_place_in_rows(const ac_tensor *t, const ac_tensor *base, ac_attrs_as_strided *at);

#endif
