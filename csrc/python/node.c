/* The Node object: a tensor's grad_fn, which shows a node of the graph. */
#include "python/state.h"

#include <string.h>

/* As in torch: MulBackward0 for `mul`, PowBackward0 also for a square, NameBackward for a Function, AccumulateGrad. */
static PyObject *name_of_node(const ac_node *n) {
    char words[64];
    size_t length = 0;
    if (n->is_accumulator) return PyUnicode_FromString(n->name);
    if (n->py) return PyUnicode_FromFormat("%sBackward", n->name);
    bool first = true; /* of a word */
    for (const char *c = n->op == AC_OP_square ? "pow" : n->name; *c && length < sizeof words - 1; c++) {
        bool between = *c == '_' || *c == '.';
        if (!between) words[length++] = first ? (char)Py_TOUPPER(*c) : *c;
        first = between;
    }
    words[length] = '\0';
    return PyUnicode_FromFormat("%sBackward0", words);
}

/* new: a class of nodes. What draws a graph prints its name. */
static PyObject *new_class(PyObject *name) {
    return PyObject_CallFunction((PyObject *)&PyType_Type, "O(O){s:(),s:s}", name, (PyObject *)ac_py->node, "__slots__",
                                 "__module__", "ampc.autograd");
}

/* Borrowed: the class of the nodes of a Function, whose own attribute it is, as in torch: it lives as long. */
static PyTypeObject *class_of_function(const ac_node *n) {
    PyTypeObject *function = Py_TYPE((PyObject *)n->py);
    PyObject *found = PyDict_GetItemWithError(function->tp_dict, ac_py->backward_cls);
    if (found || PyErr_Occurred()) return (PyTypeObject *)found;
    PyObject *name = name_of_node(n), *made = name ? new_class(name) : NULL;
    int failed = !made || PyType_Type.tp_setattro((PyObject *)function, ac_py->backward_cls, made) < 0;
    Py_XDECREF(name);
    Py_XDECREF(made); /* the Function holds it */
    return failed ? NULL : (PyTypeObject *)made;
}

/* Borrowed: the class of nodes of a name, made when it is new. */
static PyTypeObject *class_of_nodes(const ac_node *n) {
    if (n->py) return class_of_function(n);
    PyObject *name = name_of_node(n), *found = name ? PyDict_GetItemWithError(ac_py->node_classes, name) : NULL;
    if (name && !found && !PyErr_Occurred() && (found = new_class(name))) {
        int failed = PyDict_SetItem(ac_py->node_classes, name, found) < 0;
        Py_DECREF(found); /* the dictionary holds it */
        if (failed) found = NULL;
    }
    Py_XDECREF(name);
    return (PyTypeObject *)found;
}

static PyObject *wrap_node(ac_node *node, int index) { /* steals */
    PyTypeObject *type = class_of_nodes(node);
    PyNode *self = type ? (PyNode *)type->tp_alloc(type, 0) : NULL;
    if (!self) ac_node_release(node);
    else self->node = node, self->index = index;
    return (PyObject *)self;
}

static PyObject *grad_fn(PyObject *module, PyObject *o) {
    (void)module;
    if (!ac_is_tensor(o)) return PyErr_SetString(PyExc_TypeError, "expected a Tensor"), NULL;
    ac_tensor *t = ac_unwrap(o);
    ac_edge edge;
    if (ac_is_leaf(t)) Py_RETURN_NONE;
    AC_PY_TRY(ac_edge_of(t, &edge));
    return wrap_node(edge.node, edge.index);
}

/* As a tensor does, it shows what its node holds where it alone keeps that alive. A cycle through them is broken at the
 * dict of hooks or the context, which are collected themselves. */
static int node_traverse(PyObject *o, visitproc visit, void *arg) {
    const ac_node *n = ((PyNode *)o)->node;
    Py_VISIT(Py_TYPE(o));
    if (!n || n->refs > 1) return 0;
    Py_VISIT((PyObject *)n->py);
    Py_VISIT((PyObject *)n->hooks);
    return 0;
}

