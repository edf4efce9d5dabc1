/* unbind, split, chunk and what is made of them, as tuples of views. */
#include "python/tensor.h"

#include "autograd/split.h"
#include "tensor/list.h"

#include <limits.h>

/* The views as a tuple. `apart`: as torch has it, they cannot be written while gradients are recorded. */
static PyObject *tuple_of(ac_list *parts, bool apart) {
    PyObject *all = PyTuple_New(parts->n);
    for (int i = 0; all && i < parts->n; i++) {
        ac_tensor *part = parts->at[i];
        parts->at[i] = NULL;
        if (apart && part->view_kind == AC_VIEW_PLAIN) part->view_kind = AC_VIEW_ONE_OF_MANY;
        PyObject *one = ac_wrap(part);
        if (one) PyTuple_SET_ITEM(all, i, one);
        else Py_CLEAR(all);
    }
    return all;
}

static PyObject *cut(ac_tensor *x, int64_t dim, const ac_section *spans, int n, bool drop, bool apart) {
    ac_list parts;
    int failed = ac_list_start(&parts, n);
    if (!failed) failed = ac_split(x, dim, spans, n, drop, parts.at);
    PyObject *all = failed ? ac_raise() : tuple_of(&parts, apart);
    ac_list_release(&parts);
    return all;
}

static int read_size(PyObject *sizes, Py_ssize_t i, int64_t *size) {
    PyObject *one = PyList_GET_ITEM(sizes, i);
    if (!PyIndex_Check(one)) {
        PyErr_Format(PyExc_TypeError, "split: sizes must be ints, got %s at position %zd", Py_TYPE(one)->tp_name, i);
        return -1;
    }
    *size = PyLong_AsLongLong(one);
    return *size == -1 && PyErr_Occurred() ? -1 : 0;
}

/* Sizes as spans, one behind the other; together they must make `whole`. */
static int spans_of_sizes(PyObject *sizes, int64_t whole, ac_section *spans) {
    int64_t start = 0, size;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(sizes); i++) {
        if (read_size(sizes, i, &size) < 0) return -1;
        if (size < 0 || size > whole - start) {
            PyErr_Format(PyExc_RuntimeError,
                         "split: sizes must be 0 or more and add up to the dimension's, %lld; got %lld at position "
                         "%zd, behind %lld",
                         (long long)whole, (long long)size, i, (long long)start);
            return -1;
        }
        spans[i] = (ac_section){start, size};
        start += size;
    }
    if (start == whole) return 0;
    PyErr_Format(PyExc_RuntimeError, "split: the sizes add up to %lld; the dimension has %lld", (long long)start,
                 (long long)whole);
    return -1;
}

static int spans_of_slices(int64_t whole, ac_section *spans) {
    for (int64_t i = 0; i < whole; i++) spans[i] = (ac_section){i, 1};
    return 0;
}

/* _cut_into(list of sizes, dim, apart); with None in place of the list each slice, without the dimension */
PyObject *ac_tensor_cut_into(PyObject *self, PyObject *args) {
    ac_tensor *x = ac_unwrap(self);
    PyObject *sizes, *all = NULL;
    long long given;
    int apart;
    if (!PyArg_ParseTuple(args, "OLp", &sizes, &given, &apart)) return NULL;
    bool slices = !PyList_Check(sizes);
    int64_t dim = given;
    const char *what = slices ? "unbind" : "split";
    if (ac_dim_wrap(&dim, x->ndim, what) < 0) return ac_raise();
    if (x->ndim == 0) return PyErr_Format(PyExc_IndexError, "%s: a 0-d tensor has no dimension to cut", what);
    int64_t whole = x->shape[dim], n = slices ? whole : PyList_GET_SIZE(sizes);
    if (n > INT_MAX)
        return PyErr_Format(PyExc_ValueError, "%s: at most %d parts, got %lld", what, INT_MAX, (long long)n);
    ac_section *spans = PyMem_Malloc((size_t)(n + 1) * sizeof *spans);
    if (!spans) return PyErr_NoMemory();
    int failed = slices ? spans_of_slices(whole, spans) : spans_of_sizes(sizes, whole, spans);
    if (!failed) all = cut(x, dim, spans, (int)n, slices, apart);
    PyMem_Free(spans);
    return all;
}
