/* CUDA for Python: devices, streams, events, memory, and the scaler's passes that stay on the device. Handles of
 * streams and events are ints here; ampc.cuda makes objects of them. */
#include "python/state.h"

#include "amp/autocast.h"
#include "base/alloc.h"
#include "cuda/foreach.h"
#include "cuda/graph.h"
#include "cuda/tables.h"
#include "dispatch/deferred_scale.h"
#include "dispatch/lock.h"
#include "dispatch/write.h"

#define ARGS(format, ...)                                                                                              \
    (void)module;                                                                                                      \
    if (!PyArg_ParseTuple(args, format, __VA_ARGS__)) return NULL
#define FUNCTION(name) static PyObject *name(PyObject *module, PyObject *args)
#define HANDLE(type, number) ((type)(uintptr_t)(number))
#define RETURN_HANDLE(h) return PyLong_FromUnsignedLongLong((unsigned long long)(uintptr_t)(h))

typedef unsigned long long handle;

/* -- libraries and devices -------------------------------------------------------------------------- */

FUNCTION(count) {
    int n;
    (void)module, (void)args;
    AC_PY_TRY(ac_gpu_count(&n));
    ac_amp_has_gpu = n > 0;
    return PyLong_FromLong(n);
}

FUNCTION(init) {
    (void)module, (void)args;
    AC_PY_TRY(ac_gpu_init());
    Py_RETURN_NONE;
}

FUNCTION(note) {
    const char *name;
    ARGS("s", &name);
    const char *text = ac_gpu_library_note(name);
    ac_error_clear();
    return PyUnicode_FromString(text);
}

/* The architectures that this build has machine code for, 90 of sm_90. */
FUNCTION(architectures) {
    (void)module, (void)args;
    PyObject *all = PyList_New(0);
    for (const ac_gpu_code *c = ac_gpu_images(); all && c->image != AC_N_IMAGES; c++) {
        if (c->image != AC_IMAGE_ELEMENTWISE || c->is_ptx) continue;
        PyObject *one = PyLong_FromLong(c->architecture);
        if (!one || PyList_Append(all, one) < 0) Py_CLEAR(all);
        Py_XDECREF(one);
    }
    return all;
}

FUNCTION(set_paths) {
    PyObject *paths;
    ARGS("O&", PyUnicode_FSConverter, &paths);
    int failed = ac_gpu_set_paths(PyBytes_AS_STRING(paths));
    Py_DECREF(paths);
    AC_PY_TRY(failed);
    Py_RETURN_NONE;
}

FUNCTION(is_simulated) {
    (void)module, (void)args;
    bool ready = ac_gpu_init() == 0;
    ac_error_clear();
    return PyBool_FromLong(ready && ac_gpu_is_simulated());
}

FUNCTION(facts) {
    int i;
    ac_gpu_facts f;
    ARGS("i", &i);
    AC_PY_TRY(ac_gpu_facts_of(AC_CUDA(i), &f));
    return Py_BuildValue("{s:s,s:i,s:i,s:L,s:i,s:i,s:i,s:y#}", "name", f.name, "major", f.major, "minor", f.minor,
                         "total_memory", (long long)f.memory, "multi_processor_count", f.multiprocessors,
                         "max_threads_per_multi_processor", f.threads_per_multiprocessor, "L2_cache_size", f.l2_bytes,
                         "uuid", f.uuid, (Py_ssize_t)sizeof f.uuid);
}

FUNCTION(use) {
    int i;
    ARGS("i", &i);
    AC_PY_TRY(ac_gpu_use(AC_CUDA(i)));
    Py_RETURN_NONE;
}

/* A call that may wait: others run meanwhile. */
#define WAITING(call)                                                                                                  \
    do {                                                                                                               \
        void *lock_ = ac_lock.release();                                                                               \
        int failed_ = (call);                                                                                          \
        ac_lock.acquire(lock_);                                                                                        \
        if (failed_ < 0) return ac_raise();                                                                            \
    } while (0)

FUNCTION(synchronize) {
    int i;
    ARGS("i", &i);
    WAITING(ac_gpu_synchronize(AC_CUDA(i)));
    Py_RETURN_NONE;
}

