/* The backward formula of recurrent layers: one kernel, or, where a graph of the gradient is wanted, backward of the
 * elementary operators. */
#include "autograd/formula_list.h"

#include "amp/autocast.h"

enum { X_IN, STATE, W_HH, B_HH, SIZES, INPUTS };

/* The inputs again, each a result of a node of its own: gradients captured there are those by this call alone. */
static T fresh(ac_formula *c, int input) {
    ac_dims shape;
    T x = ac_f_has(c, input) ? SAVED(input) : NULL;
    if (!x) return NULL;
    shape = ac_shape_of(x);
    return ac_f_expand(c, x, &shape);
}

static void give_by_parts(ac_formula *c, const ac_attrs_recurrence *a) {
    ac_attrs_rnn_layer layer = {a->cell, a->reverse};
    T in[INPUTS], sought[INPUTS], out[AC_MAX_OUT], g[2] = {ac_f_grad(c, 0), ac_f_grad(c, 1)}, captured[INPUTS] = {NULL};
    int input_of[INPUTS], n = 0;
    for (int i = 0; i < INPUTS; i++) {
        in[i] = fresh(c, i);
        if (in[i] && i < SIZES && WANTS(i)) input_of[n] = i, sought[n++] = in[i];
    }
    if (c->failed || ac_f_call_many(c, AC_OP_recurrence_parts, &layer, in, INPUTS, out) < 0) return;
    ac_backward_args back = {out, g, 2, sought, n, captured, true, true};
    if (ac_backward(&back) < 0) c->failed = true;
    for (int i = 0; i < n; i++)
        if (captured[i]) ac_f_give(c, input_of[i], ac_f_keep(c, captured[i]));
}

FORMULA(recurrence) {
    ATTR(recurrence);
    ac_autocast_state outer = ac_autocast;
    if (c->graph) {
        if (c->node->is_low) outer = ac_autocast_compute_in(c->node->compute);
        give_by_parts(c, a);
        ac_autocast = outer;
        DONE;
    }
    ac_attrs_recurrence back = {a->cell, a->reverse, ac_f_has(c, B_HH)};
    T g = G, last = ac_f_grad(c, 1), y = RESULT(0), out[AC_MAX_OUT];
    if (!c->failed) g = ac_f_call(c, AC_OP_contiguous, NULL, 1, g);
    if (!c->failed) last = ac_f_call(c, AC_OP_contiguous, NULL, 1, last);
    T in[7] = {g, last, y, RESULT(2), SAVED(STATE), SAVED(W_HH), ac_f_has(c, SIZES) ? SAVED(SIZES) : NULL};
    if (c->failed) return -1;
    if (c->node->is_low) outer = ac_autocast_compute_in(c->node->compute);
    int failed = ac_f_call_many(c, AC_OP_recurrence_backward, &back, in, 7, out);
    ac_autocast = outer;
    if (failed) return -1;
    static const int of[] = {X_IN, STATE, W_HH, B_HH};
    for (int i = 0; i < 3 + (int)back.keep; i++) GIVE(of[i], ac_f_cast(c, out[i], ac_f_input(c, of[i])->dtype));
    DONE;
}
