/* The dtype objects, such as ampc.float32. */
#include "python/state.h"

#include <string.h>

#define DTYPE_OF(o) (((PyDtype *)(o))->dtype)

static PyObject *get_name(PyObject *self, void *unused) {
    (void)unused;
    return PyUnicode_FromString(ac_dtypes[DTYPE_OF(self)].name);
}
static PyObject *get_itemsize(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromLongLong(ac_itemsize(DTYPE_OF(self)));
}
static PyObject *get_is_floating(PyObject *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(ac_is_floating(DTYPE_OF(self)));
}
static PyObject *get_false(PyObject *self, void *unused) {
    (void)self, (void)unused;
    Py_RETURN_FALSE;
}
static PyObject *get_is_signed(PyObject *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(DTYPE_OF(self) != AC_bool && DTYPE_OF(self) != AC_uint8);
}

/* NumPy's dtype; bfloat16 by ml_dtypes, when that is installed. */
static PyObject *get_numpy_dtype(PyObject *self, void *unused) {
    (void)unused;
    const char *name = ac_dtypes[DTYPE_OF(self)].name;
    PyObject *numpy = PyImport_ImportModule("numpy"), *type = NULL, *result = NULL;
    if (!numpy) return NULL;
    if (DTYPE_OF(self) == AC_bfloat16) {
        PyObject *ml = PyImport_ImportModule("ml_dtypes");
        if (ml) type = PyObject_GetAttrString(ml, name);
        else
            PyErr_SetString(PyExc_TypeError,
                            "NumPy has no bfloat16; install ml_dtypes, or convert with .float() first");
        Py_XDECREF(ml);
    } else type = PyUnicode_FromString(name);
    if (type) result = PyObject_CallMethod(numpy, "dtype", "O", type);
    Py_XDECREF(type);
    Py_DECREF(numpy);
    return result;
}

/* Under the class's module, which is torch where ampc stands in its place (ampc/_names/place.py). */
static PyObject *repr(PyObject *self) {
    PyObject *module = PyObject_GetAttrString((PyObject *)Py_TYPE(self), "__module__");
    if (!module) return NULL;
    PyObject *text = PyUnicode_FromFormat("%S.%s", module, ac_dtypes[DTYPE_OF(self)].name);
    Py_DECREF(module);
    return text;
}

/* A pickle names it as an attribute of the class's module, as torch's do. */
static PyObject *reduce(PyObject *self, PyObject *unused) {
    (void)unused;
    return PyUnicode_FromString(ac_dtypes[DTYPE_OF(self)].name);
}

/* A dtype object; float, int and bool; or a NumPy dtype or scalar type. */
int ac_dtype_from(PyObject *o, ac_dtype *dtype) {
    if (Py_TYPE(o) == ac_py->dtype) return *dtype = DTYPE_OF(o), 0;
    if (o == (PyObject *)&PyFloat_Type) return *dtype = AC_float64, 0;
    if (o == (PyObject *)&PyLong_Type) return *dtype = AC_int64, 0;
    if (o == (PyObject *)&PyBool_Type) return *dtype = AC_bool, 0;
    return -1;
}

int ac_no_dtype(const char *call, PyObject *o) {
    PyObject *is_complex = PyObject_GetAttrString(o, "is_complex");
    bool complex = is_complex == Py_True;
    Py_XDECREF(is_complex);
    PyErr_Clear();
    if (complex) {
        PyErr_Format(PyExc_TypeError, "%s: ampc has no complex numbers, so there are no tensors of dtype %R",
                     call + (*call == '_'), o);
        return -1;
    }
    PyErr_Format(PyExc_TypeError,
                 "%s: expected a dtype that tensors have, got %R; they are ampc.float16, ampc.bfloat16, "
                 "ampc.float32, ampc.float64, ampc.int8, ampc.int16, ampc.int32, ampc.int64, ampc.uint8 and ampc.bool",
                 call + (*call == '_'), o); /* operators that Python wraps begin so */
    return -1;
}

static PyObject *default_dtype(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return Py_NewRef(ac_py->dtypes[ac_default_dtype()]);
}

static PyObject *set_default(PyObject *module, PyObject *o) {
    ac_dtype t;
    (void)module;
    if (ac_dtype_from(o, &t) < 0 || !ac_is_floating(t)) {
        PyErr_Format(PyExc_TypeError, "the default dtype must be a floating point dtype, got %R", o);
        return NULL;
    }
    ac_set_default_dtype(t);
    Py_RETURN_NONE;
}