/* -- streams and events ----------------------------------------------------------------------------- */

/* A function of (device, handle): `call` sees them as `d` and `h`. */
#define ON_HANDLE(name, type, call)                                                                                    \
    FUNCTION(name) {                                                                                                   \
        int i;                                                                                                         \
        handle number;                                                                                                 \
        ARGS("iK", &i, &number);                                                                                       \
        ac_device d = AC_CUDA(i);                                                                                      \
        type h = HANDLE(type, number);                                                                                 \
        call;                                                                                                          \
        Py_RETURN_NONE;                                                                                                \
    }
/* The same of (device, event, another handle), seen as `e` and `h`. */
#define ON_EVENT(name, type, call)                                                                                     \
    FUNCTION(name) {                                                                                                   \
        int i;                                                                                                         \
        handle event, number;                                                                                          \
        ARGS("iKK", &i, &event, &number);                                                                              \
        ac_device d = AC_CUDA(i);                                                                                      \
        CUevent e = HANDLE(CUevent, event);                                                                            \
        type h = HANDLE(type, number);                                                                                 \
        call;                                                                                                          \
        Py_RETURN_NONE;                                                                                                \
    }

FUNCTION(stream_of) {
    int i, priority;
    CUstream s;
    ARGS("ii", &i, &priority);
    AC_PY_TRY(ac_gpu_stream_of(AC_CUDA(i), priority, &s));
    RETURN_HANDLE(s);
}
FUNCTION(stream_get) {
    int i;
    ARGS("i", &i);
    AC_PY_TRY(ac_gpu_check_device(AC_CUDA(i)));
    RETURN_HANDLE(ac_gpu_stream(AC_CUDA(i)));
}
FUNCTION(event_new) {
    int i, timing, blocking;
    CUevent e;
    ARGS("ipp", &i, &timing, &blocking);
    AC_PY_TRY(ac_gpu_event_new(AC_CUDA(i), timing, blocking, &e));
    RETURN_HANDLE(e);
}

static PyObject *yes_or_no(int failed, const bool *answer) { return failed ? ac_raise() : PyBool_FromLong(*answer); }

ON_HANDLE(stream_set, CUstream, AC_PY_TRY(ac_gpu_check_device(d)); ac_gpu_set_stream(d, h))
ON_HANDLE(stream_wait, CUstream, WAITING(ac_gpu_stream_wait(d, h)))
ON_HANDLE(stream_idle, CUstream, bool idle; return yes_or_no(ac_gpu_stream_idle(d, h, &idle), &idle))
ON_HANDLE(event_free, CUevent, if (ac_gpu_usable()) AC_PY_TRY(ac_gpu_event_free(d, h)))
ON_HANDLE(event_wait, CUevent, WAITING(ac_gpu_event_wait(d, h)))
ON_HANDLE(event_done, CUevent, bool done; return yes_or_no(ac_gpu_event_done(d, h, &done), &done))
ON_EVENT(event_record, CUstream, AC_PY_TRY(ac_gpu_event_record(d, e, h)))
ON_EVENT(event_await, CUstream, AC_PY_TRY(ac_gpu_event_await(d, e, h)))
ON_EVENT(event_elapsed, CUevent, float ms; AC_PY_TRY(ac_gpu_event_elapsed(d, e, h, &ms));
         return PyFloat_FromDouble((double)ms))

/* -- graphs ------------------------------------------------------------------------------------------ */

/* _cuda_graph_new(device, keeps) */
FUNCTION(graph_new) {
    int i, keeps;
    ARGS("ip", &i, &keeps);
    ac_gpu_graph *g = ac_gpu_graph_new(AC_CUDA(i), keeps);
    if (!g) return ac_raise();
    RETURN_HANDLE(g);
}

/* _cuda_capture_begin(graph, pool, mode): mode 0 global, 1 of the thread alone, 2 relaxed */
FUNCTION(capture_begin) {
    handle g, pool;
    int mode;
    ARGS("KKi", &g, &pool, &mode);
    AC_PY_TRY(ac_gpu_capture_begin(HANDLE(ac_gpu_graph *, g), pool, mode));
    Py_RETURN_NONE;
}

