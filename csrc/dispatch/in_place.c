/* Calls that write their result into a given tensor, or add it to one: what may be written, and how it is recorded. */
#include "dispatch/in_place.h"

#include "dispatch/deferred_scale.h"
#include "dispatch/observer.h"
#include "dispatch/placement.h"
#include "dispatch/record.h"

#include "amp/autocast.h"
#include "autograd/provenance.h"
#include "ops/views.h"

#include <math.h>

/* -- what may be written ------------------------------------------------------------------------------ */

static int check_view(const char *what, ac_tensor *target) {
    ac_leave_lone_base(target);
    if (!target->base) return 0;
    ac_attrs_as_strided place;
    if (!ac_place_in_rows(target, target->base, &place))
        return ac_fail(AC_RUNTIME,
                       "%s: writing into this view of a tensor that is not contiguous cannot be recorded; make the "
                       "base contiguous first",
                       what);
    if (target->view_kind == AC_VIEW_PLAIN) return 0;
    const char *made = target->view_kind == AC_VIEW_ONE_OF_MANY   ? "a result of unbind, split and chunk"
                       : target->view_kind == AC_VIEW_OF_FUNCTION ? "a view returned by an autograd Function"
                                                                  : "a view made under no_grad or inference_mode";
    return ac_fail(AC_RUNTIME,
                   "%s: %s cannot be modified in place where gradients are recorded; clone it first, or write "
                   "`x = x.op()`",
                   what, made);
}

int ac_check_recordable(const char *what, ac_tensor *target, bool recorded) {
    ac_tensor *root = target->base ? target->base : target;
    recorded = recorded || ac_requires_grad(target) || ac_requires_grad(root);
    if (!ac_grad_enabled() || !recorded) return 0;
    AC_TRY(check_view(what, target));
    root = target->base ? target->base : target;
    if ((ac_is_leaf(root) && ac_requires_grad(root)) || (ac_is_leaf(target) && ac_requires_grad(target)))
        return ac_fail(AC_RUNTIME,
                       target->base ? "%s: a view of a leaf that requires gradients cannot be modified in place; use "
                                      "torch.no_grad() or write `x = x.op()`"
                                    : "%s: a leaf that requires gradients cannot be modified in place; use "
                                      "torch.no_grad() or write `x = x.op()`",
                       what);
    return 0;
}

int ac_check_changed(const char *what, ac_tensor *target) {
    if (target->is_inference && !ac_mode.inference)
        return ac_fail(AC_RUNTIME,
                       "%s: a tensor made under inference_mode cannot be modified outside it; clone it first", what);
    return ac_check_recordable(what, target, false);
}

int ac_check_target(const char *what, ac_tensor *target) {
    if (ac_overlaps_itself(target))
        return ac_fail(AC_RUNTIME,
                       "%s: several elements of the target share memory (an expanded tensor?); clone it first", what);
    return ac_check_changed(what, target);
}

static bool has_shape(const ac_tensor *t, const ac_dims *wanted) {
    bool same = t->ndim == wanted->n;
    for (int i = 0; same && i < t->ndim; i++) same = t->shape[i] == wanted->v[i];
    return same;
}

int ac_check_result(const char *what, const ac_spec *result, const ac_tensor *target, ac_error wrong_dtype) {
    char want[AC_SHAPE_TEXT], got[AC_SHAPE_TEXT];
    if (!has_shape(target, &result->shape))
        return ac_fail(AC_RUNTIME, "%s: the result has shape %s and the target %s", what,
                       ac_dims_text(&result->shape, want), ac_shape_text(target, got));
    if (ac_dtypes[result->dtype].category > ac_dtypes[target->dtype].category)
        return ac_fail(
            wrong_dtype,
            "%s: the target is %s and cannot hold a result of %s; convert it, or take the result as a new tensor", what,
            ac_dtypes[target->dtype].name, ac_dtypes[result->dtype].name);
    return 0;
}

int ac_check_out(const ac_op_info *op, ac_dtype result, const ac_tensor *target) {
    if (!(op->flags & AC_FLAG_EXACT_OUT) || result == target->dtype) return 0;
    return ac_fail(AC_OUT_DTYPE,
                   "%s: `out` must be %s, as the result is, got %s; give it that dtype, or convert the "
                   "result with .to(%s)",
                   op->shown, ac_dtypes[result].name, ac_dtypes[target->dtype].name, ac_dtypes[target->dtype].name);
}

