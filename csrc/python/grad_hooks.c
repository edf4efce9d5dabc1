/* Runs Python's hooks on tensors and nodes in backward. */
#include "python/state.h"

#include "autograd/formula.h"

static int run_one(PyObject *hook, ac_tensor **grad) {
    PyObject *g = ac_wrap_borrowed(*grad), *result = NULL;
    if (g) AC_OUTSIDE(result = PyObject_CallFunctionObjArgs(hook, g, NULL));
    int failed = result ? 0 : -1;
    if (result && result != Py_None) {
        if (!ac_is_tensor(result)) {
            PyErr_Format(PyExc_TypeError, "a tensor hook must return a Tensor or None, got %s",
                         Py_TYPE(result)->tp_name);
            failed = -1;
        } else if (!ac_same_shape(ac_unwrap(result), *grad)) {
            char got[AC_SHAPE_TEXT], want[AC_SHAPE_TEXT];
            PyErr_Format(PyExc_RuntimeError,
                         "a tensor hook returned a gradient of shape %s, it was given one of shape %s",
                         ac_shape_text(ac_unwrap(result), got), ac_shape_text(*grad, want));
            failed = -1;
        } else if (ac_unwrap(result)->dtype != (*grad)->dtype) {
            PyErr_Format(PyExc_RuntimeError, "a tensor hook returned a %s gradient, expected %s",
                         ac_dtypes[ac_unwrap(result)->dtype].name, ac_dtypes[(*grad)->dtype].name);
            failed = -1;
        } else {
            ac_tensor *old = *grad;
            *grad = ac_tensor_retain(ac_unwrap(result));
            ac_tensor_release(old);
        }
    }
    Py_XDECREF(result);
    Py_XDECREF(g);
    return failed;
}

/* new: a tuple of n gradients, None for those that there are not */
static PyObject *tuple_of(ac_tensor *const *grads, int n) {
    PyObject *all = PyTuple_New(n);
    for (int i = 0; all && i < n; i++) {
        PyObject *g = grads[i] ? ac_wrap_borrowed(grads[i]) : Py_NewRef(Py_None);
        if (!g) Py_CLEAR(all);
        else PyTuple_SET_ITEM(all, i, g);
    }
    return all;
}

/* Puts what a hook on a node has returned (stolen, NULL after an error) in the place of n gradients. */
static int take_returned(PyObject *result, ac_tensor **grads, int n) {
    int failed = result ? 0 : -1;
    if (result && result != Py_None && !PyTuple_Check(result)) {
        PyErr_Format(PyExc_TypeError, "a hook on a node must return None or a tuple, got %s", Py_TYPE(result)->tp_name);
        failed = -1;
    } else if (result && result != Py_None && PyTuple_GET_SIZE(result) != n) {
        PyErr_Format(PyExc_RuntimeError, "a hook on a node returned %zd gradients, expected %d",
                     PyTuple_GET_SIZE(result), n);
        failed = -1;
    }
    for (int i = 0; !failed && result != Py_None && i < n; i++) {
        PyObject *g = PyTuple_GET_ITEM(result, i);
        ac_tensor *t = ac_is_tensor(g) ? ac_unwrap(g) : NULL, *old = grads[i];
        if (!t && g != Py_None) {
            PyErr_Format(PyExc_TypeError, "a hook on a node must return Tensors and None, got %s", Py_TYPE(g)->tp_name);
            failed = -1;
        } else if (t && old && (!ac_same_shape(t, old) || t->dtype != old->dtype)) {
            PyErr_Format(PyExc_RuntimeError, "a hook on a node must keep shape and dtype of gradient %d", i);
            failed = -1;
        } else {
            grads[i] = t ? ac_tensor_retain(t) : NULL;
            if (old) ac_tensor_release(old);
        }
    }
    Py_XDECREF(result);
    return failed;
}

static int run_before_node(PyObject *hook, ac_tensor **grads, int n) {
    PyObject *all = tuple_of(grads, n), *result = NULL;
    if (all) AC_OUTSIDE(result = PyObject_CallFunctionObjArgs(hook, all, NULL));
    Py_XDECREF(all);
    return take_returned(result, grads, n);
}

