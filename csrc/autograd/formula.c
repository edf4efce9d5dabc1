/* The functions that backward formulas are written with, and how the engine runs one formula. */
#include "autograd/formula.h"

#include <stdarg.h>

T ac_f_keep(ac_formula *c, ac_tensor *t) {
    if (!t) {
        c->failed = true;
        return NULL;
    }
    if (ac_list_push(&c->owned, t) == 0) return t;
    ac_tensor_release(t);
    c->failed = true;
    return NULL;
}

int ac_formula_run(ac_node *node, ac_tensor *const *grads, ac_tensor **given, bool graph, const ac_pass *pass,
                   uint64_t unneeded) {
    ac_formula c = {.node = node, .g = grads, .given = given, .graph = graph, .unneeded = unneeded};
    c.pass = graph ? NULL : pass;
    ac_list_init(&c.owned);
    int failed = node->backward(&c);
    for (int i = 0; i < c.n_sunk; i++) ac_provenance_after(&c.sunk[i]->provenance, c.sunk[i]->grad, pass);
    ac_list_release(&c.owned);
    return failed || c.failed ? -1 : 0;
}

T ac_f_zeros(ac_formula *c, const ac_spec *like) {
    ac_attrs_full a = {.size = like->shape, .value = {AC_INT, {0}}, .dtype = like->dtype, .device = like->device};
    return ac_f_call(c, AC_OP_full, &a, 0);
}

T ac_f_grad(ac_formula *c, int result) {
    if (c->g[result]) return c->g[result];
    return ac_f_zeros(c, &c->node->outputs[result]);
}

/* After a failure nothing more is unpacked: a hook in Python must not run while an exception is set. */
static T unpack_slot(ac_formula *c, int slot) {
    return c->failed ? NULL : ac_f_keep(c, ac_unpack(c->node, slot, c->graph));
}

T ac_f_saved(ac_formula *c, int input) { return unpack_slot(c, input); }

T ac_f_result(ac_formula *c, int result) { return unpack_slot(c, c->node->n_in + result); }

T ac_f_sink(ac_formula *c, int input, ac_dtype dtype) {
    ac_node *to = c->node->edges[input].node;
    if (!c->pass || !to || !to->is_accumulator || to->hooks || c->n_sunk == 4) return NULL;
    ac_meta *m = to->leaf->meta;
    if (!m || m->hooks || !m->grad || m->grad->dtype != dtype) return NULL;
    if (!ac_is_contiguous(m->grad) || !ac_same_shape(m->grad, to->leaf) || ac_requires_grad(m->grad)) return NULL;
    ac_provenance_before(&m->provenance, m->grad);
    c->sunk[c->n_sunk++] = m;
    return m->grad;
}

int ac_f_call_many(ac_formula *c, ac_op op, const void *attrs, ac_tensor *const *in, int n, ac_tensor **out) {
    for (int i = 0; i < AC_MAX_OUT; i++) out[i] = NULL;
    if (c->failed || ac_call(op, in, n, attrs, out) < 0) {
        c->failed = true;
        return -1;
    }
    for (int i = 0; i < ac_ops[op].n_out; i++) out[i] = ac_f_keep(c, out[i]);
    return c->failed ? -1 : 0;
}

T ac_f_call(ac_formula *c, ac_op op, const void *attrs, int n, ...) {
    ac_tensor *in[8], *out[AC_MAX_OUT];
    va_list args;
    va_start(args, n);
    for (int i = 0; i < n; i++) {
        in[i] = va_arg(args, ac_tensor *);
        if (!in[i]) c->failed = true;
    }
    va_end(args);
    return ac_f_call_many(c, op, attrs, in, n, out) < 0 ? NULL : out[0];
}

T ac_f_number(ac_formula *c, double x) {
    T t = ac_f_keep(c, ac_tensor_scalar(AC_float64, x));
    if (t) t->is_scalar = true;
    return t;
}

void ac_f_give(ac_formula *c, int input, T grad) {
    if (!grad) {
        c->failed = true;
        return;
    }
    ac_tensor_clear(&c->given[input]);
    c->given[input] = ac_tensor_retain(grad);
}

T ac_f_sum(ac_formula *c, T x, const ac_dims *dim, bool keepdim) {
    ac_attrs_reduce a = {*dim, keepdim, AC_NO_DTYPE};
    return ac_f_call(c, AC_OP_sum, &a, 1, x);
}

T ac_f_mean(ac_formula *c, T x, const ac_dims *dim, bool keepdim) {
    ac_attrs_reduce a = {*dim, keepdim, AC_NO_DTYPE};
    return ac_f_call(c, AC_OP_mean, &a, 1, x);
}

T ac_f_reshape(ac_formula *c, T x, const ac_dims *shape) {
    ac_attrs_size a = {*shape};
    return ac_f_call(c, AC_OP_reshape, &a, 1, x);
}

T ac_f_expand(ac_formula *c, T x, const ac_dims *shape) {
    ac_attrs_size a = {*shape};
    return ac_f_call(c, AC_OP_expand, &a, 1, x);
}

T ac_f_transpose(ac_formula *c, T x) {
    ac_attrs_two_dims a = {-2, -1};
    return ac_f_call(c, AC_OP_transpose, &a, 1, x);
}

T ac_f_cast(ac_formula *c, T x, ac_dtype dtype) {
    ac_attrs_dtype a = {dtype};
    return x && x->dtype == dtype ? x : ac_f_call(c, AC_OP_cast, &a, 1, x);
}

T ac_f_unreduce(ac_formula *c, T g, const ac_dims *dim, bool keepdim, const ac_dims *shape) {
    if (keepdim || !g || shape->n == 0) return g;
    uint32_t mask;
    if (ac_dims_mask(dim, shape->n, c->node->name, &mask) < 0) {
        c->failed = true;
        return NULL;
    }
    ac_dims kept = *shape;
    for (int64_t d = 0; d < shape->n; d++)
        if (mask & (1u << d)) kept.v[d] = 1;
    return ac_f_reshape(c, g, &kept);
}
