/* The inputs of a call in the dtypes that its autocast plan gives them. */
#ifndef AC_DISPATCH_AUTOCAST_INPUTS_H
#define AC_DISPATCH_AUTOCAST_INPUTS_H

#include "amp/autocast.h"
#include "tensor/list.h"

/* The inputs to run on; the list owns those that differ from `in`. A product gets its operands as they are and rounds
 * them itself. Only operands that backward must keep are cast here, off the tape. */
int ac_autocast_inputs(const ac_autocast_plan *plan, ac_tensor *const *in, int n_in, ac_list *inputs) AC_CHECKED;
void ac_autocast_inputs_release(ac_list *inputs, ac_tensor *const *in, int n_in);

#endif
