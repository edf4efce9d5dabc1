/* The Tensor type: identity, life and garbage collection.
 *
 * A tensor's object holds one C reference; all other C references together hold one Python
 * reference (see tensor/tensor.h), taken and given back by the two hooks below. */
#include "python/tensor.h"

#include <stddef.h>
#include <structmember.h>

static void py_incref(void *object) { Py_INCREF((PyObject *)object); }
static void py_decref(void *object) { Py_DECREF((PyObject *)object); }
static bool py_alone(void *object) { return Py_REFCNT((PyObject *)object) == 1; }

/* -- wrapping --------------------------------------------------------------------------------------- */

PyObject *ac_wrap_as(PyTypeObject *type, ac_tensor *t) {
    if (!t) return ac_raise();
    PyTensor *self = (PyTensor *)type->tp_alloc(type, 0);
    if (!self) {
        ac_tensor_release(t);
        return NULL;
    }
    self->t = t;
    t->py = self;
    if (t->refs > 1) py_incref(self); /* held by the other references together */
    return (PyObject *)self;
}

PyObject *ac_wrap(ac_tensor *t) {
    if (!t || !t->py) return ac_wrap_as(ac_py->tensor, t);
    PyObject *self = Py_NewRef((PyObject *)t->py);
    ac_tensor_release(t);
    return self;
}

PyObject *ac_wrap_new(ac_tensor *t) {
    if (t) t->is_inference = ac_mode.inference;
    return ac_wrap(t);
}

PyObject *ac_wrap_borrowed(ac_tensor *t) { return ac_wrap(ac_tensor_retain(t)); }

/* -- life ------------------------------------------------------------------------------------------- */

/* The tensor another one holds, when its object would die with that hold. */
static PyObject *held_alone(ac_tensor *t) { return t && t->py && t->refs == 2 ? t->py : NULL; }

/* Objects reached through C are shown to the collector only where this tensor alone keeps them
 * alive; else somebody outside the cycle may. */
static int traverse(PyObject *o, visitproc visit, void *arg) {
    PyTensor *self = (PyTensor *)o;
    Py_VISIT(Py_TYPE(o));
    Py_VISIT(self->dict);
    ac_meta *m = self->t && self->t->refs == 1 ? self->t->meta : NULL;
    if (!m) return 0;
    Py_VISIT((PyObject *)m->hooks);
    Py_VISIT(held_alone(m->grad));
    if (m->node && m->node->refs == 1) {
        Py_VISIT((PyObject *)m->node->py);
        Py_VISIT((PyObject *)m->node->hooks);
    }
    return 0;
}

static int clear(PyObject *o) {
    PyTensor *self = (PyTensor *)o;
    Py_CLEAR(self->dict);
    ac_meta *m = self->t && self->t->refs == 1 ? self->t->meta : NULL;
    if (!m) return 0;
    PyObject *hooks = m->hooks;
    m->hooks = NULL;
    Py_XDECREF(hooks);
    ac_tensor_clear(&m->grad);
    ac_meta_set_node(m, NULL, 0);
    return 0;
}

static void dealloc(PyObject *o) {
    PyTensor *self = (PyTensor *)o;
    PyTypeObject *type = Py_TYPE(o);
    PyObject_GC_UnTrack(o);
    if (self->weakrefs) PyObject_ClearWeakRefs(o);
    Py_CLEAR(self->dict);
    ac_tensor *t = self->t;
    self->t = NULL;
    if (t) {
        t->py = NULL;
        ac_tensor_release(t);
    }
    type->tp_free(o);
    Py_DECREF(type);
}

/* Tensor(): an empty one; Tensor(data) and Tensor(*sizes) are made by Python's side. */
static PyObject *no_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    PyObject *make = PyDict_GetItemString(type->tp_dict ? ac_py->tensor->tp_dict : NULL, "_legacy_new");
    if (make) {
        PyObject *full = PyTuple_New(PyTuple_GET_SIZE(args) + 1), *result = NULL;
        if (!full) return NULL;
        PyTuple_SET_ITEM(full, 0, Py_NewRef((PyObject *)type));
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); i++)
            PyTuple_SET_ITEM(full, i + 1, Py_NewRef(PyTuple_GET_ITEM(args, i)));
        result = PyObject_Call(make, full, kwargs);
        Py_DECREF(full);
        return result;
    }
    PyErr_SetString(PyExc_TypeError, "make tensors with ampc.tensor(data)");
    return NULL;
}

