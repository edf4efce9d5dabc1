/* Multi-tensor optimizer steps and norms for Python. */
#include "python/state.h"

#include "base/rng.h"
#include "dispatch/deferred_scale.h"
#include "dispatch/lock.h"
#include "optim/optim.h"

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

static int settle_others(ac_tensor *const *all, Py_ssize_t n) {
    for (Py_ssize_t i = 0; i < n; i++)
        if (ac_settle_unless_own(all[i]) < 0) return (void)ac_raise(), -1;
    return 0;
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

/* A number that a GPU keeps itself, beside its parameter: NULL for one that is none, or (an error) elsewhere. */
static ac_tensor *number_there(PyObject *o, const ac_update *u) {
    if (!ac_is_tensor(o)) return NULL;
    ac_tensor *t = ac_unwrap(o);
    bool good = t->numel == 1 && t->dtype == AC_float32 && ac_device_of(t) == ac_device_of(u->param);
    if (good && ac_is_gpu(ac_device_of(t))) return t;
    PyErr_SetString(PyExc_ValueError, "a step count that is a tensor must be one float32 on its parameter's GPU");
    return NULL;
}

static int step_counts(ac_update *u, Py_ssize_t n, PyObject *counts) {
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *o = PyList_Check(counts) && PyList_GET_SIZE(counts) == n ? PyList_GET_ITEM(counts, i) : NULL;
        if (o) u[i].count = number_there(o, &u[i]);
        u[i].at.step = u[i].count ? 1 : o && !PyErr_Occurred() ? PyFloat_AsDouble(o) : -1;
        if (PyErr_Occurred()) return -1;
        if (u[i].at.step >= 1) continue;
        PyErr_SetString(PyExc_ValueError, "step counts must be a list of numbers of 1 or more");
        return -1;
    }
    return 0;
}

/* What an update leaves behind in its parameter's state dictionary: `notes` is {key: a value for each parameter}. Room
 * is made before the update, so that nothing can fail after it: keys that are new stand for `notes` itself meanwhile.
 */
static void take_room_back(PyObject *states, PyObject *notes) {
    PyObject *key, *values, *type, *value, *trace;
    Py_ssize_t at = 0;
    PyErr_Fetch(&type, &value, &trace);
    while (PyDict_Next(notes, &at, &key, &values))
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(states); i++) {
            PyObject *state = PyList_GET_ITEM(states, i);
            if (PyDict_GetItemWithError(state, key) == notes) (void)PyDict_DelItem(state, key);
        }
    PyErr_Restore(type, value, trace);
}

static int make_room(PyObject *states, PyObject *notes) {
    PyObject *key, *values;
    Py_ssize_t at = 0;
    while (PyDict_Next(notes, &at, &key, &values))
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(states); i++) {
            if (PyDict_SetDefault(PyList_GET_ITEM(states, i), key, notes)) continue;
            take_room_back(states, notes);
            return -1;
        }
    return 0;
}

/* Set where no signal can come in between. */
static int note_states(PyObject *states, PyObject *notes, int done) {
    PyObject *type, *value, *trace, *key, *values;
    Py_ssize_t at = 0;
    int failed = 0;
    PyErr_Fetch(&type, &value, &trace);
    while (PyDict_Next(notes, &at, &key, &values))
        for (int i = 0; i < done; i++)
            failed |= PyDict_SetItem(PyList_GET_ITEM(states, i), key, PyList_GET_ITEM(values, i));
    if (failed && type) PyErr_Clear();
    if (type) PyErr_Restore(type, value, trace);
    take_room_back(states, notes);
    return failed;
}

static int check_notes(PyObject *notes, Py_ssize_t n) {
    PyObject *key, *values;
    Py_ssize_t at = 0;
    while (PyDict_Next(notes, &at, &key, &values))
        if (!PyList_Check(values) || PyList_GET_SIZE(values) != n)
            return PyErr_Format(PyExc_ValueError, "notes[%R] must be a list of %zd values", key, n), -1;
    return 0;
}

