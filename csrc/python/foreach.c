/* One function over lists of tensors: what torch._foreach_add and its kin are made of. */
#include "python/state.h"

enum { MOST_COLUMNS = 4 };

/* The arguments of all calls. A list gives each call its own entry, anything else is every call's. */
typedef struct {
    PyObject *whole; /* a tuple, which nobody else can change, or NULL */
    PyObject *same;
} column;

static int different_lengths(Py_ssize_t n, PyObject *list) {
    Py_ssize_t other = PyTuple_GET_SIZE(list);
    bool numbers = other > 0 && !ac_is_tensor(PyTuple_GET_ITEM(list, 0));
    if (numbers) PyErr_SetString(PyExc_RuntimeError, "Tensor list must have same number of elements as scalar list.");
    else
        PyErr_Format(PyExc_RuntimeError, "Tensor lists must have the same number of tensors, got %zd and %zd", n,
                     other);
    return -1;
}

/* All tensors, or behind the first column all numbers. */
static int check_entries(PyObject *list, Py_ssize_t at) {
    Py_ssize_t n = PyTuple_GET_SIZE(list);
    bool tensors = at == 0 || (n > 0 && ac_is_tensor(PyTuple_GET_ITEM(list, 0)));
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *one = PyTuple_GET_ITEM(list, i);
        if (tensors ? ac_is_tensor(one) : ac_is_number(one)) continue;
        PyErr_Format(PyExc_TypeError, "expected %s as element %zd in argument %zd, but got %s",
                     tensors ? "Tensor" : "a number", i, at, Py_TYPE(one)->tp_name);
        return -1;
    }
    return 0;
}

static int take_columns(PyObject *const *args, Py_ssize_t n_columns, column *columns, Py_ssize_t *n) {
    for (Py_ssize_t i = 0; i < n_columns; i++) {
        columns[i].same = args[i];
        if (!PyList_Check(args[i]) && !PyTuple_Check(args[i])) continue;
        columns[i].whole = PySequence_Tuple(args[i]);
        if (!columns[i].whole || check_entries(columns[i].whole, i) < 0) return -1;
    }
    *n = -1;
    for (Py_ssize_t i = 0; i < n_columns; i++) { /* lengths after types, as torch's */
        PyObject *list = columns[i].whole;
        if (!list) continue;
        if (*n < 0) *n = PyTuple_GET_SIZE(list);
        else if (*n != PyTuple_GET_SIZE(list)) return different_lengths(*n, list);
    }
    if (*n > 0) return 0;
    if (*n == 0) PyErr_SetString(PyExc_RuntimeError, "Tensor list must have at least one tensor.");
    else PyErr_SetString(PyExc_TypeError, "expected a list or tuple of Tensors");
    return -1;
}

static PyObject *call_all(PyObject *f, const column *columns, Py_ssize_t n_columns, Py_ssize_t n, PyObject *names) {
    PyObject *all = PyTuple_New(n), *args[MOST_COLUMNS];
    size_t n_positional = (size_t)(n_columns - (names ? PyTuple_GET_SIZE(names) : 0));
    for (Py_ssize_t i = 0; all && i < n; i++) {
        for (Py_ssize_t c = 0; c < n_columns; c++)
            args[c] = columns[c].whole ? PyTuple_GET_ITEM(columns[c].whole, i) : columns[c].same;
        PyObject *one = PyObject_Vectorcall(f, args, n_positional, names);
        if (one) PyTuple_SET_ITEM(all, i, one);
        else Py_CLEAR(all);
    }
    return all;
}

/* _foreach(function, *columns, **columns) -> a tuple of what the function gives for the entries i of all columns. A
 * column is a list or tuple with an entry for each call, or what every call is given. */
static PyObject *foreach (PyObject *module, PyObject *const *args, Py_ssize_t n_args, PyObject * names) {
    column columns[MOST_COLUMNS] = {{NULL, NULL}};
    Py_ssize_t n, n_columns = n_args - 1 + (names ? PyTuple_GET_SIZE(names) : 0);
    (void)module;
    if (n_args < 2 || n_columns > MOST_COLUMNS)
        return PyErr_Format(PyExc_TypeError, "_foreach takes a function and 1 to %d columns", MOST_COLUMNS);
    PyObject *all =
        take_columns(args + 1, n_columns, columns, &n) < 0 ? NULL : call_all(args[0], columns, n_columns, n, names);
    for (Py_ssize_t i = 0; i < n_columns; i++) Py_XDECREF(columns[i].whole);
    return all;
}

static PyMethodDef functions[] = {
    {"_foreach", (PyCFunction)(void (*)(void))foreach, METH_FASTCALL | METH_KEYWORDS, NULL}, {NULL, NULL, 0, NULL}};

int ac_foreach_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
