/* Nodes and edges of the graph, saved tensors, and a tensor's autograd metadata: made, changed and freed. */
#include "autograd/node.h"

#include "base/alloc.h"
#include "base/inline.h"
#include "cuda/gpu.h"
#include "ops/views.h"

#include <inttypes.h>
#include <string.h>

static void drop_nothing(void *object) { (void)object; }
static int run_no_hooks(void *hooks, ac_tensor **grads, int n) { return (void)hooks, (void)grads, (void)n, 0; }
static int after_nothing(void *hooks, ac_tensor *leaf) { return (void)hooks, (void)leaf, 0; }
static void *pack_nothing(ac_tensor *t) { return t; }
static ac_tensor *unpack_nothing(void *packed) { return packed; }
static int free_nothing(void *context) { return (void)context, 0; }
static int after_no_node(void *hooks, ac_tensor **given, int n_in, ac_tensor *const *grads, int n_out) {
    return (void)hooks, (void)given, (void)n_in, (void)grads, (void)n_out, 0;
}
ac_autograd_hooks ac_grad_hooks = {drop_nothing, run_no_hooks,   run_no_hooks, after_nothing, after_no_node,
                                   pack_nothing, unpack_nothing, free_nothing, NULL,          NULL};

_Thread_local ac_grad_mode ac_mode;

static uint64_t next_seq = 1;

/* -- nodes ------------------------------------------------------------------------------------- */

ac_node *ac_node_new(const char *name, int n_in, int n_out, size_t attrs_size) {
    size_t in = (size_t)n_in, out = (size_t)n_out;
    size_t bytes =
        sizeof(ac_node) + in * sizeof(ac_edge) + (in + out) * (sizeof(ac_spec) + sizeof(ac_saved)) + attrs_size;
    ac_node *n = ac_calloc(bytes);
    if (!n) return NULL;
    n->refs = 1, n->seq = next_seq++, n->name = name, n->n_in = n_in, n->n_out = n_out;
    n->attrs_size = attrs_size, n->bytes = bytes;
    n->edges = (ac_edge *)(n + 1);
    n->inputs = (ac_spec *)(n->edges + in);
    n->outputs = n->inputs + in;
    n->saved = (ac_saved *)(n->outputs + out);
    n->attrs = n->saved + in + out;
    return n;
}

void ac_node_number(ac_node *n) { n->seq = next_seq++; }

ac_node *ac_node_retain(ac_node *n) {
    AC_ASSERT(n->refs > 0);
    n->refs++;
    return n;
}

static void drop_saved(ac_saved *s) {
    void *packed = s->packed;
    ac_node *history = s->edge.node;
    s->packed = NULL, s->edge.node = NULL;
    ac_tensor_clear(&s->tensor);
    if (packed) ac_grad_hooks.drop(packed);
    if (history) ac_node_release(history);
}

void ac_node_free_saved(ac_node *n) {
    for (int i = 0; i < n->n_in + n->n_out; i++) {
        ac_saved *s = &n->saved[i];
        if (s->tensor && s->tensor->is_constant) continue;
        n->released = n->released || s->tensor || s->packed;
        drop_saved(s);
    }
}

static void free_node(ac_node *n) {
    for (int i = 0; i < n->n_in + n->n_out; i++) drop_saved(&n->saved[i]);
    for (int i = 0; i < n->n_in; i++)
        if (n->edges[i].node) ac_node_release(n->edges[i].node);
    if (n->leaf) {
        if (n->leaf->meta) n->leaf->meta->accumulator = NULL;
        ac_tensor_release(n->leaf);
    }
    if (n->py) ac_grad_hooks.drop(n->py);
    if (n->hooks) ac_grad_hooks.drop(n->hooks);
    ac_free(n, n->bytes);
}

/* A chain of a million nodes frees itself in this loop: nodes that die while another is being
 * freed wait in the list. */
void ac_node_release(ac_node *n) {
    static _Thread_local ac_node *dead;
    static _Thread_local bool freeing;
    AC_ASSERT(n->refs > 0);
    if (--n->refs > 0) return;
    n->next_dead = dead;
    dead = n;
    if (freeing) return;
    freeing = true;
    while (dead) {
        ac_node *next = dead;
        dead = next->next_dead;
        free_node(next);
    }
    freeing = false;
}

/* -- notes on tensors ---------------------------------------------------------------------------- */

ac_meta *ac_meta_of(ac_tensor *t) {
    if (!t->meta) t->meta = ac_calloc(sizeof *t->meta);
    return t->meta;
}

static void stop_keeping(ac_meta *m) {
    ac_meta **at = &m->node->keepers;
    while (*at != m) at = &(*at)->next_keeper;
    *at = m->next_keeper;
}

