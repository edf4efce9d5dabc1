/* What operators that write into a given tensor need around the write. */
#ifndef AC_DISPATCH_TARGETS_H
#define AC_DISPATCH_TARGETS_H

#include "ops/op.h"
#include "tensor/list.h"

/* The inputs as a list. Where gradients are recorded those in the target's memory are copies: what is saved of them for
 * backward outlives the write. */
int ac_inputs_apart(ac_tensor *const *in, int n_in, const ac_tensor *target, ac_list *apart) AC_CHECKED;
/* The result's values in the target, which takes another's shape where it is empty. */
int ac_write_out(ac_tensor *target, ac_tensor *result) AC_CHECKED;

/* The source's values in the target, recorded: what the target was before has a gradient of zeros, as torch has it. A
 * view's base keeps its history in any case. */
int ac_overwrite(ac_tensor *target, ac_tensor *source) AC_CHECKED;

/* Records `v`, as_strided of an x that is not contiguous: both are views of one memory, so the gradient goes from v
 * into the memory and from there to x. */
int ac_record_strided(ac_tensor *x, ac_tensor *v, const ac_attrs_as_strided *attrs) AC_CHECKED;

#endif
