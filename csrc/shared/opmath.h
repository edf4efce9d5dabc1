/* The type that a kernel computes in, called opmath type as in torch: float32, float64 or int64, whatever the dtypes in
 * memory. Both backends use it. */
#ifndef AC_SHARED_OPMATH_H
#define AC_SHARED_OPMATH_H

#include "base/dtype.h"

typedef enum { AC_OPMATH_F32, AC_OPMATH_F64, AC_OPMATH_I64, AC_N_OPMATHS } ac_opmath;

static inline ac_opmath ac_opmath_of(ac_dtype t) {
    ac_dtype c = ac_compute_dtype(t);
    return c == AC_float32 ? AC_OPMATH_F32 : c == AC_float64 ? AC_OPMATH_F64 : AC_OPMATH_I64;
}
static inline ac_dtype ac_opmath_dtype(ac_opmath l) {
    return l == AC_OPMATH_F32 ? AC_float32 : l == AC_OPMATH_F64 ? AC_float64 : AC_int64;
}
static inline int64_t ac_opmath_bytes(ac_opmath l) { return l == AC_OPMATH_F32 ? 4 : 8; }

#endif