void ac_meta_set_node(ac_meta *m, ac_node *node, int index) {
    ac_node *old = m->node;
    if (m->retains_grad && old) stop_keeping(m);
    m->node = node, m->index = index;
    if (m->retains_grad && node) m->next_keeper = node->keepers, node->keepers = m;
    if (old) ac_node_release(old);
}

void ac_meta_free(ac_meta *m) {
    if (m->accumulator) m->accumulator = NULL;
    ac_meta_set_node(m, NULL, 0);
    if (m->grad) ac_tensor_release(m->grad);
    if (m->hooks) ac_grad_hooks.drop(m->hooks);
    ac_free(m, sizeof *m);
}

void ac_note_view(ac_tensor *view, ac_tensor *x) {
    view->view_version = *ac_version(view);
    if (!ac_grad_enabled() && ac_running.node) return; /* a formula's own: nobody writes it */
    ac_leave_lone_base(x);                             /* while it is x's alone */
    view->base = ac_tensor_retain(x->base ? x->base : x);
    view->view_kind = ac_grad_enabled() ? x->view_kind : AC_VIEW_NO_GRAD;
}

/* A view whose memory was written after its history was made takes its history from its base. */
static bool is_outdated_view(const ac_tensor *t) { return t->base && t->view_version != *ac_version(t); }

/* What made it; NULL for a leaf, and for a view whose base was detached in place and then written: what the view holds
 * now has no history. */
static ac_node *own_node(const ac_tensor *t) {
    if (!t->meta || !t->meta->node) return NULL;
    return is_outdated_view(t) && t->base->meta && t->base->meta->detached ? NULL : t->meta->node;
}

bool ac_requires_grad(const ac_tensor *t) {
    if (is_outdated_view(t) && ac_requires_grad(t->base)) return true;
    return t->meta && (t->meta->requires_grad || own_node(t));
}

bool ac_is_leaf(const ac_tensor *t) {
    if (is_outdated_view(t) && ac_requires_grad(t->base)) return false;
    return !own_node(t);
}

int ac_set_history(ac_tensor *t, ac_node *node, int index) {
    ac_meta *m = ac_meta_of(t);
    AC_ASSERT(index >= 0 && index < node->n_out);
    if (!m) return -1;
    ac_meta_set_node(m, ac_node_retain(node), index);
    node->stream = ac_gpu_stream_for(ac_device_of(t));
    m->requires_grad = false;
    t->view_version = *ac_version(t);
    return 0;
}

/* One reference holds it, besides that of a Python object which is itself held by that reference alone. */
static bool is_alone(const ac_tensor *t) { return t->refs == 1 || (t->refs == 2 && t->py && ac_hooks.py_alone(t->py)); }

void ac_detach_lone_base(ac_tensor *t) {
    if (t->base && is_alone(t->base)) ac_tensor_clear(&t->base), t->view_kind = AC_VIEW_PLAIN;
}

/* A view whose base has no other references becomes a tensor of its own, if its history is up to date. Compositions
 * make such views. */
void ac_leave_lone_base(ac_tensor *t) {
    if (!t->base || !is_alone(t->base) || (t->view_kind != AC_VIEW_NO_GRAD && t->view_kind != AC_VIEW_PLAIN)) return;
    if (ac_requires_grad(t->base) && t->view_version != *ac_version(t)) return;
    ac_tensor_clear(&t->base);
    t->view_kind = AC_VIEW_PLAIN;
}

int ac_retain_grad(ac_tensor *t) {
    ac_edge edge;
    AC_TRY(ac_edge_of(t, &edge)); /* brings an outdated view's history up to date */
    ac_node_release(edge.node);
    ac_meta *m = t->meta;
    if (m->retains_grad) return 0;
    m->retains_grad = true;
    m->next_keeper = m->node->keepers, m->node->keepers = m;
    return 0;
}

int ac_set_requires_grad(ac_tensor *t, bool on) {
    if (!ac_is_leaf(t)) {
        if (on) return 0;
        return ac_fail(AC_RUNTIME, "requires_grad can only be turned off on leaves; use .detach() for a "
                                   "tensor without history");
    }
    if (on && !ac_is_floating(t->dtype))
        return ac_fail(AC_RUNTIME, "only floating point tensors can require gradients, got %s",
                       ac_dtypes[t->dtype].name);
    if (!on && !t->meta) return 0;
    ac_meta *m = ac_meta_of(t);
    if (!m) return -1;
    m->requires_grad = on;
    return 0;
}

/* The leaf's accumulator, one while any graph holds it. */
static int accumulator_of(ac_tensor *t, ac_edge *edge) {
    ac_meta *m = t->meta;
    edge->index = 0;
    if (m->accumulator) {
        edge->node = ac_node_retain(m->accumulator);
        return 0;
    }
    ac_node *n = ac_node_new("AccumulateGrad", 0, 1, 0);
    if (!n) return -1;
    n->is_accumulator = true;
    n->leaf = ac_tensor_retain(t);
    n->outputs[0] = ac_spec_of(t);
    m->accumulator = edge->node = n;
    return 0;
}

