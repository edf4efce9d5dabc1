/* Autograd for Python: backward and grad, hooks, grad mode, and what Python Functions record. */
#include "python/state.h"

#include "autograd/formula.h"
#include "dispatch/waiting.h"
#include "dispatch/write.h"

#include <stddef.h>
#include <string.h>

static void drop(void *object) { Py_DECREF((PyObject *)object); }

/* -- hooks on saved tensors --------------------------------------------------------------------------- */

/* The pair (pack, unpack) of this thread, or NULL. A packed tensor is (what pack made of it, unpack). */
static _Thread_local PyObject *saved_hooks;

static PyObject *pack_object(PyObject *tensor) {
    PyObject *pair = Py_NewRef(saved_hooks);
    PyObject *made;
    uint32_t version = ac_version_seen(ac_unwrap(tensor));
    bool no_grad = ac_mode.no_grad;
    ac_mode.no_grad = true; /* as in torch, it may take the tensor's values */
    AC_OUTSIDE(made = PyObject_CallFunctionObjArgs(PyTuple_GET_ITEM(pair, 0), tensor, NULL));
    ac_mode.no_grad = no_grad;
    if (made && ac_version_seen(ac_unwrap(tensor)) != version) {
        PyErr_SetString(PyExc_RuntimeError, "saved_tensors_hooks: pack_hook modified its tensor in place, which the "
                                            "forward still uses; write `x = x.op()` there, or clone the tensor first");
        Py_CLEAR(made);
    }
    PyObject *packed = made ? PyTuple_Pack(2, made, PyTuple_GET_ITEM(pair, 1)) : NULL;
    Py_DECREF(pair);
    Py_XDECREF(made);
    return packed;
}

static PyObject *unpack_object(PyObject *packed) {
    PyObject *made;
    AC_OUTSIDE(made = PyObject_CallFunctionObjArgs(PyTuple_GET_ITEM(packed, 1), PyTuple_GET_ITEM(packed, 0), NULL));
    if (made && !ac_is_tensor(made)) {
        PyErr_Format(PyExc_TypeError, "saved_tensors_hooks: unpack_hook must return a Tensor, got %s",
                     Py_TYPE(made)->tp_name);
        Py_CLEAR(made);
    }
    return made;
}

static void *pack(ac_tensor *t) {
    PyObject *tensor = ac_wrap_borrowed(t), *packed = tensor ? pack_object(tensor) : NULL;
    Py_XDECREF(tensor);
    return packed;
}

static ac_tensor *unpack(void *packed) {
    PyObject *made = unpack_object(packed);
    ac_tensor *t = made ? ac_tensor_retain(ac_unwrap(made)) : NULL;
    Py_XDECREF(made);
    return t;
}

static int free_saved(void *context) {
    PyObject *nothing = PyTuple_New(0);
    int failed = !nothing || PyObject_SetAttrString(context, "_released", Py_True) < 0 ||
                 PyObject_SetAttrString(context, "_saved", nothing) < 0;
    Py_XDECREF(nothing);
    return failed ? ac_fail(AC_PYTHON, "what a Function saved could not be let go of") : 0;
}

/* _swap_saved_hooks([(pack, unpack) or None]): the pair in the list and that of this thread change places. Asks for no
 * memory. */
static PyObject *swap_saved_hooks(PyObject *module, PyObject *cell) {
    (void)module;
    PyObject *pair = PyList_Check(cell) && PyList_GET_SIZE(cell) == 1 ? PyList_GET_ITEM(cell, 0) : NULL;
    if (!pair || (pair != Py_None && !(PyTuple_Check(pair) && PyTuple_GET_SIZE(pair) == 2)))
        return PyErr_SetString(PyExc_TypeError, "expected a list of one pair of functions, or of None"), NULL;
    PyList_SET_ITEM(cell, 0, saved_hooks ? saved_hooks : Py_NewRef(Py_None));
    saved_hooks = pair;
    if (pair == Py_None) {
        saved_hooks = NULL;
        Py_DECREF(pair);
    }
    ac_mode.packs = saved_hooks != NULL;
    Py_RETURN_NONE;
}