/* A function of a graph, seen as `g`. */
#define ON_GRAPH(name, call)                                                                                           \
    FUNCTION(name) {                                                                                                   \
        handle number;                                                                                                 \
        ARGS("K", &number);                                                                                            \
        ac_gpu_graph *g = HANDLE(ac_gpu_graph *, number);                                                              \
        call;                                                                                                          \
        Py_RETURN_NONE;                                                                                                \
    }
ON_GRAPH(capture_end, AC_PY_TRY(ac_gpu_capture_end(g)))
ON_GRAPH(graph_replay, AC_PY_TRY(ac_gpu_graph_replay(g)))
ON_GRAPH(graph_free, ac_gpu_graph_free(g))
ON_GRAPH(graph_instantiate, AC_PY_TRY(ac_gpu_graph_instantiate(g)))
ON_GRAPH(graph_captured, return PyLong_FromVoidPtr(ac_gpu_graph_captured(g)))
ON_GRAPH(graph_executable, return PyLong_FromVoidPtr(ac_gpu_graph_executable(g)))
ON_GRAPH(graph_steps, return PyLong_FromLong(ac_gpu_graph_steps(g)))

/* _cuda_graph_options(graph, i, options): of optimizer step i of those captured, a dict as _step takes it */
FUNCTION(graph_options) {
    handle g;
    int i;
    PyObject *dict;
    ac_optim_options options = {.lr = 0};
    ARGS("KiO!", &g, &i, &PyDict_Type, &dict);
    if (ac_take_options(dict, &options) < 0) return NULL;
    AC_PY_TRY(ac_gpu_graph_set_options(HANDLE(ac_gpu_graph *, g), i, &options));
    Py_RETURN_NONE;
}

FUNCTION(is_capturing) {
    int i;
    bool yes;
    ARGS("i", &i);
    AC_PY_TRY(ac_gpu_stream_captured(AC_CUDA(i), ac_gpu_stream(AC_CUDA(i)), &yes));
    return PyBool_FromLong(yes);
}

/* -- memory ----------------------------------------------------------------------------------------- */

FUNCTION(memory) {
    int i;
    ac_gpu_memory_stats s;
    ARGS("i", &i);
    AC_PY_TRY(ac_gpu_memory_now(AC_CUDA(i), &s));
    return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L}", "allocated", (long long)s.allocated,
                         "allocated_peak", (long long)s.allocated_peak, "reserved", (long long)s.reserved,
                         "reserved_peak", (long long)s.reserved_peak, "requested", (long long)s.requested, "blocks",
                         (long long)s.blocks, "free", (long long)s.free, "segments", (long long)s.segments,
                         "allocations", (long long)s.allocations, "driver_calls", (long long)s.driver_calls, "retries",
                         (long long)s.retries, "failures", (long long)s.failures);
}
FUNCTION(memory_reset_peak) {
    int i;
    ARGS("i", &i);
    AC_PY_TRY(ac_gpu_memory_reset_peak(AC_CUDA(i)));
    Py_RETURN_NONE;
}
FUNCTION(memory_info) {
    int i;
    int64_t left, total;
    ARGS("i", &i);
    AC_PY_TRY(ac_gpu_memory_info(AC_CUDA(i), &left, &total));
    return Py_BuildValue("LL", (long long)left, (long long)total);
}
FUNCTION(empty_cache) {
    int i;
    ARGS("i", &i);
    ac_gpu_lists_forget(AC_CUDA(i));
    WAITING(ac_gpu_empty_cache(AC_CUDA(i)));
    Py_RETURN_NONE;
}
FUNCTION(memory_limit) {
    int i;
    double fraction;
    ARGS("id", &i, &fraction);
    AC_PY_TRY(ac_gpu_memory_limit(AC_CUDA(i), fraction));
    Py_RETURN_NONE;
}
FUNCTION(pool_begin) {
    int i;
    handle pool;
    ARGS("iK", &i, &pool);
    AC_PY_TRY(ac_gpu_pool_begin(AC_CUDA(i), pool));
    Py_RETURN_NONE;
}
FUNCTION(pool_end) {
    int i;
    ARGS("i", &i);
    AC_PY_TRY(ac_gpu_check_device(AC_CUDA(i)));
    ac_gpu_pool_end(AC_CUDA(i));
    Py_RETURN_NONE;
}
FUNCTION(pool_retire) {
    int i;
    handle pool;
    ARGS("iK", &i, &pool);
    if (ac_gpu_usable()) AC_PY_TRY(ac_gpu_pool_retire(AC_CUDA(i), pool));
    Py_RETURN_NONE;
}

