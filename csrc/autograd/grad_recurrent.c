/* The backward formula of recurrent layers: one kernel, or, where a graph of the gradient is wanted, backward of the
 * elementary operators. */
#include "autograd/formula_list.h"

enum { X_IN, STATE, W_HH, B_HH, SIZES, INPUTS };

/* The inputs again, each a result of a node of its own: gradients captured there are those by this call alone. */
static T fresh(ac_formula *c, int input) {
    ac_scratch *s = &c->scratch;
    ac_dims shape;
    T x = MAYBE(input);
    if (!ac_c_has(x)) return x;
    shape = ac_shape_of(x);
    return ac_c_expand(s, x, &shape);
}

static void give_by_parts(ac_formula *c, const ac_attrs_recurrence *a) {
    ac_scratch *s = &c->scratch;
    ac_attrs_rnn_layer layer = {a->cell, a->reverse};
    T in[INPUTS], sought[INPUTS], out[AC_MAX_OUT], g[2] = {ac_f_grad(c, 0), ac_f_grad(c, 1)}, captured[INPUTS] = {NULL};
    int input_of[INPUTS], n = 0;
    for (int i = 0; i < INPUTS; i++) {
        in[i] = fresh(c, i);
        if (ac_c_has(in[i]) && i < SIZES && WANTS(i)) input_of[n] = i, sought[n++] = in[i];
    }
    if (s->failed || ac_c_call_many(s, AC_OP_recurrence_parts, &layer, in, INPUTS, out) < 0) return;
    ac_backward_args back = {out, g, 2, sought, n, captured, true, true};
    if (ac_backward(&back) < 0) s->failed = true;
    for (int i = 0; i < n; i++)
        if (captured[i]) ac_f_give(c, input_of[i], ac_c_keep(s, captured[i]));
}

FORMULA(recurrence) {
    ATTR(recurrence);
    ac_autocast_state outer;
    if (c->graph) {
        outer = ac_f_as_forward(c);
        give_by_parts(c, a);
        ac_autocast_resume(&outer);
        DONE;
    }
    ac_attrs_recurrence back = {a->cell, a->reverse, ac_f_has(c, B_HH)};
    T g = G, last = ac_f_grad(c, 1), y = RESULT(0), out[AC_MAX_OUT];
    if (!s->failed) g = UN(contiguous, g);
    if (!s->failed) last = UN(contiguous, last);
    T in[7] = {g, last, y, RESULT(2), SAVED(STATE), SAVED(W_HH), MAYBE(SIZES)};
    if (s->failed) return -1;
    outer = ac_f_as_forward(c);
    int failed = ac_c_call_many(s, AC_OP_recurrence_backward, &back, in, 7, out);
    ac_autocast_resume(&outer);
    if (failed) return -1;
    static const int of[] = {X_IN, STATE, W_HH, B_HH};
    for (int i = 0; i < 3 + (int)back.keep; i++) GIVE(of[i], ac_c_cast(s, out[i], ac_f_input(c, of[i])->dtype));
    DONE;
}
