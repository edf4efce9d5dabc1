/* The context managers of scope.h: their frames, and how they restore the state. */
#include "python/scope.h"

#include <string.h>

static _Thread_local ac_scope_frame *innermost;

ac_scope_frame *ac_scope_innermost(void) { return innermost; }

void *ac_scope_frame_new(size_t bytes, PyObject *owner, int (*restore)(ac_scope_frame *),
                         void (*release)(ac_scope_frame *)) {
    ac_scope_frame *f = PyMem_Calloc(1, bytes);
    if (!f) return PyErr_NoMemory();
    f->owner = Py_NewRef(owner);
    f->restore = restore, f->release = release;
    return f;
}

void ac_scope_free(ac_scope_frame *f) {
    if (f->release) f->release(f);
    Py_DECREF(f->owner);
    PyMem_Free(f);
}

void ac_scope_push(ac_scope_frame *f) {
    f->outer = innermost;
    innermost = f;
}

static ac_scope_frame *take(PyObject *owner) {
    for (ac_scope_frame **at = &innermost; *at; at = &(*at)->outer) {
        ac_scope_frame *f = *at;
        if (f->owner != owner) continue;
        *at = f->outer;
        return f;
    }
    return NULL;
}

PyObject *ac_scope_exit(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)args, (void)n;
    ac_scope_frame *f = take(self);
    if (!f)
        return PyErr_Format(PyExc_RuntimeError, "%s: it was not entered on this thread, or has been left",
                            Py_TYPE(self)->tp_name);
    int failed = f->restore(f);
    ac_scope_free(f);
    return failed ? NULL : Py_NewRef(Py_None);
}

