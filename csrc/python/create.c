/* Tensors from Python's numbers and nested sequences. */
#include "python/state.h"

#include "dispatch/placement.h"

#include <string.h>

/* What a nested sequence amounts to. */
typedef struct {
    ac_dims shape;
    int dtype; /* that holds all numbers so far; -1 before the first */
} census;

static bool is_list(PyObject *o) {
    return !PyUnicode_Check(o) && !PyBytes_Check(o) && !ac_is_tensor(o) && PySequence_Check(o);
}

/* The dtype of one number: Python's have the default ones, tensors and NumPy's scalars their own. */
static int dtype_of_number(PyObject *o) {
    if (PyBool_Check(o)) return AC_bool;
    if (!PyFloat_CheckExact(o) && !PyLong_CheckExact(o)) {
        PyObject *own = PyObject_GetAttrString(o, "dtype"), *name = own ? PyObject_GetAttrString(own, "name") : NULL;
        const char *text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
        int found = -1;
        for (int t = 0; t < AC_N_DTYPES && text && found < 0; t++)
            if (strcmp(ac_dtypes[t].name, text) == 0) found = t;
        Py_XDECREF(name);
        Py_XDECREF(own);
        PyErr_Clear();
        if (found >= 0) return found;
    }
    return PyLong_Check(o) || (!PyFloat_Check(o) && PyIndex_Check(o)) ? AC_int64 : (int)ac_default_dtype();
}

static int count_leaf(PyObject *o, census *c) {
    int dtype;
    if (ac_is_tensor(o)) {
        if (ac_unwrap(o)->numel != 1) {
            PyErr_SetString(PyExc_ValueError,
                            "only tensors of one element can stand among numbers; use stack for others");
            return -1;
        }
        dtype = (int)ac_unwrap(o)->dtype;
    } else if (ac_is_number(o)) {
        dtype = dtype_of_number(o);
    } else {
        PyErr_Format(ac_py->no_number, "tensor: expected numbers or nested sequences of numbers, got %s",
                     Py_TYPE(o)->tp_name);
        return -1;
    }
    c->dtype = c->dtype < 0 ? dtype : (int)ac_promote((ac_dtype)c->dtype, (ac_dtype)dtype);
    return 0;
}

static int take_census(PyObject *o, int depth, census *c) {
    if (!is_list(o)) {
        if (c->shape.n > depth) return PyErr_SetString(PyExc_ValueError, "tensor: rows of different depth"), -1;
        return count_leaf(o, c);
    }
    Py_ssize_t n = PySequence_Size(o);
    if (n < 0) return -1;
    if (depth == AC_MAX_DIMS) return PyErr_Format(PyExc_ValueError, "tensor: nested deeper than %d", AC_MAX_DIMS), -1;
    if (depth == c->shape.n) c->shape.v[c->shape.n++] = n;
    else if (c->shape.v[depth] != n) {
        PyErr_Format(PyExc_ValueError, "tensor: rows of different length in dimension %d: %lld and %zd", depth,
                     (long long)c->shape.v[depth], n);
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *one = PySequence_GetItem(o, i);
        int64_t before = c->shape.n;
        int failed = one ? take_census(one, depth + 1, c) : -1;
        if (!failed && i > 0 && c->shape.n > before)
            failed = (PyErr_SetString(PyExc_ValueError, "tensor: rows of different depth"), -1);
        if (!failed && !is_list(one) && c->shape.n > depth + 1)
            failed = (PyErr_SetString(PyExc_ValueError, "tensor: rows of different depth"), -1);
        Py_XDECREF(one);
        if (failed) return -1;
    }
    return 0;
}

/* A number for a tensor of that dtype. Integers beyond 64 bits are rounded for floating point, and true for bool. */
static int read_number(PyObject *o, ac_dtype dtype, ac_scalar *s) {
    if (ac_scalar_from(o, s) == 0) return 0;
    bool large = PyLong_Check(o) && PyErr_ExceptionMatches(PyExc_OverflowError);
    if (!large || ac_dtypes[dtype].category == AC_INTEGER) return -1;
    PyErr_Clear();
    *s = (ac_scalar){.kind = AC_FLOAT, .f = PyFloat_AsDouble(o)};
    return PyErr_Occurred() ? -1 : 0;
}

static int write_leaf(PyObject *o, ac_tensor *t, int64_t at) {
    PyObject *number = ac_is_tensor(o) ? ac_item(ac_unwrap(o), 0) : Py_NewRef(o);
    ac_scalar s;
    int failed = number ? read_number(number, t->dtype, &s) : -1;
    Py_XDECREF(number);
    if (failed) return -1;
    if (ac_scalar_fits(s, t->dtype, "tensor") < 0) return (void)ac_raise(), -1;
    if (s.kind == AC_FLOAT) ac_write_double(ac_data(t), t->dtype, at, s.f);
    else ac_write_int(ac_data(t), t->dtype, at, s.i);
    return 0;
}

