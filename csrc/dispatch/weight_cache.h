/* The weight cache: packed copies of weights for products. */
#ifndef AC_DISPATCH_WEIGHT_CACHE_H
#define AC_DISPATCH_WEIGHT_CACHE_H

#include "backend/backend.h"

/* new: the weight of a product (AC_FLAG_WEIGHT) in 16 bits as it is kept packed; NULL where it packs for itself. */
int ac_packed_weight_for(const ac_run *run, ac_tensor **panels) AC_CHECKED;
/* new: the bias of such a product on a GPU in its 16-bit result's dtype, which is what is added there; NULL where the
 * product casts it itself. */
int ac_kept_bias_for(const ac_run *run, ac_tensor **bias) AC_CHECKED;

#endif
