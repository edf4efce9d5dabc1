/* Autocast's regions and state for Python. ampc/amp/autocast_mode.py has the class that scripts see; the rules of use
 * are there. */
#include "python/scope.h"

#include "amp/autocast.h"
#include "cpu/gemm/micro.h"

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

/* -- what a region is made of ------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD ac_amp_device device;
    ac_dtype dtype; /* AC_N_DTYPES until it is set */
    char enabled, cache_enabled;
    PyObject *policy; /* owned: its own, or NULL */
} autocast_scope;

static PyObject *new_scope(PyTypeObject *type) {
    autocast_scope *s = (autocast_scope *)type->tp_alloc(type, 0);
    if (s) s->dtype = AC_N_DTYPES, s->cache_enabled = 1;
    return (PyObject *)s;
}
static PyObject *scope_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)args, (void)kwargs; /* __init__ of the subclass reads them */
    return new_scope(type);
}
static int scope_traverse(PyObject *o, visitproc visit, void *arg) {
    Py_VISIT(((autocast_scope *)o)->policy);
    Py_VISIT(Py_TYPE(o));
    return 0;
}
static int scope_clear(PyObject *o) {
    Py_CLEAR(((autocast_scope *)o)->policy);
    return 0;
}
static void scope_dealloc(PyObject *o) {
    PyTypeObject *type = Py_TYPE(o);
    PyObject_GC_UnTrack(o);
    (void)scope_clear(o);
    type->tp_free(o);
    Py_DECREF(type);
}

static PyObject *get_device(PyObject *o, void *unused) {
    (void)unused;
    return PyUnicode_InternFromString(((autocast_scope *)o)->device == AC_AMP_CPU ? "cpu" : "cuda");
}
static int set_device(PyObject *o, PyObject *value, void *unused) {
    (void)unused;
    if (value) return device_from(value, &((autocast_scope *)o)->device);
    return PyErr_SetString(PyExc_AttributeError, "autocast: `device` cannot be deleted"), -1;
}

/* Whether it is set; else an error is. */
static int check_dtype(const autocast_scope *s) {
    if (s->dtype != AC_N_DTYPES) return 0;
    PyErr_SetString(PyExc_AttributeError, "autocast: `fast_dtype` is not set; a subclass calls super().__init__()");
    return -1;
}
static PyObject *get_dtype_of(PyObject *o, void *unused) {
    const autocast_scope *s = (autocast_scope *)o;
    (void)unused;
    return check_dtype(s) < 0 ? NULL : Py_NewRef(ac_py->dtypes[s->dtype]);
}
static int set_dtype_of(PyObject *o, PyObject *value, void *unused) {
    (void)unused;
    if (value && ac_dtype_from(value, &((autocast_scope *)o)->dtype) == 0) return 0;
    PyErr_SetString(PyExc_TypeError, "autocast: `dtype` must be a dtype");
    return -1;
}

/* -- making one without Python ---------------------------------------------------------------------------------- */

/* The class's call `autocast(device_type, dtype, enabled, cache_enabled)` where it needs neither a check nor a warning:
 * __init__ in Python would set the same. False: it is for that. */
static bool is_ordinary(PyObject *const *given, autocast_scope *s) {
    PyObject *device = given[0], *dtype = given[1], *on = given[2], *cache = given[3];
    if (!device || !PyUnicode_CheckExact(device)) return false;
    if (PyUnicode_CompareWithASCIIString(device, "cpu") == 0) s->device = AC_AMP_CPU;
    else if (ac_amp_has_gpu && PyUnicode_CompareWithASCIIString(device, "cuda") == 0) s->device = AC_AMP_CUDA;
    else return false;
    if ((on && !PyBool_Check(on)) || (cache && cache != Py_None && !PyBool_Check(cache))) return false;
    if (!dtype || dtype == Py_None) s->dtype = ac_autocast_dtype(s->device);
    else if (Py_TYPE(dtype) == ac_py->dtype) s->dtype = ((PyDtype *)dtype)->dtype;
    else return false;
    s->enabled = on != Py_False;
    s->cache_enabled = cache && cache != Py_None ? cache == Py_True : !ac_autocast.no_cache;
    if (!ac_is_half(s->dtype)) return false;
    return !s->enabled || s->device == AC_AMP_CUDA || ac_micro_for(s->dtype, true)->kind != AC_PANEL_F32;
}

