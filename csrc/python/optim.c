/* Multi-tensor optimizer steps and norms for Python. */
#include "state.h"

#include "../optim/optim.h"

/* A list of Tensors (None where `holes`); the array is the caller's to free. */
static ac_tensor **list_of(PyObject *list, bool holes, const char *what) {
    Py_ssize_t n = PyList_GET_SIZE(list);
    ac_tensor **all = PyMem_Malloc((size_t)(n + 1) * sizeof *all);
    if (!all) return (ac_tensor **)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *o = PyList_GET_ITEM(list, i);
        if (ac_is_tensor(o)) all[i] = ac_unwrap(o);
        else if (o == Py_None && holes) all[i] = NULL;
        else {
            PyErr_Format(PyExc_TypeError, "%s must hold Tensors, got %s at position %zd", what, Py_TYPE(o)->tp_name, i);
            PyMem_Free(all);
            return NULL;
        }
    }
    return all;
}

/* One column of the updates from a Python list; a missing list leaves it NULL. */
static int column(ac_update *u, Py_ssize_t n, PyObject *list, size_t offset, bool holes, const char *what) {
    if (list == Py_None) return 0;
    if (!PyList_Check(list) || PyList_GET_SIZE(list) != n) {
        PyErr_Format(PyExc_ValueError, "%s must be a list of %zd tensors", what, n);
        return -1;
    }
    ac_tensor **all = list_of(list, holes, what);
    if (!all) return -1;
    for (Py_ssize_t i = 0; i < n; i++) *(ac_tensor **)(void *)((char *)&u[i] + offset) = all[i];
    PyMem_Free(all);
    return 0;
}

static int step_counts(ac_update *u, Py_ssize_t n, PyObject *counts) {
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *o = PyList_Check(counts) && PyList_GET_SIZE(counts) == n ? PyList_GET_ITEM(counts, i) : NULL;
        if (o && ac_is_tensor(o)) { /* a GPU counts its own steps */
            ac_tensor *t = ac_unwrap(o);
            bool good = t->numel == 1 && t->dtype == AC_float32 && ac_device_of(t) == ac_device_of(u[i].param);
            if (!good || ac_device_of(t) == AC_CPU) {
                PyErr_SetString(PyExc_ValueError,
                                "a step count that is a tensor must be one float32 on its parameter's GPU");
                return -1;
            }
            u[i].count = t, u[i].step = 1;
            continue;
        }
        u[i].step = o ? PyFloat_AsDouble(o) : -1;
        if (PyErr_Occurred()) return -1;
        if (u[i].step >= 1) continue;
        PyErr_SetString(PyExc_ValueError, "step counts must be a list of numbers of 1 or more");
        return -1;
    }
    return 0;
}

/* What an update leaves behind in its parameter's state dictionary, set where no signal can come in between:
 * the momentum, or the count of steps. */
static int note_states(ac_rule rule, PyObject *states, PyObject *momenta, PyObject *steps, int done) {
    PyObject *from = rule == AC_RULE_ADAM ? steps : momenta;
    const char *key = rule == AC_RULE_ADAM ? "step" : "momentum_buffer";
    PyObject *type, *value, *trace;
    int failed = 0;
    PyErr_Fetch(&type, &value, &trace);
    for (int i = 0; i < done && from != Py_None; i++)
        failed |= PyDict_SetItemString(PyList_GET_ITEM(states, i), key, PyList_GET_ITEM(from, i));
    if (failed && type) PyErr_Clear();
    if (type) PyErr_Restore(type, value, trace);
    return failed;
}

static int check_states(PyObject *states, Py_ssize_t n) {
    bool good = PyList_GET_SIZE(states) == n;
    for (Py_ssize_t i = 0; i < n && good; i++) good = PyDict_Check(PyList_GET_ITEM(states, i));
    if (!good) PyErr_Format(PyExc_ValueError, "states must be a list of %zd dictionaries", n);
    return good ? 0 : -1;
}

/* What leaves a step out: one float32 on the parameters' GPU. */
static int take_gate(PyObject *o, const ac_update *u, Py_ssize_t n, ac_step *k) {
    if (o == Py_None || n == 0) return 0;
    ac_tensor *t = ac_is_tensor(o) ? ac_unwrap(o) : NULL;
    bool good = t && t->numel == 1 && t->dtype == AC_float32 && ac_device_of(t) != AC_CPU;
    for (Py_ssize_t i = 0; i < n && good; i++) good = ac_device_of(u[i].param) == ac_device_of(t);
    if (!good) return PyErr_SetString(PyExc_ValueError, "found_inf must be one float32 on the parameters' GPU"), -1;
    k->found_inf = ac_data(t);
    return 0;
}

/* A GPU's step is only queued; others may run while the CPU works. */
static bool all_on_cpu(const ac_update *u, Py_ssize_t n) {
    for (Py_ssize_t i = 0; i < n; i++)
        if (ac_device_of(u[i].param) != AC_CPU) return false;
    return true;
}

