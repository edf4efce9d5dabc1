/* Backward: finds the nodes that the roots reach, and runs them in order of falling seq, which is a topological
 * order. It runs on the calling thread, without recursion, with autocast off. */
#include "autograd/node.h"

#include "amp/autocast.h"
#include "base/alloc.h"
#include "base/inline.h"
#include "base/pool.h"
#include "cuda/gpu.h"
#include "autograd/formula.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

_Thread_local ac_running_formula ac_running;

/* One reached node and the gradients that have arrived for its results. */
typedef struct {
    ac_node *node; /* borrowed: the roots keep the graph alive */
    int64_t grads; /* index of the first of n_out slots */
    int waiting;   /* edges that still lead here */
    bool needed;   /* leads to something that is asked for, or is */
    bool leads_on; /* leads to something else that is asked for */
    int asked;     /* the first of the inputs asked for that is a result of this node, or -1 */
} task;

/* A stream of a GPU that the forward of some nodes ran on, while this pass runs on another. */
typedef struct {
    ac_device device;
    CUstream stream;
} elsewhere;

typedef struct {
    task *tasks;
    int64_t n, room;
    int64_t *table; /* open addressing: node -> task, -1 free */
    int64_t table_size;
    ac_tensor **grads;
    int64_t n_grads;
    ac_edge *targets; /* of the inputs asked for */
    int *next_asked;  /* of each of them, the next one of the same node, or -1 */
    elsewhere *streams;
    int n_streams, streams_room;
    const ac_backward_args *args;
    ac_pass pass;
    ac_pass *outer; /* of the backward whose gradients this one goes on with, or NULL */
} engine;

static uint64_t hash(const ac_node *n) { return (uint64_t)(uintptr_t)n / 64 * 0x9E3779B97F4A7C15u; }

static int64_t *slot_of(engine *e, const ac_node *n) {
    uint64_t mask = (uint64_t)e->table_size - 1;
    for (uint64_t i = hash(n) >> 20 & mask;; i = (i + 1) & mask)
        if (e->table[i] < 0 || e->tasks[e->table[i]].node == n) return &e->table[i];
}

static int grow(engine *e) {
    int64_t room = e->room ? 2 * e->room : 64, size = 2 * room;
    task *tasks = ac_alloc((size_t)room * sizeof *tasks);
    int64_t *table = ac_alloc((size_t)size * sizeof *table);
    if (!tasks || !table) {
        ac_free(tasks, (size_t)room * sizeof *tasks);
        ac_free(table, (size_t)size * sizeof *table);
        return -1;
    }
    if (e->n) memcpy(tasks, e->tasks, (size_t)e->n * sizeof *tasks);
    ac_free(e->tasks, (size_t)e->room * sizeof *tasks);
    ac_free(e->table, (size_t)e->table_size * sizeof *table);
    e->tasks = tasks, e->room = room, e->table = table, e->table_size = size;
    memset(table, 0xFF, (size_t)size * sizeof *table);
    for (int64_t i = 0; i < e->n; i++) *slot_of(e, tasks[i].node) = i;
    return 0;
}

/* Counts an edge to `node`, adding it when it is new. */
static int visit(engine *e, ac_node *node) {
    int64_t *slot = e->room ? slot_of(e, node) : NULL;
    if (!slot || *slot < 0) {
        if (e->n == e->room) AC_TRY(grow(e));
        slot = slot_of(e, node);
        *slot = e->n;
        e->tasks[e->n++] = (task){.node = node, .grads = e->n_grads, .asked = -1};
        e->n_grads += node->n_out;
    }
    e->tasks[*slot].waiting++;
    return 0;
}

static int discover(engine *e, const ac_edge *roots) {
    for (int i = 0; i < e->args->n_roots; i++) AC_TRY(visit(e, roots[i].node));
    for (int64_t i = 0; i < e->n; i++) { /* the list is its own queue */
        ac_node *n = e->tasks[i].node;
        for (int k = 0; k < n->n_in; k++)
            if (n->edges[k].node) AC_TRY(visit(e, n->edges[k].node));
    }
    e->grads = ac_calloc((size_t)(e->n_grads + 1) * sizeof *e->grads);
    return e->grads ? 0 : -1;
}

static int newest_first(const void *a, const void *b) {
    uint64_t x = ((const task *)a)->node->seq, y = ((const task *)b)->node->seq;
    return x < y ? 1 : x > y ? -1 : 0;
}