/* _make_subclass(cls, tensor, requires_grad): a new tensor on the same memory, of a subclass */
static PyObject *make_subclass(PyObject *module, PyObject *args) {
    PyObject *type, *data;
    int grad;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO!p", &type, ac_py->tensor, &data, &grad)) return NULL;
    if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, ac_py->tensor)) {
        PyErr_SetString(PyExc_TypeError, "_make_subclass: expected a subclass of Tensor");
        return NULL;
    }
    ac_tensor *t = ac_tensor_alias(ac_unwrap(data));
    if (!t) return ac_raise();
    if (grad && ac_set_requires_grad(t, true) < 0) {
        ac_tensor_release(t);
        return ac_raise();
    }
    return ac_wrap_as((PyTypeObject *)type, t);
}

/* _make_blank(tensor): the values of its memory, which is new, do not exist yet; using them is an error */
static PyObject *make_blank(PyObject *module, PyObject *o) {
    (void)module;
    if (!ac_is_tensor(o)) return PyErr_Format(PyExc_TypeError, "_make_blank: expected a Tensor");
    ac_storage *s = ac_unwrap(o)->storage;
    if (!s->deferred) s->factor = 1, s->factor_at = NULL, s->deferred_dtype = ac_unwrap(o)->dtype, ac_deferred_scales++;
    s->deferred = s->blank = true;
    Py_RETURN_NONE;
}

/* _make_part(tensor): operators refuse it from now on; it is a part of one that processes share */
static PyObject *make_part(PyObject *module, PyObject *o) {
    (void)module;
    if (!ac_is_tensor(o)) return PyErr_Format(PyExc_TypeError, "_make_part: expected a Tensor");
    if (!ac_unwrap(o)->is_part) ac_deferred_scales++;
    ac_unwrap(o)->is_part = true;
    Py_RETURN_NONE;
}

/* -- the type --------------------------------------------------------------------------------------- */

static PyMemberDef members[] = {{"__dictoffset__", T_PYSSIZET, offsetof(PyTensor, dict), READONLY, NULL},
                                {"__weaklistoffset__", T_PYSSIZET, offsetof(PyTensor, weakrefs), READONLY, NULL},
                                {NULL, 0, 0, 0, NULL}};
static PyGetSetDef dict_getset = {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL};

static PyType_Slot base_slots[] = {{Py_tp_dealloc, dealloc},
                                   {Py_bf_getbuffer, ac_tensor_getbuffer},
                                   {Py_bf_releasebuffer, ac_tensor_releasebuffer},
                                   {Py_tp_traverse, traverse},
                                   {Py_tp_clear, clear},
                                   {Py_tp_new, no_new},
                                   {Py_tp_members, members},
                                   {Py_tp_getset, ac_tensor_getset},
                                   {Py_tp_methods, ac_tensor_methods},
                                   {0, NULL}};

/* _same_storage(a, b) -> whether both lie in one allocation */
static PyObject *same_storage(PyObject *module, PyObject *args) {
    PyObject *a, *b;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO:_same_storage", &a, &b)) return NULL;
    if (!ac_is_tensor(a) || !ac_is_tensor(b)) return PyErr_SetString(PyExc_TypeError, "expected two Tensors"), NULL;
    return PyBool_FromLong(ac_unwrap(a)->storage == ac_unwrap(b)->storage);
}

static PyMethodDef functions[] = {{"_make_subclass", make_subclass, METH_VARARGS, NULL},
                                  {"_make_blank", make_blank, METH_O, NULL},
                                  {"_make_part", make_part, METH_O, NULL},
                                  {"_same_storage", same_storage, METH_VARARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

int ac_tensor_type_init(PyObject *module) {
    PyType_Slot slots[80];
    int n = 0;
    for (const PyType_Slot *s = base_slots; s->slot; s++) slots[n++] = *s;
    for (const PyType_Slot *s = ac_tensor_number_slots; s->slot; s++) slots[n++] = *s;
    slots[n] = (PyType_Slot){0, NULL};
    PyType_Spec spec = {"ampc.Tensor", sizeof(PyTensor), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};
    ac_py->tensor = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
    if (!ac_py->tensor) return -1;
    PyObject *descr = PyDescr_NewGetSet(ac_py->tensor, &dict_getset);
    if (!descr || PyDict_SetItemString(ac_py->tensor->tp_dict, "__dict__", descr) < 0) return -1;
    Py_DECREF(descr);
    ac_hooks.py_incref = py_incref;
    ac_hooks.py_decref = py_decref;
    ac_hooks.py_alone = py_alone;
    if (PyModule_AddFunctions(module, functions) < 0) return -1;
    return PyModule_AddObjectRef(module, "Tensor", (PyObject *)ac_py->tensor);
}
