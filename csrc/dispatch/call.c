/* ac_call, the only way to run an operator: autocast, shape function, kernel, record; its in-place and out= forms. */
#include "dispatch/autocast_inputs.h"
#include "dispatch/lock.h"
#include "dispatch/weight_cache.h"
#include "dispatch/compose.h"
#include "dispatch/upcast.h"
#include "dispatch/observer.h"
#include "dispatch/write.h"
#include "dispatch/targets.h"
#include "dispatch/deferred_scale.h"
#include "dispatch/placement.h"

#include "amp/autocast.h"
#include "autograd/node.h"
#include "backend/backend.h"
#include "base/pool.h"
#include "ops/infer.h"
#include "ops/views.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

static void *no_release(void) { return NULL; }
static void no_acquire(void *state) { (void)state; }
ac_lock_hooks ac_lock = {no_release, no_acquire};
int (*ac_watch)(const ac_seen *seen);
_Thread_local bool ac_watching;

/* -- kernels ---------------------------------------------------------------------------------------- */

/* bool has one bit to turn, not the 64 of its opmath type. */
static ac_op kernel_of(const ac_run *run) {
    return run->op == AC_OP_bitwise_not && run->compute == AC_bool ? AC_OP_logical_not : run->op;
}

static int run_kernel(const ac_run *given) {
    ac_run own = *given, *run = &own;
    own.op = kernel_of(given);
    ac_device device = AC_CPU; /* a GPU wherever one takes part */
    int64_t work = 0;
    for (int i = 0; i < run->n_in; i++)
        if (run->in[i]) work += run->in[i]->numel, device |= ac_device_of(run->in[i]);
    for (int i = 0; i < run->n_out; i++)
        if (run->out[i]) work += run->out[i]->numel, device |= ac_device_of(run->out[i]);
    /* a GPU's kernels are only queued here; what waits for one is worth letting others run */
    bool unlock = device == AC_CPU ? work >= AC_LOCK_ELEMENTS : run->op == AC_OP_to_device;
    ac_kernel kernel = ac_backend_of(device)->kernels[run->op];
    void *state = unlock ? ac_lock.release() : NULL;
    int failed = kernel(run);
    if (unlock) ac_lock.acquire(state);
    if (ac_interrupted()) return ac_fail(AC_PYTHON, "interrupted");
    return failed && device != AC_CPU && ac_error_code() != AC_INDEX ? ac_fail_in(ac_ops[run->op].python) : failed;
}

/* Inputs that the table marks (mut) are written by the kernel: their counters must show it. */
static void note_mutations(const ac_op_info *info, ac_tensor *const *in) {
    int at = 0;
    for (int p = 0; p < info->n_params; p++) {
        if (info->params[p].kind > AC_P_TENSOR_LIST) continue;
        if (info->params[p].mutated && in[at]) ac_wrote(in[at]);
        at++;
    }
}

static int infer(ac_infer *meta, ac_op op, ac_tensor *const *in, int n_in, const void *attrs, int64_t low) {
    meta->info = &ac_ops[op];
    meta->low = low;
    meta->in = in, meta->n_in = n_in, meta->attrs = attrs;
    meta->n_out = meta->info->n_out;
    meta->kernel_makes_output = false;
    meta->compute = AC_float32;
    return meta->info->infer(meta);
}

static void release_all(ac_tensor **tensors, int n) {
    for (int i = 0; i < n; i++) ac_tensor_clear(&tensors[i]);
}

/* Any kernel; products in 16 bits take their weight from its packed copy. */
static int run_product(ac_run *run) {
    ac_tensor *panels;
    AC_TRY(ac_packed_weight_for(run, &panels));
    run->panels = panels;
    int failed = run_kernel(run);
    ac_tensor_clear(&panels);
    return failed;
}