static int write_all(PyObject *o, ac_tensor *t, int64_t *at, int depth) {
    if (depth == t->ndim) return write_leaf(o, t, (*at)++);
    for (Py_ssize_t i = 0; i < t->shape[depth]; i++) {
        PyObject *one = PySequence_GetItem(o, i);
        /* a sequence that changed while it was read must not be read past its end */
        bool deeper = one && (depth + 1 < t->ndim) == is_list(one) &&
                      (!is_list(one) || PySequence_Size(one) == t->shape[depth + 1]);
        int failed = !one     ? -1
                     : deeper ? write_all(one, t, at, depth + 1)
                              : (PyErr_SetString(PyExc_ValueError, "tensor: the data changed while it was read"), -1);
        Py_XDECREF(one);
        if (failed) return -1;
    }
    return 0;
}

/* _tensor_from(data, dtype=None): a new tensor; NumPy arrays go by their buffer (numpy.c). */
static PyObject *tensor_from(PyObject *module, PyObject *args) {
    PyObject *data, *as = Py_None;
    census c = {.shape = {.n = 0}, .dtype = -1};
    ac_dtype dtype;
    (void)module;
    if (!PyArg_ParseTuple(args, "O|O", &data, &as)) return NULL;
    if (PyObject_HasAttrString(data, "__array_interface__") && !ac_is_tensor(data)) {
        PyObject *numpy = PyImport_ImportModule("ampc._C");
        PyObject *shared = numpy ? PyObject_CallMethod(numpy, "_copy_numpy", "OO", data, as) : NULL;
        Py_XDECREF(numpy);
        return shared;
    }
    if (take_census(data, 0, &c) < 0) return NULL;
    if (as == Py_None) dtype = c.dtype < 0 ? ac_default_dtype() : (ac_dtype)c.dtype;
    else if (ac_dtype_from(as, &dtype) < 0) return (void)ac_no_dtype("tensor", as), NULL;
    ac_tensor *t = ac_tensor_new(dtype, &c.shape);
    int64_t at = 0;
    if (!t) return ac_raise();
    if (t->numel && write_all(data, t, &at, 0) < 0) {
        ac_tensor_release(t);
        return NULL;
    }
    return ac_wrap_new(t);
}

/* -- bytes, for pickling ---------------------------------------------------------------------------- */

static PyObject *tensor_bytes(PyObject *module, PyObject *o) {
    (void)module;
    if (!ac_is_tensor(o)) return PyErr_SetString(PyExc_TypeError, "expected a Tensor"), NULL;
    ac_tensor *t = ac_unwrap(o), *dense = NULL;
    t = ac_on_cpu(t);
    if (!t) return ac_raise();
    int failed = ac_call(AC_OP_contiguous, &t, 1, NULL, &dense);
    ac_tensor_release(t);
    if (failed) return ac_raise();
    PyObject *bytes = PyBytes_FromStringAndSize(ac_data(dense), (Py_ssize_t)(dense->numel * ac_itemsize(dense->dtype)));
    ac_tensor_release(dense);
    return bytes;
}

/* _tensor_from_bytes(bytes, dtype, shape): bytes must be exactly the elements, row-major */
static PyObject *tensor_from_bytes(PyObject *module, PyObject *args) {
    Py_buffer data;
    PyObject *as, *size;
    ac_dtype dtype;
    ac_dims shape;
    ac_tensor *t = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*OO", &data, &as, &size)) return NULL;
    if (ac_dtype_from(as, &dtype) < 0) PyErr_SetString(PyExc_TypeError, "expected a dtype");
    else if (ac_dims_from(size, &shape, "shape") == 0) {
        t = ac_tensor_new(dtype, &shape);
        if (!t) (void)ac_raise();
    }
    if (t && t->numel * ac_itemsize(dtype) != (int64_t)data.len) {
        PyErr_Format(PyExc_ValueError, "%zd bytes do not make a %s tensor of %lld elements", data.len,
                     ac_dtypes[dtype].name, (long long)t->numel);
        ac_tensor_clear(&t);
    }
    if (t && data.len) memcpy(ac_data(t), data.buf, (size_t)data.len);
    PyBuffer_Release(&data);
    return t ? ac_wrap_new(t) : NULL;
}

static PyMethodDef functions[] = {{"_tensor_from", tensor_from, METH_VARARGS, NULL},
                                  {"_tensor_bytes", tensor_bytes, METH_O, NULL},
                                  {"_tensor_from_bytes", tensor_from_bytes, METH_VARARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

int ac_create_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
