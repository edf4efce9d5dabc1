// clang-format off
/* Backward formulas, in the language of autograd/expression.h: what a formula reads and gives.
 *
 * In a formula `c` is the formula and `s` its scratch; tensors are borrowed from them. */
#ifndef AC_AUTOGRAD_FORMULA_H
#define AC_AUTOGRAD_FORMULA_H

#include "amp/autocast.h"
#include "autograd/expression.h"
#include "autograd/node.h"

struct ac_formula {
    ac_node *node;
    ac_tensor *const *g;  /* gradients of the results, NULL where none arrived */
    ac_tensor **given;    /* what the formula gives, owned */
    bool graph;           /* a graph of the gradient itself is wanted */
    const ac_pass *pass;  /* gradients of leaves are added to their .grad; NULL: they are captured, or have a graph */
    ac_meta *sunk[4];     /* leaves that the formula itself adds to */
    int n_sunk;
    uint64_t unneeded;    /* inputs, of the first 64, whose gradients nobody asked for */
    ac_scratch scratch;
};

/* Runs node's formula; given[i] (new or NULL) for each input; bit i of `unneeded`: that one need not be made. `pass`: see
 * ac_formula. */
int ac_formula_run(ac_node *node, ac_tensor *const *grads, ac_tensor **given, bool graph, const ac_pass *pass,
                   uint64_t unneeded) AC_CHECKED;

/* -- what a formula reads -- */
T ac_f_grad(ac_formula *c, int result);   /* gradient of a result; zeros when none arrived */
T ac_f_saved(ac_formula *c, int input);   /* a saved input, */
T ac_f_result(ac_formula *c, int result); /* a saved result */
T ac_f_maybe(ac_formula *c, int input);   /* a saved input, ABSENT where there is none */
/* The .grad to which a formula may add a gradient of this input itself, instead of giving it. NULL if the gradient is
 * needed (hooks, a graph, captured inputs), or if there is no .grad of `dtype` yet. */
T ac_f_sink(ac_formula *c, int input, ac_dtype dtype);
static inline bool ac_f_has(const ac_formula *c, int input) { return c->node->saved[input].tensor || c->node->saved[input].packed; }
static inline bool ac_f_wants(const ac_formula *c, int input) {
    return c->node->edges[input].node && !(input < 64 && (c->unneeded >> input & 1));
}
/* From here on products compute in what the forward did; the old state, for ac_autocast_resume. */
static inline ac_autocast_state ac_f_as_forward(const ac_formula *c) {
    return c->node->is_low ? ac_autocast_compute_in(c->node->compute) : ac_autocast;
}
static inline const ac_spec *ac_f_input(const ac_formula *c, int input) { return &c->node->inputs[input]; }

/* -- what it gives -- */
void ac_f_give(ac_formula *c, int input, T grad);
/* g of a reduction, with the reduced dimensions back as size 1 */
T ac_f_unreduce(ac_formula *c, T g, const ac_dims *dim, bool keepdim, const ac_dims *shape);

/* Whether an element is 0, read from the device. */
bool ac_f_any_zero(ac_scratch *s, T x);

/* -- the words of formulas alone -- */
#define FORMULA(name) int ac_grad_##name(ac_formula *c, ac_scratch *s AC_UNUSED)
#define ATTR(type) const ac_attrs_##type *a = c->node->attrs
#define G ac_f_grad(c, 0)
#define SAVED(i) ac_f_saved(c, i)
#define RESULT(i) ac_f_result(c, i)
#define MAYBE(i) ac_f_maybe(c, i)
#define WANTS(i) ac_f_wants(c, i)
#define GIVE(i, grad)                                                                              \
    do {                                                                                           \
        if (ac_f_wants(c, i)) ac_f_give(c, i, grad);                                               \
    } while (0)
#define DONE return c->scratch.failed ? -1 : 0

#endif
