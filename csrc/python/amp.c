/* Autocast state and the loss scaler for Python; the rules of their use are in ampc/amp. */
#include "python/scope.h"

#include "amp/autocast.h"
#include "amp/scaler.h"
#include "tensor/packed_weights.h"

#include <math.h>
#include <stddef.h>
#include <structmember.h>

static int device_from(PyObject *o, ac_amp_device *d) {
    const char *name = PyUnicode_Check(o) ? PyUnicode_AsUTF8(o) : NULL;
    if (name && strcmp(name, "cpu") == 0) return *d = AC_AMP_CPU, 0;
    if (name && strcmp(name, "cuda") == 0) return *d = AC_AMP_CUDA, 0;
    if (name) PyErr_Format(PyExc_RuntimeError, "autocast: device type must be 'cpu' or 'cuda', got '%s'", name);
    else PyErr_Format(PyExc_ValueError, "autocast: the device type must be a string, got %s", Py_TYPE(o)->tp_name);
    return -1;
}

/* -- regions ---------------------------------------------------------------------------------------- */

/* What a region is made of, read before it begins. */
typedef struct {
    ac_scope_frame base;
    ac_autocast_state before;
    PyObject *policy, *table; /* owned: of the region, or NULL; its bytes, which the state borrows */
    PyObject *by_module;      /* owned: what policy_state had */
    PyObject *seen, *watcher; /* owned: who looks at the region, for region_ends; what was there before, may be NULL */
} region;
static _Thread_local int depth; /* of regions */

static int restore(ac_scope_frame *f) {
    region *r = (region *)f;
    ac_autocast = r->before;
    depth--;
    if (r->seen) {
        Py_XDECREF(ac_watch_swap(r->watcher));
        r->watcher = NULL;
    }
    int failed = r->by_module ? PyObject_SetAttr(ac_py->policy_state, ac_py->by_module, r->by_module) : 0;
    if (failed || !r->seen) return failed;
    PyObject *done = PyObject_CallFunctionObjArgs(ac_py->region_ends, r->seen, NULL);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static void release(ac_scope_frame *f) {
    region *r = (region *)f;
    PyObject *owned[] = {r->policy, r->table, r->by_module, r->seen, r->watcher};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) Py_XDECREF(owned[i]);
}

/* A policy is bytes, a category for each operator of op_table() in its order. */
static int check_table(PyObject *table) {
    if (!PyBytes_Check(table) || PyBytes_GET_SIZE(table) != AC_N_OPS) {
        PyErr_SetString(PyExc_TypeError, "autocast: a policy's table must be bytes, one for each operator");
        return -1;
    }
    const uint8_t *categories = (const uint8_t *)PyBytes_AS_STRING(table);
    for (int i = 0; i < AC_N_OPS; i++)
        if (categories[i] > AC_CAST_UNSAFE) {
            PyErr_SetString(PyExc_ValueError, "autocast: there is no such category in the policy's table");
            return -1;
        }
    return 0;
}

/* The region's own policy, or the one chosen for regions that have none; and the modules' policy that goes with it. */
static int take_policy(region *r, PyObject *self) {
    r->policy = PyObject_GetAttr(self, ac_py->policy);
    if (r->policy == Py_None) Py_SETREF(r->policy, PyObject_GetAttr(ac_py->policy_state, ac_py->chosen));
    if (!r->policy) return -1;
    if (r->policy == Py_None) {
        Py_CLEAR(r->policy);
        return 0;
    }
    r->table = PyObject_GetAttr(r->policy, ac_py->table);
    return r->table ? check_table(r->table) : -1;
}

/* Whether the modules' policy changes: no policy leaves what the region around has. */
static int enter_modules(region *r) {
    if (!r->policy) return 0;
    PyObject *before = PyObject_GetAttr(ac_py->policy_state, ac_py->by_module);
    PyObject *modules = before ? PyObject_GetAttr(r->policy, ac_py->modules) : NULL;
    int some = modules ? PyObject_IsTrue(modules) : -1;
    Py_XDECREF(modules);
    if (some >= 0) some = PyObject_SetAttr(ac_py->policy_state, ac_py->by_module, some ? r->policy : Py_None);
    if (some < 0) Py_XDECREF(before);
    else r->by_module = before;
    return some;
}

