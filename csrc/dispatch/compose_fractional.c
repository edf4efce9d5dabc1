/* Fractional max pooling (Graham 2014): the largest value of windows whose distances are drawn, so that any size can be
 * pooled to any smaller one. */
#include "dispatch/compose_read.h"

static T gathered(ac_scratch *s, T x, T index) {
    ac_attrs_index_dim along = {index ? index->ndim - 1 : 0};
    return ac_c_call(s, AC_OP_gather, &along, 2, x, index);
}

/* Where windows begin, for each of `draws` [N, C] from 0 to 1: [N, C, out]. The last one ends with the values. */
static T starts(ac_scratch *s, T draws, int64_t size, int64_t window, int64_t out) {
    T first = ac_c_unsqueeze(s, draws, -1);
    if (!first) return NULL;
    T last = PLUS(ac_c_cast(s, TIMES(first, 0), AC_int64), (double)(size - window));
    if (out == 1 || !last) return last;
    ac_dims none = {0, {0}};
    ac_dtype dtype = draws->dtype;
    T alpha = DIV(ac_c_full(s, &none, (double)(size - window), dtype, ac_device_of(draws)), NUM((double)(out - 1)));
    T steps = ADD(ac_c_cast(s, ac_c_arange(s, out - 1, ac_device_of(draws)), dtype), first);
    T at = SUB(ac_c_cast(s, MUL(steps, alpha), AC_int64), ac_c_cast(s, MUL(first, alpha), AC_int64));
    T parts[2] = {at, last};
    return at ? ac_c_cat(s, parts, 2, -1) : NULL;
}

static int need_fit(const ac_tensor *x, const ac_tensor *samples, const ac_attrs_fractional *a) {
    char shape[AC_SHAPE_TEXT], drawn[AC_SHAPE_TEXT], windows[AC_SHAPE_TEXT], sizes[AC_SHAPE_TEXT];
    int64_t nd = a->kernel.n;
    bool fits = nd >= 1 && nd <= 3 && a->size.n == nd && x->ndim == nd + 2 && samples->ndim == 3 &&
                samples->shape[0] == x->shape[0] && samples->shape[1] == x->shape[1] && samples->shape[2] == nd;
    for (int64_t d = 0; d < nd && fits; d++)
        fits = a->kernel.v[d] >= 1 && a->size.v[d] >= 1 && a->size.v[d] <= x->shape[d + 2] - a->kernel.v[d] + 1;
    if (fits) return 0;
    return ac_fail(AC_RUNTIME, "fractional_max_pool: windows of %s at %s positions do not fit shape %s, or samples %s",
                   ac_dims_text(&a->kernel, windows), ac_dims_text(&a->size, sizes), ac_shape_text(x, shape),
                   ac_shape_text(samples, drawn));
}

/* x [N, C, ...], samples [N, C, dimensions]. A window's values are named by their places in the flattened positions. */
COMPOSE(fractional_max_pool) {
    ATTRS(fractional);
    T x = ac_c_piecewise(s, in[0]);
    NEED(need_fit(in[0], in[1], a));
    if (!x) return NULL;
    int64_t nd = a->kernel.n, windows = 1, taps = 1, positions = 1;
    ac_dims result = {nd + 2, {x->shape[0], x->shape[1]}};
    T flat = NUM(0), tap = NUM(0);
    for (int64_t d = 0; d < nd; d++) {
        int64_t size = x->shape[2 + d], out = a->size.v[d], window = a->kernel.v[d];
        T own = ac_c_select(s, in[1], 2, nd == 2 ? 1 - d : d); /* torch's order of the drawn numbers */
        T start = own ? starts(s, own, size, window, out) : NULL;
        ac_dims places = {nd + 2, {x->shape[0], x->shape[1]}}, within = {nd, {0}};
        for (int64_t k = 0; k < nd; k++) places.v[2 + k] = within.v[k] = 1;
        places.v[2 + d] = result.v[2 + d] = out, within.v[d] = window;
        flat = ADD(TIMES(flat, (double)size), ac_c_reshape(s, start, &places));
        tap = ADD(TIMES(tap, (double)size), ac_c_reshape(s, ac_c_arange(s, window, ac_device_of(x)), &within));
        windows *= out, taps *= window, positions *= size;
    }
    ac_dims each = {4, {x->shape[0], x->shape[1], windows, 1}}, row = {1, {taps}};
    ac_dims one = {4, {x->shape[0], x->shape[1], 1, positions}},
            all = {4, {x->shape[0], x->shape[1], windows, positions}};
    T at = ADD(ac_c_reshape(s, flat, &each), ac_c_reshape(s, tap, &row));
    T values = gathered(s, ac_c_expand(s, ac_c_reshape(s, x, &one), &all), at), out[AC_MAX_OUT];
    ac_attrs_dim last = {-1, 0};
    if (!values || ac_c_call_many(s, AC_OP_max_dim, &last, &values, 1, out) < 0) return NULL;
    s->also[1] = ac_c_reshape(s, gathered(s, at, ac_c_unsqueeze(s, out[1], -1)), &result);
    return ac_c_reshape(s, out[0], &result);
}
