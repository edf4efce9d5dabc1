/* Calls a Python function with every operator that runs, for the doctor (ampc/doctor/nonfinite.py). */
#include "python/doctor.h"

#include "amp/autocast.h"
#include "base/rng.h"
#include "dispatch/observer.h"

static _Thread_local PyObject *watcher;       /* owned */
static _Thread_local PyObject *whole_watcher; /* owned */
static _Thread_local const ac_seen *seeing;   /* what it is being shown */

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
static int call_watcher(PyObject *callee, const ac_seen *s) {
    ac_grad_mode mode = ac_mode;
    PyObject *in = tuple_of(s->in, s->n_in), *out = in ? tuple_of(s->out, s->n_out) : NULL, *done = NULL;
    PyObject *low = s->low == AC_NO_DTYPE ? Py_None : ac_py->dtypes[s->low];
    const ac_seen *outer = seeing;
    seeing = s;
    ac_watching = false, ac_mode.no_grad = true;
    if (out)
        AC_OUTSIDE(done = PyObject_CallFunction(callee, "sOOOOL", ac_ops[s->op].name, in, out, low,
                                                s->onto ? Py_True : Py_False, (long long)s->nanoseconds));
    ac_watching = watcher != NULL, ac_mode = mode, seeing = outer;
    Py_XDECREF(in);
    Py_XDECREF(out);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static int saw(const ac_seen *s) {
    PyObject *now = Py_NewRef(watcher); /* which may put another in its place */
    bool doctor = ac_is_doctor(now);
    int done = doctor ? ac_doctor_saw(now, s) : 0;
    if (!done) done = call_watcher(doctor ? PyTuple_GET_ITEM(now, 0) : now, s);
    Py_DECREF(now);
    return done < 0 ? ac_fail(AC_PYTHON, "the watcher failed") : 0;
}

/* Whether what runs now is a part of a composite operator or of a formula of the core. */
static bool in_whole(void) { return ac_composing > 0 || (ac_running.node && !ac_running.node->py); }

/* `c`: the composite operator, or NULL for a formula. */
static int show_whole(ac_tensor *const *out, int n, const ac_op_call *c) {
    ac_grad_mode mode = ac_mode;
    PyObject *callee = Py_NewRef(whole_watcher), *results = tuple_of(out, n), *done = NULL;
    PyObject *in = results ? tuple_of(c ? c->operands : NULL, c ? c->n_in : 0) : NULL;
    ac_watching = false, ac_mode.no_grad = true;
    if (in) AC_OUTSIDE(done = PyObject_CallFunction(callee, "OsO", results, c ? c->info->name : "", in));
    ac_watching = watcher != NULL, ac_mode = mode;
    Py_DECREF(callee);
    Py_XDECREF(in);
    Py_XDECREF(results);
    Py_XDECREF(done);
    return done ? 0 : ac_fail(AC_PYTHON, "the watcher failed");
}

static int saw_whole(const ac_op_call *c) {
    return whole_watcher && ac_watching && !in_whole() ? show_whole(c->out, c->info->n_out, c) : 0;
}

/* The gradients that lead somewhere. A Function's operators are the user's own, each of which is judged by itself. */
static int saw_formula(const ac_node *n, ac_tensor *const *given) {
    if (!whole_watcher || !ac_watching || ac_composing || n->py) return 0;
    if (ac_is_doctor(watcher) && !ac_doctor_awaits(watcher)) return 0;
    ac_list leading;
    if (ac_list_start(&leading, n->n_in) < 0) return -1;
    for (int k = 0; k < n->n_in; k++) leading.at[k] = n->edges[k].node ? given[k] : NULL;
    int failed = show_whole(leading.at, n->n_in, NULL);
    ac_list_free(&leading);
    return failed;
}

/* The operator that is shown, on other inputs, outside autocast; true where it could be. One that draws random numbers
 * would draw others: they are given back, and it could not. */
static bool run_again(const ac_seen *s, ac_tensor *const *in, ac_tensor **out) {
    ac_autocast_state autocast = ac_autocast_suspend();
    ac_generator *g = ac_default_generator(), before = *g;
    bool done = ac_call(s->op, in, s->n_in, s->attrs, out) == 0, same = g->offset == before.offset;
    ac_autocast_resume(&autocast), *g = before;
    for (int i = 0; i < s->n_out && done && !same; i++) ac_tensor_clear(&out[i]);
    return done && same;
}

/* The Tensors of a tuple, NULL for None; the list is to be freed in any case. */
static int inputs_from(PyObject *tuple, ac_list *in) {
    if (ac_list_start(in, (int)PyTuple_GET_SIZE(tuple)) < 0) return (void)ac_raise(), -1;
    for (int i = 0; i < in->n; i++) {
        PyObject *o = PyTuple_GET_ITEM(tuple, i);
        if (o != Py_None && !ac_is_tensor(o)) return PyErr_SetString(PyExc_TypeError, "_again: expected Tensors"), -1;
        in->at[i] = o == Py_None ? NULL : ac_unwrap(o);
    }
    return 0;
}

/* _again(inputs) -> what the operator that the watcher is being shown makes of other inputs, a tuple; None where that
 * cannot be told */
static PyObject *again(PyObject *module, PyObject *inputs) {
    ac_list in;
    ac_tensor *out[AC_MAX_OUT] = {NULL};
    (void)module;
    if (!seeing || seeing->onto) Py_RETURN_NONE;
    if (!PyTuple_Check(inputs) || PyTuple_GET_SIZE(inputs) != seeing->n_in)
        return PyErr_Format(PyExc_TypeError, "_again: expected a tuple of %d inputs", seeing->n_in);
    int failed = inputs_from(inputs, &in);
    bool done = !failed && run_again(seeing, in.at, out);
    ac_list_free(&in);
    if (failed) return NULL;
    if (!done) Py_RETURN_NONE;
    PyObject *made = tuple_of(out, seeing->n_out);
    for (int i = 0; i < seeing->n_out; i++) ac_tensor_clear(&out[i]);
    return made;
}

static PyObject *number_from(const void *at, ac_param_kind kind) {
    if (kind != AC_P_SCALAR) return PyLong_FromLongLong(*(const int64_t *)at);
    ac_scalar s = *(const ac_scalar *)at;
    return s.kind == AC_NONE ? Py_NewRef(Py_None) : PyFloat_FromDouble(ac_scalar_double(s));
}

/* _seen_argument(name) -> the number or bool that the operator which the watcher is being shown was given by that name;
 * None where it has no such parameter, or was given none */
static PyObject *seen_argument(PyObject *module, PyObject *o) {
    const char *name = PyUnicode_Check(o) ? PyUnicode_AsUTF8(o) : NULL;
    (void)module;
    if (!name) return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "_seen_argument: expected a name");
    if (!seeing) Py_RETURN_NONE;
    const ac_op_info *info = &ac_ops[seeing->op];
    for (int i = 0; i < info->n_params && seeing->attrs; i++) {
        const ac_param *p = &info->params[i];
        bool known = p->kind == AC_P_INT || p->kind == AC_P_BOOL || p->kind == AC_P_SCALAR;
        if (!known || strcmp(p->name, name) != 0) continue;
        return number_from((const char *)seeing->attrs + p->offset, p->kind);
    }
    Py_RETURN_NONE;
}

