/* The search for __torch_function__, and the scopes in which nobody is asked. Who answers in which order is decided in
 * ampc/overrides.py. */
#include "python/override.h"
#include "python/scope.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>

int ac_overriding;
static _Thread_local int modes;                               /* that this thread has entered */
static _Thread_local int subclasses_disabled, modes_disabled; /* scopes that this thread is in */

/* torch's own tensors answer for torch's functions: asked about ampc's, they would call the same function again. */
static bool is_of_torch(PyTypeObject *type) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); i++)
        if (strcmp(((PyTypeObject *)PyTuple_GET_ITEM(type->tp_mro, i))->tp_name, "torch._C.TensorBase") == 0)
            return true;
    return false;
}

/* ampc.Tensor's own types and Python's plain ones are known not to answer. */
static bool answers(PyObject *o) {
    PyTypeObject *type = Py_TYPE(o);
    if (type == ac_py->tensor || type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type ||
        type == &PyUnicode_Type || o == Py_None || type == &PyTuple_Type || type == &PyList_Type ||
        type == &PySlice_Type || type == ac_py->dtype)
        return false;
    PyObject *found =
        _PyType_Lookup(type, ac_py->torch_function); /* borrowed; without an exception where there is none */
    return found && found != ac_py->never_overrides && !is_of_torch(type);
}

bool ac_overrides(PyObject *const *args, Py_ssize_t n) {
    if (modes && !modes_disabled) return true;
    if (subclasses_disabled) return false;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (answers(args[i])) return true;
        bool list = PyList_CheckExact(args[i]);
        if (!list && !PyTuple_CheckExact(args[i])) continue;
        for (Py_ssize_t j = 0; j < Py_SIZE(args[i]); j++)
            if (answers(list ? PyList_GET_ITEM(args[i], j) : PyTuple_GET_ITEM(args[i], j))) return true;
    }
    return false;
}

bool ac_overrides_misfit(PyObject *const *args, Py_ssize_t n) {
    PyObject *type, *why, *trace;
    PyErr_Fetch(&type, &why, &trace); /* the search would take it for its own */
    bool does = ac_overrides(args, n);
    if (!does) PyErr_Restore(type, why, trace);
    else Py_XDECREF(type), Py_XDECREF(why), Py_XDECREF(trace);
    return does;
}

/* new: what ampc.overrides decides; steals the arguments */
static PyObject *decide(PyObject *function, PyObject *args, PyObject *kwargs) {
    PyObject *module = function && args && kwargs ? PyImport_ImportModule("ampc.overrides") : NULL;
    PyObject *result = module ? PyObject_CallMethod(module, "_decide", "OOO", function, args, kwargs) : NULL;
    Py_XDECREF(module), Py_XDECREF(args), Py_XDECREF(kwargs);
    return result;
}

static PyObject *tuple_of(PyObject *const *args, Py_ssize_t n) {
    PyObject *all = PyTuple_New(n);
    for (Py_ssize_t i = 0; all && i < n; i++) PyTuple_SET_ITEM(all, i, Py_NewRef(args[i]));
    return all;
}

PyObject *ac_override(PyObject *function, PyObject *const *args, Py_ssize_t n, PyObject *kwnames) {
    PyObject *named = PyDict_New();
    for (Py_ssize_t k = 0; named && kwnames && k < PyTuple_GET_SIZE(kwnames); k++)
        if (PyDict_SetItem(named, PyTuple_GET_ITEM(kwnames, k), args[n + k]) < 0) Py_CLEAR(named);
    return decide(function, tuple_of(args, n), named);
}

PyObject *ac_override_method(const char *name, PyObject *const *args, Py_ssize_t n) {
    PyObject *method = PyObject_GetAttrString((PyObject *)ac_py->tensor, name);
    PyObject *result = decide(method, tuple_of(args, n), PyDict_New());
    Py_XDECREF(method);
    return result;
}

PyObject *ac_override_property(const char *name, PyObject *self) {
    PyObject *property = PyObject_GetAttrString((PyObject *)ac_py->tensor, name),
             *get = property ? PyObject_GetAttrString(property, "__get__") : NULL;
    PyObject *result = decide(get, tuple_of(&self, 1), PyDict_New());
    Py_XDECREF(property), Py_XDECREF(get);
    return result;
}

/* -- for Python ------------------------------------------------------------------------------------ */

