/* Autocast regions of the calling thread, and the plan for a call: which inputs are cast, and to which dtype. Nothing
 * is cast here; csrc/dispatch does that. */
#include "amp/autocast.h"

_Thread_local ac_autocast_state ac_autocast;
bool ac_amp_has_gpu;
int (*ac_autocast_unsafe_here)(const char *name);

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

static ac_amp_device device_of(ac_tensor *const *in, int n) {
    for (int i = 0; i < n; i++)
        if (in[i] && ac_device_of(in[i]) != AC_CPU) return AC_AMP_CUDA;
    return AC_AMP_CPU;
}

bool ac_autocast_casts(ac_tensor *const *in, int n, ac_dtype *dtype) {
    *dtype = ac_autocast.dtype;
    if (!ac_autocast.active || !ac_amp_has_gpu || ac_autocast.forced) return ac_autocast.active;
    ac_amp_device d = device_of(in, n);
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

ac_autocast_state ac_autocast_compute_in(ac_dtype dtype) {
    ac_autocast_state outer = ac_autocast;
    ac_autocast.active = ac_autocast.forced = true;
    ac_autocast.dtype = dtype;
    ac_autocast.policy = NULL;
    return outer;
}

/* -- the plan ------------------------------------------------------------------------------------ */

static bool is_float(const ac_tensor *t) { return t && ac_is_floating(t->dtype) && !t->is_scalar; }

/* An operator that is asked for a dtype computes in that. */
static void plan_f32(const ac_op_info *info, ac_tensor *const *in, const void *attrs, ac_autocast_plan *plan) {
    if (info->flags & AC_FLAG_BY_PARTS) return;
    if (info->dtype_at >= 0 && *(const int64_t *)(const void *)((const char *)attrs + info->dtype_at) != AC_NO_DTYPE)
        return;
    plan->to = AC_float32;
    if (info->flags & AC_FLAG_IN_PLACE) plan->low = ac_is_half(in[0]->dtype);
    else plan->casts = plan->halves = true;
}

static void plan_promote(ac_tensor *const *in, int n, ac_autocast_plan *plan) {
    for (int i = 0; i < n; i++) {
        if (!is_float(in[i])) continue;
        plan->to = plan->casts ? ac_promote(plan->to, in[i]->dtype) : in[i]->dtype;
        plan->casts = true;
    }
}

/* What may be absent (a mask) may be of any dtype; a product of integers is left alone. */
static bool is_operand(const ac_op_info *info, int input) {
    for (int p = 0, seen = 0; p < info->n_params; p++)
        if (info->params[p].kind == AC_P_TENSOR && seen++ == input) return !info->params[p].optional;
    return true;
}

static void plan_low(const ac_op_info *info, ac_tensor *const *in, int n, ac_dtype dtype, ac_autocast_plan *plan) {
    for (int i = 0; i < n; i++)
        if (in[i] && !is_float(in[i]) && is_operand(info, i)) return;
    for (int i = 0; i < n; i++)
        if (in[i] && in[i]->dtype == AC_float64) return;
    plan->low = true;
    plan->to = dtype;
}

static int refuse(const ac_op_info *info) {
    return ac_fail(
        AC_RUNTIME,
        "%s is not safe under autocast: 16-bit probabilities reach 0 and 1, where its gradient is infinite. Use "
        "binary_cross_entropy_with_logits (or BCEWithLogitsLoss) on the logits, without the sigmoid before it; or "
        "call it inside autocast(enabled=False) on float32",
        info->shown);
}

int ac_autocast_make_plan(ac_op op, ac_tensor *const *in, int n, const void *attrs, ac_autocast_plan *plan) {
    const ac_op_info *info = &ac_ops[op];
    ac_dtype dtype;
    *plan = (ac_autocast_plan){.low = false};
    if (!ac_autocast_casts(in, n, &dtype)) return 0;
    switch (ac_cast_of(op)) {
    case AC_CAST_KEEP: return 0;
    case AC_CAST_LOW: /* a composition's product casts by itself */
        if (info->kind != AC_KIND_COMPOSITE) plan_low(info, in, n, dtype, plan);
        return 0;
    case AC_CAST_F32: plan_f32(info, in, attrs, plan); return 0;
    case AC_CAST_PROMOTE: plan_promote(in, n, plan); return 0;
    case AC_CAST_BANNED: return ac_fail(AC_RUNTIME, "%s is refused by this region's policy", info->shown);
    case AC_CAST_UNSAFE: /* as in torch */
        if (device_of(in, n) != AC_AMP_CPU) return refuse(info);
        if (!ac_amp_has_gpu && ac_autocast.enabled[AC_AMP_CUDA] && ac_autocast_unsafe_here)
            AC_TRY(ac_autocast_unsafe_here(info->shown));
        plan_f32(info, in, attrs, plan);
        return 0;
    }
    return 0;
}

ac_dtype ac_autocast_input_dtype(const ac_autocast_plan *plan, const ac_tensor *t) {
    bool narrows = plan->low && ac_is_half(plan->to) && ac_itemsize(t->dtype) > ac_itemsize(plan->to);
    bool casts = plan->casts && (!plan->halves || ac_is_half(t->dtype));
    return is_float(t) && (narrows || casts) ? plan->to : t->dtype;
}
