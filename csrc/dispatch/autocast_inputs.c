/* Casts the inputs of a call as its autocast plan says. */
#include "dispatch/autocast_inputs.h"

#include "autograd/node.h"

static int cast(ac_tensor *t, ac_dtype dtype, bool on_tape, ac_tensor **out) {
    ac_grad_mode mode = ac_mode;
    ac_attrs_dtype a = {dtype};
    ac_mode.no_grad |= !on_tape;
    int failed = ac_call(AC_OP_cast, &t, 1, &a, out);
    ac_mode = mode;
    return failed;
}

/* An operand of a product that backward keeps and nobody else does: the 16-bit copy is the smaller one to save. */
static bool is_kept_by_backward_alone(const ac_tensor *t) { return ac_grad_enabled() && t->meta && t->meta->node; }

int ac_autocast_inputs(const ac_autocast_plan *plan, ac_tensor *const *in, int n, ac_list *inputs) {
    AC_TRY(ac_list_start(inputs, n));
    for (int i = 0; i < n; i++) inputs->at[i] = in[i];
    for (int i = 0; i < n && (plan->low || plan->casts); i++) {
        if (!in[i] || (plan->low && !is_kept_by_backward_alone(in[i]))) continue;
        ac_dtype dtype = ac_autocast_input_dtype(plan, in[i]);
        ac_tensor *made = NULL;
        if (dtype == in[i]->dtype) continue;
        if (cast(in[i], dtype, !plan->low, &made) < 0) {
            ac_autocast_inputs_release(inputs, in, n);
            return -1;
        }
        inputs->at[i] = made;
    }
    return 0;
}

void ac_autocast_inputs_release(ac_list *inputs, ac_tensor *const *in, int n) {
    for (int i = 0; i < n; i++)
        if (inputs->at[i] != in[i]) ac_tensor_clear(&inputs->at[i]);
    ac_list_free(inputs);
}