static PyObject *run(ac_rule rule, PyObject *params, PyObject *grads, PyObject *const s[AC_MAX_STATE], PyObject *states,
                     PyObject *steps, PyObject *gate, ac_step *k) {
    Py_ssize_t n = PyList_GET_SIZE(params);
    ac_update *u = PyMem_Calloc((size_t)(n + 1), sizeof *u);
    if (!u) return PyErr_NoMemory();
    PyObject *result = NULL;
    int failed = column(u, n, params, offsetof(ac_update, param), false, "params") < 0 ||
                 column(u, n, grads, offsetof(ac_update, grad), false, "grads") < 0;
    for (size_t i = 0; i < AC_MAX_STATE && !failed; i++)
        failed = column(u, n, s[i], offsetof(ac_update, state) + i * sizeof u->state[0], false, "state") < 0;
    for (Py_ssize_t i = 0; i < n && !failed; i++) { /* what is read and written as it is */
        failed = ac_settle(u[i].param) < 0 || ac_settle_all(u[i].state, AC_MAX_STATE) < 0;
        if (failed) (void)ac_raise();
    }
    if (!failed && step_counts(u, n, steps) == 0 && check_states(states, n) == 0 && take_gate(gate, u, n, k) == 0) {
        ac_optim_begin(u, (int)n);
        bool unlock = all_on_cpu(u, n);
        void *lock = unlock ? ac_lock.release() : NULL;
        int done;
        failed = ac_optim_step(rule, u, (int)n, k, &done);
        if (unlock) ac_lock.acquire(lock);
        ac_optim_end(u, (int)n, done);
        if (failed) (void)ac_raise();
        if (note_states(rule, states, s[0], steps, done) == 0 && !failed) result = Py_NewRef(Py_None);
    }
    PyMem_Free(u);
    return result;
}

/* _sgd(params, grads, momenta | None, states, steps, lr, momentum, dampening, weight_decay, nesterov, maximize,
 * found_inf = None) */
static PyObject *sgd(PyObject *module, PyObject *args) {
    PyObject *params, *grads, *s[AC_MAX_STATE] = {Py_None, Py_None, Py_None}, *states, *steps, *gate = Py_None;
    ac_step k = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!OO!O!ddddpp|O", &PyList_Type, &params, &PyList_Type, &grads, &s[0], &PyList_Type,
                          &states, &PyList_Type, &steps, &k.lr, &k.momentum, &k.dampening, &k.weight_decay, &k.nesterov,
                          &k.maximize, &gate))
        return NULL;
    return run(AC_RULE_SGD, params, grads, s, states, steps, gate, &k);
}

/* _adam(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs | None, states, steps, lr, beta1, beta2, eps,
 * weight_decay, decoupled, maximize, found_inf = None) */
static PyObject *adam(PyObject *module, PyObject *args) {
    PyObject *params, *grads, *s[AC_MAX_STATE], *states, *steps, *gate = Py_None;
    ac_step k = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!OOOO!O!dddddpp|O", &PyList_Type, &params, &PyList_Type, &grads, &s[0], &s[1],
                          &s[2], &PyList_Type, &states, &PyList_Type, &steps, &k.lr, &k.beta1, &k.beta2, &k.eps,
                          &k.weight_decay, &k.decoupled, &k.maximize, &gate))
        return NULL;
    return run(AC_RULE_ADAM, params, grads, s, states, steps, gate, &k);
}

/* _look(tensors, factor = 1.0) -> a table [n, 5] on the CPU: squares, amax, infs and nans of the tensors times factor,
 * and how many values were too small for float16's normal numbers before; nothing is written. Tensors of the CPU. */
static PyObject *look(PyObject *module, PyObject *args) {
    PyObject *list;
    double factor = 1;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!|d", &PyList_Type, &list, &factor)) return NULL;
    ac_tensor **all = list_of(list, false, "tensors");
    if (!all) return NULL;
    int n = (int)PyList_GET_SIZE(list);
    for (int i = 0; i < n; i++) {
        if (ac_is_floating(all[i]->dtype) && !ac_overlaps_itself(all[i])) continue;
        PyErr_Format(PyExc_TypeError, "gradient %d must be floating point, its elements apart in memory", i);
        PyMem_Free(all);
        return NULL;
    }
    ac_dims shape = {2, {n, sizeof(ac_found) / sizeof(double)}};
    ac_tensor *table = ac_tensor_new(AC_float64, &shape);
    int failed = table ? 0 : -1;
    if (!failed) {
        ac_optim_hold(all, n);
        void *lock = ac_lock.release();
        failed = ac_optim_look(all, n, factor, ac_data(table));
        ac_lock.acquire(lock);
        ac_optim_let_go(all, n);
    }
    PyMem_Free(all);
    if (!failed) return ac_wrap(table);
    ac_tensor_clear(&table);
    return ac_raise();
}

/* _bad(table) -> how many values were not finite */
static PyObject *bad(PyObject *module, PyObject *o) {
    double total = 0;
    (void)module;
    if (!ac_is_tensor(o) || ac_unwrap(o)->dtype != AC_float64 || !ac_is_contiguous(ac_unwrap(o)) ||
        ac_device_of(ac_unwrap(o)) != AC_CPU)
        return PyErr_SetString(PyExc_TypeError, "_bad: expected what _look gave"), NULL;
    const ac_found *found = ac_data(ac_unwrap(o));
    for (int64_t i = 0; i < ac_unwrap(o)->shape[0]; i++) total += found[i].infs + found[i].nans;
    return PyFloat_FromDouble(total);
}

static PyObject *scale_all(PyObject *module, PyObject *args) {
    PyObject *list;
    double factor;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!d", &PyList_Type, &list, &factor)) return NULL;
    ac_tensor **all = list_of(list, false, "tensors");
    if (!all) return NULL;
    int failed = ac_optim_scale(all, (int)PyList_GET_SIZE(list), factor);
    PyMem_Free(all);
    if (failed) return ac_raise();
    Py_RETURN_NONE;
}

/* _pending() -> how many storages wait to be multiplied */
static PyObject *pending(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return PyLong_FromLongLong(ac_pending);
}

static PyMethodDef functions[] = {{"_sgd", sgd, METH_VARARGS, NULL},
                                  {"_adam", adam, METH_VARARGS, NULL},
                                  {"_look", look, METH_VARARGS, NULL},
                                  {"_bad", bad, METH_O, NULL},
                                  {"_pending", pending, METH_NOARGS, NULL},
                                  {"_scale_all", scale_all, METH_VARARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

int ac_optim_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