/* Shape function, outputs, kernel, on the device where the inputs are. */
static int compute_there(ac_op op, ac_tensor *const *in, int n_in, const void *attrs, ac_tensor **out, int64_t low,
                         ac_device device) {
    ac_infer meta;
    AC_TRY(infer(&meta, op, in, n_in, attrs, low));
    for (int i = 0; i < meta.n_out; i++) out[i] = NULL;
    for (int i = 0; i < meta.n_out && !meta.kernel_makes_output; i++) {
        out[i] = ac_tensor_new_on(device, meta.out[i].dtype, &meta.out[i].shape);
        if (!out[i]) {
            release_all(out, i);
            return -1;
        }
    }
    ac_run run = {op, in, n_in, attrs, out, meta.n_out, meta.compute, NULL, false};
    if (run_product(&run) < 0) {
        release_all(out, meta.n_out);
        return -1;
    }
    note_mutations(meta.info, in);
    for (int i = 0; i < meta.n_out; i++) AC_ASSERT(out[i] && ac_device_of(out[i]) == device);
    for (int i = 0; i < meta.n_out; i++) out[i]->is_inference = ac_mode.inference;
    return 0;
}

static int compute(ac_op op, ac_tensor *const *in, int n_in, const void *attrs, ac_tensor **out, int64_t low) {
    ac_device device;
    AC_TRY(ac_device_for(op, in, n_in, attrs, &device));
    if (device == AC_CPU || ac_ops[op].kind == AC_KIND_POINTWISE || ac_ops[op].device_at >= 0)
        return compute_there(op, in, n_in, attrs, out, low, device);
    ac_list there; /* numbers among the inputs, brought over */
    ac_attrs_to_device to = {device, 0};
    int failed = ac_list_start(&there, n_in);
    for (int i = 0; i < n_in && !failed; i++) {
        if (!in[i] || ac_device_of(in[i]) == device) there.at[i] = in[i] ? ac_tensor_retain(in[i]) : NULL;
        else failed = compute_there(AC_OP_to_device, &in[i], 1, &to, &there.at[i], AC_NO_DTYPE, device);
    }
    if (!failed) failed = compute_there(op, there.at, n_in, attrs, out, low, device);
    ac_list_release(&there);
    return failed;
}

/* -- recording -------------------------------------------------------------------------------------- */

static bool wants_record(ac_op op, ac_tensor *const *in, int n_in) {
    if (!ac_grad_enabled() || !ac_formulas[op]) return false;
    for (int i = 0; i < n_in; i++)
        if (in[i] && ac_is_floating(in[i]->dtype) && ac_requires_grad(in[i])) return true;
    return false;
}

static int fill_edges(ac_node *node, ac_tensor *const *in) {
    for (int i = 0; i < node->n_in; i++) {
        if (!in[i]) continue;
        node->inputs[i] = ac_spec_of(in[i]);
        if (ac_is_floating(in[i]->dtype)) AC_TRY(ac_edge_of(in[i], &node->edges[i]));
    }
    ac_node_number(node);
    return 0;
}

/* `in` are the inputs on the tape; `low` what the operator ran on, which is smaller where autocast cast it. */
static int fill_saved(ac_node *node, ac_tensor *const *in, ac_tensor *const *low, ac_tensor *const *out) {
    int mask = ac_ops[node->op].save;
    for (int i = 0; i < node->n_in; i++) {
        bool wanted = (mask & AC_SAVE_ALL) == AC_SAVE_ALL
                          ? !(node->op == AC_OP_index_put && i == node->n_in - 1) && i > 0
                          : i < 16 && (mask >> i & 1);
        if (!wanted || !in[i]) continue;
        AC_TRY(ac_save(node, i, low[i]));
    }
    for (int i = 0; i < node->n_out; i++)
        if (mask >> 16 & (1 << i)) AC_TRY(ac_save(node, node->n_in + i, out[i]));
    return 0;
}

/* new: a node with its edges; what it saves comes after the kernel has run. */
static ac_node *make_node(ac_op op, ac_tensor *const *in, int n_in, const void *attrs, int n_out) {
    const ac_op_info *info = &ac_ops[op];
    ac_node *node = ac_node_new(info->name, n_in, n_out, info->attrs_size);
    if (!node) return NULL;
    node->op = op;
    node->backward = ac_formulas[op];
    if (info->attrs_size) memcpy(node->attrs, attrs, info->attrs_size);
    if (fill_edges(node, in) == 0) return node;
    ac_node_release(node);
    return NULL;
}