static int read_truth(PyObject *self, PyObject *name) {
    PyObject *value = PyObject_GetAttr(self, name);
    int truth = value ? PyObject_IsTrue(value) : -1;
    Py_XDECREF(value);
    return truth;
}

/* The outermost region may be looked at, by an object whose _saw() is then called with every operator. */
static int take_watcher(region *r, PyObject *self, ac_dtype dtype) {
    int observable = read_truth(self, ac_py->observable);
    if (observable <= 0 || !ac_py->region_begins) return observable < 0 ? -1 : 0; /* nobody listens */
    r->seen = PyObject_CallFunctionObjArgs(ac_py->region_begins, ac_py->dtypes[dtype], NULL);
    if (r->seen == Py_None) Py_CLEAR(r->seen);
    else if (r->seen) r->watcher = PyObject_GetAttr(r->seen, ac_py->saw);
    return PyErr_Occurred() ? -1 : 0;
}

/* __enter__ of AutocastScope: by the attributes device, fast_dtype, _enabled, _cache_enabled and _policy. */
static PyObject *enter(PyObject *self, PyObject *unused) {
    ac_amp_device d;
    ac_dtype dtype;
    (void)unused;
    PyObject *device = PyObject_GetAttr(self, ac_py->device), *as = PyObject_GetAttr(self, ac_py->fast_dtype);
    int failed = !device || !as || device_from(device, &d) < 0;
    if (!failed && ac_dtype_from(as, &dtype) < 0) {
        PyErr_SetString(PyExc_TypeError, "autocast: `dtype` must be a dtype");
        failed = true;
    }
    Py_XDECREF(device);
    Py_XDECREF(as);
    int on = failed ? -1 : read_truth(self, ac_py->enabled);
    int cache = on < 0 ? -1 : read_truth(self, ac_py->cache_enabled);
    region *r = cache < 0 ? NULL : ac_scope_frame_new(sizeof *r, self, restore, release);
    if (!r) return NULL;
    if (take_policy(r, self) < 0 || (on && depth == 0 && take_watcher(r, self, dtype) < 0) || enter_modules(r) < 0) {
        ac_scope_free(&r->base);
        return NULL;
    }
    ac_scope_push(&r->base); /* from here on nothing fails */
    depth++;
    r->before = ac_autocast;
    if (r->seen) r->watcher = ac_watch_swap(r->watcher);
    ac_autocast_enter(d, on, dtype, cache, r->table ? (const uint8_t *)PyBytes_AS_STRING(r->table) : NULL);
    return Py_NewRef(self);
}

/* _region_policy() -> of the innermost region of this thread that has one, or None */
static PyObject *region_policy(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    for (ac_scope_frame *f = ac_scope_innermost(); f; f = f->outer)
        if (f->restore == restore && ((region *)f)->policy) return Py_NewRef(((region *)f)->policy);
    Py_RETURN_NONE;
}

/* _set_policy_state(state): has `chosen`, a policy for regions that name none, and `by_module`. */
static PyObject *set_policy_state(PyObject *module, PyObject *state) {
    (void)module;
    Py_XSETREF(ac_py->policy_state, Py_NewRef(state));
    Py_RETURN_NONE;
}

/* _listen_to_regions(begins, ends): begins(dtype) gives who looks at an outermost region, or None, and ends(that) is
 * called when the state is back. */
static PyObject *listen_to_regions(PyObject *module, PyObject *args) {
    PyObject *begins, *ends;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO", &begins, &ends)) return NULL;
    Py_XSETREF(ac_py->region_begins, Py_NewRef(begins));
    Py_XSETREF(ac_py->region_ends, Py_NewRef(ends));
    Py_RETURN_NONE;
}

static PyObject *is_enabled(PyObject *module, PyObject *device) {
    ac_amp_device d;
    (void)module;
    return device_from(device, &d) < 0 ? NULL : PyBool_FromLong(ac_autocast.enabled[d]);
}
static PyObject *is_active(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return PyBool_FromLong(ac_autocast.active);
}
static PyObject *active_dtype(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    if (!ac_autocast.active) Py_RETURN_NONE;
    return Py_NewRef(ac_py->dtypes[ac_autocast.dtype]);
}