static ac_tensor *tensor_arg(PyObject *o, const char *what) {
    if (ac_is_tensor(o)) return ac_unwrap(o);
    PyErr_Format(PyExc_TypeError, "%s: expected a Tensor, got %s", what, Py_TYPE(o)->tp_name);
    return NULL;
}

FUNCTION(record_stream) {
    PyObject *o;
    int i;
    handle s;
    ARGS("OiK", &o, &i, &s);
    ac_tensor *t = tensor_arg(o, "record_stream");
    if (!t) return NULL;
    ac_gpu_block *b = ac_is_gpu(ac_device_of(t)) ? ac_gpu_block_of(t->storage) : NULL;
    if (b) AC_PY_TRY(ac_gpu_record_stream(b, AC_CUDA(i), HANDLE(CUstream, s)));
    Py_RETURN_NONE;
}

/* _cuda_pin(t): a copy of a CPU tensor in page-locked memory */
static PyObject *pin(PyObject *module, PyObject *o) {
    (void)module;
    ac_tensor *t = tensor_arg(o, "pin_memory");
    if (!t) return NULL;
    if (ac_device_of(t) != AC_CPU)
        return PyErr_Format(PyExc_RuntimeError, "pin_memory: only tensors of the CPU can be pinned, this one is on %s",
                            ac_device_name(ac_device_of(t)));
    ac_storage *s = ac_gpu_pinned(t->numel * ac_itemsize(t->dtype));
    if (!s) return ac_raise();
    ac_dims shape = ac_shape_of(t), strides = ac_dims_contiguous(&shape);
    ac_tensor *copy = ac_tensor_from_storage(s, t->dtype, &shape, &strides);
    if (!copy) return ac_raise();
    if (ac_copy_into(copy, t) == 0) return ac_wrap(copy);
    ac_tensor_release(copy);
    return ac_raise();
}

static PyObject *is_pinned(PyObject *module, PyObject *o) {
    (void)module;
    ac_tensor *t = tensor_arg(o, "is_pinned");
    if (!t) return NULL;
    return PyBool_FromLong(ac_device_of(t) == AC_CPU && t->storage->release && ac_gpu_is_pinned(t->storage->data));
}

FUNCTION(owner) {
    handle address;
    ac_device d;
    ARGS("K", &address);
    AC_PY_TRY(ac_gpu_owner(address, &d));
    return PyLong_FromLong(ac_gpu_index(d));
}

static PyObject *device_index(PyObject *module, PyObject *o) {
    (void)module;
    ac_tensor *t = tensor_arg(o, "device");
    return t ? PyLong_FromLong(ac_device_of(t)) : NULL;
}

/* -- the scaler: nothing here waits for the device -------------------------------------------------- */

/* n numbers of `dtype` on a GPU. */
static void *numbers_on(PyObject *o, int64_t n, ac_dtype dtype, const char *what) {
    ac_tensor *t = tensor_arg(o, what);
    if (!t) return NULL;
    if (t->numel == n && t->dtype == dtype && ac_is_gpu(ac_device_of(t)) && ac_is_contiguous(t)) return ac_data(t);
    PyErr_Format(PyExc_ValueError, "%s: expected %d %s on a GPU", what, (int)n, ac_dtypes[dtype].name);
    return NULL;
}

