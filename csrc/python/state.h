/* What the files of the binding share: the module's state and their entry points. Only csrc/python
 * includes Python.h. */
#ifndef AC_PYTHON_STATE_H
#define AC_PYTHON_STATE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "python/compat.h"

#include "autograd/node.h"
#include "base/inside.h"
#include "ops/op.h"
#include "tensor/list.h"
#include "shared/optim_options.h"

/* The Python object of a tensor. It owns one C reference. */
typedef struct {
    PyObject_HEAD ac_tensor *t;
    PyObject *dict, *weakrefs;
} PyTensor;

typedef struct {
    PyObject_HEAD ac_dtype dtype;
} PyDtype;

/* A grad_fn. */
typedef struct {
    PyObject_HEAD ac_node *node;
    int index;
} PyNode;

enum { AC_REGION_WORDS = 4 };

/* The module's state. */
typedef struct {
    PyTypeObject *tensor, *dtype, *function, *method, *node, *scaler, *storage;
    PyObject *dtypes[AC_N_DTYPES];
    PyObject *names[AC_N_OPS][AC_MAX_PARAMS]; /* interned */
    PyTypeObject *results[AC_N_OPS];          /* struct sequences of operators with several results */
    PyObject *torch_function;                 /* interned */
    PyObject *never_overrides;                /* the __torch_function__ of classes that are treated as Tensor */
    PyObject *out, *axis, *dim, *keepdims, *keepdim, *params, *grad; /* interned words */
    PyObject *records, *inference, *prev;                            /* attributes of scopes */
    PyObject *chosen, *by_module, *table, *modules, *saw, *observable, *init;
    PyObject *region_words[AC_REGION_WORDS]; /* interned: arguments of autocast */
    PyObject *region_init;                   /* autocast.__init__ */
    PyObject *policy_state, *region_begins, *region_ends,
        *unsafe_here;                                     /* Python's part of autocast's regions, see amp.c */
    PyObject *size_type;                                  /* ampc.Size, given by Python */
    PyObject *out_of_memory;                              /* ampc.OutOfMemoryError */
    PyObject *capture_error;                              /* ampc.errors.CaptureError */
    PyObject *linalg_error;                               /* ampc.linalg.LinAlgError */
    PyObject *no_tensor, *no_number, *wrong_out, *no_gpu; /* ampc.errors.NoTensor, NoNumber, WrongOut and NoGPU */
    PyObject *functions;                                  /* name -> function, also for pickling */
    PyObject *node_classes;                               /* name -> class of a grad_fn */
    PyObject *backward_cls;                               /* interned: a Function's attribute, the class of its nodes */
    PyObject *anomaly; /* what looks at the gradients of each backward, or NULL; of the whole process, as in torch */
    PyObject *told;    /* what who waits for a GPU next is raised, or NULL */
} ac_py_state;

/* The one module's state: the core's hooks are called without it. Borrowed. */
extern ac_py_state *ac_py;

/* -- errors.c -- */
int ac_errors_init(PyObject *module);
/* A UserWarning for the script's line. Takes message over; NULL passes an error on. */
int ac_py_warn(PyObject *message);
PyObject *ac_raise(void); /* turns the core's last error into an exception; returns NULL */
#define AC_PY_TRY(call)                                                                                                \
    do {                                                                                                               \
        if ((call) < 0) return ac_raise();                                                                             \
    } while (0)

/* A statement that calls a script's function from within the core (base/inside.h). */
#define AC_OUTSIDE(statement)                                                                                          \
    do {                                                                                                               \
        int depth_ = ac_inside_interrupt();                                                                            \
        statement;                                                                                                     \
        ac_inside_resume(depth_);                                                                                      \
    } while (0)

/* -- tensor.c -- */
static inline bool ac_is_tensor(PyObject *o) {
    return Py_TYPE(o) == ac_py->tensor || PyType_IsSubtype(Py_TYPE(o), ac_py->tensor);
}
static inline ac_tensor *ac_unwrap(PyObject *o) { return ((PyTensor *)o)->t; } /* borrowed */
PyObject *ac_wrap(ac_tensor *t);     /* new object; steals t (also on failure); NULL passes */
PyObject *ac_wrap_new(ac_tensor *t); /* the same, of a tensor made of data: marked where inference_mode is on */
PyObject *ac_wrap_as(PyTypeObject *type, ac_tensor *t); /* the same, of a subclass; t must be fresh */
PyObject *ac_wrap_borrowed(ac_tensor *t);               /* new object reference; t stays the caller's */
int ac_tensor_type_init(PyObject *module);

