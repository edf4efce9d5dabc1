/* What backward formulas read and give, and how the engine runs one. */
#include "autograd/formula.h"

/* The formula of what depend_on_inputs made. */
static int constant_slope(ac_formula *c, ac_scratch *s) {
    GIVE(0, G);
    for (int i = 1; i < c->node->n_in; i++) GIVE(i, ac_c_zeros(s, ac_f_input(c, i)));
    DONE;
}

/* Makes the gradient depend on the inputs of `of`, too, with a slope of zeros: what is linear by pieces has a second
 * derivative, as in torch. */
static int depend_on_inputs(const ac_node *of, ac_tensor **grad) {
    ac_tensor *slope = ac_tensor_alias(*grad);
    ac_node *n = slope ? ac_node_new(of->name, 1 + of->n_in, 1, 0) : NULL;
    int failed = n ? ac_edge_of(*grad, &n->edges[0]) : -1;
    if (!failed) {
        n->op = AC_OP_piecewise, n->backward = constant_slope;
        n->inputs[0] = n->outputs[0] = ac_spec_of(slope);
        for (int i = 0; i < of->n_in; i++) {
            n->inputs[1 + i] = of->inputs[i], n->edges[1 + i] = of->edges[i];
            if (of->edges[i].node) (void)ac_node_retain(of->edges[i].node);
        }
        ac_node_number(n);
        failed = ac_set_history(slope, n, 0);
    }
    if (n) ac_node_release(n);
    if (failed) ac_tensor_clear(&slope);
    else ac_tensor_release(*grad), *grad = slope;
    return failed;
}

static int depend_by_pieces(const ac_formula *c) {
    const ac_node *node = c->node;
    bool by_pieces = node->backward == ac_formulas[node->op] && ac_ops[node->op].flags & AC_FLAG_PIECEWISE;
    for (int i = 0; i < node->n_in && c->graph && by_pieces; i++)
        if (c->given[i]) AC_TRY(depend_on_inputs(node, &c->given[i]));
    return 0;
}

int ac_formula_run(ac_node *node, ac_tensor *const *grads, ac_tensor **given, bool graph, const ac_pass *pass,
                   uint64_t unneeded) {
    ac_formula c = {.node = node, .g = grads, .given = given, .graph = graph, .unneeded = unneeded};
    c.pass = graph ? NULL : pass;
    ac_scratch_start(&c.scratch);
    int failed = node->backward(&c, &c.scratch);
    if (!failed && !c.scratch.failed) failed = depend_by_pieces(&c);
    for (int i = 0; i < c.n_sunk; i++) ac_provenance_after(&c.sunk[i]->provenance, c.sunk[i]->grad, pass);
    ac_scratch_release(&c.scratch);
    return failed || c.scratch.failed ? -1 : 0;
}

T ac_f_grad(ac_formula *c, int result) {
    if (c->g[result]) return c->g[result];
    return ac_c_zeros(&c->scratch, &c->node->outputs[result]);
}

/* After a failure nothing more is unpacked: a hook in Python must not run while an exception is set. */
static T unpack_slot(ac_formula *c, int slot) {
    return c->scratch.failed ? NULL : ac_c_keep(&c->scratch, ac_unpack(c->node, slot, c->graph));
}

T ac_f_saved(ac_formula *c, int input) { return unpack_slot(c, input); }

T ac_f_maybe(ac_formula *c, int input) { return ac_f_has(c, input) ? ac_f_saved(c, input) : ABSENT; }

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

void ac_f_give(ac_formula *c, int input, T grad) {
    if (!grad) {
        c->scratch.failed = true;
        return;
    }
    ac_tensor_clear(&c->given[input]);
    c->given[input] = ac_tensor_retain(grad);
}

bool ac_f_any_zero(ac_scratch *s, T x) {
    ac_attrs_reduce_dim everything = {.dim = {.n = -1}};
    T none = ac_c_call(s, AC_OP_all, &everything, 1, x);
    ac_attrs_to_device cpu = {AC_CPU, 0};
    if (none && ac_device_of(none) != AC_CPU) none = ac_c_call(s, AC_OP_to_device, &cpu, 1, none);
    return none && !ac_read_int(ac_data(none), AC_bool, 0);
}

T ac_f_unreduce(ac_formula *c, T g, const ac_dims *dim, bool keepdim, const ac_dims *shape) {
    if (keepdim || !g || shape->n == 0) return g;
    uint32_t mask;
    if (ac_dims_mask(dim, shape->n, c->node->name, &mask) < 0) {
        c->scratch.failed = true;
        return NULL;
    }
    ac_dims kept = *shape;
    for (int64_t d = 0; d < shape->n; d++)
        if (mask & (1u << d)) kept.v[d] = 1;
    return ac_c_reshape(&c->scratch, g, &kept);
}