PyObject *ac_watch_swap(PyObject *callback) {
    PyObject *old = watcher;
    watcher = callback;
    ac_watching = watcher != NULL;
    return old;
}

/* _watch(callback, a doctor's Notes or None) -> what was there; called as callback(operator, inputs, outputs,
 * low dtype, onto, nanoseconds) */
static PyObject *watch(PyObject *module, PyObject *callback) {
    PyObject *old = ac_watch_swap(callback == Py_None ? NULL : Py_NewRef(callback));
    (void)module;
    return old ? old : Py_NewRef(Py_None);
}

/* _watch_wholes(callback or None) -> what was there; called as callback(results, operator, inputs) after a composite
 * operator that is a part of no other, and after a formula of the core, which is no operator, '', on this thread, where
 * _watch's callback is there, too */
static PyObject *watch_wholes(PyObject *module, PyObject *callback) {
    PyObject *old = whole_watcher;
    (void)module;
    whole_watcher = callback == Py_None ? NULL : Py_NewRef(callback);
    return old ? old : Py_NewRef(Py_None);
}

/* _whole_watcher() -> the callback of this thread, or None */
static PyObject *whole_watcher_now(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return Py_NewRef(whole_watcher ? whole_watcher : Py_None);
}

/* _in_whole() -> whether what runs now is a part of a composite operator or of a formula of the core */
static PyObject *in_whole_now(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return PyBool_FromLong(in_whole());
}

/* _watcher() -> the callback or Notes of this thread, or None */
static PyObject *watcher_now(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return Py_NewRef(watcher ? watcher : Py_None);
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

/* _holders(tensor) -> how many tensors share its memory, itself and those that are kept for a backward pass among them
 */
static PyObject *holders(PyObject *module, PyObject *o) {
    (void)module;
    if (!ac_is_tensor(o)) return PyErr_SetString(PyExc_TypeError, "expected a Tensor"), NULL;
    return PyLong_FromLongLong(ac_storage_users(ac_unwrap(o)->storage));
}

static PyMethodDef functions[] = {{"_address", address, METH_O, NULL},
                                  {"_again", again, METH_O, NULL},
                                  {"_holders", holders, METH_O, NULL},
                                  {"_seen_argument", seen_argument, METH_O, NULL},
                                  {"_watch", watch, METH_O, NULL},
                                  {"_watch_wholes", watch_wholes, METH_O, NULL},
                                  {"_whole_watcher", whole_watcher_now, METH_NOARGS, NULL},
                                  {"_in_whole", in_whole_now, METH_NOARGS, NULL},
                                  {"_watcher", watcher_now, METH_NOARGS, NULL},
                                  {"_running", running, METH_NOARGS, NULL},
                                  {"_node_number", node_number, METH_O, NULL},
                                  {NULL, NULL, 0, NULL}};

int ac_watch_init(PyObject *module) {
    ac_watch = saw, ac_watch_whole = saw_whole, ac_grad_hooks.formula_ran = saw_formula;
    return PyModule_AddFunctions(module, functions);
}