int ac_check_writable(const ac_op_call *c, ac_tensor *target) {
    if (c->info->kind == AC_KIND_VIEW)
        return ac_fail(AC_RUNTIME, "%s cannot write into a given tensor", c->info->shown);
    return ac_check_target(c->info->shown, target);
}

/* The error of a target of another dtype: RuntimeError in place, and of `out=` the one that both of torch's are. */
static ac_error wrong_dtype(const ac_op_call *c, const ac_tensor *target) {
    return c->in[0] == target ? AC_RUNTIME : AC_OUT_DTYPE;
}

/* infer, of a call that writes into a tensor: it has the result's shape, and lies where the operands do. */
static int prepare(const ac_op_call *c, ac_tensor *target, ac_infer *meta, bool *other_shape) {
    AC_TRY(ac_call_infer(c, meta));
    if (other_shape) AC_TRY(ac_check_out(c->info, meta->out[0].dtype, target));
    if (other_shape && !has_shape(target, &meta->out[0].shape)) return *other_shape = true, 0;
    AC_TRY(ac_check_result(c->info->shown, &meta->out[0], target, wrong_dtype(c, target)));
    return ac_check_target_device(c, target);
}

/* -- in place ----------------------------------------------------------------------------------------- */

/* Elementwise operators write straight into the target when nothing they read is overwritten early. Integers that
 * another dtype will hold wrap in their own first. */
static bool writes_directly(const ac_op_call *c, ac_dtype result, const ac_tensor *target) {
    if (c->info->kind != AC_KIND_POINTWISE) return false;
    if (ac_dtypes[result].category == AC_INTEGER && result != target->dtype) return false;
    for (int i = 0; i < c->n_in; i++)
        if (ac_overlaps_partly(target, c->in[i])) return false;
    return true;
}

static int compute_apart(const ac_op_call *c, ac_tensor *target) {
    ac_tensor *made[AC_MAX_OUT];
    ac_op_call apart = *c;
    apart.out = made;
    AC_TRY(ac_call_compute(&apart));
    ac_run copy = {.op = AC_OP_clone, .in = made, .n_in = 1, .out = &target, .n_out = 1, .compute = AC_float32};
    int failed = ac_run_kernel(&copy);
    ac_release_results(&apart);
    return failed;
}

static int compute_into(const ac_op_call *c, const ac_infer *meta, ac_tensor *target) {
    double scaled = ac_any_scaled ? ac_scaled_after(c->op, c->in, c->n_in, target) : NAN;
    int failed;
    if (writes_directly(c, meta->out[0].dtype, target)) {
        ac_run direct = {.op = c->op,
                         .in = c->in,
                         .n_in = c->n_in,
                         .attrs = c->attrs,
                         .out = &target,
                         .n_out = 1,
                         .compute = meta->compute};
        failed = ac_run_kernel(&direct);
    } else failed = compute_apart(c, target);
    ac_wrote(target); /* perhaps in part, when it was interrupted */
    if (!isnan(scaled)) ac_mark_scaled(target, scaled);
    return failed;
}

/* What backward needs of the target's old value is copied before it is overwritten. */
static int keep_old_values(const ac_op_call *c, const ac_node *node, const ac_tensor *target, ac_list *kept) {
    for (int i = 0; i < kept->n; i++) {
        ac_tensor *t = c->in[i];
        bool copied = t && t->storage == target->storage && ac_call_saves(c, node, i);
        ac_op_call copy = ac_op_call_of(AC_OP_clone, &t, 1, NULL, &kept->at[i]);
        if (copied) AC_TRY(ac_call_compute(&copy));
        else if (t) kept->at[i] = ac_tensor_retain(t);
    }
    return 0;
}

/* Edges are taken before the write, which outdates views; saved results after it. */
static int into_recorded(const ac_op_call *c, const ac_infer *meta, ac_tensor *target) {
    ac_list kept;
    AC_TRY(ac_list_start(&kept, c->n_in));
    ac_node *node = ac_call_node(c, 1);
    ac_op_call written = *c;
    written.operands = kept.at;
    int failed = node ? keep_old_values(c, node, target, &kept) : -1;
    if (!failed) failed = compute_into(c, meta, target);
    if (!failed) failed = ac_call_save(&written, node);
    if (!failed) failed = ac_set_history_written(target, node, 0);
    if (node) ac_node_release(node);
    ac_list_release(&kept);
    return failed;
}

/* The inputs as a list. Where gradients are recorded those in the target's memory are copies: what is saved of them for
 * backward outlives the write. */
