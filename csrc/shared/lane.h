/* The type that a kernel computes in, called its lane: float32, float64 or int64, whatever the dtypes in memory. Both
 * backends use it. */
#ifndef AC_SHARED_LANE_H
#define AC_SHARED_LANE_H

#include "base/dtype.h"

typedef enum { AC_LANE_F32, AC_LANE_F64, AC_LANE_I64, AC_N_LANES } ac_lane;

static inline ac_lane ac_lane_of(ac_dtype t) {
    ac_dtype c = ac_compute_dtype(t);
    return c == AC_float32 ? AC_LANE_F32 : c == AC_float64 ? AC_LANE_F64 : AC_LANE_I64;
}
static inline ac_dtype ac_lane_dtype(ac_lane l) {
    return l == AC_LANE_F32 ? AC_float32 : l == AC_LANE_F64 ? AC_float64 : AC_int64;
}
static inline int64_t ac_lane_bytes(ac_lane l) { return l == AC_LANE_F32 ? 4 : 8; }

#endif