int ac_scope_type(PyObject *module, const char *name, const char *doc, PyCFunction enter) {
    PyMethodDef *methods = PyMem_Calloc(3, sizeof *methods); /* the type keeps them for as long as it lives */
    if (!methods) return PyErr_NoMemory(), -1;
    methods[0] = (PyMethodDef){"__enter__", enter, METH_NOARGS, NULL};
    methods[1] = (PyMethodDef){"__exit__", (PyCFunction)(void (*)(void))ac_scope_exit, METH_FASTCALL, NULL};
    PyType_Slot slots[] = {{Py_tp_methods, methods}, {Py_tp_doc, (void *)(uintptr_t)doc}, {0, NULL}};
    PyType_Spec spec = {name, sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    int failed = type ? PyModule_AddObjectRef(module, strrchr(name, '.') + 1, type) : -1;
    Py_XDECREF(type);
    return failed;
}

PyObject *ac_call_type(PyObject *type, PyObject *const *args, size_t nargsf, PyObject *words) {
    Py_ssize_t n = PyVectorcall_NARGS(nargsf);
    PyObject *all = PyTuple_New(n), *named = words ? PyDict_New() : NULL;
    bool failed = !all || (words && !named);
    for (Py_ssize_t i = 0; !failed && i < n; i++) PyTuple_SET_ITEM(all, i, Py_NewRef(args[i]));
    for (Py_ssize_t k = 0; !failed && words && k < PyTuple_GET_SIZE(words); k++)
        failed = PyDict_SetItem(named, PyTuple_GET_ITEM(words, k), args[n + k]) < 0;
    PyObject *made = failed ? NULL : Py_TYPE(type)->tp_call(type, all, named);
    Py_XDECREF(all);
    Py_XDECREF(named);
    return made;
}

/* -- Scope: changes that Python names ----------------------------------------------------------------------------- */

typedef struct {
    ac_scope_frame base;
    PyObject *changes; /* owned: a tuple of (begin, arguments, end, arguments) */
} changes_frame;

/* Function `at` of a change, and its arguments behind it; None for no function. */
static int call(PyObject *change, int at) {
    PyObject *function = PyTuple_GET_ITEM(change, at);
    PyObject *result = function == Py_None ? NULL : PyObject_Call(function, PyTuple_GET_ITEM(change, at + 1), NULL);
    if (function != Py_None && !result) return -1;
    Py_XDECREF(result);
    return 0;
}

/* The ends of the first n, last first; all of them, whatever fails. The first error is raised. */
static int end_all(PyObject *changes, Py_ssize_t n) {
    PyObject *type = NULL, *value = NULL, *trace = NULL;
    PyErr_Fetch(&type, &value, &trace);
    while (n-- > 0) {
        if (call(PyTuple_GET_ITEM(changes, n), 2) == 0) continue;
        if (type) PyErr_Clear();
        else PyErr_Fetch(&type, &value, &trace);
    }
    if (!type) return 0;
    PyErr_Restore(type, value, trace);
    return -1;
}

static int restore(ac_scope_frame *f) {
    PyObject *changes = ((changes_frame *)f)->changes;
    return end_all(changes, PyTuple_GET_SIZE(changes));
}
static void release(ac_scope_frame *f) { Py_XDECREF(((changes_frame *)f)->changes); }

static bool are_changes(PyObject *all) {
    bool good = PyTuple_Check(all);
    for (Py_ssize_t i = 0; good && i < PyTuple_GET_SIZE(all); i++) {
        PyObject *c = PyTuple_GET_ITEM(all, i);
        good = PyTuple_Check(c) && PyTuple_GET_SIZE(c) == 4 && PyTuple_Check(PyTuple_GET_ITEM(c, 1)) &&
               PyTuple_Check(PyTuple_GET_ITEM(c, 3));
    }
    return good;
}

static PyObject *enter(PyObject *self, PyObject *unused) {
    (void)unused;
    changes_frame *f = ac_scope_frame_new(sizeof *f, self, restore, release);
    if (!f) return NULL;
    f->changes = PyObject_CallMethod(self, "_changes", NULL);
    int failed = f->changes ? 0 : -1;
    if (!failed && !are_changes(f->changes)) {
        PyErr_SetString(PyExc_TypeError, "_changes: expected a tuple of (begin, arguments, end, arguments)");
        failed = -1;
    }
    for (Py_ssize_t i = 0; !failed && i < PyTuple_GET_SIZE(f->changes); i++) {
        failed = call(PyTuple_GET_ITEM(f->changes, i), 0);
        if (failed) (void)end_all(f->changes, i);
    }
    if (failed) {
        ac_scope_free(&f->base);
        return NULL;
    }
    ac_scope_push(&f->base);
    return Py_NewRef(self);
}

/* -- GradScope: whether operations are recorded ------------------------------------------------------------------- */

typedef struct {
    ac_scope_frame base;
    bool no_grad, inference;
} grad_frame;

static int restore_grad(ac_scope_frame *f) {
    ac_mode.no_grad = ((grad_frame *)f)->no_grad;
    ac_mode.inference = ((grad_frame *)f)->inference;
    return 0;
}

/* An attribute that is a bool, or None for `otherwise`. */
static int read_flag(PyObject *self, PyObject *name, bool otherwise, bool *flag) {
    PyObject *value = PyObject_GetAttr(self, name);
    int truth = !value ? -1 : value == Py_None ? otherwise : PyObject_IsTrue(value);
    Py_XDECREF(value);
    *flag = truth > 0;
    return truth < 0 ? -1 : 0;
}

static PyObject *enter_grad(PyObject *self, PyObject *unused) {
    bool records, inference, recorded;
    (void)unused;
    if (read_flag(self, ac_py->records, !ac_mode.no_grad, &records) < 0 ||
        read_flag(self, ac_py->inference, ac_mode.inference, &inference) < 0 ||
        read_flag(self, ac_py->prev, !ac_mode.no_grad, &recorded) < 0)
        return NULL;
    grad_frame *f = ac_scope_frame_new(sizeof *f, self, restore_grad, NULL);
    if (!f) return NULL;
    f->no_grad = !recorded, f->inference = ac_mode.inference;
    ac_scope_push(&f->base);
    ac_mode.no_grad = !records, ac_mode.inference = inference;
    Py_RETURN_NONE;
}

/* Vectorcall of a class that is nearly always called without arguments, and then needs no __new__ of Python. */
static PyObject *make_bare(PyObject *type, PyObject *const *args, size_t nargsf, PyObject *words) {
    if (PyVectorcall_NARGS(nargsf) || words) return ac_call_type(type, args, nargsf, words);
    return ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, 0);
}

/* _make_bare(type): a class whose objects begin with nothing set */
static PyObject *set_make_bare(PyObject *module, PyObject *type) {
    (void)module;
    ((PyTypeObject *)type)->tp_vectorcall = make_bare;
    Py_RETURN_NONE;
}
static PyMethodDef functions[] = {{"_make_bare", set_make_bare, METH_O, NULL}, {NULL, NULL, 0, NULL}};

int ac_scope_init(PyObject *module) {
    if (PyModule_AddFunctions(module, functions) < 0) return -1;
    if (ac_scope_type(module, "ampc._C.Scope",
                      "A context manager: `_changes()` gives a tuple of (begin, arguments, end, arguments), functions "
                      "that are called, or None; the ends in the opposite order, all of them, whatever fails.",
                      enter) < 0)
        return -1;
    return ac_scope_type(module, "ampc._C.GradScope",
                         "A context manager that sets whether operations are recorded, `_records`, and inference mode, "
                         "`_inference`; None leaves it. Afterwards recording is as `prev` says, or as it was.",
                         enter_grad);
}
