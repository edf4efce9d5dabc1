/* Enters ordinary calls of operators in what a doctor knows (ampc/doctor/nonfinite.py), so that Python sees only the
 * others. A call is ordinary where its results lie on the CPU and are finite, while the doctor awaits no value, and
 * where none of its rules about numbers asks for more. */
#include "python/doctor.h"

#include "autograd/node.h"
#include "autograd/provenance.h"
#include "cpu/kernels.h"
#include "dispatch/lock.h"
#include "dispatch/waiting.h"

#include <math.h>

/* The items of the doctor's tuple, `Notes` in ampc/doctor/nonfinite.py, which says what each is. Borrowed. */
typedef struct {
    PyObject *saw, *made, *locations, *margins, *open, *held, *followed, *own, *outside, *ordinary, *with_margins,
        *keepers, *summing, *terms, *subtracting, *products, *ran, *most;
} notes;
enum { N_NOTES = sizeof(notes) / sizeof(PyObject *) };
/* Of the items of `Made`, those that are of interest here. */
enum { MADE_OP = 0, MADE_INPUTS = 3, MADE_LOST = 5 };

/* An ordinary call. Its objects are owned. */
typedef struct {
    const ac_seen *s;
    PyObject *op, *inputs;      /* its name, and the addresses of its inputs */
    PyObject *location;         /* the script's line, where somebody may ask for it, else NULL */
    bool margins;               /* how near the results come to the limits of their dtypes is told */
    double largest[AC_MAX_OUT]; /* magnitude of each result */
} ordinary_call;

/* What became of a call: Python is to see it, or it is entered. Functions return -1 with an exception. */
enum { LEFT = 0, ENTERED = 1 };

bool ac_is_doctor(PyObject *watcher) { return PyTuple_Check(watcher) && PyTuple_GET_SIZE(watcher) == N_NOTES; }

static notes notes_of(PyObject *watcher) {
    notes n;
    memcpy(&n, ((PyTupleObject *)watcher)->ob_item, sizeof n);
    return n;
}

static bool awaits(const notes *n) { return PyList_Size(n->open) || PyList_Size(n->held); }

bool ac_doctor_awaits(PyObject *watcher) {
    notes n = notes_of(watcher);
    return awaits(&n);
}

/* dict[key] = value, both stolen; NULL among them is an error that has been set. */
static int put(PyObject *dict, PyObject *key, PyObject *value) {
    int failed = key && value ? PyDict_SetItem(dict, key, value) : -1;
    Py_XDECREF(key);
    Py_XDECREF(value);
    return failed;
}

static PyObject *address_of(const ac_tensor *t) { return PyLong_FromVoidPtr(ac_data(t)); }

/* -- the script's line ---------------------------------------------------------------------------------- */

/* What is known of a frame's file, borrowed; NULL where nothing is. */
static PyObject *known_of(PyFrameObject *frame, PyObject *files) {
    PyCodeObject *code = PyFrame_GetCode(frame);
    PyObject *known = PyDict_GetItemWithError(files, code->co_filename);
    Py_DECREF(code);
    return known;
}

/* (file, line), new */
static PyObject *location_of(PyFrameObject *frame) {
    PyCodeObject *code = PyFrame_GetCode(frame);
    PyObject *location = Py_BuildValue("Oi", code->co_filename, PyFrame_GetLineNumber(frame));
    Py_DECREF(code);
    return location;
}

/* As call_site() of ampc/_messages/callers.py; NULL where that has not met one of the files yet. */
static PyObject *call_site(PyObject *outside) {
    PyFrameObject *frame = PyEval_GetFrame();
    PyObject *known = NULL, *location = NULL;
    Py_XINCREF((PyObject *)frame);
    while (frame && (known = known_of(frame, outside)) == Py_False) {
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
    if (frame && known) location = location_of(frame);
    Py_XDECREF((PyObject *)frame);
    return location;
}

/* -- whether a call is ordinary --------------------------------------------------------------------------- */

static bool is_judged(const ac_tensor *t) {
    return ac_is_floating(t->dtype) && t->numel > 0 && ac_device_of(t) != AC_META;
}

static bool is_plain(const ac_tensor *t) {
    return ac_device_of(t) == AC_CPU && !t->storage->deferred && ac_is_contiguous(t);
}

static double largest_of(const ac_tensor *t) {
    ac_compute_waiting();
    void *state = t->numel < AC_LOCK_ELEMENTS ? NULL : ac_lock.release();
    double largest = ac_cpu_largest(t);
    if (t->numel >= AC_LOCK_ELEMENTS) ac_lock.acquire(state);
    return largest;
}

/* Whether an operator that adds has written onto 16 bits, which may lose what is added. */
static bool may_lose(const ac_seen *s) { return s->onto && !ac_running.node && ac_is_half(s->out[0]->dtype); }

/* Whether an operator that keeps values from 0 may have done so by a number. */
static bool has_number(const ac_seen *s) {
    for (int i = 0; i < s->n_in; i++)
        if (s->in[i] && s->in[i]->ndim == 0 && s->in[i]->dtype == AC_float64) return true;
    return s->n_in == 1;
}

/* Whether an input was made with a number that is 0 in its dtype. */
static int has_lost(const notes *n, PyObject *addresses) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(addresses); i++) {
        PyObject *made = PyDict_GetItemWithError(n->made, PyTuple_GET_ITEM(addresses, i));
        if (!made && PyErr_Occurred()) return -1;
        PyObject *lost = made ? PyTuple_GET_ITEM(PyTuple_GET_ITEM(made, MADE_LOST), 0) : NULL;
        if (lost && PyFloat_AsDouble(lost) != 0) return 1;
    }
    return 0;
}

