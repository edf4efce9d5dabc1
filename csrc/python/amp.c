/* The weight cache and the loss scaler for Python; the rules of their use are in ampc/amp. */
#include "python/state.h"

#include "amp/scaler.h"
#include "tensor/packed_weights.h"

#include <math.h>
#include <stddef.h>
#include <structmember.h>

/* -- kept weight copies ----------------------------------------------------------------------------- */

static PyObject *copies_clear(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    ac_packed_weights_clear();
    Py_RETURN_NONE;
}
static PyObject *copies_bytes(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return PyLong_FromLongLong(ac_packed_weights_now().bytes);
}
static PyObject *copies_stats(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    ac_packed_weights_stats s = ac_packed_weights_now();
    return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L,s:L,s:L}", "bytes", (long long)s.bytes, "limit", (long long)s.limit,
                         "copies", (long long)s.copies, "used", (long long)s.used, "packed", (long long)s.packed,
                         "renewed", (long long)s.renewed, "refused", (long long)s.refused);
}
static PyObject *copies_limit(PyObject *module, PyObject *limit) {
    (void)module;
    long long bytes = PyLong_AsLongLong(limit);
    if (bytes == -1 && PyErr_Occurred()) return NULL;
    if (bytes < 0) return PyErr_SetString(PyExc_ValueError, "the limit must be 0 bytes or more"), NULL;
    ac_packed_weights_set_limit(bytes);
    Py_RETURN_NONE;
}

/* -- the scaler ------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD ac_scaler s;
} PyScaler;

#define SCALER(o) (&((PyScaler *)(o))->s)

static PyObject *scaler_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"init_scale", "growth_factor", "backoff_factor", "growth_interval",
                            "min_scale",  "max_scale",     "hysteresis",     NULL};
    double scale, growth, backoff, least, most;
    long long interval, hysteresis;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "dddLddL", names, &scale, &growth, &backoff, &interval, &least,
                                     &most, &hysteresis))
        return NULL;
    PyScaler *self = (PyScaler *)type->tp_alloc(type, 0);
    if (self)
        self->s = (ac_scaler){(float)scale, growth, backoff, interval, 0, (float)least, (float)most, hysteresis, 0};
    return (PyObject *)self;
}
static void scaler_dealloc(PyObject *o) {
    PyTypeObject *type = Py_TYPE(o);
    type->tp_free(o);
    Py_DECREF(type);
}

static PyObject *get_scale(PyObject *o, void *unused) {
    (void)unused;
    return PyFloat_FromDouble((double)SCALER(o)->scale);
}
static int set_scale(PyObject *o, PyObject *value, void *unused) {
    (void)unused;
    double scale = value ? PyFloat_AsDouble(value) : NAN;
    if (PyErr_Occurred()) return -1;
    if (!((float)scale > 0) || isinf((float)scale)) {
        PyErr_Format(PyExc_ValueError, "the scale must be a positive finite float32, got %R", value ? value : Py_None);
        return -1;
    }
    SCALER(o)->scale = (float)scale;
    return 0;
}
static PyObject *get_inverse(PyObject *o, void *unused) {
    (void)unused;
    return PyFloat_FromDouble((double)ac_scaler_inverse(SCALER(o)));
}
static PyObject *scaler_update(PyObject *o, PyObject *found) {
    int truth = PyObject_IsTrue(found);
    if (truth < 0) return NULL;
    ac_scaler_update(SCALER(o), truth);
    Py_RETURN_NONE;
}

static PyGetSetDef scaler_getset[] = {{"scale", get_scale, set_scale, "The present scale.", NULL},
                                      {"inverse", get_inverse, NULL, "1 / scale, in float32.", NULL},
                                      {NULL, NULL, NULL, NULL, NULL}};
static PyMemberDef scaler_members[] = {
    {"growth_factor", T_DOUBLE, offsetof(PyScaler, s) + offsetof(ac_scaler, growth_factor), 0, NULL},
    {"backoff_factor", T_DOUBLE, offsetof(PyScaler, s) + offsetof(ac_scaler, backoff_factor), 0, NULL},
    {"growth_interval", T_LONGLONG, offsetof(PyScaler, s) + offsetof(ac_scaler, growth_interval), 0, NULL},
    {"growth_tracker", T_LONGLONG, offsetof(PyScaler, s) + offsetof(ac_scaler, growth_tracker), 0, NULL},
    {"overflows", T_LONGLONG, offsetof(PyScaler, s) + offsetof(ac_scaler, overflows), 0, NULL},
    {NULL, 0, 0, 0, NULL}};
static PyMethodDef scaler_methods[] = {
    {"update", scaler_update, METH_O, "update(found_inf): one step of dynamic scaling."}, {NULL, NULL, 0, NULL}};
static PyType_Slot scaler_slots[] = {{Py_tp_new, scaler_new},         {Py_tp_dealloc, scaler_dealloc},
                                     {Py_tp_getset, scaler_getset},   {Py_tp_members, scaler_members},
                                     {Py_tp_methods, scaler_methods}, {0, NULL}};
static PyType_Spec scaler_spec = {"ampc._C.ScalerState", sizeof(PyScaler), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                  scaler_slots};

static PyMethodDef functions[] = {
    {"clear_autocast_cache", copies_clear, METH_NOARGS,
     "clear_autocast_cache()\n--\n\n"
     "Drops every kept weight copy."},
    {"weight_copy_bytes", copies_bytes, METH_NOARGS,
     "weight_copy_bytes()\n--\n\n"
     "Bytes held by kept weight copies, of 16 bits and of float32."},
    {"weight_copy_stats", copies_stats, METH_NOARGS,
     "weight_copy_stats()\n--\n\n"
     "A dict about kept weight copies: their bytes and limit (bytes), and how many are held now. It also counts how "
     "often a copy was used, packed, renewed by an optimizer's step, and refused by the limit."},
    {"set_weight_copy_limit", copies_limit, METH_O,
     "set_weight_copy_limit(bytes, /)\n--\n\n"
     "Bytes that kept weight copies may hold; beyond it weights are packed each time."},
    {NULL, NULL, 0, NULL}};

int ac_amp_init(PyObject *module) {
    ac_py->scaler = (PyTypeObject *)PyType_FromModuleAndSpec(module, &scaler_spec, NULL);
    if (!ac_py->scaler || PyModule_AddObjectRef(module, "ScalerState", (PyObject *)ac_py->scaler) < 0) return -1;
    return PyModule_AddFunctions(module, functions);
}