static PyObject *set_enabled(PyObject *module, PyObject *args) {
    PyObject *device;
    int on;
    ac_amp_device d;
    (void)module;
    if (!PyArg_ParseTuple(args, "Op", &device, &on) || device_from(device, &d) < 0) return NULL;
    ac_autocast_set_enabled(d, on);
    Py_RETURN_NONE;
}

static PyObject *get_dtype(PyObject *module, PyObject *device) {
    ac_amp_device d;
    (void)module;
    return device_from(device, &d) < 0 ? NULL : Py_NewRef(ac_py->dtypes[ac_autocast_dtype(d)]);
}

static PyObject *set_dtype(PyObject *module, PyObject *args) {
    PyObject *device, *as;
    ac_amp_device d;
    ac_dtype dtype;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO", &device, &as) || device_from(device, &d) < 0) return NULL;
    if (ac_dtype_from(as, &dtype) < 0 || !ac_is_floating(dtype))
        return PyErr_SetString(PyExc_TypeError, "set_autocast_dtype: expected a floating point dtype"), NULL;
    ac_autocast_set_dtype(d, dtype);
    Py_RETURN_NONE;
}

static PyObject *cache_enabled(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return PyBool_FromLong(!ac_autocast.no_cache);
}
static PyObject *set_cache_enabled(PyObject *module, PyObject *on) {
    (void)module;
    int truth = PyObject_IsTrue(on);
    if (truth < 0) return NULL;
    ac_autocast.no_cache = !truth;
    Py_RETURN_NONE;
}
static PyObject *nest(PyObject *module, PyObject *by) {
    (void)module;
    long n = PyLong_AsLong(by);
    if (n == -1 && PyErr_Occurred()) return NULL;
    return PyLong_FromLong(ac_autocast.nesting += (int)n);
}

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
    {"_region_policy", region_policy, METH_NOARGS, NULL},
    {"_set_policy_state", set_policy_state, METH_O, NULL},
    {"_listen_to_regions", listen_to_regions, METH_VARARGS, NULL},
    {"_is_autocast_enabled", is_enabled, METH_O, NULL},
    {"_autocast_active", is_active, METH_NOARGS, NULL},
    {"_autocast_active_dtype", active_dtype, METH_NOARGS, NULL},
    {"set_autocast_enabled", set_enabled, METH_VARARGS,
     "set_autocast_enabled(device_type, enabled, /)\n--\n\n"
     "Turns autocast of a device type on or off, without a region."},
    {"get_autocast_dtype", get_dtype, METH_O,
     "get_autocast_dtype(device_type, /)\n--\n\n"
     "The dtype that regions of a device type cast to."},
    {"set_autocast_dtype", set_dtype, METH_VARARGS,
     "set_autocast_dtype(device_type, dtype, /)\n--\n\n"
     "Sets the dtype that regions of a device type cast to."},
    {"is_autocast_cache_enabled", cache_enabled, METH_NOARGS,
     "is_autocast_cache_enabled()\n--\n\n"
     "Whether 16-bit weight copies are kept."},
    {"set_autocast_cache_enabled", set_cache_enabled, METH_O,
     "set_autocast_cache_enabled(enabled, /)\n--\n\n"
     "Turns the keeping of 16-bit weight copies on or off."},
    {"_autocast_nest", nest, METH_O, NULL},
    {"clear_autocast_cache", copies_clear, METH_NOARGS,
     "clear_autocast_cache()\n--\n\n"
     "Drops every kept 16-bit weight copy."},
    {"weight_copy_bytes", copies_bytes, METH_NOARGS,
     "weight_copy_bytes()\n--\n\n"
     "Bytes held by kept 16-bit weight copies."},
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
    if (ac_scope_type(module, "ampc._C.AutocastScope", "autocast's regions: enters by the attributes of the subclass.",
                      enter) < 0)
        return -1;
    return PyModule_AddFunctions(module, functions);
}
