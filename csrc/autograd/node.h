/* The graph that backward traverses: nodes, edges, saved tensors, and a tensor's autograd metadata.
 *
 * Every edge leads to a node made earlier (a smaller `seq`), so falling seq is a topological order. Saved tensors are
 * aliases without history, so no reference points to a later node and no cycle can arise. */
#ifndef AC_AUTOGRAD_NODE_H
#define AC_AUTOGRAD_NODE_H

#include "ops/op.h"
#include "autograd/provenance.h"

typedef struct ac_formula ac_formula;
typedef struct ac_scratch ac_scratch;
/* A backward formula: reads the gradients of the results, gives those of the inputs. */
typedef int (*ac_grad_fn)(ac_formula *c, ac_scratch *s);

/* Where a gradient goes. `node` is owned; NULL: nowhere. */
typedef struct {
    ac_node *node;
    int index; /* which of the node's results it is the gradient of */
} ac_edge;

/* A tensor that the forward kept, with the history it had then. */
typedef struct {
    ac_tensor *tensor; /* owned alias, or the leaf itself; NULL: not saved, or packed */
    void *packed;      /* owned: what a hook on saved tensors made of it */
    uint32_t version;  /* when it was saved; a difference later is an error */
    ac_edge edge;      /* its history, for gradients of gradients; of a result, empty: this node */
} ac_saved;

struct ac_node {
    int64_t refs;
    uint64_t seq;
    const char *name;
    ac_op op;
    ac_grad_fn backward;
    ac_tensor *leaf;  /* of an accumulator: borrowed while the node is in the leaf's notes, owned here */
    void *py;         /* owned: the context of a Python Function */
    void *hooks;      /* owned: Python's hooks on the results */
    ac_dtype compute; /* what autocast made it compute in; of no interest when `is_low` is not set */
    bool is_low;
    const void *stream; /* of a GPU: where the results were made */
    ac_scaling scaled;  /* the result is a loss that a GradScaler scaled */
    bool released;      /* a backward has passed and freed what was saved */
    bool is_accumulator;
    int n_in, n_out;
    size_t attrs_size, bytes;
    ac_edge *edges;   /* n_in */
    ac_spec *inputs;  /* n_in: what gradients must look like */
    ac_spec *outputs; /* n_out */
    ac_saved *saved;  /* n_in, then n_out */
    ac_meta *keepers; /* borrowed: the notes of results whose gradient is kept, a list by `next_keeper` */
    void *attrs;
    ac_node *next_dead; /* freeing is a list, not a recursion */
};

/* What a tensor notes: its history, or that it is a leaf; its gradient. */
struct ac_meta {
    ac_node *node; /* owned: what made it, NULL for a leaf; set by ac_meta_set_node */
    int index;
    bool requires_grad;       /* of a leaf */
    bool detached;            /* in place, by detach_() */
    bool retains_grad;        /* of what is no leaf: backward keeps the gradient in `grad` */
    ac_meta *next_keeper;     /* borrowed */
    ac_tensor *grad;          /* owned */
    ac_provenance provenance; /* what is known of it */
    ac_node *accumulator;     /* borrowed: the leaf's, while one lives */
    void *hooks;              /* owned: Python's hooks on a leaf */
};

/* How Python objects on nodes and notes are called and dropped; set once by csrc/python. */
typedef struct {
    void (*drop)(void *object);
    /* Runs the hooks of tensors on `grads` (n of them, replaced in place). */
    int (*run_hooks)(void *hooks, ac_tensor **grads, int n);
    /* The node's own, after those, before it runs. */
    int (*before_node)(void *hooks, ac_tensor **grads, int n);
    /* After a leaf's gradient was accumulated. */
    int (*after_accumulate)(void *hooks, ac_tensor *leaf);
    /* After a node's formula, on the gradients of its inputs, replaced in place, and of its results. */
    int (*after_node)(void *hooks, ac_tensor **given, int n_in, ac_tensor *const *grads, int n_out);
    /* What is kept instead of a tensor that backward wants, where ac_mode.packs; and the tensor (new) again. */
    void *(*pack)(ac_tensor *t);
    ac_tensor *(*unpack)(void *packed);
    /* Lets go of what the context of a Python Function has saved. */
    int (*free_saved)(void *context);
    /* At the n gradients that a node's backward gave, some of them NULL; itself NULL while nobody looks for anomalies.
     */
    int (*anomaly)(const char *name, ac_tensor *const *given, int n);
    /* At the gradients that a node's formula gave, one for each input, some of them NULL; NULL without Python. */
    int (*formula_ran)(const ac_node *n, ac_tensor *const *given);
} ac_autograd_hooks;
extern ac_autograd_hooks ac_grad_hooks;