static void node_dealloc(PyObject *o) {
    PyTypeObject *type = Py_TYPE(o);
    PyObject_GC_UnTrack(o);
    if (((PyNode *)o)->node) ac_node_release(((PyNode *)o)->node);
    type->tp_free(o);
    Py_DECREF(type);
}
static PyObject *node_name(PyObject *o, PyObject *unused) {
    (void)unused;
    return name_of_node(((PyNode *)o)->node);
}

/* A node has as many wrappers as were asked for: they are equal, so that a walk along the graph knows where it was. */
static Py_hash_t node_hash(PyObject *o) { return (Py_hash_t)((uintptr_t)((PyNode *)o)->node >> 4); }
static PyObject *node_compare(PyObject *a, PyObject *b, int how) {
    if ((how != Py_EQ && how != Py_NE) || Py_TYPE(a) != Py_TYPE(b)) Py_RETURN_NOTIMPLEMENTED;
    return PyBool_FromLong((((PyNode *)a)->node == ((PyNode *)b)->node) == (how == Py_EQ));
}

static PyObject *node_next(PyObject *o, void *unused) {
    const ac_node *n = ((PyNode *)o)->node;
    (void)unused;
    PyObject *all = PyTuple_New(n->n_in);
    for (int i = 0; all && i < n->n_in; i++) {
        const ac_edge *e = &n->edges[i];
        PyObject *next = e->node ? wrap_node(ac_node_retain(e->node), e->index) : Py_NewRef(Py_None);
        PyObject *pair = next ? Py_BuildValue("Ni", next, e->index) : NULL;
        if (!pair) Py_CLEAR(all);
        else PyTuple_SET_ITEM(all, i, pair);
    }
    return all;
}
static PyObject *node_variable(PyObject *o, void *unused) {
    (void)unused;
    const ac_node *n = ((PyNode *)o)->node;
    if (!n->leaf) return PyErr_SetString(PyExc_AttributeError, "only AccumulateGrad has a variable"), NULL;
    return ac_wrap_borrowed(n->leaf);
}
static PyObject *node_context(PyObject *o, void *unused) {
    (void)unused;
    const ac_node *n = ((PyNode *)o)->node;
    return Py_NewRef(n->py ? (PyObject *)n->py : Py_None);
}

/* Where a node keeps an operand or the result of that name, as torch calls them; -1: nowhere. */
static int slot_of(const ac_node *n, const char *name) {
    const ac_op_info *info = &ac_ops[n->op];
    if (n->name != info->shown) return -1; /* it is of no operator of the table */
    if (!strcmp(name, "result")) return n->n_in;
    if (!strcmp(name, "self")) return n->n_in > 0 ? 0 : -1;
    for (int i = 0, slot = 0; i < info->n_params && info->params[i].kind != AC_P_TENSOR_LIST; i++) {
        if (info->params[i].kind != AC_P_TENSOR) continue;
        if (!strcmp(name, info->params[i].name)) return slot < n->n_in ? slot : -1;
        slot++;
    }
    return -1;
}

static PyObject *node_saved(PyObject *o, PyObject *word) {
    ac_node *n = ((PyNode *)o)->node;
    const char *name = PyUnicode_AsUTF8(word);
    if (!name) return NULL;
    int slot = slot_of(n, name);
    bool saved = slot >= 0 && (n->saved[slot].tensor || n->saved[slot].packed || n->released);
    if (saved) return ac_wrap(ac_unpack(n, slot, true));
    return PyErr_Format(PyExc_AttributeError, "%s kept no tensor named '%s'", Py_TYPE(o)->tp_name, name);
}

static PyObject *node_compute(PyObject *o, void *unused) {
    (void)unused;
    const ac_node *n = ((PyNode *)o)->node;
    if (!n->is_low) Py_RETURN_NONE;
    return Py_NewRef(ac_py->dtypes[n->compute]);
}