/* _pack_saved(tensor): the packed object, None where no hooks are set; _unpack_saved(packed) */
static PyObject *pack_saved(PyObject *module, PyObject *tensor) {
    (void)module;
    return ac_mode.packs ? pack_object(tensor) : Py_NewRef(Py_None);
}
static PyObject *unpack_saved(PyObject *module, PyObject *packed) {
    (void)module;
    if (!PyTuple_Check(packed) || PyTuple_GET_SIZE(packed) != 2)
        return PyErr_SetString(PyExc_TypeError, "expected what _pack_saved gave"), NULL;
    return unpack_object(packed);
}

/* -- anomalies ---------------------------------------------------------------------------------------- */

/* Calls what looks for anomalies with the name of a node, the number of an input and its gradient. */
static int check_anomaly(const char *name, ac_tensor *const *given, int n) {
    PyObject *f = Py_NewRef(ac_py->anomaly);
    int failed = 0;
    for (int i = 0; i < n && !failed; i++) {
        if (!given[i] || !ac_is_floating(given[i]->dtype)) continue;
        PyObject *g = ac_wrap_borrowed(given[i]), *result = NULL;
        if (g) AC_OUTSIDE(result = PyObject_CallFunction(f, "siO", name, i, g));
        failed = !result;
        Py_XDECREF(g);
        Py_XDECREF(result);
    }
    Py_DECREF(f);
    return failed ? ac_fail(AC_PYTHON, "an anomaly was found in backward") : 0;
}

/* _swap_anomaly([function or None]): the function in the list and the one that looks change places. */
static PyObject *swap_anomaly(PyObject *module, PyObject *cell) {
    (void)module;
    if (!PyList_Check(cell) || PyList_GET_SIZE(cell) != 1)
        return PyErr_SetString(PyExc_TypeError, "expected a list of one function, or of None"), NULL;
    PyObject *f = PyList_GET_ITEM(cell, 0);
    PyList_SET_ITEM(cell, 0, ac_py->anomaly ? ac_py->anomaly : Py_NewRef(Py_None));
    ac_py->anomaly = f == Py_None ? NULL : f;
    if (f == Py_None) Py_DECREF(f);
    ac_grad_hooks.anomaly = ac_py->anomaly ? check_anomaly : NULL;
    Py_RETURN_NONE;
}

static PyObject *anomaly(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return Py_NewRef(ac_py->anomaly ? ac_py->anomaly : Py_None);
}

/* _hooks(tensor or node): the dict that its hooks live in, made when missing; and the index for it */
static PyObject *node_hooks(ac_node *n) {
    if (n->is_accumulator && !(n->leaf && ac_meta_of(n->leaf))) return ac_raise();
    void **hooks = n->is_accumulator ? &n->leaf->meta->hooks : &n->hooks;
    if (!*hooks) *hooks = PyDict_New();
    return *hooks ? Py_BuildValue("Oi", (PyObject *)*hooks, AC_HOOK_BEFORE_NODE) : NULL;
}

static PyObject *tensor_hooks(PyObject *module, PyObject *o) {
    if (PyObject_TypeCheck(o, ac_py->node)) return node_hooks(((PyNode *)o)->node);
    (void)module;
    if (!ac_is_tensor(o)) return PyErr_SetString(PyExc_TypeError, "expected a Tensor"), NULL;
    ac_tensor *t = ac_unwrap(o);
    ac_edge edge;
    if (!ac_requires_grad(t))
        return PyErr_SetString(PyExc_RuntimeError, "hooks need a tensor that requires gradients"), NULL;
    AC_PY_TRY(ac_edge_of(t, &edge)); /* also brings an outdated view's history up to date */
    ac_node_release(edge.node);
    void **hooks = t->meta->node ? &t->meta->node->hooks : &t->meta->hooks;
    if (!*hooks) *hooks = PyDict_New();
    return *hooks ? Py_BuildValue("Oi", (PyObject *)*hooks, t->meta->node ? t->meta->index : 0) : NULL;
}

/* _retain_grad(tensor) and _retains_grad(tensor) */
static PyObject *retain_grad(PyObject *module, PyObject *o) {
    (void)module;
    if (!ac_is_tensor(o)) return PyErr_SetString(PyExc_TypeError, "expected a Tensor"), NULL;
    if (!ac_requires_grad(ac_unwrap(o)))
        return PyErr_SetString(PyExc_RuntimeError, "retain_grad needs a tensor that requires gradients"), NULL;
    if (!ac_is_leaf(ac_unwrap(o))) AC_PY_TRY(ac_retain_grad(ac_unwrap(o)));
    Py_RETURN_NONE;
}
static PyObject *retains_grad(PyObject *module, PyObject *o) {
    (void)module;
    if (!ac_is_tensor(o)) return PyErr_SetString(PyExc_TypeError, "expected a Tensor"), NULL;
    const ac_meta *m = ac_unwrap(o)->meta;
    return PyBool_FromLong(m && m->retains_grad);
}

