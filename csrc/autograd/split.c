/* The node of tensors cut by unbind, split and chunk, and its backward. */
#include "autograd/split.h"

#include "ops/views.h"
#include "autograd/formula_list.h"

#include <string.h>

typedef struct {
    int64_t dim, drops;
    ac_section spans[]; /* one for each result */
} split_attrs;

static ac_node *new_node(ac_tensor *x, int64_t dim, const ac_section *spans, int n, bool drop) {
    size_t bytes = (size_t)n * sizeof *spans;
    ac_node *node = ac_node_new(drop ? "unbind" : "split", 1, n, sizeof(split_attrs) + bytes);
    if (!node) return NULL;
    split_attrs *a = node->attrs;
    a->dim = dim, a->drops = drop;
    memcpy(a->spans, spans, bytes);
    node->backward = ac_grad_split;
    node->inputs[0] = ac_spec_of(x);
    if (ac_edge_of(x, &node->edges[0]) < 0) {
        ac_node_release(node);
        return NULL;
    }
    ac_node_number(node);
    return node;
}

static ac_tensor *part_of(const ac_tensor *x, int64_t dim, ac_section span, bool drop) {
    ac_attrs_select one = {dim, span.start};
    ac_attrs_slice some = {dim, span.start, span.start + span.size, 1};
    return drop ? ac_view_select(x, &one) : ac_view_slice(x, &some);
}

int ac_split(ac_tensor *x, int64_t dim, const ac_section *spans, int n, bool drop, ac_tensor **out) {
    bool recorded = n > 0 && ac_grad_enabled() && ac_is_floating(x->dtype) && ac_requires_grad(x);
    ac_node *node = recorded ? new_node(x, dim, spans, n, drop) : NULL;
    int failed = recorded && !node ? -1 : 0, made = 0;
    while (made < n && !failed) {
        ac_tensor *part = out[made] = part_of(x, dim, spans[made], drop);
        if (part) ac_note_view(part, x);
        if (part && node) node->outputs[made] = ac_spec_of(part);
        failed = !part ? -1 : node ? ac_set_history(part, node, made) : 0;
        made++;
    }
    if (node) ac_node_release(node);
    for (int i = 0; i < made && failed; i++) ac_tensor_clear(&out[i]);
    return failed;
}

/* -- its gradient: the parts' own, and zeros where none came ---------------------------------------------------- */

static void append(ac_scratch *s, ac_list *parts, T part) {
    if (!part || ac_list_push(parts, part) < 0) s->failed = true;
}

static void append_zeros(ac_formula *c, ac_list *parts, int64_t dim, int64_t size) {
    ac_scratch *s = &c->scratch;
    ac_spec gap = *ac_f_input(c, 0);
    gap.shape.v[dim] = size;
    if (size > 0) append(s, parts, ac_c_zeros(s, &gap));
}

FORMULA(split) {
    const split_attrs *a = c->node->attrs;
    int64_t at = 0;
    ac_list parts;
    ac_list_init(&parts);
    for (int i = 0; i < c->node->n_out; i++) {
        if (!c->g[i]) continue;
        append_zeros(c, &parts, a->dim, a->spans[i].start - at);
        append(s, &parts, a->drops ? ac_c_unsqueeze(s, c->g[i], a->dim) : c->g[i]);
        at = a->spans[i].start + a->spans[i].size;
    }
    append_zeros(c, &parts, a->dim, ac_f_input(c, 0)->shape.v[a->dim] - at);
    ac_f_give(c, 0, ac_c_cat(s, parts.at, parts.n, a->dim));
    ac_list_free(&parts);
    DONE;
}