static int finish_node(ac_node *node, ac_tensor *const *in, ac_tensor *const *low, ac_tensor *const *out) {
    for (int i = 0; i < node->n_out; i++) node->outputs[i] = ac_spec_of(out[i]);
    return fill_saved(node, in, low, out);
}

/* Makes `node` the history of the results. */
static int record(ac_node *node, ac_tensor *const *in, ac_tensor *const *low, ac_tensor **out) {
    AC_TRY(finish_node(node, in, low, out));
    for (int i = 0; i < node->n_out; i++)
        if (ac_is_floating(out[i]->dtype)) AC_TRY(ac_set_history(out[i], node, i));
    return 0;
}

static int run_and_record(ac_op op, ac_tensor *const *in, ac_tensor *const *low, int n_in, const void *attrs,
                          ac_tensor **out, const ac_autocast_plan *plan) {
    AC_TRY(compute(op, low, n_in, attrs, out, plan && plan->low ? (int64_t)plan->to : AC_NO_DTYPE));
    if (!wants_record(op, in, n_in)) return 0;
    int n_out = ac_ops[op].n_out;
    ac_node *node = make_node(op, in, n_in, attrs, n_out);
    int failed = node ? record(node, in, low, out) : -1;
    if (node && plan && plan->low) node->is_low = true, node->compute = plan->to;
    if (node) ac_node_release(node);
    if (failed) release_all(out, n_out);
    return failed;
}