static PyObject *addresses_of(const ac_seen *s) {
    int count = 0;
    for (int i = 0; i < s->n_in; i++) count += s->in[i] != NULL;
    PyObject *all = PyTuple_New(count);
    for (int i = 0, at = 0; all && i < s->n_in; i++) {
        if (!s->in[i]) continue;
        PyObject *address = address_of(s->in[i]);
        if (!address) Py_CLEAR(all);
        else PyTuple_SET_ITEM(all, at++, address);
    }
    return all;
}

/* Whether somebody may ask for the line: of a result's node, or of a margin. */
static bool wants_location(const ordinary_call *c) {
    for (int i = 0; i < c->s->n_out; i++)
        if (c->s->out[i]->meta && c->s->out[i]->meta->node) return true;
    return c->margins;
}

/* Fills c->largest; false where a result is not finite, or that cannot be told here. */
static bool are_finite(ordinary_call *c) {
    for (int i = 0; i < c->s->n_out; i++) {
        const ac_tensor *t = c->s->out[i];
        if (!is_judged(t)) continue;
        if (!is_plain(t)) return false;
        c->largest[i] = largest_of(t);
        if (!isfinite(c->largest[i])) return false;
    }
    return true;
}

/* -- whether a rule about values (ampc/doctor/values.py) may begin to follow something ------------------------ */

static bool is_any_scaled(const ac_seen *s) {
    for (int i = 0; ac_any_scaled && i < s->n_in; i++)
        if (s->in[i] && ac_is_floating(s->in[i]->dtype) && ac_is_still_scaled(s->in[i])) return true;
    return false;
}

static bool is_column(const ac_tensor *t) { return t && t->ndim > 0 && t->shape[t->ndim - 1] == 1; }
static bool is_low(int64_t low) { return low != AC_NO_DTYPE && ac_is_half((ac_dtype)low); }

/* A product by autocast of what may be positions and frequencies, or one whose forward pass may be repeated. */
static bool is_product_of_interest(const notes *n, const ac_seen *s) {
    if (ac_running.node) return ac_running.node->py != NULL;
    if (PyDict_Size(n->ran) > 0) return true;
    return is_low(s->low) && (is_column(s->in[0]) || !ac_requires_grad(s->out[0]));
}

/* A result in 16 bits that has no history: a sum, an average, a rate, or whole numbers. */
static bool is_rounded(const ac_seen *s, bool term) {
    const ac_tensor *out = s->out[0];
    if (!ac_is_half(out->dtype) || ac_requires_grad(out)) return false;
    return term || s->onto || out->ndim <= 1 || s->n_in == 0 || !s->in[0] || !ac_is_floating(s->in[0]->dtype);
}

/* -1 with an exception */
static int may_be_followed(const notes *n, const ordinary_call *c) {
    const ac_seen *s = c->s;
    int term = PySet_Contains(n->terms, c->op), product = PySet_Contains(n->products, c->op);
    int subtracts = PySet_Contains(n->subtracting, c->op);
    if (term < 0 || product < 0 || subtracts < 0) return -1;
    if (s->n_out != 1) return 0;
    if (product && is_product_of_interest(n, s)) return 1;
    if (ac_running.node) return 0;
    bool updates = s->onto && ac_requires_grad(s->out[0]) && ac_is_leaf(s->out[0]);
    return updates || is_rounded(s, term) || (subtracts && ac_is_half(s->out[0]->dtype)) || is_any_scaled(s);
}