/* _overrides(args, kwargs) -> whether one of them answers, or a mode does */
static PyObject *overrides(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    (void)module;
    if (n != 2 || !PyTuple_Check(args[0]) || !PyDict_Check(args[1]))
        return PyErr_Format(PyExc_TypeError, "_overrides: expected a tuple and a dict");
    bool does = ac_overrides(((PyTupleObject *)args[0])->ob_item, PyTuple_GET_SIZE(args[0]));
    PyObject *name, *value;
    for (Py_ssize_t at = 0; !does && PyDict_Next(args[1], &at, &name, &value);) does = ac_overrides(&value, 1);
    return PyBool_FromLong(does);
}

/* _answers(o) -> whether its class answers, where that is not disabled */
static PyObject *answers_alone(PyObject *module, PyObject *o) {
    (void)module;
    return PyBool_FromLong(!subclasses_disabled && answers(o));
}

/* _override(function, args, kwargs) -> what the answer to a call is */
static PyObject *override_call(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    (void)module;
    if (n != 3) return PyErr_Format(PyExc_TypeError, "_override: expected a function, a tuple and a dict");
    return decide(args[0], Py_NewRef(args[1]), Py_NewRef(args[2]));
}

static PyObject *add_overriding(PyObject *module, PyObject *by) {
    long more = PyLong_AsLong(by);
    (void)module;
    if (more == -1 && PyErr_Occurred()) return NULL;
    ac_overriding += (int)more;
    Py_RETURN_NONE;
}

static PyObject *set_modes(PyObject *module, PyObject *now) {
    long n = PyLong_AsLong(now);
    (void)module;
    if (n == -1 && PyErr_Occurred()) return NULL;
    ac_overriding += (int)n - modes;
    modes = (int)n;
    Py_RETURN_NONE;
}

static PyObject *never(PyObject *module, PyObject *args) {
    PyObject *function, *types, *given = NULL, *named = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO|OO:_disabled_torch_function_impl", &function, &types, &given, &named)) return NULL;
    if (named && named != Py_None && !PyDict_Check(named))
        return PyErr_Format(PyExc_TypeError, "_disabled_torch_function_impl: `kwargs` must be a dict, got %s",
                            Py_TYPE(named)->tp_name);
    PyObject *all = given ? PySequence_Tuple(given) : PyTuple_New(0);
    subclasses_disabled++;
    PyObject *result = all ? PyObject_Call(function, all, named == Py_None ? NULL : named) : NULL;
    subclasses_disabled--;
    Py_XDECREF(all);
    return result;
}

typedef struct {
    ac_scope_frame base;
    bool all;
} disabling;

static int enable(ac_scope_frame *f) {
    subclasses_disabled--;
    if (((disabling *)f)->all) modes_disabled--;
    return 0;
}

static PyObject *disable(PyObject *self, bool all) {
    disabling *f = ac_scope_frame_new(sizeof *f, self, enable, NULL);
    if (!f) return NULL;
    f->all = all;
    ac_scope_push(&f->base);
    subclasses_disabled++;
    if (all) modes_disabled++;
    return Py_NewRef(self);
}
static PyObject *disable_subclasses(PyObject *self, PyObject *unused) { return (void)unused, disable(self, false); }
static PyObject *disable_all(PyObject *self, PyObject *unused) { return (void)unused, disable(self, true); }

static PyObject *enabled(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return PyBool_FromLong(!subclasses_disabled);
}

