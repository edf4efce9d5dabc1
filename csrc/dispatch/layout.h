/* In which order the dimensions of a result lie in memory. */
#ifndef AC_DISPATCH_LAYOUT_H
#define AC_DISPATCH_LAYOUT_H

#include "dispatch/call.h"

/* Gives a new result the strides that torch's rule asks for: elementwise operators and copies keep the order that their
 * operands have, such as channels last; results of other operators are row-major. */
void ac_call_lay_out(const ac_op_call *c, ac_tensor *out);

#endif
