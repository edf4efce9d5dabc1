/* The gradients of an optimizer's parameters, for Python: those of each device, and all let go of. They are asked for
 * as the attribute, because a class of a script may have a property of that name. */
#include "python/state.h"

/* The list of one device, behind those that are there: (device index, gradients, positions, None). */
static PyObject *part_of(PyObject *parts, ac_device device) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(parts); i++) {
        PyObject *part = PyList_GET_ITEM(parts, i);
        if (PyLong_AsLong(PyList_GET_ITEM(part, 0)) == (long)device) return part;
    }
    PyObject *part = Py_BuildValue("[l[][]O]", (long)device, Py_None);
    if (part && PyList_Append(parts, part) < 0) Py_CLEAR(part);
    Py_XDECREF(part);
    return part;
}

/* Of a float16 gradient the position is kept, of the first one. */
static int add(PyObject *parts, PyObject *grad, Py_ssize_t group, Py_ssize_t at) {
    ac_tensor *g = ac_unwrap(grad);
    PyObject *part = part_of(parts, ac_device_of(g)), *position = part ? Py_BuildValue("(nn)", group, at) : NULL;
    int failed = !position || PyList_Append(PyList_GET_ITEM(part, 1), grad) < 0 ||
                 PyList_Append(PyList_GET_ITEM(part, 2), position) < 0;
    if (!failed && g->dtype == AC_float16 && PyList_GET_ITEM(part, 3) == Py_None)
        failed = PyList_SetItem(part, 3, Py_NewRef(position));
    Py_XDECREF(position);
    return failed ? -1 : 0;
}

static int add_parameter(PyObject *parts, PyObject *p, Py_ssize_t group, Py_ssize_t at) {
    if (!ac_is_tensor(p)) {
        PyErr_Format(PyExc_AssertionError, "the optimizer's parameters must be Tensors, got %s", Py_TYPE(p)->tp_name);
        return -1;
    }
    PyObject *grad = PyObject_GetAttr(p, ac_py->grad);
    int failed = !grad ? -1 : ac_is_tensor(grad) ? add(parts, grad, group, at) : 0;
    Py_XDECREF(grad);
    return failed;
}

static int add_group(PyObject *parts, PyObject *group, Py_ssize_t number) {
    PyObject *given = PyObject_GetItem(group, ac_py->params), *params = given ? PySequence_Tuple(given) : NULL;
    Py_XDECREF(given);
    if (!params) return -1;
    int failed = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(params) && !failed; i++)
        failed = add_parameter(parts, PyTuple_GET_ITEM(params, i), number, i);
    Py_DECREF(params);
    return failed;
}

/* _gradients_of(groups) -> a list [device index, gradients, their (group, position)s, the first position of a float16
 * one or None] for each device, in order of first use */
static PyObject *gradients_of(PyObject *module, PyObject *given) {
    PyObject *groups = PySequence_Tuple(given), *parts = groups ? PyList_New(0) : NULL;
    (void)module;
    for (Py_ssize_t g = 0; parts && g < PyTuple_GET_SIZE(groups); g++)
        if (add_group(parts, PyTuple_GET_ITEM(groups, g), g) < 0) Py_CLEAR(parts);
    Py_XDECREF(groups);
    return parts;
}

/* _forget_gradients(parameters): each .grad becomes None */
static PyObject *forget_gradients(PyObject *module, PyObject *given) {
    PyObject *parameters = PyObject_GetIter(given), *p;
    (void)module;
    if (!parameters) return NULL;
    while ((p = PyIter_Next(parameters))) {
        PyObject *grad = PyObject_GetAttr(p, ac_py->grad);
        int failed = !grad || (grad != Py_None && PyObject_SetAttr(p, ac_py->grad, Py_None) < 0);
        Py_XDECREF(grad);
        Py_DECREF(p);
        if (failed) break;
    }
    Py_DECREF(parameters);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef functions[] = {{"_gradients_of", gradients_of, METH_O, NULL},
                                  {"_forget_gradients", forget_gradients, METH_O, NULL},
                                  {NULL, NULL, 0, NULL}};

int ac_gradients_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