/* -- backward --------------------------------------------------------------------------------------- */

/* A sequence of Tensors (None where `holes`) as an array borrowed from it. */
static int tensors_from(PyObject *list, ac_tensor **out, bool holes, const char *what) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(list); i++) {
        PyObject *o = PyTuple_GET_ITEM(list, i);
        if (o == Py_None && holes) out[i] = NULL;
        else if (ac_is_tensor(o)) out[i] = ac_unwrap(o);
        else {
            PyErr_Format(PyExc_TypeError, "%s must hold Tensors, got %s", what, Py_TYPE(o)->tp_name);
            return -1;
        }
    }
    return 0;
}

static int check_root(const ac_tensor *t, const ac_tensor *g) {
    char want[AC_SHAPE_TEXT], got[AC_SHAPE_TEXT];
    if (!ac_requires_grad(t)) {
        PyErr_SetString(PyExc_RuntimeError,
                        "backward: this tensor does not require gradients and has no grad_fn; no parameter with "
                        "requires_grad=True took part in making it, or it was made under no_grad() or detached");
        return -1;
    }
    if (!g && t->numel != 1) {
        PyErr_Format(PyExc_RuntimeError,
                     "backward: a gradient is made up only for a tensor of one element, got shape %s; pass `gradient`, "
                     "or reduce it with .sum() or .mean()",
                     ac_shape_text(t, got));
        return -1;
    }
    if (g && !ac_same_shape(t, g)) {
        PyErr_Format(PyExc_RuntimeError, "backward: the gradient has shape %s and the tensor %s", ac_shape_text(g, got),
                     ac_shape_text(t, want));
        return -1;
    }
    return 0;
}

static PyObject *captured_tuple(PyObject *inputs, ac_tensor **captured, int allow_unused) {
    Py_ssize_t n = PyTuple_GET_SIZE(inputs);
    PyObject *tuple = PyTuple_New(n);
    for (Py_ssize_t i = 0; i < n; i++) {
        ac_tensor *g = captured[i];
        captured[i] = NULL;
        PyObject *one = !tuple ? NULL : g ? ac_wrap(g) : Py_NewRef(Py_None);
        if (!tuple && g) ac_tensor_release(g);
        if (tuple && !g && !allow_unused) {
            PyErr_Format(
                PyExc_RuntimeError,
                "grad: input %zd was not used in making the outputs; pass allow_unused=True to get None for it", i);
            Py_CLEAR(one);
        }
        if (one) PyTuple_SET_ITEM(tuple, i, one);
        else Py_CLEAR(tuple);
    }
    return tuple;
}

/* _backward(roots, grads, retain_graph, create_graph, inputs | None, allow_unused | None): accumulates, into `inputs`
 * alone where they are given; unless allow_unused is a bool, where the gradients of inputs are returned instead. */
static PyObject *backward(PyObject *module, PyObject *args) {
    PyObject *roots, *grads, *inputs, *unused, *result = NULL;
    int retain, create;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!ppOO", &PyTuple_Type, &roots, &PyTuple_Type, &grads, &retain, &create, &inputs,
                          &unused))
        return NULL;
    bool captures = unused != Py_None;
    Py_ssize_t n = PyTuple_GET_SIZE(roots), m = inputs == Py_None ? 0 : PyTuple_GET_SIZE(inputs);
    if (PyTuple_GET_SIZE(grads) != n)
        return PyErr_SetString(PyExc_RuntimeError, "backward: as many gradients as tensors are needed"), NULL;
    ac_tensor **all = PyMem_Calloc((size_t)(2 * n + 2 * m + 1), sizeof *all);
    if (!all) return PyErr_NoMemory();
    ac_tensor **gs = all + n, **in = gs + n, **captured = in + m;
    int failed = tensors_from(roots, all, false, "backward: tensors") ||
                 tensors_from(grads, gs, true, "backward: gradients") ||
                 (m && tensors_from(inputs, in, false, "inputs"));
    for (Py_ssize_t i = 0; i < n && !failed; i++) failed = check_root(all[i], gs[i]) < 0;
    for (Py_ssize_t i = 0; i < m && !failed; i++) {
        if (ac_requires_grad(in[i])) continue;
        PyErr_Format(PyExc_RuntimeError, "grad: input %zd does not require gradients", i);
        failed = true;
    }
    if (!failed) {
        ac_backward_args run = {.roots = all,
                                .grads = gs,
                                .n_roots = (int)n,
                                .n_inputs = (int)m,
                                .inputs = inputs == Py_None ? NULL : in,
                                .captured = captures ? captured : NULL,
                                .retain_graph = retain,
                                .create_graph = create};
        ac_compute_waiting();
        ac_inside_enter();
        failed = ac_backward(&run);
        ac_inside_leave();
        if (failed) (void)ac_raise();
        else result = captures ? captured_tuple(inputs, captured, unused == Py_True) : Py_NewRef(Py_None);
    }
    for (Py_ssize_t i = 0; i < m; i++) ac_tensor_clear(&captured[i]);
    PyMem_Free(all);
    return result;
}

