/* Operators as they run, for Python to look at (ampc/doctor/watch.py). */
#include "state.h"

static _Thread_local PyObject *watcher; /* owned */

static PyObject *tuple_of(ac_tensor *const *tensors, int n) {
    PyObject *all = PyTuple_New(n);
    for (int i = 0; all && i < n; i++) {
        PyObject *t = tensors[i] ? ac_wrap_borrowed(tensors[i]) : Py_NewRef(Py_None);
        if (!t) Py_CLEAR(all);
        else PyTuple_SET_ITEM(all, i, t);
    }
    return all;
}

/* The watcher's own operators are not watched, nor recorded. */
static int saw(const ac_seen *s) {
    ac_grad_mode mode = ac_mode;
    PyObject *in = tuple_of(s->in, s->n_in), *out = in ? tuple_of(s->out, s->n_out) : NULL, *done = NULL;
    PyObject *low = s->low == AC_NO_DTYPE ? Py_None : ac_py->dtypes[s->low];
    PyObject *callee = Py_NewRef(watcher); /* which may put another in its place */
    ac_watching = false, ac_mode.no_grad = true;
    if (out)
        done = PyObject_CallFunction(callee, "sOOOOL", ac_ops[s->op].name, in, out, low, s->onto ? Py_True : Py_False,
                                     (long long)s->nanoseconds);
    ac_watching = watcher != NULL, ac_mode = mode;
    Py_DECREF(callee);
    Py_XDECREF(in);
    Py_XDECREF(out);
    Py_XDECREF(done);
    return done ? 0 : ac_fail(AC_PYTHON, "the watcher failed");
}

/* _watch(callback or None) -> what was there; called as callback(operator, inputs, outputs, low dtype, onto,
 * nanoseconds) */
static PyObject *watch(PyObject *module, PyObject *callback) {
    PyObject *old = watcher ? watcher : Py_NewRef(Py_None);
    (void)module;
    watcher = callback == Py_None ? NULL : Py_NewRef(callback);
    ac_watching = watcher != NULL;
    return old;
}

/* _running() -> None, or of the formula that runs: (operator, number of its node, the scale of its loss or 1) */
static PyObject *running(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    if (!ac_running.node) Py_RETURN_NONE;
    float scale = ac_running.pass->by.scaler ? ac_running.pass->by.scale : 1;
    return Py_BuildValue("sKd", ac_running.node->name, (unsigned long long)ac_running.node->seq, (double)scale);
}

/* _node_number(tensor) -> of the node that made it, 0 where none did */
static PyObject *node_number(PyObject *module, PyObject *o) {
    (void)module;
    const ac_meta *m = ac_is_tensor(o) ? ac_unwrap(o)->meta : NULL;
    return PyLong_FromUnsignedLongLong(m && m->node ? m->node->seq : 0);
}

/* _address(tensor) -> of its first element, to know it again by: unlike data_ptr() nothing is promised to whoever asks
 */
static PyObject *address(PyObject *module, PyObject *o) {
    (void)module;
    if (!ac_is_tensor(o)) return PyErr_SetString(PyExc_TypeError, "expected a Tensor"), NULL;
    return PyLong_FromVoidPtr(ac_data(ac_unwrap(o)));
}

static PyMethodDef functions[] = {{"_address", address, METH_O, NULL},
                                  {"_watch", watch, METH_O, NULL},
                                  {"_running", running, METH_NOARGS, NULL},
                                  {"_node_number", node_number, METH_O, NULL},
                                  {NULL, NULL, 0, NULL}};

int ac_watch_init(PyObject *module) {
    ac_watch = saw;
    return PyModule_AddFunctions(module, functions);
}