static int inputs_apart(const ac_op_call *c, const ac_tensor *target, ac_list *apart) {
    bool recorded = false;
    AC_TRY(ac_list_start(apart, c->n_in));
    for (int i = 0; i < c->n_in && ac_grad_enabled(); i++)
        recorded = recorded || (c->in[i] && ac_requires_grad(c->in[i]));
    for (int i = 0; i < c->n_in; i++) {
        if (recorded && c->in[i] && c->in[i]->storage == target->storage)
            AC_TRY(ac_call(AC_OP_clone, &c->in[i], 1, NULL, &apart->at[i]));
        else if (c->in[i]) apart->at[i] = ac_tensor_retain(c->in[i]);
    }
    return 0;
}

static int copy_result(const ac_op_call *c, ac_tensor *made, ac_tensor *target) {
    ac_spec result = ac_spec_of(made);
    AC_TRY(ac_check_result(c->info->shown, &result, target, wrong_dtype(c, target)));
    return ac_copy_into(target, made);
}

/* A composition's result is made first, outside autocast, and copied. What may be its operand (dropout that drops
 * nothing) is looked at then: the target stays as it is. */
static int compose_into(const ac_op_call *c, ac_tensor *target) {
    ac_tensor *made[AC_MAX_OUT];
    ac_list apart;
    bool either = c->info->memory == AC_MEMORY_EITHER;
    if (!either) AC_TRY(ac_check_writable(c, target));
    ac_op_call own = *c;
    ac_autocast_state outer = ac_autocast_suspend();
    int failed = inputs_apart(c, target, &apart);
    own.in = own.operands = apart.at, own.out = made;
    if (!failed) failed = ac_call_composition(&own);
    ac_autocast_resume(&outer);
    bool same = either && !failed && c->in[0] == target && made[0]->storage == apart.at[0]->storage;
    ac_list_release(&apart);
    if (failed) return failed;
    if (!same) {
        failed = either ? ac_check_writable(c, target) : 0;
        if (!failed) failed = copy_result(c, made[0], target);
    }
    ac_release_results(&own);
    return failed;
}

int ac_write_into(const ac_op_call *c, ac_tensor *target, bool *other_shape) {
    ac_infer meta;
    if (c->info->kind != AC_KIND_COMPOSITE) AC_TRY(ac_check_writable(c, target));
    if (c->info->kind == AC_KIND_COMPOSITE) ac_compute_waiting();
    AC_TRY(ac_call_settle(c));
    AC_TRY(ac_settle_factors(&target, 1));
    if (c->info->kind == AC_KIND_COMPOSITE) return compose_into(c, target);
    AC_TRY(prepare(c, target, &meta, other_shape));
    if (other_shape && *other_shape) return 0;
    bool history =
        ac_call_wants_record(c) || (ac_grad_enabled() && ac_requires_grad(target) && ac_formulas[c->op] != NULL);
    history = history && ac_is_floating(target->dtype);
    if (history) AC_TRY(check_view(c->info->shown, target));
    int64_t begin = ac_observation_begins();
    AC_TRY(history ? into_recorded(c, &meta, target) : compute_into(c, &meta, target));
    return ac_observe_target(c, begin);
}

int ac_call_into(ac_op op, ac_tensor *const *in, int n_in, const void *attrs, ac_tensor *target) {
    ac_op_call c = ac_op_call_of(op, in, n_in, attrs, &target);
    return ac_write_into(&c, target, NULL);
}

int ac_call_adding(ac_op op, ac_tensor *const *in, int n_in, const void *attrs, ac_tensor *target) {
    ac_op_call c = ac_op_call_of(op, in, n_in, attrs, &target);
    ac_infer meta;
    ac_dtype dtype;
    if (ac_cast_of(op) == AC_CAST_LOW && ac_autocast_casts(in, n_in, &dtype)) c.low = (int64_t)dtype;
    AC_TRY(ac_check_target(c.info->shown, target));
    AC_TRY(ac_settle_all(in, n_in));
    AC_TRY(ac_settle(target));
    AC_TRY(prepare(&c, target, &meta, NULL));
    ac_run run = {.op = op,
                  .in = in,
                  .n_in = n_in,
                  .attrs = attrs,
                  .out = &target,
                  .n_out = 1,
                  .compute = meta.compute,
                  .add = true};
    int64_t begin = ac_observation_begins();
    int failed = ac_run_product(&run);
    ac_wrote(target);
    return failed ? failed : ac_observe_target(&c, begin);
}
