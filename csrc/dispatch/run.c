/* The stages infer and run: a call's shape function, its results, and its kernel on the device of its operands. */
#include "dispatch/call.h"

#include "dispatch/layout.h"
#include "dispatch/lock.h"
#include "dispatch/placement.h"
#include "dispatch/waiting.h"
#include "dispatch/weight_cache.h"

#include "autograd/node.h"
#include "base/pool.h"

#include <math.h>

static void *no_release(void) { return NULL; }
static void no_acquire(void *state) { (void)state; }
ac_lock_hooks ac_lock = {no_release, no_acquire};

/* -- kernels ---------------------------------------------------------------------------------------- */

int ac_run_kernel(ac_run *run) {
    if (run->compute == AC_bool) run->op = ac_ops[run->op].of_bool;
    ac_device device = AC_CPU; /* a GPU wherever one takes part */
    int64_t work = 0;
    for (int i = 0; i < run->n_in; i++)
        if (run->in[i]) work += run->in[i]->numel, device |= ac_device_of(run->in[i]);
    for (int i = 0; i < run->n_out; i++)
        if (run->out[i]) work += run->out[i]->numel, device |= ac_device_of(run->out[i]);
    /* a GPU's kernels are only queued here; what waits for one is worth letting others run */
    bool unlock = device == AC_CPU ? work >= AC_LOCK_ELEMENTS : ac_ops[run->op].flags & AC_FLAG_WAITS;
    ac_kernel kernel = ac_backend_of(device)->kernels[run->op];
    ac_begin_reading(run);
    void *state = unlock ? ac_lock.release() : NULL;
    int failed = kernel(run);
    if (unlock) ac_lock.acquire(state);
    ac_end_reading(run, failed);
    if (ac_interrupted()) return ac_fail(AC_PYTHON, "interrupted");
    return failed && device != AC_CPU && ac_error_code() != AC_INDEX ? ac_fail_in(ac_ops[run->op].shown) : failed;
}

int ac_run_product(ac_run *run) {
    ac_tensor *panels, *bias = NULL;
    if (!(ac_ops[run->op].flags & AC_FLAG_WEIGHT)) return ac_run_kernel(run);
    AC_TRY(ac_packed_weight_for(run, &panels));
    int failed = ac_kept_bias_for(run, &bias);
    ac_tensor *const *own = run->in, *in[3] = {own[0], own[1], bias};
    run->panels = panels;
    if (bias) run->in = in;
    if (!failed) failed = ac_run_kernel(run);
    run->in = own;
    ac_tensor_clear(&bias);
    ac_tensor_clear(&panels);
    return failed;
}

int ac_run_into(ac_op op, ac_tensor *t, const void *attrs, ac_tensor *target) {
    ac_run run = {.op = op, .in = &t, .n_in = 1, .attrs = attrs, .out = &target, .n_out = 1, .compute = AC_float32};
    double scaled = ac_any_scaled ? ac_scaled_after(op, &t, 1, target) : NAN;
    int failed = ac_run_kernel(&run);
    ac_wrote(target); /* perhaps in part, when it was interrupted */
    if (!isnan(scaled)) ac_mark_scaled(target, scaled);
    return failed;
}

/* Inputs that the table marks (mut) are written by the kernel: their counters must show it. */
static void note_mutations(const ac_op_call *c) {
    int at = 0;
    for (int p = 0; p < c->info->n_params; p++) {
        if (c->info->params[p].kind > AC_P_TENSOR_LIST) continue;
        if (c->info->params[p].mutated && c->operands[at]) ac_wrote(c->operands[at]);
        at++;
    }
}

/* -- a call ----------------------------------------------------------------------------------------- */

int ac_call_infer(const ac_op_call *c, ac_infer *meta) {
    meta->info = c->info;
    meta->low = c->low;
    meta->in = c->operands, meta->n_in = c->n_in, meta->attrs = c->attrs;
    meta->n_out = c->info->n_out;
    meta->kernel_makes_output = false;
    meta->compute = AC_float32;
    return c->info->infer(meta);
}

static int allocate(const ac_op_call *c, const ac_infer *meta, ac_device device) {
    for (int i = 0; i < meta->n_out; i++) c->out[i] = NULL;
    for (int i = 0; i < meta->n_out && !meta->kernel_makes_output; i++) {
        c->out[i] = ac_tensor_new_on(device, meta->out[i].dtype, &meta->out[i].shape);
        if (!c->out[i]) return -1;
        ac_call_lay_out(c, c->out[i]);
    }
    return 0;
}

/* Of what is computed from scaled gradients nobody knows what it is multiplied by. */
static void mark_computed(const ac_op_call *c, int n_out) {
    bool marked = false;
    for (int i = 0; i < c->n_in && !marked; i++) marked = c->operands[i] && ac_is_marked_scaled(c->operands[i]);
    for (int i = 0; i < n_out && marked; i++) ac_mark_scaled(c->out[i], 0);
}

/* All operands lie on `device` already, or travel with the call. */
static int compute_there(const ac_op_call *c, ac_device device) {
    ac_infer meta;
    AC_TRY(ac_call_infer(c, &meta));
    int failed = allocate(c, &meta, device);
    if (!failed) {
        ac_source *rest = NULL;
        ac_run run = {.op = c->op,
                      .in = c->operands,
                      .n_in = c->n_in,
                      .attrs = c->attrs,
                      .out = c->out,
                      .n_out = meta.n_out,
                      .compute = meta.compute};
        run.rest = ac_may_wait(c) ? &rest : NULL;
        failed = ac_run_product(&run);
        if (rest && !failed) ac_let_wait(c, rest);
        else if (rest) rest->release(rest);
    }
    if (failed) {
        ac_release_results(c);
        return -1;
    }
    if (c->info->mutates) note_mutations(c);
    if (ac_any_scaled) mark_computed(c, meta.n_out);
    for (int i = 0; i < meta.n_out; i++) {
        AC_ASSERT(c->out[i] && ac_device_of(c->out[i]) == device);
        c->out[i]->is_inference = ac_mode.inference;
    }
    return 0;
}

static int bring(ac_tensor *t, ac_device device, ac_tensor **out) {
    ac_attrs_to_device to = {device, 0};
    ac_op_call move = ac_op_call_of(AC_OP_to_device, &t, 1, &to, out);
    return compute_there(&move, device);
}

/* Numbers among the operands are brought over. */
static int compute_brought(const ac_op_call *c, ac_device device) {
    ac_list there;
    int failed = ac_list_start(&there, c->n_in);
    for (int i = 0; i < c->n_in && !failed; i++) {
        ac_tensor *t = c->operands[i];
        if (t && ac_device_of(t) != device && i != c->info->cpu_at) failed = bring(t, device, &there.at[i]);
        else there.at[i] = t ? ac_tensor_retain(t) : NULL;
    }
    ac_op_call here = *c;
    here.operands = there.at;
    if (!failed) failed = compute_there(&here, device);
    ac_list_release(&there);
    return failed;
}

int ac_call_compute(const ac_op_call *c) {
    ac_device device;
    AC_TRY(ac_device_for(c, &device));
    bool whole = device == AC_CPU || c->info->kind == AC_KIND_POINTWISE || c->info->device_at >= 0;
    return whole ? compute_there(c, device) : compute_brought(c, device);
}