/* Per thread. */
typedef struct {
    bool no_grad; /* grad mode is on by default */
    bool inference;
    bool packs; /* hooks on saved tensors are there */
} ac_grad_mode;
extern _Thread_local ac_grad_mode ac_mode;
/* The node whose formula runs on this thread, and what its backward has met; NULL outside. */
typedef struct {
    const ac_node *node;
    ac_pass *pass;
} ac_running_formula;
extern _Thread_local ac_running_formula ac_running;
static inline bool ac_grad_enabled(void) { return !ac_mode.no_grad; }

/* new: zeroed, with room for n_in inputs, n_out outputs and attributes */
ac_node *ac_node_new(const char *name, int n_in, int n_out, size_t attrs_size) AC_CHECKED;
/* Gives the node a new `seq`. Call when its edges are set: taking the edge of a view may have made
 * a node, which must be older than this one. */
void ac_node_number(ac_node *n);
ac_node *ac_node_retain(ac_node *n);
void ac_node_release(ac_node *n);
/* Frees what the node saved, but for constants (is_constant in tensor/tensor.h). */
void ac_node_free_saved(ac_node *n);

/* borrowed: t's notes, made when missing */
ac_meta *ac_meta_of(ac_tensor *t) AC_CHECKED;
void ac_meta_free(ac_meta *m);
/* Makes `node` (stolen; NULL: none) the history in the notes. */
void ac_meta_set_node(ac_meta *m, ac_node *node, int index);
/* A view whose base nobody else has becomes a tensor of its own. */
void ac_leave_lone_base(ac_tensor *t);
/* The same, for one whose history is to be dropped. */
void ac_detach_lone_base(ac_tensor *t);
/* From here on backward keeps the gradient of t: of its value at the end, if t is written in place. */
int ac_retain_grad(ac_tensor *t) AC_CHECKED;

bool ac_requires_grad(const ac_tensor *t);
bool ac_is_leaf(const ac_tensor *t);
/* The edge (its node retained) that a gradient of t goes along; node NULL when t wants none. */
int ac_edge_of(ac_tensor *t, ac_edge *edge) AC_CHECKED;
/* Makes `node` (retained) the history of t as its result `index`. */
int ac_set_history(ac_tensor *t, ac_node *node, int index) AC_CHECKED;
/* `view` is a view of x that was made just now. */
void ac_note_view(ac_tensor *view, ac_tensor *x);
/* Marks a leaf. */
int ac_set_requires_grad(ac_tensor *t, bool on) AC_CHECKED;

/* Keeps t in `slot` of node->saved (an input's, or n_in + a result's) with its present version; an
 * input's history is that of the node's edge. */
int ac_save(ac_node *node, int slot, ac_tensor *t) AC_CHECKED;
/* new: the saved tensor; with its history when `graph` */
ac_tensor *ac_unpack(ac_node *node, int slot, bool graph) AC_CHECKED;

/* The formula of every operator; NULL where it is not differentiable. */
extern const ac_grad_fn ac_formulas[AC_N_OPS];

/* Gradients of `roots` (weighted by `grads`, NULL entries meaning 1), accumulated into the .grad of the leaves; when
 * `inputs` are given, of those alone. With `captured` nothing is accumulated: the gradients of `inputs` are put there
 * (new; NULL where none arrived). */
typedef struct {
    ac_tensor *const *roots, *const *grads;
    int n_roots;
    ac_tensor *const *inputs;
    int n_inputs;
    ac_tensor **captured;
    bool retain_graph, create_graph;
} ac_backward_args;
int ac_backward(const ac_backward_args *args) AC_CHECKED;

#endif