/* A new history for a view: where it lies in its base. */
static int view_of_base(ac_tensor *t) {
    ac_edge from;
    if (t->view_kind == AC_VIEW_NO_GRAD)
        return ac_fail(AC_RUNTIME, "a view made under no_grad or inference_mode cannot be used where gradients are "
                                   "recorded after its memory was written; make the view anew, or detach it");
    if (t->view_kind == AC_VIEW_OF_FUNCTION)
        return ac_fail(AC_RUNTIME, "a view returned by an autograd Function cannot be used after its memory was "
                                   "written: the Function's backward would be left out; clone what it returns");
    AC_TRY(ac_edge_of(t->base, &from));
    if (!from.node) return 0;
    ac_node *n = ac_node_new("as_strided", 1, 1, sizeof(ac_attrs_as_strided));
    if (!n) {
        ac_node_release(from.node);
        return -1;
    }
    if (!ac_place_in_rows(t, t->base, (ac_attrs_as_strided *)n->attrs)) {
        ac_node_release(n);
        ac_node_release(from.node);
        return ac_fail(AC_RUNTIME,
                       "a view of a tensor that is not contiguous cannot be used where gradients are recorded "
                       "after its memory was written; make the base contiguous first");
    }
    n->op = AC_OP_as_strided;
    n->backward = ac_formulas[AC_OP_as_strided];
    n->edges[0] = from;
    n->inputs[0] = ac_spec_of(t->base);
    n->outputs[0] = ac_spec_of(t);
    int failed = ac_set_history(t, n, 0);
    ac_node_release(n);
    return failed;
}

int ac_edge_of(ac_tensor *t, ac_edge *edge) {
    edge->node = NULL;
    edge->index = 0;
    if (is_outdated_view(t) && ac_requires_grad(t->base)) AC_TRY(view_of_base(t));
    if (!t->meta) return 0;
    ac_node *made_by = own_node(t);
    if (made_by) {
        edge->node = ac_node_retain(made_by);
        edge->index = t->meta->index;
        return 0;
    }
    return t->meta->requires_grad ? accumulator_of(t, edge) : 0;
}

/* -- saved tensors --------------------------------------------------------------------------------- */

int ac_save(ac_node *node, int slot, ac_tensor *t) {
    ac_saved *s = &node->saved[slot];
    bool is_result = slot >= node->n_in, leaf = !is_result && t->meta && t->meta->requires_grad;
    if (!is_result && node->edges[slot].node)
        s->edge = (ac_edge){ac_node_retain(node->edges[slot].node), node->edges[slot].index};
    s->tensor = leaf ? ac_tensor_retain(t) : ac_tensor_alias(t);
    s->version = ac_version_seen(t);
    if (!s->tensor || !ac_mode.packs || t->is_scalar) return s->tensor ? 0 : -1;
    s->packed = ac_grad_hooks.pack(s->tensor);
    ac_tensor_clear(&s->tensor);
    return s->packed ? 0 : -1;
}

static ac_tensor *unpack(ac_node *node, int slot) { /* new */
    ac_saved *s = &node->saved[slot];
    if (s->packed) return ac_grad_hooks.unpack(s->packed);
    if (!s->tensor) {
        const char *why = node->released
                              ? "its saved tensors were freed by an earlier backward; pass retain_graph=True "
                                "to the first backward if you need two"
                              : "the tensor was not saved";
        return ac_fail_null(AC_RUNTIME, "backward through %s: %s", node->name, why);
    }
    if (s->version != ac_version_seen(s->tensor)) {
        char text[AC_SHAPE_TEXT];
        return ac_fail_null(
            AC_RUNTIME,
            "backward of %s needs a tensor %s %s that was modified in place after it was saved (version "
            "%" PRIu32 ", expected %" PRIu32 "); write `x = x.op()` instead of `x.op_()`, or clone before",
            node->name, ac_dtypes[s->tensor->dtype].name, ac_shape_text(s->tensor, text), ac_version_seen(s->tensor),
            s->version);
    }
    return ac_tensor_retain(s->tensor);
}

ac_tensor *ac_unpack(ac_node *node, int slot, bool graph) {
    ac_saved *s = &node->saved[slot];
    ac_tensor *kept = unpack(node, slot);
    bool is_result = slot >= node->n_in;
    ac_node *history = is_result ? node : s->edge.node;
    if (!kept || !graph || !history || (!s->packed && kept->meta && kept->meta->requires_grad)) return kept;
    ac_tensor *t = ac_tensor_alias(kept);
    ac_tensor_release(kept);
    if (t && ac_set_history(t, history, is_result ? slot - node->n_in : s->edge.index) < 0) ac_tensor_clear(&t);
    return t;
}