static void sort_tasks(engine *e) {
    bool sorted = true;
    for (int64_t i = 1; i < e->n && sorted; i++) sorted = e->tasks[i - 1].node->seq > e->tasks[i].node->seq;
    if (sorted) return;
    qsort(e->tasks, (size_t)e->n, sizeof *e->tasks, newest_first);
    memset(e->table, 0xFF, (size_t)e->table_size * sizeof *e->table);
    for (int64_t i = 0; i < e->n; i++) *slot_of(e, e->tasks[i].node) = i;
}

/* Oldest first: a node is needed when it is asked for or leads to one that is. */
static void mark_needed(engine *e) {
    bool all = e->args->inputs == NULL;
    for (int i = e->args->n_inputs - 1; i >= 0; i--) {
        int64_t *slot = e->n && e->targets[i].node ? slot_of(e, e->targets[i].node) : NULL; /* no roots: no tasks */
        if (!slot || *slot < 0) continue;
        task *t = &e->tasks[*slot];
        e->next_asked[i] = t->asked;
        t->asked = i, t->needed = true;
    }
    for (int64_t i = e->n - 1; i >= 0; i--) {
        task *t = &e->tasks[i];
        t->leads_on = all;
        for (int k = 0; k < t->node->n_in && !t->leads_on; k++)
            if (t->node->edges[k].node) t->leads_on = e->tasks[*slot_of(e, t->node->edges[k].node)].needed;
        t->needed = t->needed || t->leads_on;
    }
}

/* -- streams: the pass runs on the caller's ------------------------------------------------------------ */

static int note_stream(engine *e, ac_device d, CUstream s) {
    for (int i = 0; i < e->n_streams; i++)
        if (e->streams[i].device == d && e->streams[i].stream == s) return 0;
    if (e->n_streams == e->streams_room) {
        int room = e->streams_room ? 2 * e->streams_room : 4;
        elsewhere *streams = ac_alloc((size_t)room * sizeof *streams);
        if (!streams) return -1;
        if (e->n_streams) memcpy(streams, e->streams, (size_t)e->n_streams * sizeof *streams);
        ac_free(e->streams, (size_t)e->streams_room * sizeof *streams);
        e->streams = streams, e->streams_room = room;
    }
    AC_TRY(ac_gpu_stream_follow(d, ac_gpu_stream(d), s));
    e->streams[e->n_streams++] = (elsewhere){d, s};
    return 0;
}

/* What forward left on other streams is there before it is read. */
static int join_streams(engine *e) {
    for (int64_t i = 0; i < e->n; i++) {
        const ac_node *n = e->tasks[i].node;
        ac_device d = n->n_out && !n->is_accumulator ? n->outputs[0].device : AC_CPU;
        if (ac_is_gpu(d) && n->stream != ac_gpu_stream(d)) AC_TRY(note_stream(e, d, (CUstream)(uintptr_t)n->stream));
    }
    return 0;
}

/* Memory of theirs that the pass has read and freed is not used again before it was read. */
static int part_streams(engine *e) {
    int failed = 0;
    for (int i = 0; i < e->n_streams; i++) {
        const elsewhere *at = &e->streams[i];
        if (ac_gpu_stream_follow(at->device, at->stream, ac_gpu_stream(at->device)) < 0) failed = -1;
    }
    return failed;
}

/* -- gradients on their way --------------------------------------------------------------------- */

/* Whether nobody but `holders` in here can see it, so that it may be written, or become a .grad itself. */
static bool is_ours(const ac_tensor *g, int64_t holders) {
    return g->refs == holders && !g->py && ac_storage_users(g->storage) == 1 && !g->base && ac_is_dense(g);
}

/* Adds `grad` (stolen) to a slot. */
static int add_grad(ac_tensor **slot, ac_tensor *grad, bool create_graph) {
    if (!*slot) {
        *slot = grad;
        return 0;
    }
    ac_attrs_alpha one = {{AC_INT, {1}}};
    ac_tensor *both[2] = {*slot, grad}, *sum = NULL;
    int failed;
    if (!create_graph && is_ours(*slot, 1)) failed = ac_call_into(AC_OP_add, both, 2, &one, *slot);
    else {
        failed = ac_call(AC_OP_add, both, 2, &one, &sum);
        if (!failed) {
            ac_tensor_release(*slot);
            *slot = sum;
        }
    }
    ac_tensor_release(grad);
    return failed;
}

