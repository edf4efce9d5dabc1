/* Composite operators that normalise, and that drop at random. */
#include "dispatch/compose.h"

/* x / sqrt(mean(x^2) + eps) * weight, in float32; under autocast it stays float32. */
COMPOSE(rms_norm) {
    ATTRS(rms_norm);
    const ac_dims *last = &a->normalized_shape;
    int64_t lead = in[0]->ndim - last->n;
    ac_dims shape = ac_shape_of(in[0]), over = {.n = last->n}, given = in[1] ? ac_shape_of(in[1]) : *last;
    char text[AC_SHAPE_TEXT], want[AC_SHAPE_TEXT];
    bool fits = last->n > 0 && lead >= 0;
    for (int64_t d = 0; d < last->n && fits; d++) fits = shape.v[lead + d] == last->v[d], over.v[d] = lead + d;
    if (!fits)
        REFUSE(AC_RUNTIME, "rms_norm: input %s does not end in normalized_shape %s", ac_dims_text(&shape, text),
               ac_dims_text(last, want));
    if (!ac_dims_equal(&given, last))
        REFUSE(AC_RUNTIME, "rms_norm: weight %s is not of normalized_shape %s", ac_dims_text(&given, text),
               ac_dims_text(last, want));
    T planned = UN(wide, in[0]), x = ac_c_wide(s, planned);
    if (!x) return NULL;
    double spacing = x->dtype == AC_float64 ? 0x1p-52 : 0x1p-23;
    T eps = REAL(a->eps.kind == AC_NONE ? spacing : ac_scalar_double(a->eps));
    T y = MUL(x, UN(rsqrt, ADD(ac_c_mean(s, MUL(x, x), &over, true), eps)));
    return ac_c_cast(s, in[1] ? MUL(y, in[1]) : y, planned->dtype);
}