static PyObject *promote(PyObject *module, PyObject *args, PyObject *kwargs) {
    static char *words[] = {"type1", "type2", NULL};
    PyObject *a, *b;
    ac_dtype x, y;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:promote_types", words, &a, &b)) return NULL;
    if (ac_dtype_from(a, &x) < 0 || ac_dtype_from(b, &y) < 0)
        return PyErr_SetString(PyExc_TypeError, "promote_types: expected two dtypes"), NULL;
    return Py_NewRef(ac_py->dtypes[ac_promote(x, y)]);
}

/* result_type of tensors and numbers */
static PyObject *result_type(PyObject *module, PyObject *args) {
    ac_tensor *in[2], *owned[2] = {NULL, NULL};
    (void)module;
    if (PyTuple_GET_SIZE(args) != 2)
        return PyErr_SetString(PyExc_TypeError, "result_type: expected two tensors or numbers"), NULL;
    for (int i = 0; i < 2; i++) {
        PyObject *o = PyTuple_GET_ITEM(args, i);
        if (ac_is_tensor(o)) in[i] = ac_unwrap(o);
        else if (!ac_is_number(o)) {
            PyErr_Format(PyExc_TypeError, "result_type: expected a Tensor or a number, got %s", Py_TYPE(o)->tp_name);
            in[i] = NULL;
        } else in[i] = owned[i] = ac_number_tensor(o, NULL);
        if (in[i]) continue;
        ac_tensor_clear(&owned[0]);
        return NULL;
    }
    ac_dtype t = ac_result_type(in, 2);
    if (in[0]->is_scalar && in[1]->is_scalar && ac_is_floating(t)) t = ac_default_dtype();
    PyObject *result = Py_NewRef(ac_py->dtypes[t]);
    ac_tensor_clear(&owned[0]);
    ac_tensor_clear(&owned[1]);
    return result;
}

static void dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyGetSetDef getset[] = {{"name", get_name, NULL, "Its name, such as 'float32'.", NULL},
                               {"itemsize", get_itemsize, NULL, "Bytes of an element.", NULL},
                               {"is_floating_point", get_is_floating, NULL, NULL, NULL},
                               {"is_complex", get_false, NULL, NULL, NULL},
                               {"is_signed", get_is_signed, NULL, NULL, NULL},
                               {"numpy_dtype", get_numpy_dtype, NULL, "NumPy's dtype of these elements.", NULL},
                               {NULL, NULL, NULL, NULL, NULL}};
static PyMethodDef methods[] = {{"__reduce__", reduce, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyType_Slot slots[] = {{Py_tp_dealloc, dealloc},
                              {Py_tp_repr, repr},
                              {Py_tp_getset, getset},
                              {Py_tp_methods, methods},
                              {Py_tp_doc, "The type of a tensor's elements."},
                              {0, NULL}};
static PyType_Spec spec = {"ampc.dtype", sizeof(PyDtype), 0, Py_TPFLAGS_DEFAULT, slots};

static PyMethodDef functions[] = {{"get_default_dtype", default_dtype, METH_NOARGS,
                                   "get_default_dtype()\n--\n\n"
                                   "The dtype that Python floats become."},
                                  {"set_default_dtype", set_default, METH_O,
                                   "set_default_dtype(d, /)\n--\n\n"
                                   "Sets the dtype that Python floats become."},
                                  {"promote_types", (PyCFunction)(void (*)(void))promote, METH_VARARGS | METH_KEYWORDS,
                                   "promote_types(type1, type2)\n--\n\n"
                                   "The dtype that two dtypes promote to."},
                                  {"result_type", result_type, METH_VARARGS,
                                   "result_type(tensor1, tensor2, /)\n--\n\n"
                                   "The dtype that two operands promote to."},
                                  {NULL, NULL, 0, NULL}};

static int add_dtype(PyObject *module, int i) {
    PyDtype *d = (PyDtype *)ac_py->dtype->tp_alloc(ac_py->dtype, 0);
    if (!d) return -1;
    d->dtype = (ac_dtype)i;
    ac_py->dtypes[i] = (PyObject *)d;
    if (PyModule_AddObjectRef(module, ac_dtypes[i].name, (PyObject *)d) < 0) return -1;
    return ac_dtypes[i].alias[0] ? PyModule_AddObjectRef(module, ac_dtypes[i].alias, (PyObject *)d) : 0;
}

int ac_dtype_type_init(PyObject *module) {
    ac_py->dtype = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
    if (!ac_py->dtype || PyModule_AddObjectRef(module, "dtype", (PyObject *)ac_py->dtype) < 0) return -1;
    ac_py->dtype->tp_new = NULL; /* there are no others than the table's */
    for (int i = 0; i < AC_N_DTYPES; i++)
        if (add_dtype(module, i) < 0) return -1;
    return PyModule_AddFunctions(module, functions);
}