static ac_tensor **tensors_of(PyObject *list, const char *what) {
    Py_ssize_t n = PyList_GET_SIZE(list);
    ac_tensor **all = PyMem_Malloc((size_t)(n + 1) * sizeof *all);
    if (!all) return (ac_tensor **)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n; i++) {
        all[i] = tensor_arg(PyList_GET_ITEM(list, i), what);
        bool good = all[i] && ac_is_floating(all[i]->dtype) && !ac_overlaps_itself(all[i]) &&
                    ac_is_gpu(ac_device_of(all[i])) && ac_device_of(all[i]) == ac_device_of(all[0]);
        if (good) continue;
        if (all[i])
            PyErr_Format(PyExc_RuntimeError,
                         "%s: tensor %zd must be floating point, on the others' GPU, its elements "
                         "apart in memory",
                         what, i);
        PyMem_Free(all);
        return NULL;
    }
    return all;
}

/* Their address where they are given. */
static int optional_numbers(PyObject *o, int64_t n, ac_dtype dtype, const char *what, void **at) {
    *at = o == Py_None ? NULL : numbers_on(o, n, dtype, what);
    return o == Py_None || *at ? 0 : -1;
}

/* What a pass over gradients gives, each on their GPU: a table [n, 6], found_inf [2], 1 / scale and the scale. */
typedef struct {
    ac_tensor *table, *found_inf, *inverse, *used; /* owned; the last two NULL without a scale */
} found_there;

static void found_clear(found_there *f) {
    ac_tensor_clear(&f->table);
    ac_tensor_clear(&f->found_inf);
    ac_tensor_clear(&f->inverse);
    ac_tensor_clear(&f->used);
}

static int found_new(found_there *f, ac_device d, int n, bool scaled) {
    ac_dims rows = {2, {n, AC_GPU_FOUND}}, two = {1, {2}}, none = {0};
    *f = (found_there){.table = ac_tensor_new_on(d, AC_float64, &rows)};
    if (f->table) f->found_inf = ac_tensor_new_on(d, AC_float32, &two);
    if (f->found_inf && scaled) f->inverse = ac_tensor_new_on(d, AC_float64, &none);
    if (f->inverse) f->used = ac_tensor_new_on(d, AC_float32, &none);
    if (f->found_inf && (!scaled || f->used)) return 0;
    found_clear(f);
    return -1;
}

static int find_stats(ac_tensor *const *all, int n, const float *scale, found_there *f) {
    double *factors = ac_alloc((size_t)n * sizeof *factors);
    if (!factors) return -1;
    int failed = 0;
    for (int i = 0; i < n && !failed; i++) {
        failed = ac_settle_unless_own(all[i]);
        factors[i] = ac_waiting_factor(all[i]->storage);
    }
    if (!failed) failed = found_new(f, ac_device_of(all[0]), n, scale != NULL);
    if (!failed) {
        ac_gpu_stats_also also = {.found_inf = ac_data(f->found_inf)};
        if (scale) also.inverse = ac_data(f->inverse), also.used = ac_data(f->used);
        failed = ac_gpu_grad_stats(all, n, factors, scale, ac_data(f->table), &also);
        if (failed) found_clear(f);
    }
    ac_free(factors, (size_t)n * sizeof *factors);
    return failed;
}

/* _cuda_grad_stats(grads, scale = None) -> (table, found_inf, inverse | None, used | None). table [n, 6]: squares,
 * amax, infs and nans of grads / scale, how many scaled values were too small for float16's normal numbers, and the
 * first bad index. found_inf [2]: 1 where something is not finite, and where it is infinite. 1 / scale, a float64; the
 * scale as it was. One read of the gradients; nobody waits. */