/* -- grad mode -------------------------------------------------------------------------------------- */

static PyObject *grad_enabled(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return PyBool_FromLong(ac_grad_enabled());
}
static PyObject *set_grad_enabled(PyObject *module, PyObject *on) {
    (void)module;
    int truth = PyObject_IsTrue(on);
    if (truth < 0) return NULL;
    ac_mode.no_grad = !truth;
    Py_RETURN_NONE;
}
static PyObject *inference_enabled(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return PyBool_FromLong(ac_mode.inference);
}
/* -- Python Functions ------------------------------------------------------------------------------- */

/* Calls ctx._run_backward(*grads) -> tuple of Tensor or None, one an input. */
static int run_python(ac_formula *c, ac_scratch *s) {
    (void)s;
    ac_node *n = c->node;
    PyObject *grads = PyTuple_New(n->n_out), *method = NULL, *given = NULL;
    for (int i = 0; grads && i < n->n_out; i++) {
        PyObject *g = c->g[i] ? ac_wrap_borrowed(c->g[i]) : Py_NewRef(Py_None);
        if (!g) Py_CLEAR(grads);
        else PyTuple_SET_ITEM(grads, i, g);
    }
    if (grads) method = PyObject_GetAttrString(n->py, "_run_backward");
    if (method) AC_OUTSIDE(given = PyObject_CallObject(method, grads));
    Py_XDECREF(method);
    Py_XDECREF(grads);
    int failed = given ? 0 : -1;
    if (given && (!PyTuple_Check(given) || PyTuple_GET_SIZE(given) != n->n_in)) {
        PyErr_Format(PyExc_RuntimeError, "%s.backward returned %zd gradients for %d inputs", n->name,
                     PyTuple_Check(given) ? PyTuple_GET_SIZE(given) : (Py_ssize_t)1, n->n_in);
        failed = -1;
    }
    for (int i = 0; i < n->n_in && !failed; i++) {
        PyObject *g = PyTuple_GET_ITEM(given, i);
        if (g == Py_None || !n->edges[i].node) continue;
        if (ac_is_tensor(g)) ac_f_give(c, i, ac_unwrap(g));
        else {
            PyErr_Format(PyExc_TypeError, "%s.backward must return Tensors or None, got %s", n->name,
                         Py_TYPE(g)->tp_name);
            failed = -1;
        }
    }
    Py_XDECREF(given);
    if (failed) return ac_fail(AC_PYTHON, "a Python backward failed");
    return 0;
}

/* A result of a Python Function: one of `dirty`, which it wrote, one that it made, or a view that it made. */
static int record_result(ac_node *n, int index, PyObject *o, PyObject *dirty) {
    ac_tensor *t = ac_unwrap(o);
    bool written = false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(dirty); i++) written = written || PyTuple_GET_ITEM(dirty, i) == o;
    n->outputs[index] = ac_spec_of(t);
    if (written) return ac_set_history_written(t, n, index);
    AC_TRY(ac_set_history(t, n, index));
    if (t->base) t->view_kind = AC_VIEW_OF_FUNCTION;
    return 0;
}

/* _record_function(ctx, name, inputs, outputs, dirty): makes ctx's node the history of the outputs.
 * inputs and outputs are tuples; what is not a Tensor in them has no edge. */