static int64_t nanoseconds(void) {
    struct timespec t;
    (void)timespec_get(&t, TIME_UTC);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int run_recorded(ac_op op, ac_tensor *const *in, ac_tensor *const *low, int n_in, const void *attrs,
                        ac_tensor **out, const ac_autocast_plan *plan) {
    if (!ac_watching) return run_and_record(op, in, low, n_in, attrs, out, plan);
    int64_t begin = nanoseconds(), dtype = plan && plan->low ? (int64_t)plan->to : AC_NO_DTYPE;
    AC_TRY(run_and_record(op, in, low, n_in, attrs, out, plan));
    int failed = ac_watch(&(ac_seen){op, low, out, n_in, ac_ops[op].n_out, attrs, dtype, false, nanoseconds() - begin});
    if (failed) release_all(out, ac_ops[op].n_out);
    return failed;
}

static int watch_target(ac_op op, ac_tensor *const *in, int n_in, ac_tensor *target, int64_t low) {
    return ac_watching ? ac_watch(&(ac_seen){op, in, &target, n_in, 1, NULL, low, true, 0}) : 0;
}

/* -- views ------------------------------------------------------------------------------------------ */

static int run_view(ac_op op, ac_tensor *const *in, const void *attrs, ac_tensor **out) {
    ac_tensor *x = in[0], *v = ac_views[op](x, attrs);
    if (!v) return -1;
    ac_note_view(v, x);
    out[0] = v;
    if (!wants_record(op, in, 1)) return 0;
    if (op == AC_OP_as_strided && !ac_is_contiguous(x)) {
        int unfit = ac_record_strided(x, v, attrs);
        if (unfit) ac_tensor_clear(&out[0]);
        return unfit;
    }
    ac_node *node = make_node(op, in, 1, attrs, 1);
    int failed = node ? record(node, in, in, out) : -1;
    if (!failed && op == AC_OP_as_strided) { /* from here on relative to x, which may itself be a view */
        ac_attrs_as_strided *a = node->attrs;
        a->offset = a->offset == AC_ABSENT ? 0 : a->offset - x->offset;
    }
    if (node) ac_node_release(node);
    if (failed) ac_tensor_clear(&out[0]);
    return failed;
}

/* -- the call --------------------------------------------------------------------------------------- */

/* Of trivial sizes a composition may end with an operand itself. Where the table says that the result is a copy, it
 * becomes one; and a view of a tensor that the composition made belongs to nobody else. */
static int copy_aliases(ac_op op, ac_tensor *const *in, int n_in, ac_tensor **out) {
    for (int i = 0; i < ac_ops[op].n_out; i++) {
        if (out[i]) ac_leave_lone_base(out[i]);
        for (int j = 0; j < n_in; j++) {
            ac_tensor *copy[AC_MAX_OUT] = {NULL};
            if (!in[j] || !out[i] || in[j]->storage != out[i]->storage) continue;
            AC_TRY(ac_call(AC_OP_clone, &out[i], 1, NULL, copy));
            ac_tensor_release(out[i]);
            out[i] = copy[0];
            break;
        }
    }
    return 0;
}

static int run_composition(ac_op op, ac_tensor *const *in, int n_in, const void *attrs, ac_tensor **out) {
    for (int i = 0; i < ac_ops[op].n_out; i++) out[i] = NULL;
    int failed = ac_wants_float32(op, in, n_in) ? ac_run_in_float32(op, in, n_in, attrs, out)
                                                : ac_compositions[op](in, n_in, attrs, out);
    if (!failed && ac_ops[op].memory == AC_MEMORY_COPY) failed = copy_aliases(op, in, n_in, out);
    if (failed) release_all(out, ac_ops[op].n_out);
    return failed;
}

static int run(ac_op op, ac_tensor *const *in, ac_tensor *const *low, int n_in, const void *attrs, ac_tensor **out,
               const ac_autocast_plan *plan) {
    switch (ac_ops[op].kind) {
    case AC_KIND_VIEW: return run_view(op, low, attrs, out);
    case AC_KIND_COMPOSITE: return run_composition(op, low, n_in, attrs, out);
    default:
        if (ac_casts_first(op, in, attrs)) return ac_run_cast_first(op, in[0], attrs, out);
        return run_recorded(op, in, low, n_in, attrs, out, plan);
    }
}

static int run_autocast(ac_op op, ac_tensor *const *in, int n_in, const void *attrs, ac_tensor **out) {
    ac_autocast_plan plan;
    ac_list cast;
    AC_TRY(ac_autocast_make_plan(op, in, n_in, attrs, &plan));
    AC_TRY(ac_autocast_inputs(&plan, in, n_in, &cast));
    /* a LOW operator is on the tape with its own inputs; casts of the other categories are on it themselves */
    bool active = ac_autocast.active, whole = ac_ops[op].kind == AC_KIND_COMPOSITE && ac_cast_of(op) != AC_CAST_LOW;
    if (whole) ac_autocast.active = false; /* the category holds for all that it is made of */
    int failed = run(op, plan.low ? in : cast.at, cast.at, n_in, attrs, out, &plan);
    ac_autocast.active = active;
    ac_autocast_inputs_release(&cast, in, n_in);
    return failed;
}

int ac_call(ac_op op, ac_tensor *const *in, int n_in, const void *attrs, ac_tensor **out) {
    if (ac_deferred_scales && ac_ops[op].kind != AC_KIND_VIEW) AC_TRY(ac_settle_all(in, n_in));
    if (ac_autocast.active && ac_cast_of(op) != AC_CAST_KEEP) return run_autocast(op, in, n_in, attrs, out);
    return run(op, in, in, n_in, attrs, out, NULL);
}

/* -- in place --------------------------------------------------------------------------------------- */

static int check_view(const char *what, ac_tensor *target) {
    ac_leave_lone_base(target);
    if (!target->base) return 0;
    if (!ac_is_contiguous(target->base))
        return ac_fail(AC_RUNTIME,
                       "%s: writing into a view of a tensor that is not contiguous cannot be recorded; clone the "
                       "base first",
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

static int check_target(const char *what, ac_tensor *target) {
    if (ac_overlaps_itself(target))
        return ac_fail(AC_RUNTIME,
                       "%s: several elements of the target share memory (an expanded tensor?); clone it first", what);
    if (target->is_inference && !ac_mode.inference)
        return ac_fail(AC_RUNTIME,
                       "%s: a tensor made under inference_mode cannot be modified outside it; clone it first", what);
    return ac_check_recordable(what, target, false);
}

static int check_result(const char *what, const ac_spec *result, const ac_tensor *target) {
    ac_dims shape = ac_shape_of(target);
    char want[AC_SHAPE_TEXT], got[AC_SHAPE_TEXT];
    if (!ac_dims_equal(&shape, &result->shape))
        return ac_fail(AC_RUNTIME, "%s: the result has shape %s and the target %s", what,
                       ac_dims_text(&result->shape, want), ac_dims_text(&shape, got));
    if (ac_dtypes[result->dtype].category > ac_dtypes[target->dtype].category)
        return ac_fail(AC_OUT_DTYPE, "%s: a %s result cannot be written into a %s tensor", what,
                       ac_dtypes[result->dtype].name, ac_dtypes[target->dtype].name);
    return 0;
}

int ac_set_history_written(ac_tensor *target, ac_node *node, int index) {
    ac_tensor *base = target->base;
    if (!base) return ac_set_history(target, node, index);
    ac_node *scatter = ac_node_new("as_strided_scatter", 2, 1, sizeof(ac_attrs_as_strided_scatter));
    if (!scatter) return -1;
    *(ac_attrs_as_strided_scatter *)scatter->attrs =
        (ac_attrs_as_strided_scatter){ac_shape_of(target), ac_strides_of(target), target->offset - base->offset, 0};
    scatter->op = AC_OP_as_strided_scatter;
    scatter->backward = ac_formulas[AC_OP_as_strided_scatter];
    scatter->inputs[0] = scatter->outputs[0] = ac_spec_of(base);
    scatter->inputs[1] = node->outputs[index];
    int failed = ac_edge_of(base, &scatter->edges[0]);
    scatter->edges[1] = (ac_edge){ac_node_retain(node), index};
    if (!failed) failed = ac_set_history(base, scatter, 0);
    target->view_version = *ac_version(target) - 1; /* outdated: its history follows from its base's */
    if (!failed && target->meta) ac_meta_set_node(target->meta, NULL, 0);
    ac_node_release(scatter);
    return failed;
}

/* Elementwise operators write straight into the target when nothing they read is overwritten early. */
static bool writes_directly(const ac_infer *meta, ac_tensor *const *in, int n_in, const ac_tensor *target) {
    if (meta->info->kind != AC_KIND_POINTWISE) return false;
    for (int i = 0; i < n_in; i++)
        if (ac_overlaps_partly(target, in[i])) return false;
    return true;
}

static int compute_into(ac_infer *meta, ac_op op, ac_tensor *const *in, int n_in, const void *attrs,
                        ac_tensor *target) {
    if (writes_directly(meta, in, n_in, target)) {
        ac_run direct = {op, in, n_in, attrs, &target, 1, meta->compute, NULL, false};
        return run_kernel(&direct);
    }
    ac_tensor *result = NULL, *out[AC_MAX_OUT];
    AC_TRY(compute(op, in, n_in, attrs, out, AC_NO_DTYPE));
    result = out[0];
    ac_run copy = {AC_OP_clone, &result, 1, NULL, &target, 1, AC_float32, NULL, false};
    int failed = run_kernel(&copy);
    release_all(out, meta->n_out);
    return failed;
}

/* What backward needs of the target's old value is copied before it is overwritten. */
static int keep_old_values(ac_op op, ac_tensor *const *in, const ac_tensor *target, ac_list *kept) {
    for (int i = 0; i < kept->n; i++) {
        bool saved = i < 16 && (ac_ops[op].save >> i & 1);
        if (saved && in[i] && in[i]->storage == target->storage)
            AC_TRY(compute(AC_OP_clone, &in[i], 1, NULL, &kept->at[i], AC_NO_DTYPE));
        else if (in[i]) kept->at[i] = ac_tensor_retain(in[i]);
    }
    return 0;
}

/* Edges are taken before the write, which outdates views; saved results after it. */
static int into_recorded(ac_infer *meta, ac_op op, ac_tensor *const *in, int n_in, const void *attrs,
                         ac_tensor *target) {
    ac_list kept;
    AC_TRY(ac_list_start(&kept, n_in));
    ac_node *node = make_node(op, in, n_in, attrs, 1);
    int failed = node ? keep_old_values(op, in, target, &kept) : -1;
    if (!failed) {
        failed = compute_into(meta, op, in, n_in, attrs, target);
        ac_wrote(target); /* perhaps in part, when it was interrupted */
    }
    if (!failed) {
        failed = finish_node(node, in, kept.at, &target);
        if (!failed) failed = ac_set_history_written(target, node, 0);
    }
    if (node) ac_node_release(node);
    ac_list_release(&kept);
    return failed;
}

/* A composition's result is made first, outside autocast, and copied. */
static int compose_into(ac_op op, ac_tensor *const *in, int n_in, const void *attrs, ac_tensor *target) {
    ac_tensor *out[AC_MAX_OUT];
    ac_list apart;
    bool active = ac_autocast.active;
    ac_autocast.active = false;
    int failed = ac_inputs_apart(in, n_in, target, &apart);
    if (!failed) failed = run_composition(op, apart.at, n_in, attrs, out);
    ac_autocast.active = active;
    ac_list_release(&apart);
    if (failed) return failed;
    ac_spec result = ac_spec_of(out[0]);
    failed = check_result(ac_ops[op].python, &result, target);
    if (!failed) failed = ac_copy_into(target, out[0]);
    release_all(out, ac_ops[op].n_out);
    return failed;
}

int ac_call_into(ac_op op, ac_tensor *const *in, int n_in, const void *attrs, ac_tensor *target) {
    ac_infer meta;
    const char *what = ac_ops[op].python;
    if (ac_ops[op].kind == AC_KIND_VIEW) return ac_fail(AC_RUNTIME, "%s cannot write into a given tensor", what);
    AC_TRY(check_target(what, target));
    AC_TRY(ac_settle_all(in, n_in));
    AC_TRY(ac_settle(target));
    if (ac_ops[op].kind == AC_KIND_COMPOSITE) return compose_into(op, in, n_in, attrs, target);
    AC_TRY(infer(&meta, op, in, n_in, attrs, AC_NO_DTYPE));
    AC_TRY(check_result(what, &meta.out[0], target));
    AC_TRY(ac_check_target_device(op, in, n_in, attrs, target));
    bool history = wants_record(op, in, n_in) || (ac_grad_enabled() && ac_requires_grad(target) && ac_formulas[op]);
    history = history && ac_is_floating(target->dtype);
    int failed;
    if (history) AC_TRY(check_view(what, target));
    if (history) failed = into_recorded(&meta, op, in, n_in, attrs, target);
    else {
        failed = compute_into(&meta, op, in, n_in, attrs, target);
        ac_wrote(target); /* perhaps in part, when it was interrupted */
    }
    return failed ? failed : watch_target(op, in, n_in, target, AC_NO_DTYPE);
}

static bool takes_shape(const ac_tensor *target) { return target->numel == 0 && !target->base; }

static int check_written(const char *what, const ac_tensor *result, const ac_tensor *target) {
    ac_spec spec = ac_spec_of(result);
    if (takes_shape(target)) spec.shape = ac_shape_of(target);
    return check_result(what, &spec, target);
}

int ac_call_targets(ac_op op, ac_tensor *const *in, int n_in, const void *attrs, ac_tensor *const *targets, int n) {
    const char *what = ac_ops[op].python;
    if (n == 1 && !takes_shape(targets[0])) return ac_call_into(op, in, n_in, attrs, targets[0]);
    if (ac_ops[op].kind == AC_KIND_VIEW) return ac_fail(AC_RUNTIME, "%s cannot write into a given tensor", what);
    for (int i = 0; i < n; i++) {
        AC_TRY(check_target(what, targets[i]));
        AC_TRY(ac_check_target_device(op, in, n_in, attrs, targets[i]));
    }
    ac_tensor *out[AC_MAX_OUT] = {NULL};
    bool active = ac_autocast.active;
    ac_autocast.active = false;
    int failed = ac_call(op, in, n_in, attrs, out);
    ac_autocast.active = active;
    if (failed) return failed;
    for (int i = 0; i < n && !failed; i++) failed = check_written(what, out[i], targets[i]);
    for (int i = 0; i < n && !failed; i++) failed = ac_write_out(targets[i], out[i]);
    release_all(out, ac_ops[op].n_out);
    return failed;
}

int ac_call_adding(ac_op op, ac_tensor *const *in, int n_in, const void *attrs, ac_tensor *target) {
    ac_infer meta;
    ac_dtype dtype;
    bool low = ac_cast_of(op) == AC_CAST_LOW && ac_autocast_casts(in, n_in, &dtype);
    AC_TRY(check_target(ac_ops[op].python, target));
    AC_TRY(ac_settle_all(in, n_in));
    AC_TRY(ac_settle(target));
    AC_TRY(infer(&meta, op, in, n_in, attrs, low ? (int64_t)dtype : AC_NO_DTYPE));
    AC_TRY(check_result(ac_ops[op].python, &meta.out[0], target));
    AC_TRY(ac_check_target_device(op, in, n_in, attrs, target));
    ac_run run = {op, in, n_in, attrs, &target, 1, meta.compute, NULL, true};
    int failed = run_product(&run);
    ac_wrote(target);
    return failed ? failed : watch_target(op, in, n_in, target, low ? (int64_t)dtype : AC_NO_DTYPE);
}

int ac_fill(ac_tensor *target, ac_scalar value) {
    AC_TRY(check_target("fill_", target));
    AC_TRY(ac_scalar_held(value, target->dtype, "fill_"));
    ac_tensor *number = value.kind == AC_FLOAT ? ac_tensor_scalar(target->dtype, value.f)
                                               : ac_tensor_scalar_int(target->dtype, value.i);
    if (!number) return -1;
    int failed = ac_copy_into(target, number);
    ac_tensor_release(number);
    return failed;
}

/* From another device: brought over as it is, then copied; a number of the CPU's travels with the call. */
static int copy_across(ac_tensor *target, ac_tensor *source, bool non_blocking) {
    bool recorded = ac_grad_enabled() && (ac_requires_grad(source) || ac_requires_grad(target));
    if (source->ndim == 0 && ac_device_of(source) == AC_CPU && !recorded) {
        ac_attrs_dtype dtype = {target->dtype};
        ac_run fill = {AC_OP_cast, &source, 1, &dtype, &target, 1, AC_float32, NULL, false};
        int failed = run_kernel(&fill);
        ac_wrote(target);
        return failed;
    }
    ac_attrs_to_device to = {ac_device_of(target), non_blocking};
    ac_tensor *here = NULL;
    if (!recorded && source->dtype == target->dtype && ac_same_shape(source, target) && ac_is_contiguous(target)) {
        ac_run move = {AC_OP_to_device, &source, 1, &to, &target, 1, AC_float32, NULL, false};
        int failed = run_kernel(&move);
        ac_wrote(target);
        return failed;
    }
    AC_TRY(ac_call(AC_OP_to_device, &source, 1, &to, &here));
    int failed = ac_copy_into(target, here);
    ac_tensor_release(here);
    return failed;
}

/* Written as 0-d or smaller tensors broadcast into the target: expand, then clone into it. */
int ac_copy_into(ac_tensor *target, ac_tensor *source) { return ac_copy_into_async(target, source, false); }

int ac_copy_into_async(ac_tensor *target, ac_tensor *source, bool non_blocking) {
    ac_tensor *wide = NULL, *cast = NULL;
    ac_attrs_size size = {ac_shape_of(target)};
    ac_attrs_dtype dtype = {target->dtype};
    AC_TRY(check_target("copy_", target));
    AC_TRY(ac_settle(source));
    AC_TRY(ac_settle(target));
    if (ac_device_of(source) != ac_device_of(target)) return copy_across(target, source, non_blocking);
    AC_TRY(ac_call(AC_OP_expand, &source, 1, &size, &wide));
    int failed;
    if (ac_overlaps_partly(target, wide)) {
        failed = ac_call(AC_OP_cast, &wide, 1, &dtype, &cast);
        if (!failed) failed = ac_overwrite(target, cast);
    } else if (ac_grad_enabled() && (ac_requires_grad(wide) || ac_requires_grad(target))) {
        failed = ac_overwrite(target, wide);
    } else {
        ac_run copy = {AC_OP_cast, &wide, 1, &dtype, &target, 1, AC_float32, NULL, false};
        failed = run_kernel(&copy);
        ac_wrote(target);
    }
    ac_tensor_release(wide);
    ac_tensor_clear(&cast);
    return failed;
}

ac_tensor *ac_on_cpu(ac_tensor *t) {
    if (ac_settle(t) < 0) return NULL;
    if (ac_device_of(t) == AC_CPU) return ac_tensor_retain(t);
    ac_attrs_to_device to = {AC_CPU, 0};
    ac_tensor *out = NULL;
    return compute(AC_OP_to_device, &t, 1, &to, &out, AC_NO_DTYPE) < 0 ? NULL : out;
}
