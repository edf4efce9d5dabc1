/* Calls that compute in another dtype than their inputs': float32 for composite operators that would lose digits, or
 * the dtype that the caller asked for. */
#include "dispatch/upcast.h"

#include "dispatch/compose.h"

static bool has_half(ac_tensor *const *in, int n) {
    for (int i = 0; i < n; i++)
        if (in[i] && ac_is_half(in[i]->dtype)) return true;
    return false;
}

static int cast_to(ac_tensor *t, ac_dtype dtype, ac_tensor **out) {
    ac_attrs_dtype as = {dtype};
    return ac_call(AC_OP_cast, &t, 1, &as, out);
}

/* new: the operands, 16-bit ones in float32; NULL stays NULL. The list is to be released, after a failure too. */
static int widened(const ac_op_call *c, ac_list *out) {
    AC_TRY(ac_list_start(out, c->n_in));
    for (int i = 0; i < c->n_in; i++) {
        ac_tensor *t = c->operands[i];
        if (!t) continue;
        if (ac_is_half(t->dtype)) AC_TRY(cast_to(t, AC_float32, &out->at[i]));
        else out->at[i] = ac_tensor_retain(t);
    }
    return 0;
}

/* What autocast would compute in float32 loses its digits in 16 bits anywhere. */
bool ac_wants_float32(const ac_op_call *c) {
    int narrow = AC_FLAG_NO_HALF | AC_FLAG_BY_PARTS;
    bool wide = c->info->cast == AC_CAST_F32 && c->info->dtype_at < 0 && !(c->info->flags & narrow);
    return wide && has_half(c->operands, c->n_in);
}

int ac_call_in_float32(const ac_op_call *c) {
    ac_list wide;
    ac_tensor *made[AC_MAX_OUT] = {NULL};
    ac_dtype dtype = ac_result_type(c->operands, c->n_in);
    int failed = widened(c, &wide);
    if (!failed) failed = ac_compositions[c->op](wide.at, c->n_in, c->attrs, made);
    for (int i = 0; i < c->info->n_out && !failed; i++) {
        if (made[i]->dtype == AC_float32) failed = cast_to(made[i], dtype, &c->out[i]);
        else c->out[i] = ac_tensor_retain(made[i]);
    }
    for (int i = 0; i < AC_MAX_OUT; i++) ac_tensor_clear(&made[i]);
    ac_list_release(&wide);
    return failed;
}

int ac_cast_first(const ac_op_call *c, ac_tensor **cast) {
    if (c->info->flags & AC_FLAG_WIDENS)
        return ac_fail(AC_RUNTIME, "%s: `dtype` must hold all values of %s, got %s", c->info->shown,
                       ac_dtypes[c->in[0]->dtype].name, ac_dtypes[ac_asked_dtype(c)].name);
    return cast_to(c->in[0], (ac_dtype)ac_asked_dtype(c), cast);
}

int ac_call_cast_first(const ac_op_call *c) {
    ac_tensor *cast[AC_MAX_OUT] = {NULL};
    AC_TRY(ac_cast_first(c, cast));
    int failed = ac_call(c->op, cast, 1, c->attrs, c->out);
    ac_tensor_release(cast[0]);
    return failed;
}