FUNCTION(grad_stats) {
    PyObject *list, *scale = Py_None;
    void *scale_at;
    found_there found;
    ARGS("O!|O", &PyList_Type, &list, &scale);
    int n = (int)PyList_GET_SIZE(list);
    if (optional_numbers(scale, 1, AC_float32, "scale", &scale_at) < 0) return NULL;
    ac_tensor **all = n ? tensors_of(list, "gradients") : NULL;
    if (!all) return n ? NULL : PyErr_Format(PyExc_ValueError, "_cuda_grad_stats: no tensors");
    ac_inside_enter();
    int failed = find_stats(all, n, scale_at, &found);
    ac_inside_leave();
    PyMem_Free(all);
    if (failed) return ac_raise();
    PyObject *table = ac_wrap(found.table), *flags = ac_wrap(found.found_inf);
    PyObject *inverse = scale_at ? ac_wrap(found.inverse) : Py_NewRef(Py_None);
    PyObject *used = scale_at ? ac_wrap(found.used) : Py_NewRef(Py_None);
    return Py_BuildValue("NNNN", table, flags, inverse, used);
}

/* _cuda_norm(table, wide): the norm of the gradients whose _cuda_grad_stats are given, a 0-d tensor of float64 (wide)
 * or float32. */
FUNCTION(norm) {
    PyObject *o;
    int wide;
    ARGS("Op", &o, &wide);
    ac_tensor *table = tensor_arg(o, "table");
    if (!table || !numbers_on(o, table->numel, AC_float64, "table")) return NULL;
    ac_dims none = {.n = 0};
    ac_tensor *norm = ac_tensor_new_on(ac_device_of(table), wide ? AC_float64 : AC_float32, &none);
    if (norm && ac_gpu_norm(ac_data(table), (int)(table->numel / AC_GPU_FOUND), norm) < 0) ac_tensor_clear(&norm);
    return norm ? ac_wrap(norm) : ac_raise();
}

/* A number of a floating dtype on a GPU. */
static ac_tensor *number_on(PyObject *o, const char *what) {
    ac_tensor *t = tensor_arg(o, what);
    if (!t || (t->numel == 1 && ac_is_floating(t->dtype) && ac_is_gpu(ac_device_of(t)))) return t;
    return PyErr_Format(PyExc_ValueError, "%s: expected one number of a floating dtype on a GPU", what), NULL;
}

/* _cuda_clip_factor(norm, limit): what clipping multiplies gradients of that norm by, a float64 0-d tensor; limit: a
 * number, or a 0-d tensor on the same GPU. */
FUNCTION(clip_factor) {
    PyObject *n, *most;
    ARGS("OO", &n, &most);
    ac_tensor *norm = number_on(n, "norm"), *limit = NULL;
    double number = norm && PyFloat_Check(most) ? PyFloat_AsDouble(most) : 0;
    if (norm && !PyFloat_Check(most)) limit = number_on(most, "limit");
    if (!norm || (!limit && !PyFloat_Check(most))) return NULL;
    ac_dims none = {.n = 0};
    ac_tensor *factor = ac_tensor_new_on(ac_device_of(norm), AC_float64, &none);
    if (factor && ac_gpu_clip_factor(norm, limit, number, ac_data(factor)) < 0) ac_tensor_clear(&factor);
    return factor ? ac_wrap(factor) : ac_raise();
}

/* _cuda_scale_update(scale, trackers, before_nans, found_inf, loss | None, growth, backoff, interval, least, most,
 * hysteresis); trackers [3] */
FUNCTION(scale_update) {
    PyObject *s, *t, *before, *found, *loss;
    ac_gpu_scale a = {NULL};
    void *loss_at;
    long long interval, hysteresis;
    ARGS("OOOOOddLffL", &s, &t, &before, &found, &loss, &a.growth, &a.backoff, &interval, &a.least, &a.most,
         &hysteresis);
    a.scale = numbers_on(s, 1, AC_float32, "scale");
    a.tracker = a.scale ? numbers_on(t, 3, AC_int32, "trackers") : NULL;
    a.before_nans = a.tracker ? numbers_on(before, 1, AC_float32, "before_nans") : NULL;
    a.found_inf = a.before_nans ? numbers_on(found, 2, AC_float32, "found_inf") : NULL;
    if (!a.found_inf || optional_numbers(loss, 1, AC_float32, "loss", &loss_at) < 0) return NULL;
    a.loss = loss_at;
    ac_tensor *all[] = {ac_unwrap(s), ac_unwrap(t), ac_unwrap(before), ac_unwrap(found)};
    if (ac_same_device(all, 4) != 4 || (loss_at && ac_device_of(ac_unwrap(loss)) != ac_device_of(all[0])))
        return PyErr_SetString(PyExc_ValueError, "_cuda_scale_update: expected all on one GPU"), NULL;
    a.interval = interval < INT32_MAX ? (int32_t)interval : INT32_MAX;
    a.hysteresis = hysteresis < INT32_MAX ? (int32_t)hysteresis : INT32_MAX;
    AC_PY_TRY(ac_gpu_scale_update(ac_device_of(all[0]), &a));
    for (int i = 0; i < 3; i++) ac_wrote(all[i]);
    Py_RETURN_NONE;
}