/* The arguments by their places; false where one is none of these. */
static bool place(PyObject *const *args, Py_ssize_t n, PyObject *words, PyObject *given[AC_REGION_WORDS]) {
    if (n > AC_REGION_WORDS) return false;
    memcpy(given, args, (size_t)n * sizeof *given);
    for (Py_ssize_t k = 0; words && k < PyTuple_GET_SIZE(words); k++) {
        int at = 0;
        while (at < AC_REGION_WORDS && ac_py->region_words[at] != PyTuple_GET_ITEM(words, k)) at++;
        if (at == AC_REGION_WORDS || given[at]) return false;
        given[at] = args[n + k];
    }
    return true;
}

/* Vectorcall of ampc.autocast itself, not of its subclasses, as long as its __init__ is its own. */
static PyObject *make(PyObject *type, PyObject *const *args, size_t nargsf, PyObject *words) {
    PyObject *given[AC_REGION_WORDS] = {NULL}, *init = PyObject_GetAttr(type, ac_py->init);
    autocast_scope read = {.policy = NULL};
    bool own = init == ac_py->region_init;
    Py_XDECREF(init);
    if (!init) return NULL;
    if (!own || !place(args, PyVectorcall_NARGS(nargsf), words, given) || !is_ordinary(given, &read))
        return ac_call_type(type, args, nargsf, words);
    autocast_scope *s = (autocast_scope *)new_scope((PyTypeObject *)type);
    if (!s) return NULL;
    s->device = read.device, s->dtype = read.dtype;
    s->enabled = read.enabled, s->cache_enabled = read.cache_enabled;
    return (PyObject *)s;
}

/* _make_regions_of(type): the class whose calls `make` takes over */
static PyObject *make_regions_of(PyObject *module, PyObject *type) {
    (void)module;
    Py_XSETREF(ac_py->region_init, PyObject_GetAttr(type, ac_py->init));
    if (!ac_py->region_init) return NULL;
    ((PyTypeObject *)type)->tp_vectorcall = make;
    Py_RETURN_NONE;
}

/* -- regions ---------------------------------------------------------------------------------------- */