/* -- args.c -- */
typedef struct {
    ac_list in;
    int held_from, held_to; /* those of `in` whose Python objects the call holds: a list's; others are borrowed */
    ac_tensor *owned[AC_MAX_PARAMS]; /* tensors made from numbers */
    int n_owned;
    ac_tensor *targets[AC_MAX_OUT]; /* out=, borrowed */
    int n_targets;
    bool in_place; /* the argument `inplace` */
    union {
        char bytes[AC_MAX_ATTRS];
        int64_t align;
    } attrs;
} ac_call_args;

/* Reads a Python call by an operator's signature. On failure a TypeError (or a conversion's error) is
 * set; p must be released in any case. */
int ac_parse(ac_op op, PyObject *const *args, Py_ssize_t n, PyObject *kwnames, ac_call_args *p);
void ac_parse_release(ac_call_args *p);
/* new: a Python number as a 0-d tensor; NULL with an error */
ac_tensor *ac_number_tensor(PyObject *o, const ac_tensor *beside);
bool ac_is_number(PyObject *o);
int ac_scalar_from(PyObject *o, ac_scalar *s);
/* The same; beside a tensor of floating point, an int from 2**63 up that fits 64 bits is a float, as in torch. `beside`
 * may be NULL. */
int ac_scalar_beside(PyObject *o, const ac_tensor *beside, ac_scalar *s);
int ac_dims_from(PyObject *o, ac_dims *d, const char *name);
int ac_no_dtype(const char *call, PyObject *o);        /* TypeError: it is none that tensors have; -1 */
int ac_dtype_from(PyObject *o, ac_dtype *dtype);       /* a dtype object, or a Python or NumPy type */
PyObject *ac_dims_object(const int64_t *v, int64_t n); /* ampc.Size */

/* -- the other files' parts of the module -- */
int ac_functions_init(PyObject *module);
int ac_dtype_type_init(PyObject *module);
int ac_autograd_init(PyObject *module);
int ac_node_type_init(PyObject *module);
int ac_amp_init(PyObject *module);
int ac_autocast_init(PyObject *module);
int ac_provenance_init(PyObject *module);
int ac_watch_init(PyObject *module);
int ac_optim_init(PyObject *module);
int ac_gradients_init(PyObject *module);
int ac_take_options(PyObject *given, ac_optim_options *o); /* an update rule's, of a dict */
int ac_create_init(PyObject *module);
int ac_numpy_init(PyObject *module);
int ac_cuda_init(PyObject *module);
int ac_dlpack_init(PyObject *module);
int ac_machine_init(PyObject *module);
int ac_scope_init(PyObject *module);
int ac_storage_init(PyObject *module);
int ac_foreach_init(PyObject *module);
int ac_override_init(PyObject *module);
int ac_ranks_init(PyObject *module);
int ac_nccl_init(PyObject *module);
int ac_unpack_init(PyObject *module);

/* -- grad_hooks.c -- */
/* Hooks are the values of a Python dict, (index, callable), in the node's or the leaf's notes: of a tensor, by the
 * index of the result that it is, or of the kinds below. */
enum {
    AC_HOOK_AFTER_ACCUMULATE = -1, /* with the leaf, when its gradient was accumulated */
    AC_HOOK_BEFORE_NODE = -2,      /* with the gradients of all results */
    AC_HOOK_AFTER_NODE = -3,       /* with those of the inputs and of the results */
    AC_HOOK_NOTES = -4             /* no hook: the dict that a node shows as its metadata */
};
void ac_grad_hooks_init(void);

/* -- op_observer.c -- */
PyObject *ac_watch_swap(PyObject *callback); /* steals it and returns what was there; NULL: nobody */

PyObject *ac_result_object(ac_op op, ac_tensor **out); /* steals out */
PyObject *ac_tensor_subscript(PyObject *self, PyObject *index);
int ac_tensor_assign(PyObject *self, PyObject *index, PyObject *value);
PyObject *ac_item(ac_tensor *t, int64_t offset); /* one element as a Python number */

#endif
