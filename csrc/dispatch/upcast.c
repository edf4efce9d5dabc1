/* Calls that compute in another dtype than their inputs': float32 for composite operators that would lose digits, or
 * the dtype that the caller asked for. */
#include "dispatch/upcast.h"

#include "dispatch/compose.h"
#include "ops/infer.h"

#include <string.h>

static bool has_half(ac_tensor *const *in, int n) {
    for (int i = 0; i < n; i++)
        if (in[i] && ac_is_half(in[i]->dtype)) return true;
    return false;
}

static int cast_to(ac_tensor *t, ac_dtype dtype, ac_tensor **out) {
    ac_attrs_dtype as = {dtype};
    return ac_call(AC_OP_cast, &t, 1, &as, out);
}

/* new: the inputs, 16-bit ones in `dtype`; NULL stays NULL. The list is to be released, after
 * a failure too. */
static int widened(ac_tensor *const *in, int n, ac_dtype dtype, ac_list *out) {
    AC_TRY(ac_list_start(out, n));
    for (int i = 0; i < n; i++) {
        if (!in[i]) continue;
        if (ac_is_half(in[i]->dtype)) AC_TRY(cast_to(in[i], dtype, &out->at[i]));
        else out->at[i] = ac_tensor_retain(in[i]);
    }
    return 0;
}

/* What autocast would compute in float32 loses its digits in 16 bits anywhere: widened, and rounded once. */
bool ac_wants_float32(ac_op op, ac_tensor *const *in, int n) {
    return ac_ops[op].cast == AC_CAST_F32 && ac_ops[op].dtype_at < 0 && has_half(in, n);
}

int ac_run_in_float32(ac_op op, ac_tensor *const *in, int n_in, const void *attrs, ac_tensor **out) {
    ac_list wide;
    ac_tensor *made[AC_MAX_OUT] = {NULL};
    ac_dtype dtype = ac_result_type(in, n_in);
    int failed = widened(in, n_in, AC_float32, &wide);
    if (!failed) failed = ac_compositions[op](wide.at, n_in, attrs, made);
    for (int i = 0; i < ac_ops[op].n_out && !failed; i++) {
        if (made[i]->dtype == AC_float32) failed = cast_to(made[i], dtype, &out[i]);
        else out[i] = ac_tensor_retain(made[i]);
    }
    for (int i = 0; i < AC_MAX_OUT; i++) ac_tensor_clear(&made[i]);
    ac_list_release(&wide);
    return failed;
}

/* `dtype` of a sum and its like. One that holds all values of the input's is what the result is rounded to; to any
 * other the input is cast first: sum([0.6, 0.7], dtype=int64) is 0. */
bool ac_casts_first(ac_op op, ac_tensor *const *in, const void *attrs) {
    if (ac_ops[op].casts_at < 0) return false;
    int64_t given = *(const int64_t *)(const void *)((const char *)attrs + ac_ops[op].casts_at);
    return given != AC_NO_DTYPE && ac_promote(in[0]->dtype, (ac_dtype)given) != (ac_dtype)given;
}

static int cast_first(ac_op op, ac_tensor *x, const void *attrs, ac_tensor **cast) {
    int64_t dtype = *(const int64_t *)(const void *)((const char *)attrs + ac_ops[op].casts_at);
    return cast_to(x, (ac_dtype)dtype, cast);
}

int ac_run_cast_first(ac_op op, ac_tensor *x, const void *attrs, ac_tensor **out) {
    ac_tensor *cast[AC_MAX_OUT] = {NULL};
    AC_TRY(cast_first(op, x, attrs, cast));
    int failed = ac_call(op, cast, 1, attrs, out);
    ac_tensor_release(cast[0]);
    return failed;
}

/* Whether `out` decides what a sum and its like compute in, where no dtype is asked for: float64 has more digits, and
 * integers, where the operator has them, are summed as integers. */
static bool target_decides(ac_op op, const ac_tensor *x, const void *attrs, const ac_tensor *target) {
    const ac_op_info *info = &ac_ops[op];
    if (info->casts_at < 0 || !ac_is_floating(x->dtype)) return false;
    if (*(const int64_t *)(const void *)((const char *)attrs + info->casts_at) != AC_NO_DTYPE) return false;
    if (ac_is_floating(target->dtype)) return target->dtype == AC_float64;
    return info->infer == ac_infer_reduce_sum || info->infer == ac_infer_scan;
}

int ac_call_out(ac_op op, ac_tensor *const *in, int n_in, const void *attrs, ac_tensor *const *targets, int n) {
    _Alignas(8) char own[AC_MAX_ATTRS];
    if (n == 1 && n_in == 1 && target_decides(op, in[0], attrs, targets[0])) {
        memcpy(own, attrs, ac_ops[op].attrs_size);
        *(int64_t *)(void *)(own + ac_ops[op].casts_at) = targets[0]->dtype;
        attrs = own;
    }
    if (!ac_casts_first(op, in, attrs)) return ac_call_targets(op, in, n_in, attrs, targets, n);
    ac_tensor *cast[AC_MAX_OUT] = {NULL};
    AC_TRY(cast_first(op, in[0], attrs, cast));
    int failed = ac_call_targets(op, cast, 1, attrs, targets, n);
    ac_tensor_release(cast[0]);
    return failed;
}
