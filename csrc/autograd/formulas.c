/* The table from operators to backward formulas: every operator of ops.def names its own. A missing formula is an
 * undeclared name here; a formula that no operator names is an unused definition. */
#include "autograd/formula_list.h"

#define ac_grad_none NULL

const ac_grad_fn ac_formulas[AC_N_OPS] = {
#define POINT1(name, py, home, result, cast, save, grad, ...) [AC_OP_##name] = ac_grad_##grad,
#define POINT2 POINT1
#define POINT3 POINT1
#define KERNEL(name, py, home, infer, kernel, cast, save, grad, ...) [AC_OP_##name] = ac_grad_##grad,
#define VIEW(name, py, home, grad, ...) [AC_OP_##name] = ac_grad_##grad,
#include "ops/ops.def"
};