static int run_after_node(PyObject *hook, ac_tensor **given, int n_in, ac_tensor *const *grads, int n_out) {
    PyObject *in = tuple_of(given, n_in), *out = in ? tuple_of(grads, n_out) : NULL;
    PyObject *result = NULL;
    if (out) AC_OUTSIDE(result = PyObject_CallFunctionObjArgs(hook, in, out, NULL));
    Py_XDECREF(out);
    Py_XDECREF(in);
    return take_returned(result, given, n_in);
}

static int after_node(void *hooks, ac_tensor **given, int n_in, ac_tensor *const *grads, int n_out) {
    PyObject *list = PyDict_Values(hooks);
    int failed = list ? 0 : -1;
    for (Py_ssize_t i = 0; list && !failed && i < PyList_GET_SIZE(list); i++) {
        PyObject *entry = PyList_GET_ITEM(list, i);
        if (PyLong_AsLong(PyTuple_GET_ITEM(entry, 0)) != AC_HOOK_AFTER_NODE) continue;
        failed = run_after_node(PyTuple_GET_ITEM(entry, 1), given, n_in, grads, n_out);
    }
    Py_XDECREF(list);
    return failed;
}

static int run_hooks(void *hooks, ac_tensor **grads, int n) {
    PyObject *list = PyDict_Values(hooks); /* a hook may remove itself */
    int failed = list ? 0 : -1;
    for (Py_ssize_t i = 0; list && !failed && i < PyList_GET_SIZE(list); i++) {
        PyObject *entry = PyList_GET_ITEM(list, i);
        long index = PyLong_AsLong(PyTuple_GET_ITEM(entry, 0));
        if (index >= 0 && index < n && grads[index]) failed = run_one(PyTuple_GET_ITEM(entry, 1), &grads[index]);
    }
    Py_XDECREF(list);
    return failed;
}

static int before_node(void *hooks, ac_tensor **grads, int n) {
    PyObject *list = PyDict_Values(hooks);
    int failed = list ? 0 : -1;
    for (Py_ssize_t i = 0; list && !failed && i < PyList_GET_SIZE(list); i++) {
        PyObject *entry = PyList_GET_ITEM(list, i);
        if (PyLong_AsLong(PyTuple_GET_ITEM(entry, 0)) == AC_HOOK_BEFORE_NODE)
            failed = run_before_node(PyTuple_GET_ITEM(entry, 1), grads, n);
    }
    Py_XDECREF(list);
    return failed;
}

static int run_after_accumulate(PyObject *hook, PyObject *leaf) {
    PyObject *result;
    AC_OUTSIDE(result = PyObject_CallFunctionObjArgs(hook, leaf, NULL));
    int failed = result ? 0 : -1;
    if (result && result != Py_None) {
        PyErr_Format(PyExc_RuntimeError, "a post-accumulate hook must return None, got %s", Py_TYPE(result)->tp_name);
        failed = -1;
    }
    Py_XDECREF(result);
    return failed;
}

/* A leaf's hooks come before those of its node. */
static int after_accumulate(void *hooks, ac_tensor *leaf) {
    PyObject *list = PyDict_Values(hooks), *self = list ? ac_wrap_borrowed(leaf) : NULL;
    int failed = self ? 0 : -1;
    for (int of_node = 0; self && of_node < 2; of_node++)
        for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(list); i++) {
            PyObject *entry = PyList_GET_ITEM(list, i), *hook = PyTuple_GET_ITEM(entry, 1);
            long kind = PyLong_AsLong(PyTuple_GET_ITEM(entry, 0));
            if (kind != (of_node ? AC_HOOK_AFTER_NODE : AC_HOOK_AFTER_ACCUMULATE)) continue;
            failed = of_node ? run_after_node(hook, NULL, 0, &leaf->meta->grad, 1) : run_after_accumulate(hook, self);
        }
    Py_XDECREF(self);
    Py_XDECREF(list);
    return failed;
}

void ac_grad_hooks_init(void) {
    ac_grad_hooks.run_hooks = run_hooks;
    ac_grad_hooks.before_node = before_node;
    ac_grad_hooks.after_accumulate = after_accumulate;
    ac_grad_hooks.after_node = after_node;
}
