/* What calls check before they write into a given tensor. */
#ifndef AC_DISPATCH_IN_PLACE_H
#define AC_DISPATCH_IN_PLACE_H

#include "dispatch/call.h"

/* RuntimeError where `what` may not write into target: memory that elements share, a leaf, an inference tensor. */
int ac_check_target(const char *what, ac_tensor *target) AC_CHECKED;
/* The same of a call; views cannot write at all. */
int ac_check_writable(const ac_op_call *c, ac_tensor *target) AC_CHECKED;
/* RuntimeError where a result does not fit the target by shape; `wrong_dtype`, a kind of error, where not by category
 * of dtype. */
int ac_check_result(const char *what, const ac_spec *result, const ac_tensor *target, ac_error wrong_dtype) AC_CHECKED;

/* The error of an `out` of another dtype, where an operator takes the result's alone (exact_out.def). */
int ac_check_out(const ac_op_info *op, ac_dtype result, const ac_tensor *target) AC_CHECKED;

/* The call, its result written into target. Where `other_shape` is given, a kernel's target that has not the result's
 * shape stays as it is, and that is set. */
int ac_write_into(const ac_op_call *c, ac_tensor *target, bool *other_shape) AC_CHECKED;

#endif
