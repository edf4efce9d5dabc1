/* Cuts a tensor along a dimension into views that share one node. Backward joins all their gradients at once; a node
 * for each view would make zeros of the whole tensor's size. */
#ifndef AC_AUTOGRAD_SPLIT_H
#define AC_AUTOGRAD_SPLIT_H

#include "autograd/node.h"

typedef struct {
    int64_t start, size;
} ac_section;

/* out[i] (new): what x has at spans[i] along `dim`; without that dimension when `drop`, for sizes of 1. Spans follow
 * one another without overlapping; there may be gaps between them. */
int ac_split(ac_tensor *x, int64_t dim, const ac_section *spans, int n, bool drop, ac_tensor **out) AC_CHECKED;

#endif