/* What is set on a Function's node is set on its ctx, which torch has as one object with it. */
static int node_set(PyObject *o, PyObject *name, PyObject *value) {
    const ac_node *n = ((PyNode *)o)->node;
    bool is_ctx = n->py && !PyObject_HasAttr((PyObject *)Py_TYPE(o), name);
    return is_ctx ? PyObject_SetAttr(n->py, name, value) : PyObject_GenericSetAttr(o, name, value);
}

static PyGetSetDef node_getset[] = {
    {"next_functions", node_next, NULL, "((node, index), ...) of the inputs.", NULL},
    {"variable", node_variable, NULL, "The leaf an AccumulateGrad adds to.", NULL},
    {"_context", node_context, NULL, "What a Function's forward leaves, or None.", NULL},
    {"compute_dtype", node_compute, NULL, "The dtype autocast chose, or None.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};
static PyMethodDef node_methods[] = {{"name", node_name, METH_NOARGS, "The operator's name."},
                                     {"_saved", node_saved, METH_O, "The tensor that is kept under a name."},
                                     {NULL, NULL, 0, NULL}};
static PyType_Slot node_slots[] = {{Py_tp_dealloc, node_dealloc},     {Py_tp_traverse, node_traverse},
                                   {Py_tp_hash, node_hash},           {Py_tp_setattro, node_set},
                                   {Py_tp_richcompare, node_compare}, {Py_tp_getset, node_getset},
                                   {Py_tp_methods, node_methods},     {0, NULL}};
static PyType_Spec node_spec = {
    "ampc.autograd.Node", sizeof(PyNode), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_GC, node_slots};

/* _with_history(tensor, like): an alias of tensor with like's history; for a Function's saved
 * results */
static PyObject *with_history(PyObject *module, PyObject *args) {
    PyObject *o, *like;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!", ac_py->tensor, &o, ac_py->node, &like)) return NULL;
    ac_tensor *t = ac_tensor_alias(ac_unwrap(o));
    const PyNode *history = (PyNode *)like;
    if (t && ac_set_history(t, history->node, history->index) < 0) ac_tensor_clear(&t);
    return ac_wrap(t);
}

/* _result_of(node, index): a tensor without memory of its own that stands for a result of the node, where gradients are
 * asked for or start. */
static PyObject *result_of(PyObject *module, PyObject *args) {
    PyObject *o;
    int index;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!i", ac_py->node, &o, &index)) return NULL;
    ac_node *n = ((PyNode *)o)->node;
    if (index < 0 || index >= n->n_out)
        return PyErr_Format(PyExc_RuntimeError, "%S has %d results, so none of the number %d", Py_TYPE(o), n->n_out,
                            index);
    const ac_spec *spec = &n->outputs[index];
    ac_dims one = {.n = 0}, strides = {.n = spec->shape.n};
    ac_tensor *value = ac_tensor_new_on(spec->device, spec->dtype, &one);
    ac_tensor *t = value ? ac_tensor_view(value, &spec->shape, &strides, 0) : NULL;
    if (value) ac_tensor_release(value);
    if (t && ac_set_history(t, n, index) < 0) ac_tensor_clear(&t);
    return ac_wrap(t);
}

static PyMethodDef functions[] = {{"_grad_fn", grad_fn, METH_O, NULL},
                                  {"_with_history", with_history, METH_VARARGS, NULL},
                                  {"_result_of", result_of, METH_VARARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

int ac_node_type_init(PyObject *module) {
    ac_py->node = (PyTypeObject *)PyType_FromModuleAndSpec(module, &node_spec, NULL);
    ac_py->node_classes = PyDict_New();
    ac_py->backward_cls = PyUnicode_InternFromString("_backward_cls");
    if (!ac_py->node || !ac_py->node_classes || !ac_py->backward_cls) return -1;
    if (PyModule_AddObjectRef(module, "Node", (PyObject *)ac_py->node) < 0) return -1;
    return PyModule_AddFunctions(module, functions);
}