/* Fills *c, which is to be released in any case. */
static int examine(const notes *n, ordinary_call *c) {
    if (!are_finite(c)) return LEFT;
    c->op = PyUnicode_InternFromString(ac_ops[c->s->op].name);
    c->inputs = c->op ? addresses_of(c->s) : NULL;
    if (!c->inputs) return -1;
    int followed = may_be_followed(n, c);
    if (followed) return followed < 0 ? -1 : LEFT;
    int keeper = PySet_Contains(n->keepers, c->op), sums = PySet_Contains(n->summing, c->op);
    int margins = PySet_Contains(n->with_margins, c->op), lost = has_lost(n, c->inputs);
    if (keeper < 0 || sums < 0 || margins < 0 || lost < 0) return -1;
    if (lost || (keeper && has_number(c->s)) || (sums && may_lose(c->s))) return LEFT;
    c->margins = margins && !ac_running.node;
    if (!wants_location(c)) return ENTERED;
    c->location = call_site(n->outside);
    return c->location ? ENTERED : PyErr_Occurred() ? -1 : LEFT;
}

/* -- entering it ------------------------------------------------------------------------------------------ */

/* The doctor's entry of an ordinary call, with the operator and the addresses of this one; new */
static PyObject *made_of(const notes *n, const ordinary_call *c) {
    Py_ssize_t size = PyTuple_GET_SIZE(n->ordinary);
    PyObject *items = PyTuple_New(size), *args = items ? PyTuple_Pack(1, items) : NULL;
    for (Py_ssize_t i = 0; args && i < size; i++)
        PyTuple_SET_ITEM(items, i,
                         Py_NewRef(i == MADE_OP       ? c->op
                                   : i == MADE_INPUTS ? c->inputs
                                                      : PyTuple_GET_ITEM(n->ordinary, i)));
    PyObject *made = args ? PyTuple_Type.tp_new(Py_TYPE(n->ordinary), args, NULL) : NULL;
    Py_XDECREF(args);
    Py_XDECREF(items);
    return made;
}

static int enter_margin(const notes *n, const ordinary_call *c, int i) {
    PyObject *key = Py_BuildValue("OOs", c->op, c->location, ac_dtypes[c->s->out[i]->dtype].name);
    PyObject *before = key ? PyDict_GetItemWithError(n->margins, key) : NULL;
    if (!key || PyErr_Occurred() || (before && PyFloat_AsDouble(before) >= c->largest[i])) {
        Py_XDECREF(key);
        return PyErr_Occurred() ? -1 : 0;
    }
    return put(n->margins, key, PyFloat_FromDouble(c->largest[i]));
}

static int enter(const notes *n, const ordinary_call *c) {
    for (int i = 0; i < c->s->n_out; i++) {
        const ac_tensor *t = c->s->out[i];
        if (!is_judged(t)) continue;
        const ac_node *node = t->meta ? t->meta->node : NULL;
        if (node && put(n->locations, PyLong_FromUnsignedLongLong(node->seq), Py_NewRef(c->location)) < 0) return -1;
        if (c->margins && enter_margin(n, c, i) < 0) return -1;
        if (put(n->made, address_of(t), made_of(n, c)) < 0) return -1;
    }
    return ENTERED;
}

/* What scalers, optimizers and doctors make is not judged; what lay in its memory before is gone. */
static int forget(const notes *n, const ac_seen *s) {
    for (int i = 0; i < s->n_out && !s->onto; i++) {
        PyObject *address = address_of(s->out[i]);
        int known = address ? PyDict_Contains(n->made, address) : -1;
        if (known > 0) known = PyDict_DelItem(n->made, address);
        Py_XDECREF(address);
        if (known < 0) return -1;
    }
    return ENTERED;
}

int ac_doctor_saw(PyObject *watcher, const ac_seen *s) {
    notes n = notes_of(watcher);
    PyFrameObject *frame = PyEval_GetFrame();
    if (!frame || awaits(&n) || PyList_Size(n.followed) || PyDict_Size(n.made) > PyLong_AsSsize_t(n.most)) return LEFT;
    PyObject *own = known_of(frame, n.own);
    if (!own) return PyErr_Occurred() ? -1 : LEFT;
    if (own == Py_True) return forget(&n, s);
    ordinary_call c = {.s = s};
    int done = examine(&n, &c);
    if (done == ENTERED) done = enter(&n, &c);
    Py_XDECREF(c.op);
    Py_XDECREF(c.inputs);
    Py_XDECREF(c.location);
    return done;
}