/* A switch: its value, and a new one where it is given. */
#define SWITCH(name, flag)                                                                                             \
    FUNCTION(name) {                                                                                                   \
        int on = -1;                                                                                                   \
        ARGS("|p", &on);                                                                                               \
        bool was = flag;                                                                                               \
        if (on >= 0) flag = on;                                                                                        \
        return PyBool_FromLong(was);                                                                                   \
    }
SWITCH(allow_tf32, ac_gpu_allow_tf32)
SWITCH(convolution_tf32, ac_gpu_convolution_tf32)
SWITCH(use_cudnn, ac_gpu_use_cudnn)
#undef SWITCH

#define ENTRY(name) {"_cuda_" #name, name, METH_VARARGS, NULL}
static PyMethodDef functions[] = {ENTRY(count),
                                  ENTRY(init),
                                  ENTRY(note),
                                  ENTRY(architectures),
                                  ENTRY(set_paths),
                                  ENTRY(is_simulated),
                                  ENTRY(facts),
                                  ENTRY(use),
                                  ENTRY(synchronize),
                                  ENTRY(stream_of),
                                  ENTRY(stream_get),
                                  ENTRY(stream_set),
                                  ENTRY(stream_wait),
                                  ENTRY(stream_idle),
                                  ENTRY(event_new),
                                  ENTRY(event_free),
                                  ENTRY(event_record),
                                  ENTRY(event_await),
                                  ENTRY(event_wait),
                                  ENTRY(event_done),
                                  ENTRY(event_elapsed),
                                  ENTRY(graph_new),
                                  ENTRY(capture_begin),
                                  ENTRY(capture_end),
                                  ENTRY(graph_replay),
                                  ENTRY(graph_free),
                                  ENTRY(graph_steps),
                                  ENTRY(graph_instantiate),
                                  ENTRY(graph_captured),
                                  ENTRY(graph_executable),
                                  ENTRY(graph_options),
                                  ENTRY(is_capturing),
                                  ENTRY(memory),
                                  ENTRY(memory_reset_peak),
                                  ENTRY(memory_info),
                                  ENTRY(empty_cache),
                                  ENTRY(memory_limit),
                                  ENTRY(pool_begin),
                                  ENTRY(pool_end),
                                  ENTRY(pool_retire),
                                  ENTRY(record_stream),
                                  ENTRY(grad_stats),
                                  ENTRY(norm),
                                  ENTRY(clip_factor),
                                  ENTRY(scale_update),
                                  ENTRY(allow_tf32),
                                  ENTRY(convolution_tf32),
                                  ENTRY(use_cudnn),
                                  ENTRY(owner),
                                  {"_cuda_pin", pin, METH_O, NULL},
                                  {"_cuda_is_pinned", is_pinned, METH_O, NULL},
                                  {"_device_index", device_index, METH_O, NULL},
                                  {NULL, NULL, 0, NULL}};

/* A warning; on any thread, whoever holds the interpreter's lock. */
static int warn(const char *text) {
    PyGILState_STATE state = PyGILState_Ensure();
    int failed = PyErr_WarnEx(PyExc_RuntimeWarning, text, 1);
    PyGILState_Release(state);
    return failed < 0 ? ac_fail(AC_PYTHON, "a warning became an error") : 0;
}

int ac_cuda_init(PyObject *module) {
    ac_gpu_warn = warn;
    return PyModule_AddFunctions(module, functions);
}