static int sum_to(ac_tensor **grad, const ac_dims *shape, const char *of) {
    ac_tensor *g = *grad, *r = NULL;
    ac_attrs_reduce a = {.dim = {0}, .keepdim = 1, .dtype = AC_NO_DTYPE};
    int64_t lead = g->ndim - shape->n;
    for (int64_t d = 0; d < g->ndim; d++)
        if (d < lead || (shape->v[d - lead] == 1 && g->shape[d] != 1)) a.dim.v[a.dim.n++] = d;
    bool fits = lead >= 0;
    for (int64_t d = lead; fits && d < g->ndim; d++)
        fits = shape->v[d - lead] == g->shape[d] || shape->v[d - lead] == 1;
    if (!fits) {
        char got[AC_SHAPE_TEXT], want[AC_SHAPE_TEXT];
        return ac_fail(AC_RUNTIME, "the backward of %s gave a gradient of shape %s for an input of shape %s", of,
                       ac_shape_text(g, got), ac_dims_text(shape, want));
    }
    if (a.dim.n) {
        AC_TRY(ac_call(AC_OP_sum, &g, 1, &a, &r));
        ac_tensor_release(*grad);
        *grad = g = r;
    }
    if (lead == 0) return 0;
    ac_attrs_size size = {*shape};
    AC_TRY(ac_call(AC_OP_view, &g, 1, &size, &r));
    ac_tensor_release(*grad);
    *grad = r;
    return 0;
}

/* Brings a gradient to the dtype and shape of the input it is for; `of` made it. */
static int match_input(ac_tensor **grad, const ac_spec *want, const char *of) {
    ac_dims shape = ac_shape_of(*grad);
    if (!ac_dims_equal(&shape, &want->shape)) AC_TRY(sum_to(grad, &want->shape, of));
    if ((*grad)->dtype == want->dtype || !ac_is_floating(want->dtype)) return 0;
    ac_attrs_dtype a = {want->dtype};
    ac_tensor *cast = NULL;
    AC_TRY(ac_call(AC_OP_cast, grad, 1, &a, &cast));
    ac_tensor_release(*grad);
    *grad = cast;
    return 0;
}

/* -- running one node ---------------------------------------------------------------------------------- */

static int clone_of(ac_tensor *g, ac_tensor **copy) { return ac_call(AC_OP_clone, &g, 1, NULL, copy); }

static bool next_dim(const ac_tensor *t, int *d) { /* that is not of size 1 */
    while (*d < t->ndim && t->shape[*d] == 1) ++*d;
    return *d < t->ndim;
}

static bool same_but_for_ones(const ac_tensor *x, const ac_tensor *y) {
    int i = 0, j = 0;
    for (bool more = true; more; i++, j++) {
        more = next_dim(x, &i);
        if (next_dim(y, &j) != more || (more && x->shape[i] != y->shape[j])) return false;
    }
    return true;
}

/* A leaf may have come to another geometry in place since it took part. Takes g over. */
static ac_tensor *as_leaf(ac_tensor *g, const ac_tensor *leaf) {
    if (ac_same_shape(g, leaf)) return g;
    ac_attrs_size size = {ac_shape_of(leaf)};
    ac_tensor *shaped = NULL;
    char got[AC_SHAPE_TEXT], has[AC_SHAPE_TEXT];
    int failed = same_but_for_ones(g, leaf)
                     ? ac_call(AC_OP_reshape, &g, 1, &size, &shaped)
                     : ac_fail(AC_RUNTIME,
                               "backward: the gradient of a leaf has shape %s, the leaf itself has %s by now; give a "
                               "leaf another shape before it takes part in a computation, or after backward",
                               ac_shape_text(g, got), ac_shape_text(leaf, has));
    if (failed) ac_tensor_clear(&shaped);
    ac_tensor_release(g);
    return shaped;
}

/* A .grad lies in memory as its leaf does, and row by row where the leaf has gaps: it can be viewed as the leaf can. */
static bool lies_as_grad(const ac_tensor *g, const ac_tensor *leaf) {
    return ac_is_dense(leaf) ? ac_lie_alike(g, leaf) : ac_is_contiguous(g);
}

