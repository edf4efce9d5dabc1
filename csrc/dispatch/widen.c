/* Calls outside autocast that are computed in a wider dtype than their inputs'. */
#include "dispatch.h"

static bool has_half(ac_tensor *const *in, int n) {
    for (int i = 0; i < n; i++)
        if (in[i] && ac_is_half(in[i]->dtype)) return true;
    return false;
}

static int cast_to(ac_tensor *t, ac_dtype dtype, ac_tensor **out) {
    ac_attrs_dtype as = {dtype};
    return ac_call(AC_OP_cast, &t, 1, &as, out);
}

/* new: the inputs, 16-bit ones (or, of `all`, every one) in `dtype`; NULL stays NULL. The list is to be released, after
 * a failure too. */
static int widened(ac_tensor *const *in, int n, ac_dtype dtype, bool all, ac_list *out) {
    AC_TRY(ac_list_start(out, n));
    for (int i = 0; i < n; i++) {
        if (!in[i]) continue;
        bool cast = in[i]->dtype != dtype && (all || ac_is_half(in[i]->dtype));
        if (cast) AC_TRY(cast_to(in[i], dtype, &out->at[i]));
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
    int failed = widened(in, n_in, AC_float32, false, &wide);
    if (!failed) failed = ac_compositions[op](wide.at, n_in, attrs, made);
    for (int i = 0; i < ac_ops[op].n_out && !failed; i++) {
        if (made[i]->dtype == AC_float32) failed = cast_to(made[i], dtype, &out[i]);
        else out[i] = ac_tensor_retain(made[i]);
    }
    for (int i = 0; i < AC_MAX_OUT; i++) ac_tensor_clear(&made[i]);
    ac_list_release(&wide);
    return failed;
}

/* A layer of float32 weights takes 16-bit input as it takes float32's; torch refuses it. */
bool ac_wants_widest(ac_op op, ac_tensor *const *in, int n) {
    if (op != AC_OP_linear || !has_half(in, n)) return false;
    return in[0]->dtype != in[1]->dtype && ac_is_floating(in[0]->dtype) && ac_is_floating(in[1]->dtype);
}

int ac_run_in_widest(ac_op op, ac_tensor *const *in, int n_in, const void *attrs, ac_tensor **out) {
    ac_list same;
    int failed = widened(in, n_in, ac_result_type(in, n_in), true, &same);
    if (!failed) failed = ac_call(op, same.at, n_in, attrs, out);
    ac_list_release(&same);
    return failed;
}
