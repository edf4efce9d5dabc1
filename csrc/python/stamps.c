/* What the misuse guard (ampc/doctor) asks the core: stamps of gradients, and what the CPU has units for. */
#include "state.h"

#include "../kernels/micro.h"

static ac_meta *notes_of(PyObject *o) { return ac_is_tensor(o) ? ac_unwrap(o)->meta : NULL; }

/* _stamp_loss(loss, scaler, round, scale): the loss's history says that it is scaled, so far as it has one */
static PyObject *stamp_loss(PyObject *module, PyObject *args) {
    PyObject *loss;
    ac_scaling by;
    (void)module;
    if (!PyArg_ParseTuple(args, "OIIf", &loss, &by.scaler, &by.round, &by.scale)) return NULL;
    ac_meta *m = notes_of(loss);
    if (m && m->node) m->node->scaled = by;
    Py_RETURN_NONE;
}

/* _stamps(parameters) -> None where no gradient is stamped, else of all that are together: (states, a bit each; faults;
 * whether float16 lay on the way; whether bfloat16; the first scaled one's position, scaler, round and scale, or None;
 * the first faulty one's position or -1) */
static PyObject *stamps(PyObject *module, PyObject *list) {
    int states = 0, faults = 0, float16 = 0, bfloat16 = 0;
    Py_ssize_t scaled = -1, faulty = -1;
    ac_scaling by = {0, 0, 0};
    (void)module;
    if (!PyList_Check(list)) return PyErr_SetString(PyExc_TypeError, "expected a list of parameters"), NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        const ac_meta *m = notes_of(PyList_GET_ITEM(list, i));
        if (!m || !ac_stamp_holds(&m->stamp, m->grad, false)) continue;
        const ac_stamp *s = &m->stamp;
        bool exact = ac_stamp_holds(s, m->grad, true);
        int wrong = s->faults | (s->state == AC_STAMP_SCALED && !exact ? AC_EDITED : 0);
        if (s->state == AC_STAMP_PLAIN && !exact) continue; /* what it is now, nobody knows */
        states |= 1 << s->state, faults |= wrong, float16 |= s->float16, bfloat16 |= s->bfloat16;
        if (s->state != AC_STAMP_PLAIN && scaled < 0) scaled = i, by = s->by;
        if (wrong && faulty < 0) faulty = i;
    }
    if (!states) Py_RETURN_NONE;
    PyObject *first =
        scaled < 0 ? Py_NewRef(Py_None) : Py_BuildValue("nIId", scaled, by.scaler, by.round, (double)by.scale);
    return Py_BuildValue("iiOONn", states, faults, float16 ? Py_True : Py_False, bfloat16 ? Py_True : Py_False, first,
                         faulty);
}

/* _restamp(parameters, how): their gradients were written by ampc: 'same' as what they were, 'unscaled', or 'none' */
static PyObject *restamp(PyObject *module, PyObject *args) {
    PyObject *list;
    const char *how;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!s", &PyList_Type, &list, &how)) return NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        ac_meta *m = notes_of(PyList_GET_ITEM(list, i));
        if (!m || !ac_stamp_holds(&m->stamp, m->grad, false)) continue;
        if (how[0] == 'n') m->stamp.state = AC_STAMP_NONE;
        if (how[0] == 'u') m->stamp.state = AC_STAMP_UNSCALED, m->stamp.faults = 0;
        ac_stamp_renew(&m->stamp, m->grad);
    }
    Py_RETURN_NONE;
}

/* _is_scaled(tensor): whether its memory is a gradient that is still times a loss scale */
static PyObject *is_scaled(PyObject *module, PyObject *o) {
    (void)module;
    if (!ac_is_tensor(o)) Py_RETURN_FALSE;
    const ac_storage *s = ac_unwrap(o)->storage;
    return PyBool_FromLong(s->scaled_at == s->content + 1);
}

/* _has_units(dtype): whether the CPU multiplies values of a 16-bit dtype as such; else products are float32's */
static PyObject *has_units(PyObject *module, PyObject *o) {
    ac_dtype dtype;
    (void)module;
    if (ac_dtype_from(o, &dtype) < 0) return PyErr_SetString(PyExc_TypeError, "expected a dtype"), NULL;
    return PyBool_FromLong(ac_micro_for(dtype, true)->kind != AC_PANEL_F32);
}

static PyMethodDef functions[] = {
    {"_stamp_loss", stamp_loss, METH_VARARGS, NULL}, {"_stamps", stamps, METH_O, NULL},
    {"_has_units", has_units, METH_O, NULL},         {"_is_scaled", is_scaled, METH_O, NULL},
    {"_restamp", restamp, METH_VARARGS, NULL},       {NULL, NULL, 0, NULL}};

int ac_stamps_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