static int copy_as_grad(ac_tensor *g, const ac_tensor *leaf, bool create_graph, ac_tensor **copy) {
    if (lies_as_grad(g, leaf)) return clone_of(g, copy);
    if (create_graph || ac_is_contiguous(leaf) || !ac_is_dense(leaf)) return ac_call(AC_OP_in_rows, &g, 1, NULL, copy);
    ac_dims shape = ac_shape_of(g);
    *copy = ac_tensor_new_on(ac_device_of(g), g->dtype, &shape);
    if (!*copy) return -1;
    memcpy((*copy)->strides, leaf->strides, sizeof leaf->strides);
    return ac_call_into(AC_OP_clone, &g, 1, NULL, *copy);
}

/* The first gradient becomes .grad itself where that is possible. */
static int accumulate(ac_node *n, ac_tensor *g, const ac_pass *pass, bool create_graph) {
    ac_tensor *leaf = n->leaf;
    if (!ac_requires_grad(leaf)) return 0; /* no longer: since it took part */
    ac_meta *m = ac_meta_of(leaf);
    if (!m) return -1;
    if (m->hooks) {
        ac_tensor *hooked = ac_tensor_retain(g);
        int failed = ac_grad_hooks.run_hooks(m->hooks, &hooked, 1);
        if (!failed) failed = ac_grad_hooks.before_node(m->hooks, &hooked, 1);
        if (failed) {
            ac_tensor_clear(&hooked);
            return -1;
        }
        g = hooked;
    } else (void)ac_tensor_retain(g);
    g = as_leaf(g, m->grad ? m->grad : leaf);
    if (!g) return -1;
    ac_tensor *grad = m->grad ? ac_tensor_retain(m->grad) : NULL;
    int failed = 0;
    ac_provenance_before(&m->provenance, grad);
    if (grad && (create_graph || ac_overlaps_itself(grad))) failed = add_grad(&grad, ac_tensor_retain(g), true);
    else if (grad) {
        ac_attrs_alpha one = {{AC_INT, {1}}};
        ac_tensor *both[2] = {grad, g};
        failed = ac_call_into(AC_OP_add, both, 2, &one, grad);
    } else {
        if (is_ours(g, 2) && lies_as_grad(g, leaf)) grad = ac_tensor_retain(g);
        else failed = copy_as_grad(g, leaf, create_graph, &grad);
    }
    ac_tensor_release(g);
    if (failed) {
        ac_tensor_clear(&grad);
        return -1;
    }
    ac_tensor *old = m->grad;
    m->grad = grad;
    ac_provenance_after(&m->provenance, grad, pass);
    if (old) ac_tensor_release(old);
    return m->hooks ? ac_grad_hooks.after_accumulate(m->hooks, leaf) : 0;
}

/* Of a leaf in the gradients themselves: accumulate() runs them elsewhere. */
static int run_hooks(engine *e, const ac_node *n, ac_tensor **grads) {
    void *hooks = !n->is_accumulator ? n->hooks : e->args->captured && n->leaf->meta ? n->leaf->meta->hooks : NULL;
    return hooks ? ac_grad_hooks.run_hooks(hooks, grads, n->n_out) : 0;
}

/* Results whose gradient is kept. */
static int keep(const ac_node *n, ac_tensor *const *grads) {
    for (ac_meta *m = n->keepers; m; m = m->next_keeper) {
        ac_tensor *g = grads[m->index], *kept = NULL;
        if (!g) continue;
        if (m->grad) {
            ac_attrs_alpha one = {{AC_INT, {1}}};
            ac_tensor *both[2] = {m->grad, g};
            AC_TRY(ac_call(AC_OP_add, both, 2, &one, &kept));
        } else if (is_ours(g, 1)) kept = ac_tensor_retain(g);
        else AC_TRY(clone_of(g, &kept));
        ac_tensor *old = m->grad;
        m->grad = kept;
        if (old) ac_tensor_release(old);
    }
    return 0;
}

static int finish_gradients(engine *e, const ac_node *n, ac_tensor **grads) {
    AC_TRY(run_hooks(e, n, grads));
    return keep(n, grads);
}

static void capture(engine *e, const task *t, ac_tensor *const *grads) {
    for (int i = t->asked; i >= 0; i = e->next_asked[i]) {
        ac_tensor *grad = grads[e->targets[i].index];
        if (!grad) continue;
        e->args->captured[i] = ac_tensor_retain(grad);
        if (e->pass.by.scaler && !e->outer)
            ac_mark_scaled(grad, e->pass.by.scale ? (double)e->pass.by.scale : INFINITY);
    }
}

