/* ac_call, the only way to run an operator: settles its inputs, plans, and sends it on to the stage of its kind. */
#include "dispatch/call.h"

#include "dispatch/autocast_inputs.h"
#include "dispatch/deferred_scale.h"
#include "dispatch/observer.h"
#include "dispatch/upcast.h"

#include "amp/autocast.h"

static int compute_and_record(const ac_op_call *c) {
    AC_TRY(ac_call_compute(c));
    return ac_call_wants_record(c) ? ac_call_record(c) : 0;
}

static int run(const ac_op_call *c) {
    switch (c->info->kind) {
    case AC_KIND_VIEW: return ac_call_view(c);
    case AC_KIND_COMPOSITE: return ac_call_composition(c);
    default:
        if (ac_casts_first(c)) return ac_call_cast_first(c);
        return ac_watching ? ac_observed(c, compute_and_record) : compute_and_record(c);
    }
}

/* The category of a composite operator holds for all that it is made of; a LOW one leaves casting to the product. */
static int run_planned(const ac_op_call *c) {
    bool by_parts = ac_cast_of(c->op) == AC_CAST_LOW || c->info->flags & AC_FLAG_BY_PARTS;
    if (c->info->kind != AC_KIND_COMPOSITE || by_parts) return run(c);
    ac_autocast_state outer = ac_autocast_suspend();
    int failed = run(c);
    ac_autocast_resume(&outer);
    return failed;
}

/* A LOW operator is on the tape with its own inputs; casts of the other categories are on it themselves. */
static int plan_and_run(ac_op_call *c) {
    ac_autocast_plan plan;
    ac_list cast;
    ac_tensor *const *given = c->in;
    AC_TRY(ac_autocast_make_plan(c->op, given, c->n_in, c->attrs, &plan));
    AC_TRY(ac_autocast_inputs(&plan, given, c->n_in, &cast));
    c->operands = cast.at;
    if (plan.low) c->low = (int64_t)plan.to;
    else c->in = cast.at;
    int failed = run_planned(c);
    ac_autocast_inputs_release(&cast, given, c->n_in);
    return failed;
}

int ac_call_settle(const ac_op_call *c) {
    if (c->info->kind == AC_KIND_VIEW) return ac_refuse_parts(c->in, c->n_in);
    if (!(c->info->flags & AC_FLAG_READS)) ac_compute_waiting();
    return ac_settle_factors(c->in, c->n_in);
}

int ac_call(ac_op op, ac_tensor *const *in, int n_in, const void *attrs, ac_tensor **out) {
    ac_op_call c = ac_op_call_of(op, in, n_in, attrs, out);
    if (ac_deferred_scales || ac_waiting_result) AC_TRY(ac_call_settle(&c));
    return ac_autocast.active && ac_cast_of(op) != AC_CAST_KEEP ? plan_and_run(&c) : run(&c);
}
