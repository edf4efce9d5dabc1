/* Calls that compute in another dtype than their inputs'. */
#ifndef AC_DISPATCH_UPCAST_H
#define AC_DISPATCH_UPCAST_H

#include "dispatch/call.h"

/* A composite operator on 16-bit inputs that would lose digits: it computes in float32, and rounds once. */
bool ac_wants_float32(const ac_op_call *c);
int ac_call_in_float32(const ac_op_call *c) AC_CHECKED;

/* The attribute `dtype` of an operator that has one and casts its input to it; AC_NO_DTYPE: none was asked for. */
static inline int64_t ac_asked_dtype(const ac_op_call *c) {
    return *(const int64_t *)(const void *)((const char *)c->attrs + c->info->casts_at);
}
/* Whether the input must be cast to that before the call. One that holds all values of the input's is what the result
 * is rounded to; to any other the input is cast first: sum([0.6, 0.7], dtype=int64) is 0. */
static inline bool ac_casts_first(const ac_op_call *c) {
    if (c->info->casts_at < 0) return false;
    int64_t asked = ac_asked_dtype(c);
    return asked != AC_NO_DTYPE && ac_promote(c->in[0]->dtype, (ac_dtype)asked) != (ac_dtype)asked;
}
int ac_cast_first(const ac_op_call *c, ac_tensor **cast) AC_CHECKED; /* new */
int ac_call_cast_first(const ac_op_call *c) AC_CHECKED;

#endif