/* Passes what the formula gave on along the edges. */
static int propagate(engine *e, ac_node *n, ac_tensor **given) {
    int failed = 0;
    for (int k = 0; k < n->n_in; k++) {
        ac_tensor *g = given[k];
        given[k] = NULL;
        ac_node *to = n->edges[k].node;
        if (!to || !g || failed) {
            if (g) ac_tensor_release(g);
            continue;
        }
        failed = match_input(&g, &n->inputs[k], n->name);
        task *t = &e->tasks[*slot_of(e, to)];
        if (failed || !t->needed) ac_tensor_release(g);
        else failed = add_grad(&e->grads[t->grads + n->edges[k].index], g, e->args->create_graph);
    }
    return failed;
}

/* Inputs of n that lead to nothing that is asked for. */
static uint64_t unneeded_of(engine *e, const ac_node *n) {
    uint64_t mask = 0;
    for (int k = 0; k < n->n_in && k < 64 && e->args->inputs; k++) {
        const ac_node *to = n->edges[k].node;
        if (to && !e->tasks[*slot_of(e, to)].needed) mask |= (uint64_t)1 << k;
    }
    return mask;
}

/* Elementwise formulas may do without what was saved, and say so themselves where they do not. */
static bool needs_saved(const ac_node *n) {
    return n->backward != ac_formulas[n->op] || ac_ops[n->op].kind != AC_KIND_POINTWISE;
}

static int run_formula(engine *e, ac_node *n, ac_tensor **grads) {
    if (n->released && needs_saved(n))
        return ac_fail(AC_RUNTIME,
                       "backward through %s a second time: its saved tensors were freed by the first; pass "
                       "retain_graph=True to the first backward (or autograd.grad) if you need both",
                       n->name);
    ac_list given;
    AC_TRY(ac_list_start(&given, n->n_in));
    ac_running_formula outer = ac_running;
    ac_running = (ac_running_formula){n, &e->pass};
    const ac_pass *adding =
        e->args->inputs || n->hooks ? NULL : &e->pass; /* hooks are to see the gradients themselves */
    int failed = ac_formula_run(n, grads, given.at, e->args->create_graph, adding, unneeded_of(e, n));
    if (!failed && ac_grad_hooks.formula_ran) failed = ac_grad_hooks.formula_ran(n, given.at);
    if (!failed && ac_grad_hooks.anomaly) failed = ac_grad_hooks.anomaly(n->name, given.at, n->n_in);
    if (!failed && n->hooks) failed = ac_grad_hooks.after_node(n->hooks, given.at, n->n_in, grads, n->n_out);
    if (!failed) failed = propagate(e, n, given.at);
    ac_running = outer;
    ac_list_release(&given);
    return failed;
}

static int run_task(engine *e, task *t) {
    ac_node *n = t->node;
    ac_tensor **grads = e->grads + t->grads;
    bool any = n->py != NULL; /* a Function is called with zeros or None, too, as torch's are */
    for (int i = 0; i < n->n_out; i++) any = any || grads[i];
    int failed = 0;
    if (any && t->needed) {
        ac_pass_meets(&e->pass, n);
        bool captures = e->args->captured && t->asked >= 0;
        if (captures && t->leads_on) capture(e, t, grads); /* as torch has it: before hooks where backward goes on */
        failed = finish_gradients(e, n, grads);
        if (failed) { /* fall through to the clearing */
        } else if (captures && !t->leads_on) capture(e, t, grads);
        else if (n->is_accumulator) failed = accumulate(n, grads[0], &e->pass, e->args->create_graph);
        else {
            if (n->hooks) failed = ac_grad_hooks.before_node(n->hooks, grads, n->n_out);
            if (!failed && t->leads_on) failed = run_formula(e, n, grads);
        }
    }
    for (int i = 0; i < n->n_out; i++) ac_tensor_clear(&grads[i]);
    return failed;
}

/* Accumulators run as soon as their last gradient is there; others in their order. */
static int release_edges(engine *e, ac_node *n) {
    for (int k = 0; k < n->n_in; k++) {
        if (!n->edges[k].node) continue;
        task *t = &e->tasks[*slot_of(e, n->edges[k].node)];
        AC_ASSERT(t->waiting > 0);
        if (--t->waiting == 0 && t->node->is_accumulator) AC_TRY(run_task(e, t));
    }
    return 0;
}

