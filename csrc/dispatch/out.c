/* ac_call_out: a call whose results are written into given tensors, which take the shapes that they lack. */
#include "dispatch/in_place.h"

#include "dispatch/deferred_scale.h"
#include "dispatch/placement.h"
#include "dispatch/upcast.h"
#include "dispatch/write.h"

#include "amp/autocast.h"

#include <string.h>

/* By dtype alone: its shape the target takes. */
static int check_written(const ac_op_info *op, const ac_tensor *result, const ac_tensor *target) {
    AC_TRY(ac_check_out(op, result->dtype, target));
    ac_spec spec = ac_spec_of(result);
    spec.shape = ac_shape_of(target);
    return ac_check_result(op->shown, &spec, target, AC_OUT_DTYPE);
}

/* The storage with room for that many bytes: it moves to other memory where it must. */
static int make_room(ac_storage *s, int64_t bytes) {
    if (bytes <= s->bytes) return 0;
    if (s->exported)
        return ac_fail(AC_RUNTIME,
                       "`out` must grow to %lld bytes, and its memory belongs to an array or to several "
                       "processes; give a tensor of the result's shape",
                       (long long)bytes);
    AC_TRY(ac_settle_storage(s));
    if (bytes > ac_storage_room(s)) {
        ac_storage *larger = ac_storage_new(s->device, bytes);
        int failed = larger ? ac_storage_move(s, larger) : -1;
        if (larger) ac_storage_release(larger);
        if (failed) return failed;
    }
    return ac_storage_set_bytes(s, bytes);
}

/* On the device `meta`, where there is no memory to keep. */
static int take_room(ac_tensor *target, const ac_dims *shape) {
    ac_tensor *room = ac_tensor_new_on(ac_device_of(target), target->dtype, shape);
    if (!room) return -1;
    ac_tensor_take(target, room);
    ac_tensor_release(room);
    target->changes++;
    return 0;
}

/* The shape that the result has, and its order of dimensions in memory, where the target's memory begins. */
static int take_shape(ac_tensor *target, const ac_tensor *result) {
    ac_dims shape = ac_shape_of(result), strides = ac_dims_contiguous(&shape);
    if (!ac_is_contiguous(result) && ac_is_dense(result)) strides = ac_strides_of(result);
    if (ac_device_of(target) == AC_META) return take_room(target, &shape);
    AC_TRY(make_room(target->storage, (target->offset + result->numel) * ac_itemsize(target->dtype)));
    target->numel = result->numel, target->ndim = result->ndim;
    memcpy(target->shape, shape.v, sizeof target->shape);
    memcpy(target->strides, strides.v, sizeof target->strides);
    target->changes++;
    ac_tensor_clear(&target->base); /* it may reach further */
    target->view_kind = AC_VIEW_PLAIN;
    return 0;
}

/* A target that is also an argument, or shares its memory, must have the result's shape: the argument would take
 * another shape, too. */
static int check_apart(const ac_op_call *c, const ac_tensor *result, const ac_tensor *target) {
    if (ac_same_shape(target, result) || ac_device_of(target) == AC_META) return 0;
    char has[AC_SHAPE_TEXT], needs[AC_SHAPE_TEXT];
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i] && ac_shares_memory(target, c->in[i]))
            return ac_fail(AC_RUNTIME,
                           "%s: `out` has shape %s and shares the memory of an argument, so it cannot take the "
                           "result's shape %s; give another tensor, or a clone() of the argument",
                           c->info->shown, ac_shape_text(target, has), ac_shape_text(result, needs));
    return 0;
}

static int write_out(ac_tensor *target, ac_tensor *result) {
    if (!ac_same_shape(target, result)) AC_TRY(take_shape(target, result));
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
    for (int i = 0; i < n && !failed; i++) failed = check_written(c->info, c->out[i], targets[i]);
    for (int i = 0; i < n && !failed; i++) failed = check_apart(c, c->out[i], targets[i]);
    for (int i = 0; i < n && !failed; i++) failed = write_out(targets[i], c->out[i]);
    ac_release_results(c);
    return failed;
}

/* A kernel writes its one result where it belongs, if that has the shape. */
static int write_cast(const ac_op_call *c, ac_tensor *const *targets, int n) {
    bool apart = n > 1 || c->info->kind == AC_KIND_COMPOSITE || c->info->flags & AC_FLAG_COUNTS;
    if (!apart) {
        ac_op_call into = *c;
        ac_tensor *target = targets[0];
        into.out = &target;
        AC_TRY(ac_write_into(&into, target, &apart));
    }
    return apart ? write_all(c, targets, n) : 0;
}

/* Whether `out` decides what a sum and its like compute in, where no dtype is asked for: float64 has more digits, and
 * integers, where the operator has them, are summed as integers. */
static bool target_decides(const ac_op_call *c, const ac_tensor *target) {
    if (c->info->casts_at < 0 || c->info->flags & AC_FLAG_EXACT_OUT || !ac_is_floating(c->in[0]->dtype)) return false;
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
