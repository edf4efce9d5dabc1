#include "autocast.h"

#include "../autograd/node.h"

_Thread_local ac_autocast_state ac_autocast;
bool ac_amp_has_gpu;

ac_dtype ac_autocast_dtype(ac_amp_device d) {
    if (ac_autocast.dtype_set[d]) return ac_autocast.dtypes[d];
    return d == AC_AMP_CUDA ? AC_float16 : AC_bfloat16;
}

void ac_autocast_set_dtype(ac_amp_device d, ac_dtype dtype) {
    ac_autocast.dtype_set[d] = true;
    ac_autocast.dtypes[d] = dtype;
    if (ac_autocast.enabled[d]) ac_autocast.dtype = dtype;
}

void ac_autocast_set_enabled(ac_amp_device d, bool on) {
    ac_autocast.enabled[d] = ac_autocast.active = on;
    if (ac_amp_has_gpu) ac_autocast.active = ac_autocast.enabled[AC_AMP_CPU] || ac_autocast.enabled[AC_AMP_CUDA];
    if (on) ac_autocast.dtype = ac_autocast_dtype(d);
}

bool ac_autocast_casts(ac_tensor *const *in, int n, ac_dtype *dtype) {
    ac_amp_device d = AC_AMP_CPU;
    *dtype = ac_autocast.dtype;
    if (!ac_autocast.active || !ac_amp_has_gpu || ac_autocast.forced) return ac_autocast.active;
    for (int i = 0; i < n; i++)
        if (in[i] && ac_device_of(in[i]) != AC_CPU) d = AC_AMP_CUDA;
    *dtype = ac_autocast_dtype(d);
    return ac_autocast.enabled[d];
}

void ac_autocast_enter(ac_amp_device d, bool enabled, ac_dtype dtype, bool cache, const uint8_t *policy) {
    ac_autocast_set_dtype(d, dtype);
    ac_autocast_set_enabled(d, enabled);
    ac_autocast.no_cache = !cache;
    ac_autocast.nesting++;
    if (policy) ac_autocast.policy = policy;
}

/* -- casts ------------------------------------------------------------------------------------- */

static ac_tensor *cast_off_tape(ac_tensor *t, ac_dtype dtype) {
    ac_grad_mode mode = ac_mode;
    ac_attrs_dtype a = {dtype};
    ac_tensor *out = NULL;
    ac_mode.no_grad = true;
    int failed = ac_call(AC_OP_cast, &t, 1, &a, &out);
    ac_mode = mode;
    return failed ? NULL : out;
}

static int cast_on_tape(ac_autocast_plan *plan, int i, ac_tensor *t, ac_dtype dtype) {
    ac_attrs_dtype a = {dtype};
    ac_tensor *out = NULL;
    AC_TRY(ac_call(AC_OP_cast, &t, 1, &a, &out));
    plan->in.at[i] = out;
    return 0;
}

/* -- the categories ------------------------------------------------------------------------------ */

static bool is_float(const ac_tensor *t) { return t && ac_is_floating(t->dtype) && !t->is_scalar; }

static int apply_f32(const ac_op_info *info, ac_tensor *const *in, int n, const void *attrs, ac_autocast_plan *plan) {
    if (info->dtype_at >= 0 && *(const int64_t *)(const void *)((const char *)attrs + info->dtype_at) != AC_NO_DTYPE)
        return 0;
    for (int i = 0; i < n; i++)
        if (is_float(in[i]) && ac_is_half(in[i]->dtype)) AC_TRY(cast_on_tape(plan, i, in[i], AC_float32));
    return 0;
}

static int apply_promote(ac_tensor *const *in, int n, ac_autocast_plan *plan) {
    int widest = -1;
    for (int i = 0; i < n; i++)
        if (is_float(in[i])) widest = widest < 0 ? (int)in[i]->dtype : (int)ac_promote((ac_dtype)widest, in[i]->dtype);
    for (int i = 0; i < n; i++)
        if (is_float(in[i]) && (int)in[i]->dtype != widest) AC_TRY(cast_on_tape(plan, i, in[i], (ac_dtype)widest));
    return 0;
}

/* The product rounds its operands while it packs them. Only what backward will keep and nobody else
 * does is cast: the 16-bit copy is the smaller one to save. */
static bool is_worth_casting(const ac_tensor *t, ac_dtype dtype) {
    return ac_grad_enabled() && t->meta && t->meta->node && ac_itemsize(t->dtype) > ac_itemsize(dtype);
}

/* What may be absent (a mask) may be of any dtype; a product of integers is left alone. */
static bool is_operand(const ac_op_info *info, int input) {
    for (int p = 0, seen = 0; p < info->n_params; p++)
        if (info->params[p].kind == AC_P_TENSOR && seen++ == input) return !info->params[p].optional;
    return true;
}

static int apply_low(const ac_op_info *info, ac_tensor *const *in, int n, ac_dtype dtype, ac_autocast_plan *plan) {
    for (int i = 0; i < n; i++)
        if (in[i] && !is_float(in[i]) && is_operand(info, i)) return 0;
    for (int i = 0; i < n; i++)
        if (in[i] && in[i]->dtype == AC_float64) return 0;
    plan->low = true;
    plan->compute = dtype;
    for (int i = 0; i < n; i++) {
        if (!is_float(in[i]) || !is_worth_casting(in[i], dtype)) continue;
        ac_tensor *copy = cast_off_tape(in[i], dtype);
        if (!copy) return -1;
        plan->in.at[i] = copy;
    }
    return 0;
}

ac_autocast_state ac_autocast_compute_in(ac_dtype dtype) {
    ac_autocast_state outer = ac_autocast;
    ac_autocast.active = ac_autocast.forced = true;
    ac_autocast.dtype = dtype;
    ac_autocast.policy = NULL;
    return outer;
}

static int refuse(const ac_op_info *info) {
    return ac_fail(
        AC_RUNTIME,
        "%s is not safe under autocast: 16-bit probabilities reach 0 and 1, where its gradient is infinite. Use "
        "binary_cross_entropy_with_logits (or BCEWithLogitsLoss) on the logits, without the sigmoid before it; or "
        "call it inside autocast(enabled=False) on float32",
        info->python);
}

int ac_autocast_apply(ac_op op, ac_tensor *const *in, int n, const void *attrs, ac_autocast_plan *plan) {
    const ac_op_info *info = &ac_ops[op];
    ac_dtype dtype;
    plan->low = false;
    AC_TRY(ac_list_start(&plan->in, n));
    for (int i = 0; i < n; i++) plan->in.at[i] = in[i];
    if (!ac_autocast_casts(in, n, &dtype)) return 0;
    int failed = 0;
    switch (ac_cast_of(op)) {
    case AC_CAST_KEEP: return 0;
    case AC_CAST_LOW: /* a composition's product casts by itself */
        if (info->kind != AC_KIND_COMPOSITE) failed = apply_low(info, in, n, dtype, plan);
        break;
    case AC_CAST_F32: failed = apply_f32(info, in, n, attrs, plan); break;
    case AC_CAST_PROMOTE: failed = apply_promote(in, n, plan); break;
    case AC_CAST_BANNED: failed = refuse(info); break;
    }
    if (failed) ac_autocast_release(plan, in, n);
    return failed;
}

void ac_autocast_release(ac_autocast_plan *plan, ac_tensor *const *in, int n) {
    for (int i = 0; i < n; i++)
        if (plan->in.at[i] != in[i]) ac_tensor_clear(&plan->in.at[i]);
    ac_list_free(&plan->in);
}
