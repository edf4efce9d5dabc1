/* The stage record: the node of a call, its edges, and what it saves for backward; views and writes among them. */
#include "dispatch/record.h"

#include "ops/views.h"

#include <string.h>

/* Whether an input is saved for gradients alone that nobody will ask for. */
static bool is_saved_in_vain(const ac_op_call *c, const ac_node *node, int input) {
    int needs = input < 3 ? c->info->saved_for[input] : 0;
    for (int i = 0; needs >> i; i++)
        if (needs >> i & 1 && node->edges[i].node) return false;
    return needs != 0;
}

bool ac_call_saves(const ac_op_call *c, const ac_node *node, int input) {
    if (is_saved_in_vain(c, node, input)) return false;
    int single = c->info->n_tensors - 1; /* beside a list */
    if (!(c->info->save & AC_SAVE_LIST)) return input < AC_SAVE_INPUTS && (c->info->save >> input & 1);
    return input >= c->info->list_at && input < c->info->list_at + c->n_in - single;
}

static int fill_edges(ac_node *node, ac_tensor *const *in) {
    for (int i = 0; i < node->n_in; i++) {
        if (!in[i]) continue;
        node->inputs[i] = ac_spec_of(in[i]);
        if (ac_is_floating(in[i]->dtype)) AC_TRY(ac_edge_of(in[i], &node->edges[i]));
    }
    ac_node_number(node);
    return 0;
}

ac_node *ac_call_node(const ac_op_call *c, int n_out) {
    ac_node *node = ac_node_new(c->info->shown, c->n_in, n_out, c->info->attrs_size);
    if (!node) return NULL;
    node->op = c->op;
    node->backward = ac_formulas[c->op];
    if (c->info->attrs_size) memcpy(node->attrs, c->attrs, c->info->attrs_size);
    if (fill_edges(node, c->in) == 0) return node;
    ac_node_release(node);
    return NULL;
}

/* A tensor made under inference_mode counts no writes, so it is not saved, unless all operands are such tensors: torch
 * then records nothing. Only operators of which the table says what each gradient needs refuse it; others may save what
 * none needs. */
static int check_inference(const ac_op_call *c, const ac_tensor *saved) {
    if (!saved->is_inference || !(c->info->saved_for[0] || c->info->saved_for[1])) return 0;
    bool others = false;
    for (int i = 0; i < c->n_in && !others; i++)
        others = c->operands[i] && !c->operands[i]->is_inference && !c->operands[i]->is_scalar;
    if (!others) return 0;
    return ac_fail(AC_RUNTIME,
                   "%s: a tensor made under inference_mode cannot be saved for backward; clone it outside "
                   "inference_mode first, or make it under no_grad",
                   c->info->shown);
}

/* Of operands, which are smaller than the inputs where autocast cast those. */
int ac_call_save(const ac_op_call *c, ac_node *node) {
    for (int i = 0; i < node->n_out; i++) node->outputs[i] = ac_spec_of(c->out[i]);
    for (int i = 0; i < node->n_in && c->info->save; i++)
        if (c->operands[i] && ac_call_saves(c, node, i)) {
            AC_TRY(check_inference(c, c->operands[i]));
            AC_TRY(ac_save(node, i, c->operands[i]));
        }
    for (int i = 0; i < node->n_out; i++)
        if (c->info->save & (AC_SAVE_R << i)) AC_TRY(ac_save(node, node->n_in + i, c->out[i]));
    return 0;
}

/* Makes `node` the history of the results. */
static int record(const ac_op_call *c, ac_node *node) {
    AC_TRY(ac_call_save(c, node));
    for (int i = 0; i < node->n_out; i++)
        if (ac_is_floating(c->out[i]->dtype)) AC_TRY(ac_set_history(c->out[i], node, i));
    return 0;
}

int ac_call_record(const ac_op_call *c) {
    ac_node *node = ac_call_node(c, c->info->n_out);
    int failed = node ? record(c, node) : -1;
    if (node && c->low != AC_NO_DTYPE) node->is_low = true, node->compute = (ac_dtype)c->low;
    if (node) ac_node_release(node);
    if (failed) ac_release_results(c);
    return failed;
}

/* -- views ------------------------------------------------------------------------------------------ */

static ac_node *node_of(ac_op op, int n_in) {
    ac_node *node = ac_node_new(ac_ops[op].shown, n_in, 1, ac_ops[op].attrs_size);
    if (node) node->op = op, node->backward = ac_formulas[op];
    return node;
}

