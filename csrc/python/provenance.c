/* Exposes gradients' provenance and the CPU's arithmetic units to the misuse guard (ampc/doctor). */
#include "python/state.h"

#include "cpu/gemm/micro.h"

static ac_meta *notes_of(PyObject *o) { return ac_is_tensor(o) ? ac_unwrap(o)->meta : NULL; }

/* _mark_scaled(loss, scaler, round, scale): the loss's history says that it is scaled, so far as it has one */
static PyObject *mark_scaled(PyObject *module, PyObject *args) {
    PyObject *loss;
    ac_scaling by;
    (void)module;
    if (!PyArg_ParseTuple(args, "OIIf", &loss, &by.scaler, &by.round, &by.scale)) return NULL;
    ac_meta *m = notes_of(loss);
    if (m && m->node) m->node->scaled = by;
    Py_RETURN_NONE;
}

/* _scale_of(loss) -> what scaler.scale() has multiplied it by; 1 where it has not, and 0 where that is on a GPU */
static PyObject *scale_of(PyObject *module, PyObject *loss) {
    ac_meta *m = notes_of(loss);
    (void)module;
    return PyFloat_FromDouble(m && m->node && m->node->scaled.scaler ? (double)m->node->scaled.scale : 1.0);
}

/* Walks a list of parameters, or of an optimizer's groups: dicts that have such lists. */
typedef struct {
    PyObject *list, *params; /* borrowed */
    Py_ssize_t next, next_param;
} walk;

static int walk_begin(walk *w, PyObject *list) {
    *w = (walk){.list = list};
    return PyList_Check(list) ? 0
                              : (PyErr_SetString(PyExc_TypeError, "expected a list of parameters, or of groups"), -1);
}

static PyObject *walk_next(walk *w) {
    for (;;) {
        if (w->params && w->next_param < PyList_GET_SIZE(w->params)) return PyList_GET_ITEM(w->params, w->next_param++);
        if (w->next >= PyList_GET_SIZE(w->list)) return NULL;
        PyObject *item = PyList_GET_ITEM(w->list, w->next++);
        if (!PyDict_Check(item)) return item;
        w->params = PyDict_GetItemWithError(item, ac_py->params), w->next_param = 0;
        if (w->params && !PyList_Check(w->params)) w->params = NULL;
    }
}

/* What the provenances of several gradients say together. */
typedef struct {
    int states, faults; /* of the states a bit each */
    bool float16;
    Py_ssize_t scaled, faulty; /* positions of the first ones, or -1 */
    ac_scaling by;             /* who scaled the first */
} summary;

static int sum_up(PyObject *list, summary *all) {
    walk w;
    *all = (summary){.scaled = -1, .faulty = -1};
    if (walk_begin(&w, list) < 0) return -1;
    PyObject *parameter;
    for (Py_ssize_t i = 0; (parameter = walk_next(&w)); i++) {
        const ac_meta *m = notes_of(parameter);
        if (!m || !ac_provenance_holds(&m->provenance, m->grad, false)) continue;
        const ac_provenance *s = &m->provenance;
        ac_provenance_state state = ac_provenance_state_of(s, m->grad);
        bool exact = ac_provenance_holds(s, m->grad, true);
        int wrong = s->faults | (state == AC_PROVENANCE_SCALED && !exact ? AC_EDITED : 0);
        if (state == AC_PROVENANCE_NONE) continue; /* what it is now, nobody knows */
        if ((state == AC_PROVENANCE_PLAIN || state == AC_PROVENANCE_USED) && !exact) continue;
        all->states |= 1 << state, all->faults |= wrong;
        all->float16 |= s->float16;
        if (s->state != AC_PROVENANCE_PLAIN && all->scaled < 0) all->scaled = i, all->by = s->by;
        if (wrong && all->faulty < 0) all->faulty = i;
    }
    return 0;
}

/* _provenance_flags(parameters or groups) -> states + faults * 256, and 65536 where float16 lay on the way; 0 where no
 * gradient has a provenance. What every step asks; who is alarmed asks _provenance. */
static PyObject *provenance_flags(PyObject *module, PyObject *list) {
    summary all;
    (void)module;
    if (sum_up(list, &all) < 0) return NULL;
    return PyLong_FromLong(all.states | all.faults << 8 | (all.float16 ? 1 << 16 : 0));
}

/* _provenance(parameters or groups) -> None where no gradient has one, else of all that are together: (states, a bit
 * each; faults; whether float16 lay on the way; the first scaled one's position, scaler, round and
 * scale, or None; the first faulty one's position or -1) */
static PyObject *provenance(PyObject *module, PyObject *list) {
    summary all;
    (void)module;
    if (sum_up(list, &all) < 0) return NULL;
    if (!all.states) Py_RETURN_NONE;
    PyObject *first = all.scaled < 0
                          ? Py_NewRef(Py_None)
                          : Py_BuildValue("nIId", all.scaled, all.by.scaler, all.by.round, (double)all.by.scale);
    return Py_BuildValue("iiONn", all.states, all.faults, all.float16 ? Py_True : Py_False, first, all.faulty);
}

/* _set_provenance(parameters or groups, how): their gradients were written by ampc: 'same' as what they were,
 * 'unscaled', 'taken' by a step, or 'none' */
static PyObject *set_provenance(PyObject *module, PyObject *args) {
    PyObject *list, *parameter;
    const char *how;
    walk w;
    (void)module;
    if (!PyArg_ParseTuple(args, "Os", &list, &how) || walk_begin(&w, list) < 0) return NULL;
    while ((parameter = walk_next(&w))) {
        ac_meta *m = notes_of(parameter);
        if (!m || !ac_provenance_holds(&m->provenance, m->grad, false)) continue;
        if (how[0] == 'n') m->provenance.state = AC_PROVENANCE_NONE;
        if (how[0] == 'u') m->provenance.state = AC_PROVENANCE_UNSCALED, m->provenance.faults = 0;
        if (how[0] == 't') m->provenance.state = AC_PROVENANCE_USED;
        ac_provenance_renew(&m->provenance, m->grad);
    }
    Py_RETURN_NONE;
}

/* _is_scaled(tensor): whether its memory is a gradient that is still times a loss scale */
static PyObject *is_scaled(PyObject *module, PyObject *o) {
    (void)module;
    if (!ac_is_tensor(o)) Py_RETURN_FALSE;
    return PyBool_FromLong(ac_is_still_scaled(ac_unwrap(o)));
}

/* _has_units(dtype): whether the CPU multiplies values of a 16-bit dtype as such; else products are float32's */
static PyObject *has_units(PyObject *module, PyObject *o) {
    ac_dtype dtype;
    (void)module;
    if (ac_dtype_from(o, &dtype) < 0) return PyErr_SetString(PyExc_TypeError, "expected a dtype"), NULL;
    return PyBool_FromLong(ac_micro_for(dtype, true)->kind != AC_PANEL_F32);
}

static PyMethodDef functions[] = {{"_mark_scaled", mark_scaled, METH_VARARGS, NULL},
                                  {"_scale_of", scale_of, METH_O, NULL},
                                  {"_provenance_flags", provenance_flags, METH_O, NULL},
                                  {"_provenance", provenance, METH_O, NULL},
                                  {"_has_units", has_units, METH_O, NULL},
                                  {"_is_scaled", is_scaled, METH_O, NULL},
                                  {"_set_provenance", set_provenance, METH_VARARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

int ac_provenance_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
