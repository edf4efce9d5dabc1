// clang-format off
/* The language of backward formulas. A formula's context owns every temporary, and each function passes NULL on. So a
 * formula needs no cleanup and reads as mathematics; a failure shows at its end.
 *
 * In a formula `c` is the context; tensors are borrowed from it. */
#ifndef AC_AUTOGRAD_FORMULA_H
#define AC_AUTOGRAD_FORMULA_H

#include "autograd/node.h"

#include "tensor/list.h"

typedef ac_tensor *T;

struct ac_formula {
    ac_node *node;
    ac_tensor *const *g;  /* gradients of the results, NULL where none arrived */
    ac_tensor **given;    /* what the formula gives, owned */
    bool graph;           /* a graph of the gradient itself is wanted */
    const ac_pass *pass;  /* gradients of leaves are added to their .grad; NULL: they are captured, or have a graph */
    ac_meta *sunk[4];     /* leaves that the formula itself adds to */
    int n_sunk;
    uint64_t unneeded;    /* inputs, of the first 64, whose gradients nobody asked for */
    bool failed;
    ac_list owned;
};

/* Runs node's formula; given[i] (new or NULL) for each input; bit i of `unneeded`: that one need not be made. `pass`: see
 * ac_formula. */
int ac_formula_run(ac_node *node, ac_tensor *const *grads, ac_tensor **given, bool graph, const ac_pass *pass,
                   uint64_t unneeded) AC_CHECKED;

/* -- what a formula reads -- */
T ac_f_grad(ac_formula *c, int result);   /* gradient of a result; zeros when none arrived */
T ac_f_saved(ac_formula *c, int input);   /* a saved input, */
T ac_f_result(ac_formula *c, int result); /* a saved result */
/* The .grad to which a formula may add a gradient of this input itself, instead of giving it. NULL if the gradient is
 * needed (hooks, a graph, captured inputs), or if there is no .grad of `dtype` yet. */
T ac_f_sink(ac_formula *c, int input, ac_dtype dtype);
static inline bool ac_f_has(const ac_formula *c, int input) { return c->node->saved[input].tensor || c->node->saved[input].packed; }
static inline bool ac_f_wants(const ac_formula *c, int input) {
    return c->node->edges[input].node && !(input < 64 && (c->unneeded >> input & 1));
}
static inline const ac_spec *ac_f_input(const ac_formula *c, int input) { return &c->node->inputs[input]; }

/* -- what it does -- */
T ac_f_keep(ac_formula *c, ac_tensor *t); /* the context takes over t */
T ac_f_call(ac_formula *c, ac_op op, const void *attrs, int n, ...); /* result 0 of a call */
int ac_f_call_many(ac_formula *c, ac_op op, const void *attrs, ac_tensor *const *in, int n, ac_tensor **out);
T ac_f_number(ac_formula *c, double x);   /* a Python-like number */
void ac_f_give(ac_formula *c, int input, T grad);

/* -- the words of the formulas -- */
#define FORMULA(name) int ac_grad_##name(ac_formula *c)
#define ATTR(type) const ac_attrs_##type *a = c->node->attrs
#define G ac_f_grad(c, 0)
#define SAVED(i) ac_f_saved(c, i)
#define RESULT(i) ac_f_result(c, i)
#define WANTS(i) ac_f_wants(c, i)
#define GIVE(i, grad)                                                                              \
    do {                                                                                           \
        if (ac_f_wants(c, i)) ac_f_give(c, i, grad);                                               \
    } while (0)
#define DONE return c->failed ? -1 : 0

static const ac_attrs_alpha ac_alpha_one = {{AC_INT, {1}}};

#define UN(op, x) ac_f_call(c, AC_OP_##op, NULL, 1, x)
#define ADD(x, y) ac_f_call(c, AC_OP_add, &ac_alpha_one, 2, x, y)
#define SUB(x, y) ac_f_call(c, AC_OP_sub, &ac_alpha_one, 2, x, y)
#define MUL(x, y) ac_f_call(c, AC_OP_mul, NULL, 2, x, y)
#define DIV(x, y) ac_f_call(c, AC_OP_div, NULL, 2, x, y)
#define POW(x, y) ac_f_call(c, AC_OP_pow, NULL, 2, x, y)
#define CMP(op, x, y) ac_f_call(c, AC_OP_##op, NULL, 2, x, y)
#define WHERE(cond, x, y) ac_f_call(c, AC_OP_where, NULL, 3, cond, x, y)
#define NUM(x) ac_f_number(c, x)
#define TIMES(x, k) MUL(x, NUM(k))

T ac_f_sum(ac_formula *c, T x, const ac_dims *dim, bool keepdim);
T ac_f_mean(ac_formula *c, T x, const ac_dims *dim, bool keepdim);
T ac_f_reshape(ac_formula *c, T x, const ac_dims *shape);
T ac_f_expand(ac_formula *c, T x, const ac_dims *shape);
T ac_f_transpose(ac_formula *c, T x); /* the last two dimensions */
T ac_f_cast(ac_formula *c, T x, ac_dtype dtype);
T ac_f_zeros(ac_formula *c, const ac_spec *like);
/* g of a reduction, with the reduced dimensions back as size 1 */
T ac_f_unreduce(ac_formula *c, T g, const ac_dims *dim, bool keepdim, const ac_dims *shape);

#endif
