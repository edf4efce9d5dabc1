/* ac_call_out: a call whose results are written into given tensors, which may take their shapes. */
#include "dispatch/in_place.h"

#include "dispatch/placement.h"
#include "dispatch/upcast.h"
#include "dispatch/write.h"

#include "amp/autocast.h"

#include <string.h>

static bool takes_shape(const ac_tensor *target) { return target->numel == 0 && !target->base; }

static int check_written(const char *what, const ac_tensor *result, const ac_tensor *target) {
    ac_spec spec = ac_spec_of(result);
    if (takes_shape(target)) spec.shape = ac_shape_of(target);
    return ac_check_result(what, &spec, target, AC_OUT_DTYPE);
}

/* The result's values in the target, which takes another's shape where it is empty. */
static int write_out(ac_tensor *target, ac_tensor *result) {
    if (!ac_same_shape(target, result)) {
        ac_dims shape = ac_shape_of(result);
        ac_tensor *room = ac_tensor_new_on(ac_device_of(target), target->dtype, &shape);
        if (!room) return -1;
        ac_tensor_take(target, room);
        ac_tensor_release(room);
    }
    return ac_copy_into(target, result);
}

/* Results made first, outside autocast; nothing is written unless all targets fit. */
static int write_all(const ac_op_call *c, ac_tensor *const *targets, int n) {
    for (int i = 0; i < n; i++) {
        AC_TRY(ac_check_writable(c, targets[i]));
        AC_TRY(ac_check_target_device(c, targets[i]));
    }
    ac_autocast_state outer = ac_autocast_suspend();
    int failed = ac_call(c->op, c->in, c->n_in, c->attrs, c->out);
    ac_autocast_resume(&outer);
    if (failed) return failed;
    for (int i = 0; i < n && !failed; i++) failed = check_written(c->info->shown, c->out[i], targets[i]);
    for (int i = 0; i < n && !failed; i++) failed = write_out(targets[i], c->out[i]);
    ac_release_results(c);
    return failed;
}

static int write_cast(const ac_op_call *c, ac_tensor *const *targets, int n) {
    if (n == 1 && !takes_shape(targets[0]) && !(c->info->flags & AC_FLAG_COUNTS))
        return ac_call_into(c->op, c->in, c->n_in, c->attrs, targets[0]);
    return write_all(c, targets, n);
}

/* Whether `out` decides what a sum and its like compute in, where no dtype is asked for: float64 has more digits, and
 * integers, where the operator has them, are summed as integers. */
static bool target_decides(const ac_op_call *c, const ac_tensor *target) {
    if (c->info->casts_at < 0 || !ac_is_floating(c->in[0]->dtype)) return false;
    if (ac_asked_dtype(c) != AC_NO_DTYPE) return false;
    return ac_is_floating(target->dtype) ? target->dtype == AC_float64 : c->info->flags & AC_FLAG_INTEGERS;
}

int ac_call_out(ac_op op, ac_tensor *const *in, int n_in, const void *attrs, ac_tensor *const *targets, int n) {
    _Alignas(8) char own[AC_MAX_ATTRS];
    ac_tensor *made[AC_MAX_OUT] = {NULL}, *cast;
    ac_op_call c = ac_op_call_of(op, in, n_in, attrs, made);
    if (n == 1 && n_in == 1 && target_decides(&c, targets[0])) {
        memcpy(own, attrs, c.info->attrs_size);
        *(int64_t *)(void *)(own + c.info->casts_at) = targets[0]->dtype;
        c.attrs = own;
    }
    if (!ac_casts_first(&c)) return write_cast(&c, targets, n);
    AC_TRY(ac_cast_first(&c, &cast));
    c.in = c.operands = &cast;
    int failed = write_cast(&c, targets, n);
    ac_tensor_release(cast);
    return failed;
}
