/* Composite draws that are differentiable: variates made without a graph, and an operator that has their gradient. */
#include "dispatch/compose.h"

/* The logarithms of gamma variates of shape x, in float64. */
static T log_gammas(ac_scratch *s, T x) {
    if (!x) return NULL;
    ac_attrs_random keys = {ac_shape_of(x), 0, 1, AC_float64, ac_device_of(x)};
    return BIN(log_gamma_draw, x, ac_c_call(s, AC_OP_uniform, &keys, 0));
}

/* At least the smallest normal number of a dtype, as logarithms of variates follow. */
static T above_zero(ac_scratch *s, T value, ac_dtype dtype) {
    return ac_c_clamp_min(s, value, dtype == AC_float16 ? 0x1p-14 : dtype == AC_float64 ? 0x1p-1022 : 0x1p-126);
}

/* Shares as a dtype holds them: neither 0 nor 1, whose logarithms and those of 1 - share a density needs. */
static T within_unit(ac_scratch *s, T value, ac_dtype dtype) {
    double step = dtype == AC_float64   ? 0x1p-53
                  : dtype == AC_float32 ? 0x1p-24
                  : dtype == AC_float16 ? 0x1p-11
                                        : 0x1p-8;
    return BIN(minimum, above_zero(s, value, dtype), ac_c_real(s, 1 - step));
}

COMPOSE(standard_gamma) {
    if (!ac_is_floating(in[0]->dtype))
        REFUSE(AC_NOT_IMPLEMENTED, "_standard_gamma: needs floating point, got %s", ac_dtypes[in[0]->dtype].name);
    T x = ac_c_cast(s, in[0], AC_float64);
    T value = above_zero(s, UN(exp, log_gammas(s, x)), in[0]->dtype);
    return ac_c_cast(s, BIN(gamma_of, value, x), in[0]->dtype);
}

COMPOSE(sample_dirichlet) {
    if (!ac_is_floating(in[0]->dtype) || in[0]->ndim == 0)
        REFUSE(AC_RUNTIME, "_sample_dirichlet: needs floating point of 1 dimension or more, got %s of %d",
               ac_dtypes[in[0]->dtype].name, in[0]->ndim);
    ac_attrs_softmax last = {-1, AC_NO_DTYPE};
    T x = ac_c_cast(s, in[0], AC_float64);
    T value = within_unit(s, ac_c_call(s, AC_OP_softmax, &last, 1, log_gammas(s, x)), in[0]->dtype);
    return ac_c_cast(s, BIN(dirichlet_of, value, x), in[0]->dtype);
}