static int check_states(PyObject *states, Py_ssize_t n) {
    bool good = PyList_GET_SIZE(states) == n;
    for (Py_ssize_t i = 0; i < n && good; i++) good = PyDict_Check(PyList_GET_ITEM(states, i));
    if (!good) PyErr_Format(PyExc_ValueError, "states must be a list of %zd dictionaries", n);
    return good ? 0 : -1;
}

/* What leaves a step out: one float32 on the parameters' GPU. */
static int take_gate(PyObject *o, const ac_update *u, Py_ssize_t n, ac_step_args *k) {
    if (o == Py_None || n == 0) return 0;
    ac_tensor *t = ac_is_tensor(o) ? ac_unwrap(o) : NULL;
    bool good = t && t->numel == 1 && t->dtype == AC_float32 && ac_is_gpu(ac_device_of(t));
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

/* NAdam's products of momenta, this step's included where they are numbers. */
static int take_products(ac_update *u, Py_ssize_t n, PyObject *products) {
    for (Py_ssize_t i = 0; i < n; i++) {
        u[i].at.product = 1;
        if (products == Py_None) continue;
        bool good = PyList_Check(products) && PyList_GET_SIZE(products) == n;
        if (good) u[i].product = number_there(PyList_GET_ITEM(products, i), &u[i]);
        else PyErr_SetString(PyExc_ValueError, "products must be None or a list of numbers");
        if (!PyErr_Occurred() && !u[i].product) u[i].at.product = PyFloat_AsDouble(PyList_GET_ITEM(products, i));
        if (PyErr_Occurred()) return -1;
    }
    return 0;
}

/* Options by name. Those that an update rule does not know are an error; those not given are 0. */
int ac_take_options(PyObject *given, ac_optim_options *o) {
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(given, &at, &key, &value)) {
        const char *name = PyUnicode_Check(key) ? PyUnicode_AsUTF8(key) : "";
        bool known = false;
#define NUMBER(field)                                                                                                  \
    if (strcmp(name, #field) == 0) known = true, o->field = PyFloat_AsDouble(value);
#define FLAG(field)                                                                                                    \
    if (strcmp(name, #field) == 0) known = true, o->field = PyObject_IsTrue(value);
        AC_OPTIM_NUMBERS(NUMBER)
        AC_OPTIM_FLAGS(FLAG)
#undef NUMBER
#undef FLAG
        if (PyErr_Occurred()) return -1;
        if (!known) return PyErr_Format(PyExc_TypeError, "optimizer: there is no option %R", key), -1;
    }
    return 0;
}

static int update_rule_of(const char *name) {
#define ENTRY(rule)                                                                                                    \
    if (strcmp(name, #rule) == 0) return AC_UPDATE_RULE_##rule;
    AC_UPDATE_RULES(ENTRY)
#undef ENTRY
    PyErr_Format(PyExc_ValueError, "optimizer: there is no rule '%s'", name);
    return -1;
}

static int take_columns(ac_update *u, Py_ssize_t n, PyObject *columns) {
    if (PyList_GET_SIZE(columns) > AC_MAX_STATE)
        return PyErr_Format(PyExc_ValueError, "optimizer: at most %d states", AC_MAX_STATE), -1;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(columns); i++) {
        size_t at = offsetof(ac_update, state) + (size_t)i * sizeof u->state[0];
        if (column(u, n, PyList_GET_ITEM(columns, i), at, false, "states") < 0) return -1;
    }
    return 0;
}

/* `rounding` for every 16-bit parameter; `extras` holds its compensations or masters, None elsewhere. */
static int take_rounding(ac_update *u, Py_ssize_t n, const char *rounding, PyObject *extras) {
    static const char *const names[] = {"nearest", "stochastic", "kahan", "master"};
    int which = 0;
    while (which < 4 && strcmp(rounding, names[which]) != 0) which++;
    if (which == 4) return PyErr_Format(PyExc_ValueError, "optimizer: there is no rounding '%s'", rounding), -1;
    if (column(u, n, extras, offsetof(ac_update, extra), true, "extras") < 0) return -1;
    bool beside = which == AC_ROUND_kahan || which == AC_ROUND_master;
    for (Py_ssize_t i = 0; i < n; i++) {
        bool half = ac_is_half(u[i].param->dtype);
        if ((half && beside) != (u[i].extra != NULL))
            return PyErr_Format(PyExc_ValueError, "extras[%zd]: %s", i,
                                u[i].extra ? "must be None" : "this rounding needs a tensor"),
                   -1;
        if (!half || which == AC_ROUND_nearest) continue;
        ac_generator *g = ac_default_generator();
        u[i].rounding = (ac_rounding)which;
        if (which == AC_ROUND_stochastic) u[i].seed = g->seed, u[i].offset = ac_generator_take(g, u[i].param->numel);
    }
    return 0;
}

/* What is read and written as it is. */
static int settle(const ac_update *u, Py_ssize_t n) {
    for (Py_ssize_t i = 0; i < n; i++) {
        if (settle_others(&u[i].grad, 1) < 0) return -1;
        bool settled = ac_settle_memory(u[i].param) == 0 && ac_settle_all(u[i].state, AC_MAX_STATE) == 0;
        if (!settled || ac_settle_all(&u[i].extra, 1) < 0) return (void)ac_raise(), -1;
    }
    return 0;
}

static PyObject *run(ac_update_rule rule, ac_update *u, Py_ssize_t n, const ac_step_args *how, PyObject *states,
                     PyObject *notes) {
    ac_optim_begin(u, (int)n);
    bool unlock = all_on_cpu(u, n);
    void *lock = unlock ? ac_lock.release() : NULL;
    ac_inside_enter();
    int done, failed = ac_optim_step(rule, u, (int)n, how, &done);
    ac_inside_leave();
    if (unlock) ac_lock.acquire(lock);
    ac_optim_end(u, (int)n, done, how->zero);
    if (failed) (void)ac_raise();
    return note_states(states, notes, done) == 0 && !failed ? Py_NewRef(Py_None) : NULL;
}

/* _step(rule, params, grads, columns, states, notes, steps, products | None, options, found_inf = None,
 * rounding = 'nearest', extras = None, zero_grad = False): one update of every parameter; `columns` are the rule's
 * states, a list of tensors each */
static PyObject *step(PyObject *module, PyObject *args) {
    PyObject *params, *grads, *columns, *states, *notes, *steps, *products, *options, *gate = Py_None,
                                                                                      *extras = Py_None, *result = NULL;
    const char *name, *rounding = "nearest";
    ac_step_args how = {.found_inf = NULL};
    int zero = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "sO!O!O!O!O!O!OO!|OsOp", &name, &PyList_Type, &params, &PyList_Type, &grads,
                          &PyList_Type, &columns, &PyList_Type, &states, &PyDict_Type, &notes, &PyList_Type, &steps,
                          &products, &PyDict_Type, &options, &gate, &rounding, &extras, &zero))
        return NULL;
    how.zero = zero;
    int rule = update_rule_of(name);
    Py_ssize_t n = PyList_GET_SIZE(params);
    ac_update *u = rule < 0 ? NULL : PyMem_Calloc((size_t)(n + 1), sizeof *u);
    if (!u) return rule < 0 ? NULL : PyErr_NoMemory();
    bool good = column(u, n, params, offsetof(ac_update, param), false, "params") == 0 &&
                column(u, n, grads, offsetof(ac_update, grad), false, "grads") == 0 &&
                take_columns(u, n, columns) == 0 && step_counts(u, n, steps) == 0 &&
                take_products(u, n, products) == 0 && check_states(states, n) == 0 && check_notes(notes, n) == 0 &&
                ac_take_options(options, &how.options) == 0 && take_gate(gate, u, n, &how) == 0 &&
                take_rounding(u, n, rounding, extras) == 0 && settle(u, n) == 0;
    if (good && make_room(states, notes) == 0) result = run((ac_update_rule)rule, u, n, &how, states, notes);
    PyMem_Free(u);
    return result;
}

/* _grad_stats(tensors, factor = 1.0) -> a table [n, 6] on the CPU, ac_found's columns: squares, amax, infs and nans of
 * the tensors times factor, how many values were too small for float16's normal numbers before, and the index of the
 * first bad one; nothing is written. Tensors of the CPU. */
static PyObject *grad_stats(PyObject *module, PyObject *args) {
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
    if (settle_others(all, n) < 0) {
        PyMem_Free(all);
        return NULL;
    }
    ac_dims shape = {2, {n, sizeof(ac_found) / sizeof(double)}};
    ac_tensor *table = ac_tensor_new(AC_float64, &shape);
    int failed = table ? 0 : -1;
    if (!failed) {
        ac_optim_hold(all, n);
        void *lock = ac_lock.release();
        failed = ac_optim_grad_stats(all, n, factor, ac_data(table));
        ac_lock.acquire(lock);
        ac_optim_let_go(all, n);
    }
    PyMem_Free(all);
    if (!failed) return ac_wrap(table);
    ac_tensor_clear(&table);
    return ac_raise();
}

/* _sum_up(table) -> (squares, largest amax, infs, nans, small values) of all rows */
static PyObject *sum_up(PyObject *module, PyObject *o) {
    ac_found all = {0};
    (void)module;
    if (!ac_is_tensor(o) || ac_unwrap(o)->dtype != AC_float64 || !ac_is_contiguous(ac_unwrap(o)) ||
        ac_device_of(ac_unwrap(o)) != AC_CPU)
        return PyErr_SetString(PyExc_TypeError, "_sum_up: expected what _grad_stats gave"), NULL;
    const ac_found *found = ac_data(ac_unwrap(o));
    for (int64_t i = 0; i < ac_unwrap(o)->shape[0]; i++) {
        all.squares += found[i].squares, all.infs += found[i].infs, all.nans += found[i].nans;
        all.small += found[i].small, all.amax = found[i].amax > all.amax ? found[i].amax : all.amax;
    }
    return Py_BuildValue("ddddd", all.squares, all.amax, all.infs, all.nans, all.small);
}

/* A factor on the tensors' GPU: one float64 with memory of its own. */
static bool takes_factor(PyObject *by, ac_tensor *const *all, Py_ssize_t n) {
    ac_tensor *t = ac_is_tensor(by) ? ac_unwrap(by) : NULL;
    bool good = t && t->dtype == AC_float64 && t->numel == 1 && t->storage->bytes == 8 && ac_is_gpu(ac_device_of(t));
    for (Py_ssize_t i = 0; i < n && good; i++) good = ac_device_of(all[i]) == ac_device_of(t);
    if (!good) PyErr_SetString(PyExc_ValueError, "by: expected one float64 on the tensors' GPU, not a part of others");
    return good;
}

/* _scale_all(tensors, factor, by = None): multiplies them by both; see ac_optim_scale */
static PyObject *scale_all(PyObject *module, PyObject *args) {
    PyObject *list, *by = Py_None;
    double factor;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!d|O", &PyList_Type, &list, &factor, &by)) return NULL;
    Py_ssize_t n = PyList_GET_SIZE(list);
    ac_tensor **all = list_of(list, false, "tensors");
    if (!all) return NULL;
    bool good = (by == Py_None || takes_factor(by, all, n)) && settle_others(all, n) == 0;
    ac_inside_enter();
    int failed = good ? ac_optim_scale(all, (int)n, factor, by == Py_None ? NULL : ac_unwrap(by)) : 0;
    ac_inside_leave();
    PyMem_Free(all);
    if (!good) return NULL;
    if (failed) return ac_raise();
    Py_RETURN_NONE;
}

/* _pending() -> how many storages wait to be multiplied */
static PyObject *pending(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return PyLong_FromLongLong(ac_deferred_scales);
}

static PyMethodDef functions[] = {
    {"_step", step, METH_VARARGS, NULL},           {"_grad_stats", grad_stats, METH_VARARGS, NULL},
    {"_pending", pending, METH_NOARGS, NULL},      {"_sum_up", sum_up, METH_O, NULL},
    {"_scale_all", scale_all, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};

int ac_optim_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