static int run_all(engine *e) {
    for (int64_t i = 0; i < e->n; i++) {
        ac_node *n = e->tasks[i].node;
        if (n->is_accumulator) continue;
        if (ac_poll()) {
            (void)ac_interrupted();
            return ac_fail(AC_PYTHON, "interrupted");
        }
        AC_TRY(run_task(e, &e->tasks[i]));
        if (!e->args->retain_graph && e->tasks[i].needed) {
            ac_node_free_saved(n);
            if (n->py) AC_TRY(ac_grad_hooks.free_saved(n->py));
        }
        AC_TRY(release_edges(e, n));
    }
    return 0;
}

/* -- the call ----------------------------------------------------------------------------------------- */

static int seed_root(engine *e, const ac_edge *root, int i) {
    ac_tensor *t = e->args->roots[i], *g = e->args->grads ? e->args->grads[i] : NULL, *seed = NULL;
    if (g) seed = ac_tensor_retain(g);
    else {
        ac_attrs_full one = {
            .size = ac_shape_of(t), .value = {AC_INT, {1}}, .dtype = t->dtype, .device = ac_device_of(t)};
        AC_TRY(ac_call(AC_OP_full, NULL, 0, &one, &seed));
    }
    ac_spec want = ac_spec_of(t);
    AC_TRY(match_input(&seed, &want, "the result"));
    task *to = &e->tasks[*slot_of(e, root->node)];
    to->waiting--;
    return add_grad(&e->grads[to->grads + root->index], seed, e->args->create_graph);
}

static int run_engine(engine *e, const ac_edge *roots) {
    AC_TRY(discover(e, roots));
    sort_tasks(e);
    mark_needed(e);
    AC_TRY(join_streams(e));
    for (int i = 0; i < e->args->n_roots; i++) AC_TRY(seed_root(e, &roots[i], i));
    for (int i = 0; i < e->args->n_roots; i++) { /* a root may itself be a leaf */
        task *t = &e->tasks[*slot_of(e, roots[i].node)];
        if (t->node->is_accumulator && t->waiting == 0) AC_TRY(run_task(e, t));
    }
    return run_all(e);
}

static void free_engine(engine *e) {
    for (int64_t i = 0; e->grads && i < e->n_grads; i++) ac_tensor_clear(&e->grads[i]);
    ac_free(e->grads, (size_t)(e->n_grads + 1) * sizeof *e->grads);
    ac_free(e->tasks, (size_t)e->room * sizeof *e->tasks);
    ac_free(e->table, (size_t)e->table_size * sizeof *e->table);
    ac_free(e->streams, (size_t)e->streams_room * sizeof *e->streams);
}

static int edges_of(ac_tensor *const *tensors, int n, ac_edge *edges) {
    for (int i = 0; i < n; i++) AC_TRY(ac_edge_of(tensors[i], &edges[i]));
    return 0;
}

/* A Function's backward may go on with the gradients that it was given in a backward of its own, as checkpoint does. */
static ac_pass *outer_pass(const ac_backward_args *args) {
    bool given = false;
    for (int i = 0; i < args->n_roots && args->grads; i++) given = given || args->grads[i];
    return given && ac_running.node && ac_running.node->py ? ac_running.pass : NULL;
}

int ac_backward(const ac_backward_args *args) {
    int total = args->n_roots + args->n_inputs;
    size_t bytes = (size_t)(total + 1) * (sizeof(ac_edge) + sizeof(int));
    ac_edge *edges = ac_calloc(bytes);
    if (!edges) return -1;
    engine e = {.args = args, .targets = edges + args->n_roots, .next_asked = (int *)(edges + total + 1)};
    e.outer = outer_pass(args);
    if (e.outer) e.pass = *e.outer;
    int failed = edges_of(args->roots, args->n_roots, edges);
    if (!failed) failed = edges_of(args->inputs, args->n_inputs, e.targets);
    if (!failed) {
        ac_grad_mode mode = ac_mode;
        ac_autocast_state amp = ac_autocast_suspend();
        ac_mode.no_grad = !args->create_graph;
        failed = run_engine(&e, edges);
        if (part_streams(&e) < 0) failed = -1;
        ac_mode = mode;
        ac_autocast_resume(&amp);
    }
    if (e.outer) e.outer->float16 |= e.pass.float16;
    free_engine(&e);
    for (int i = 0; i < total; i++)
        if (edges[i].node) ac_node_release(edges[i].node);
    ac_free(edges, bytes);
    return failed;
}