/* x placed in memory of its storage's size */
static ac_node *placed_in_memory(ac_tensor *x) {
    ac_node *node = node_of(AC_OP_as_strided_scatter, 2);
    if (!node) return NULL;
    ac_dims all = {1, {x->storage->bytes / ac_itemsize(x->dtype)}};
    *(ac_attrs_as_strided_scatter *)node->attrs =
        (ac_attrs_as_strided_scatter){ac_shape_of(x), ac_strides_of(x), x->offset, 0};
    node->inputs[1] = ac_spec_of(x);
    node->inputs[0] = node->outputs[0] = (ac_spec){x->dtype, all, ac_device_of(x)};
    if (ac_edge_of(x, &node->edges[1]) == 0) {
        ac_node_number(node);
        return node;
    }
    ac_node_release(node);
    return NULL;
}

/* The node of a view by arbitrary strides, of an x that is not contiguous: both are views of one memory, so the
 * gradient goes from the view into the memory and from there to x. */
static ac_node *strided_node(const ac_op_call *c) {
    ac_tensor *x = c->in[0];
    if (ac_overlaps_itself(x)) {
        (void)ac_fail(AC_RUNTIME, "as_strided: gradients need a tensor whose elements have memory of their own; call "
                                  ".contiguous() first");
        return NULL;
    }
    ac_node *memory = placed_in_memory(x), *node = memory ? node_of(c->op, 1) : NULL;
    if (!node) {
        if (memory) ac_node_release(memory);
        return NULL;
    }
    ac_attrs_as_strided *a = node->attrs;
    memcpy(a, c->attrs, sizeof *a);
    if (a->offset == AC_ABSENT) a->offset = x->offset;
    node->inputs[0] = memory->outputs[0];
    node->edges[0] = (ac_edge){memory, 0}; /* which takes over the reference */
    ac_node_number(node);
    return node;
}

/* The same of a contiguous x, relative to it, which may itself be a view. */
static ac_node *strided_node_of_dense(const ac_op_call *c) {
    ac_node *node = ac_call_node(c, 1);
    if (!node) return NULL;
    ac_attrs_as_strided *a = node->attrs;
    a->offset = a->offset == AC_ABSENT ? 0 : a->offset - c->in[0]->offset;
    return node;
}

static ac_node *view_node(const ac_op_call *c) {
    if (!(c->info->flags & AC_FLAG_OF_STORAGE)) return ac_call_node(c, 1);
    return ac_is_contiguous(c->in[0]) ? strided_node_of_dense(c) : strided_node(c);
}

static int record_view(const ac_op_call *c) {
    ac_node *node = view_node(c);
    if (!node) return -1;
    node->outputs[0] = ac_spec_of(c->out[0]);
    int failed = ac_set_history(c->out[0], node, 0);
    ac_node_release(node);
    return failed;
}

int ac_call_view(const ac_op_call *c) {
    ac_tensor *x = c->in[0], *v = ac_views[c->op](x, c->attrs);
    if (!v) return -1;
    ac_note_view(v, x);
    c->out[0] = v;
    int failed = ac_call_wants_record(c) ? record_view(c) : 0;
    if (failed) ac_tensor_clear(&c->out[0]);
    return failed;
}

/* -- writes ----------------------------------------------------------------------------------------- */

int ac_set_history_written(ac_tensor *target, ac_node *node, int index) {
    ac_tensor *base = target->base;
    if (!base) return ac_set_history(target, node, index);
    ac_node *scatter = node_of(AC_OP_as_strided_scatter, 2);
    if (!scatter) return -1;
    ac_attrs_as_strided at;
    (void)ac_place_in_rows(target, base, &at); /* ac_check_recordable has looked */
    *(ac_attrs_as_strided_scatter *)scatter->attrs = (ac_attrs_as_strided_scatter){at.size, at.stride, at.offset, 0};
    scatter->inputs[0] = scatter->outputs[0] = ac_spec_of(base);
    scatter->inputs[1] = node->outputs[index];
    int failed = ac_edge_of(base, &scatter->edges[0]);
    scatter->edges[1] = (ac_edge){ac_node_retain(node), index};
    if (!failed) failed = ac_set_history(base, scatter, 0);
    target->view_version = *ac_version(target) - 1; /* outdated: its history follows from its base's */
    if (!failed && target->meta) ac_meta_set_node(target->meta, NULL, 0);
    ac_node_release(scatter);
    return failed;
}