static PyObject *record_function(PyObject *module, PyObject *args) {
    PyObject *ctx, *name, *inputs, *outputs, *dirty;
    (void)module;
    if (!PyArg_ParseTuple(args, "OUO!O!O!", &ctx, &name, &PyTuple_Type, &inputs, &PyTuple_Type, &outputs, &PyTuple_Type,
                          &dirty))
        return NULL;
    PyObject *interned = Py_NewRef(name);
    const char *text = PyUnicode_AsUTF8(interned);
    Py_ssize_t n_in = PyTuple_GET_SIZE(inputs), n_out = PyTuple_GET_SIZE(outputs);
    ac_node *n = text ? ac_node_new(text, (int)n_in, (int)n_out, 0) : NULL;
    if (!n) {
        Py_DECREF(interned);
        return ac_raise();
    }
    n->backward = run_python;
    n->py = Py_NewRef(ctx);
    int failed = PyObject_SetAttrString(ctx, "_name", interned); /* the node borrows its text */
    Py_DECREF(interned);
    for (Py_ssize_t i = 0; i < n_in && !failed; i++) {
        PyObject *o = PyTuple_GET_ITEM(inputs, i);
        if (!ac_is_tensor(o) || !ac_is_floating(ac_unwrap(o)->dtype)) continue;
        n->inputs[i] = ac_spec_of(ac_unwrap(o));
        failed = ac_edge_of(ac_unwrap(o), &n->edges[i]);
    }
    ac_node_number(n);
    for (Py_ssize_t i = 0; i < n_out && !failed; i++) {
        PyObject *o = PyTuple_GET_ITEM(outputs, i);
        if (!ac_is_tensor(o) || !ac_is_floating(ac_unwrap(o)->dtype)) continue;
        failed = record_result(n, (int)i, o, dirty);
    }
    ac_node_release(n);
    if (failed) return ac_raise();
    Py_RETURN_NONE;
}

/* _note_write(tensor, name, recorded): forward of the Function of that name has written the tensor */
static PyObject *note_write(PyObject *module, PyObject *args) {
    PyObject *o;
    const char *name;
    int recorded;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!sp", ac_py->tensor, &o, &name, &recorded)) return NULL;
    AC_PY_TRY(ac_check_recordable(name, ac_unwrap(o), recorded));
    ac_wrote(ac_unwrap(o));
    Py_RETURN_NONE;
}

/* _increment_version(tensor): its memory was written by other means. */
static PyObject *increment_version(PyObject *module, PyObject *o) {
    (void)module;
    if (!ac_is_tensor(o)) return PyErr_SetString(PyExc_TypeError, "expected a Tensor"), NULL;
    if (!ac_unwrap(o)->is_inference) ac_wrote(ac_unwrap(o));
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {{"_hooks", tensor_hooks, METH_O, NULL},
                                  {"_backward", backward, METH_VARARGS, NULL},
                                  {"_retain_grad", retain_grad, METH_O, NULL},
                                  {"_retains_grad", retains_grad, METH_O, NULL},
                                  {"_swap_saved_hooks", swap_saved_hooks, METH_O, NULL},
                                  {"_swap_anomaly", swap_anomaly, METH_O, NULL},
                                  {"_anomaly", anomaly, METH_NOARGS, NULL},
                                  {"_pack_saved", pack_saved, METH_O, NULL},
                                  {"_unpack_saved", unpack_saved, METH_O, NULL},
                                  {"_record_function", record_function, METH_VARARGS, NULL},
                                  {"_note_write", note_write, METH_VARARGS, NULL},
                                  {"_increment_version", increment_version, METH_O, NULL},
                                  {"is_grad_enabled", grad_enabled, METH_NOARGS,
                                   "is_grad_enabled()\n--\n\n"
                                   "Whether operations are recorded on this thread."},
                                  {"_set_grad_enabled", set_grad_enabled, METH_O, NULL},
                                  {"is_inference_mode_enabled", inference_enabled, METH_NOARGS,
                                   "is_inference_mode_enabled()\n--\n\n"
                                   "Whether this thread is in inference_mode."},
                                  {NULL, NULL, 0, NULL}};

int ac_autograd_init(PyObject *module) {
    ac_hooks.meta_free = ac_meta_free;
    ac_grad_hooks.drop = drop;
    ac_grad_hooks_init();
    ac_grad_hooks.pack = pack;
    ac_grad_hooks.unpack = unpack;
    ac_grad_hooks.free_saved = free_saved;
    return PyModule_AddFunctions(module, functions);
}