/* -- functions in Python that ask ------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD vectorcallfunc call;
    PyObject *function, *dict, *weakrefs;
} asking;

static PyObject *ask_and_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    Py_ssize_t n = PyVectorcall_NARGS(nargsf), all = n + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    bool plain = !ac_overriding && n && Py_TYPE(args[0]) == ac_py->tensor;
    if (!plain && ac_overrides(args, all)) return ac_override(self, args, n, kwnames);
    return PyObject_Vectorcall(((asking *)self)->function, args, nargsf, kwnames);
}

static PyObject *asking_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *function;
    if (kwargs && PyDict_GET_SIZE(kwargs)) return PyErr_Format(PyExc_TypeError, "OverridableFunction: takes no words");
    if (!PyArg_ParseTuple(args, "O:OverridableFunction", &function)) return NULL;
    if (!PyCallable_Check(function))
        return PyErr_Format(PyExc_TypeError, "OverridableFunction: expected a function, got %s",
                            Py_TYPE(function)->tp_name);
    asking *self = (asking *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->call = ask_and_call, self->function = Py_NewRef(function);
    return (PyObject *)self;
}

static int asking_traverse(PyObject *o, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(o));
    Py_VISIT(((asking *)o)->function);
    Py_VISIT(((asking *)o)->dict);
    return 0;
}

static int asking_clear(PyObject *o) {
    Py_CLEAR(((asking *)o)->dict);
    return 0;
}

static void asking_dealloc(PyObject *o) {
    PyTypeObject *type = Py_TYPE(o);
    PyObject_GC_UnTrack(o);
    if (((asking *)o)->weakrefs) PyObject_ClearWeakRefs(o);
    Py_CLEAR(((asking *)o)->dict);
    Py_CLEAR(((asking *)o)->function);
    type->tp_free(o);
    Py_DECREF(type);
}

static PyObject *asking_get(PyObject *self, PyObject *object, PyObject *type) {
    (void)type;
    return object ? PyMethod_New(self, object) : Py_NewRef(self);
}

static PyObject *asking_repr(PyObject *self) { return PyObject_Repr(((asking *)self)->function); }

/* By its name, as functions are pickled. */
static PyObject *asking_reduce(PyObject *self, PyObject *unused) {
    (void)unused;
    return PyObject_GetAttrString(self, "__qualname__");
}

static PyMethodDef asking_methods[] = {{"__reduce__", asking_reduce, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyGetSetDef asking_getset[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
                                      {NULL, NULL, NULL, NULL, NULL}};
static PyMemberDef asking_members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(asking, call), READONLY, NULL},
                                       {"__dictoffset__", T_PYSSIZET, offsetof(asking, dict), READONLY, NULL},
                                       {"__weaklistoffset__", T_PYSSIZET, offsetof(asking, weakrefs), READONLY, NULL},
                                       {NULL, 0, 0, 0, NULL}};
static PyType_Slot asking_slots[] = {{Py_tp_new, asking_new},
                                     {Py_tp_call, PyVectorcall_Call},
                                     {Py_tp_traverse, asking_traverse},
                                     {Py_tp_clear, asking_clear},
                                     {Py_tp_dealloc, asking_dealloc},
                                     {Py_tp_descr_get, asking_get},
                                     {Py_tp_repr, asking_repr},
                                     {Py_tp_methods, asking_methods},
                                     {Py_tp_getset, asking_getset},
                                     {Py_tp_members, asking_members},
                                     {0, NULL}};
static PyType_Spec asking_spec = {
    "ampc._C.OverridableFunction", sizeof(asking), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR, asking_slots};

static int add_type(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &asking_spec, NULL);
    int failed = type ? PyModule_AddObjectRef(module, "OverridableFunction", type) : -1;
    Py_XDECREF(type);
    return failed;
}

static PyMethodDef functions[] = {
    {"_overrides", (PyCFunction)(void (*)(void))overrides, METH_FASTCALL, NULL},
    {"_override", (PyCFunction)(void (*)(void))override_call, METH_FASTCALL, NULL},
    {"_answers", answers_alone, METH_O, NULL},
    {"_add_overriding", add_overriding, METH_O, NULL},
    {"_set_modes", set_modes, METH_O, NULL},
    {"_is_torch_function_enabled", enabled, METH_NOARGS,
     "Whether __torch_function__ of classes is called on this thread."},
    {"_disabled_torch_function_impl", never, METH_VARARGS,
     "_disabled_torch_function_impl(func, types, args=(), kwargs=None)\n--\n\n"
     "What a subclass of Tensor has as its __torch_function__ so that it is treated as a plain Tensor."},
    {NULL, NULL, 0, NULL}};

int ac_override_init(PyObject *module) {
    if (PyModule_AddFunctions(module, functions) < 0 || add_type(module) < 0) return -1;
    ac_py->never_overrides = PyObject_GetAttrString(module, "_disabled_torch_function_impl");
    if (!ac_py->never_overrides) return -1;
    if (ac_scope_type(module, "ampc._C.DisableTorchFunctionSubclass",
                      "A region in which no class's __torch_function__ is called; modes are.", disable_subclasses) < 0)
        return -1;
    return ac_scope_type(module, "ampc._C.DisableTorchFunction",
                         "A region in which no __torch_function__ is called, of classes or of modes.", disable_all);
}