/* What a region was made of, read before it begins. */
typedef struct {
    ac_scope_frame base;
    ac_autocast_state before;
    PyObject *policy, *table; /* owned: of the region, or NULL; its bytes, which the state borrows */
    PyObject *by_module;      /* owned: what policy_state had */
    PyObject *seen, *watcher; /* owned: who looks at the region, for region_ends; what was there before, may be NULL */
} region;
static _Thread_local int depth; /* of regions */
/* How many more outermost regions of the thread are looked at, to see whether they are of use. */
static _Thread_local int to_observe = 3;

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
static int take_policy(region *r, const autocast_scope *s) {
    if (s->policy && s->policy != Py_None) r->policy = Py_NewRef(s->policy);
    else r->policy = PyObject_GetAttr(ac_py->policy_state, ac_py->chosen);
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

static int is_observable(PyObject *self) {
    PyObject *value = PyObject_GetAttr(self, ac_py->observable);
    int truth = value ? PyObject_IsTrue(value) : -1;
    Py_XDECREF(value);
    return truth;
}

/* The outermost region may be looked at, by an object whose _saw() is then called with every operator. */
static int take_watcher(region *r, PyObject *self, ac_dtype dtype) {
    if (!ac_py->region_begins || to_observe <= 0) return 0; /* nobody listens */
    int observable = is_observable(self);
    if (observable <= 0) return observable;
    r->seen = PyObject_CallFunctionObjArgs(ac_py->region_begins, ac_py->dtypes[dtype], NULL);
    if (r->seen == Py_None) Py_CLEAR(r->seen);
    else if (r->seen) r->watcher = PyObject_GetAttr(r->seen, ac_py->saw);
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *enter(PyObject *self, PyObject *unused) {
    const autocast_scope *s = (autocast_scope *)self;
    (void)unused;
    region *r = check_dtype(s) < 0 ? NULL : ac_scope_frame_new(sizeof *r, self, restore, release);
    if (!r) return NULL;
    bool outermost = s->enabled && depth == 0;
    if (take_policy(r, s) < 0 || (outermost && take_watcher(r, self, s->dtype) < 0) || enter_modules(r) < 0) {
        ac_scope_free(&r->base);
        return NULL;
    }
    ac_scope_push(&r->base); /* from here on nothing fails */
    depth++;
    r->before = ac_autocast;
    if (r->seen) {
        to_observe--;
        r->watcher = ac_watch_swap(r->watcher);
    }
    ac_autocast_enter(s->device, s->enabled, s->dtype, s->cache_enabled,
                      r->table ? (const uint8_t *)PyBytes_AS_STRING(r->table) : NULL);
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

static int tell_unsafe(const char *name) {
    PyObject *done = PyObject_CallFunction(ac_py->unsafe_here, "s", name);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* _listen_to_regions(begins, ends, unsafe): begins(dtype) gives who looks at an outermost region, or None, and
 * ends(that) is called when the state is back; unsafe(name) is called with an operator that a region of cuda refuses on
 * a GPU. */
static PyObject *listen_to_regions(PyObject *module, PyObject *args) {
    PyObject *begins, *ends, *unsafe;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOO", &begins, &ends, &unsafe)) return NULL;
    Py_XSETREF(ac_py->region_begins, Py_NewRef(begins));
    Py_XSETREF(ac_py->region_ends, Py_NewRef(ends));
    Py_XSETREF(ac_py->unsafe_here, Py_NewRef(unsafe));
    ac_autocast_unsafe_here = tell_unsafe;
    Py_RETURN_NONE;
}

/* _regions_to_observe(n or None) -> how many more outermost regions of this thread are looked at; then n */
static PyObject *regions_to_observe(PyObject *module, PyObject *n) {
    (void)module;
    int before = to_observe;
    if (n != Py_None) to_observe = (int)PyLong_AsLong(n);
    return PyErr_Occurred() ? NULL : PyLong_FromLong(before);
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

/* -- the module ------------------------------------------------------------------------------------- */

static PyGetSetDef scope_getset[] = {{"device", get_device, set_device, NULL, NULL},
                                     {"fast_dtype", get_dtype_of, set_dtype_of, NULL, NULL},
                                     {NULL, NULL, NULL, NULL, NULL}};
static PyMemberDef scope_members[] = {{"_enabled", T_BOOL, offsetof(autocast_scope, enabled), 0, NULL},
                                      {"_cache_enabled", T_BOOL, offsetof(autocast_scope, cache_enabled), 0, NULL},
                                      {"_policy", T_OBJECT, offsetof(autocast_scope, policy), 0, NULL},
                                      {NULL, 0, 0, 0, NULL}};
static PyMethodDef scope_methods[] = {{"__enter__", enter, METH_NOARGS, NULL},
                                      {"__exit__", (PyCFunction)(void (*)(void))ac_scope_exit, METH_FASTCALL, NULL},
                                      {NULL, NULL, 0, NULL}};
static PyType_Slot scope_slots[] = {{Py_tp_new, scope_new},           {Py_tp_dealloc, scope_dealloc},
                                    {Py_tp_traverse, scope_traverse}, {Py_tp_clear, scope_clear},
                                    {Py_tp_getset, scope_getset},     {Py_tp_members, scope_members},
                                    {Py_tp_methods, scope_methods},   {0, NULL}};
static PyType_Spec scope_spec = {"ampc._C.AutocastScope", sizeof(autocast_scope), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, scope_slots};

static PyMethodDef functions[] = {{"_make_regions_of", make_regions_of, METH_O, NULL},
                                  {"_regions_to_observe", regions_to_observe, METH_O, NULL},
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
                                   "Whether packed weight copies are kept."},
                                  {"set_autocast_cache_enabled", set_cache_enabled, METH_O,
                                   "set_autocast_cache_enabled(enabled, /)\n--\n\n"
                                   "Turns the keeping of packed weight copies on or off."},
                                  {"_autocast_nest", nest, METH_O, NULL},
                                  {NULL, NULL, 0, NULL}};

int ac_autocast_init(PyObject *module) {
    PyObject *scope = PyType_FromModuleAndSpec(module, &scope_spec, NULL);
    int failed = scope ? PyModule_AddObjectRef(module, "AutocastScope", scope) : -1;
    Py_XDECREF(scope);
    return failed < 0 ? -1 : PyModule_AddFunctions(module, functions);
}
