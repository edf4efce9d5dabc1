/* The words of compositions that look at what tensors hold, and at how they are recorded. */
#include "dispatch/compose_read.h"

#include "dispatch/placement.h"

double ac_c_read(ac_scratch *s, T x) {
    T here = x && !s->failed ? ac_on_cpu(x) : NULL;
    if (!here) return s->failed = true, 0;
    double value = ac_read_double(ac_data(here), here->dtype, 0);
    ac_tensor_release(here);
    return value;
}

bool ac_c_any(ac_scratch *s, T x) {
    ac_attrs_reduce_dim all = {{.n = -1}, 0};
    return ac_c_read(s, ac_c_call(s, AC_OP_any, &all, 1, x)) != 0;
}

ac_scalar ac_c_scalar(const ac_tensor *number) {
    if (number->dtype == AC_float64)
        return (ac_scalar){.kind = AC_FLOAT, .f = ac_read_double(ac_data(number), AC_float64, 0)};
    return (ac_scalar){number->dtype == AC_bool ? AC_BOOL : AC_INT, {ac_read_int(ac_data(number), number->dtype, 0)}};
}

T ac_c_flat(ac_scratch *s, T x) {
    ac_dims one = {1, {-1}};
    return ac_c_reshape(s, x, &one);
}

T ac_c_at(ac_scratch *s, T x, T index) { return BIN(index, x, index); }

T ac_c_filled(ac_scratch *s, const ac_dims *shape, ac_scalar value, ac_dtype dtype, ac_device device) {
    ac_attrs_full a = {*shape, value, dtype, device};
    return ac_c_call(s, AC_OP_full, &a, 0);
}

T ac_c_as_tensor(ac_scratch *s, T x, ac_dtype dtype, ac_device device) {
    if (!x || !x->is_scalar) return ac_c_cast(s, x, dtype);
    return ac_c_filled(s, &(ac_dims){0}, ac_c_scalar(x), dtype, device);
}

T ac_c_detach(ac_scratch *s, T x) {
    if (!x || !ac_requires_grad(x)) return x;
    return ac_c_keep(s, ac_tensor_alias(x));
}

bool ac_c_records(const ac_tensor *x) { return x && ac_grad_enabled() && ac_requires_grad(x); }

T ac_c_piecewise(ac_scratch *s, T x) { return ac_c_records(x) ? UN(piecewise, x) : x; }

T ac_c_hand_up(ac_scratch *s, ac_scratch *inner, T x) {
    if (!x || inner->failed) return ac_c_refuse(s, -1);
    return ac_c_keep(s, ac_tensor_retain(x));
}
