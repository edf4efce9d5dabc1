/* Memory shared with other libraries without copies: DLPack, both ways and in both forms (capsules "dltensor" and
 * "dltensor_versioned"), and raw device pointers for __cuda_array_interface__.
 * Source: the DLPack specification 1.1 and the Python array API standard's protocol. */
#include "python/state.h"

#include "cuda/gpu.h"
#include "dispatch/deferred_scale.h"

#include <string.h>

/* -- the structures of dlpack.h --------------------------------------------------------------------- */

enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3, DL_CUDA_MANAGED = 13 };
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_BOOL = 6 };
enum { DL_READ_ONLY = 1, DL_COPIED = 2 };

typedef struct {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *);
} dl_managed;

typedef struct dl_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dl_versioned *);
    uint64_t flags;
    dl_tensor tensor;
} dl_versioned;

static const char *const PLAIN = "dltensor", *const VERSIONED = "dltensor_versioned";

/* -- to others -------------------------------------------------------------------------------------- */

/* What a capsule keeps: its form, and our storage. */
typedef struct {
    union {
        dl_managed plain;
        dl_versioned versioned;
    };
    ac_storage *storage;
    int64_t shape[AC_MAX_DIMS], strides[AC_MAX_DIMS];
} exported;

/* The other library may drop it from any thread, but references are counted under the lock. */
static void drop_export(exported *e) {
    PyGILState_STATE gil = PyGILState_Ensure();
    ac_storage_release(e->storage);
    PyMem_Free(e);
    PyGILState_Release(gil);
}
static void drop_plain(dl_managed *m) { drop_export(m->context); }
static void drop_versioned(dl_versioned *m) { drop_export(m->context); }

static void capsule_free(PyObject *capsule) { /* one that nobody took */
    if (PyCapsule_IsValid(capsule, PLAIN)) drop_plain(PyCapsule_GetPointer(capsule, PLAIN));
    else if (PyCapsule_IsValid(capsule, VERSIONED)) drop_versioned(PyCapsule_GetPointer(capsule, VERSIONED));
}

static void fill(dl_tensor *d, const ac_tensor *t, exported *e) {
    bool gpu = ac_device_of(t) != AC_CPU;
    *d = (dl_tensor){.data = ac_data(t), .device_type = gpu ? DL_CUDA : DL_CPU, .ndim = t->ndim, .lanes = 1};
    d->device_id = gpu ? ac_gpu_index(ac_device_of(t)) : 0;
    d->bits = (uint8_t)(8 * ac_itemsize(t->dtype));
    if (t->dtype == AC_bfloat16) d->code = DL_BFLOAT;
    else if (t->dtype == AC_bool) d->code = DL_BOOL;
    else if (t->dtype == AC_uint8) d->code = DL_UINT;
    else d->code = ac_is_floating(t->dtype) ? DL_FLOAT : DL_INT;
    memcpy(e->shape, t->shape, sizeof e->shape);
    memcpy(e->strides, t->strides, sizeof e->strides);
    d->shape = e->shape, d->strides = e->strides;
}

/* Work queued here so far must be done before what the consumer queues on its stream. */
static int order_streams(const ac_tensor *t, long long stream) {
    ac_device d = ac_device_of(t);
    CUevent event;
    if (d == AC_CPU || stream == -1) return 0;
    CUstream consumer = stream == 1 ? NULL : (CUstream)(intptr_t)stream; /* 1: the legacy default stream */
    if (consumer == ac_gpu_stream(d)) return 0;
    AC_TRY(ac_gpu_event_new(d, false, false, &event));
    int failed = ac_gpu_event_record(d, event, ac_gpu_stream(d));
    if (!failed) failed = ac_gpu_event_await(d, event, consumer);
    return ac_gpu_event_free(d, event) < 0 ? -1 : failed;
}

/* _to_dlpack(tensor, stream, versioned, copied) */
static PyObject *to_dlpack(PyObject *module, PyObject *args) {
    PyObject *o;
    long long stream;
    int versioned, copied;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!Lpp", ac_py->tensor, &o, &stream, &versioned, &copied)) return NULL;
    ac_tensor *t = ac_unwrap(o);
    AC_PY_TRY(ac_settle(t));
    if (ac_device_of(t) == AC_META) return PyErr_SetString(PyExc_BufferError, "tensors on 'meta' have no values"), NULL;
    exported *e = PyMem_Calloc(1, sizeof *e);
    if (!e) return PyErr_NoMemory();
    if (order_streams(t, stream) < 0) {
        PyMem_Free(e);
        return ac_raise();
    }
    if (versioned) {
        e->versioned = (dl_versioned){.major = 1, .minor = 1, .context = e, .deleter = drop_versioned};
        e->versioned.flags = copied ? DL_COPIED : 0;
        fill(&e->versioned.tensor, t, e);
    } else {
        e->plain = (dl_managed){.context = e, .deleter = drop_plain};
        fill(&e->plain.tensor, t, e);
    }
    PyObject *capsule = PyCapsule_New(e, versioned ? VERSIONED : PLAIN, capsule_free);
    if (!capsule) {
        PyMem_Free(e);
        return NULL;
    }
    e->storage = ac_storage_retain(t->storage);
    t->storage->exported = true; /* it may be written behind our back from now on */
    return capsule;
}

/* -- from others ------------------------------------------------------------------------------------ */

static int dtype_of(const dl_tensor *d, ac_dtype *out) {
    static const struct {
        uint8_t code, bits;
        ac_dtype dtype;
    } known[] = {{DL_FLOAT, 16, AC_float16},   {DL_FLOAT, 32, AC_float32}, {DL_FLOAT, 64, AC_float64},
                 {DL_BFLOAT, 16, AC_bfloat16}, {DL_INT, 8, AC_int8},       {DL_INT, 16, AC_int16},
                 {DL_INT, 32, AC_int32},       {DL_INT, 64, AC_int64},     {DL_UINT, 8, AC_uint8},
                 {DL_BOOL, 8, AC_bool}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (d->code == known[i].code && d->bits == known[i].bits && d->lanes == 1) return *out = known[i].dtype, 0;
    PyErr_Format(PyExc_BufferError, "from_dlpack: no dtype for DLPack type code %d of %d bits in %d lanes", d->code,
                 d->bits, d->lanes);
    return -1;
}

static void give_back_plain(void *owner) {
    dl_managed *m = owner;
    if (m->deleter) m->deleter(m);
}
static void give_back_versioned(void *owner) {
    dl_versioned *m = owner;
    if (m->deleter) m->deleter(m);
}

/* Bytes from the first element to the last, 0 of an empty tensor; -1 if the sizes are no tensor's, or beyond any
 * memory. */
static int64_t reach(const ac_dims *shape, const ac_dims *strides, int64_t item) {
    int64_t numel = ac_dims_numel(shape), last = 0, reach;
    if (numel < 0) return -1;
    for (int i = 0; i < shape->n && numel > 0; i++)
        if (strides->v[i] < 0 || __builtin_mul_overflow(shape->v[i] - 1, strides->v[i], &reach) ||
            __builtin_add_overflow(last, reach, &last))
            return -1;
    if (numel == 0) return 0;
    return __builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(last, item, &last) ? -1 : last;
}

/* What of a capsule cannot be a tensor's; NULL if all can. */
static const char *flaw_of(const dl_tensor *d) {
    if (d->ndim < 0) return "its number of dimensions is negative";
    if (d->ndim > AC_MAX_DIMS) return "it has more dimensions than a tensor can have";
    if (d->ndim > 0 && !d->shape) return "it has dimensions, but no shape";
    for (int i = 0; i < d->ndim; i++)
        if (d->shape[i] < 0) return "a size is negative";
    for (int i = 0; i < d->ndim && d->strides; i++)
        if (d->strides[i] < 0) return "a stride is negative, which no tensor can have; pass a copy";
    return NULL;
}

static void *refuse(const char *why) {
    PyErr_Format(PyExc_BufferError, "from_dlpack: the capsule cannot be shared: %s", why);
    return NULL;
}

/* new: shares d's memory; release(owner) is called when it dies. Nothing is taken over on failure. */
static ac_tensor *share(const dl_tensor *d, void (*release)(void *), void *owner) {
    ac_dtype dtype;
    ac_dims shape = {.n = d->ndim}, strides = {.n = d->ndim};
    bool gpu = d->device_type == DL_CUDA || d->device_type == DL_CUDA_MANAGED;
    if (!gpu && d->device_type != DL_CPU && d->device_type != DL_CUDA_HOST) {
        PyErr_Format(PyExc_BufferError, "from_dlpack: memory of device type %d cannot be shared", d->device_type);
        return NULL;
    }
    if (flaw_of(d)) return refuse(flaw_of(d));
    if (dtype_of(d, &dtype) < 0) return NULL;
    for (int i = 0; i < d->ndim; i++) shape.v[i] = d->shape[i];
    if (ac_dims_numel(&shape) < 0) return refuse("it has more elements than any memory holds");
    if (d->strides) memcpy(strides.v, d->strides, (size_t)d->ndim * sizeof *strides.v);
    else strides = ac_dims_contiguous(&shape);
    int64_t item = ac_itemsize(dtype), bytes = reach(&shape, &strides, item);
    uintptr_t start = (uintptr_t)d->data + d->byte_offset;
    if (bytes < 0 || start < (uintptr_t)d->data || (uint64_t)bytes > UINTPTR_MAX - start)
        return refuse("it reaches beyond any memory");
    if (bytes > 0 && !d->data) return refuse("it has elements, but no data");
    if (bytes > 0 && start % (uintptr_t)item) return refuse("its data is not aligned to its elements; pass a copy");
    if (gpu && (d->device_id < 0 || d->device_id >= AC_MAX_GPUS)) return refuse("its GPU has a number that none has");
    if (gpu && ac_gpu_check_device(AC_CUDA(d->device_id)) < 0) return (ac_tensor *)ac_raise();
    ac_storage *s = ac_storage_wrap((void *)start, bytes, NULL, owner);
    if (!s) return (ac_tensor *)ac_raise();
    s->device = gpu ? AC_CUDA(d->device_id) : AC_CPU;
    ac_tensor *t = ac_tensor_from_storage(s, dtype, &shape, &strides);
    if (!t) return (ac_tensor *)ac_raise();
    s->release = release;
    return t;
}

/* _from_dlpack(capsule): takes over what is in it */
static PyObject *from_dlpack(PyObject *module, PyObject *capsule) {
    (void)module;
    ac_tensor *t = NULL;
    if (PyCapsule_IsValid(capsule, VERSIONED)) {
        dl_versioned *m = PyCapsule_GetPointer(capsule, VERSIONED);
        if (m->major > 1) {
            PyErr_Format(PyExc_BufferError, "from_dlpack: version %u.%u of DLPack is not known here", m->major,
                         m->minor);
            return NULL;
        }
        if (m->flags & DL_READ_ONLY)
            return PyErr_SetString(PyExc_BufferError,
                                   "from_dlpack: the memory is read-only, which a tensor cannot promise; pass a copy"),
                   NULL;
        t = share(&m->tensor, give_back_versioned, m);
        if (t) PyCapsule_SetName(capsule, "used_dltensor_versioned"); /* which cannot fail for a valid capsule */
    } else if (PyCapsule_IsValid(capsule, PLAIN)) {
        dl_managed *m = PyCapsule_GetPointer(capsule, PLAIN);
        t = share(&m->tensor, give_back_plain, m);
        if (t) PyCapsule_SetName(capsule, "used_dltensor");
    } else if (PyCapsule_CheckExact(capsule)) {
        const char *name = PyCapsule_GetName(capsule);
        PyErr_Format(PyExc_RuntimeError, "from_dlpack: a capsule named '%.100s' has nothing to take; one is taken once",
                     name ? name : "");
    } else {
        PyErr_Format(PyExc_RuntimeError, "from_dlpack: expected an object with __dlpack__ or a DLPack capsule, got %s",
                     Py_TYPE(capsule)->tp_name);
    }
    return t ? ac_wrap_new(t) : NULL;
}

/* -- raw device pointers ---------------------------------------------------------------------------- */

static void drop_owner(void *owner) {
    PyGILState_STATE gil = PyGILState_Ensure();
    Py_DECREF((PyObject *)owner);
    PyGILState_Release(gil);
}

/* _from_device_pointer(address, device index, dtype, shape, strides in elements, owner) */
static PyObject *from_device_pointer(PyObject *module, PyObject *args) {
    unsigned long long address;
    int device;
    PyObject *as, *size, *stride, *owner;
    ac_dtype dtype;
    ac_dims shape, strides;
    (void)module;
    if (!PyArg_ParseTuple(args, "KiOOOO", &address, &device, &as, &size, &stride, &owner)) return NULL;
    if (ac_dtype_from(as, &dtype) < 0) return PyErr_SetString(PyExc_TypeError, "expected a dtype"), NULL;
    if (ac_dims_from(size, &shape, "shape") < 0 || ac_dims_from(stride, &strides, "strides") < 0) return NULL;
    int64_t bytes = shape.n == strides.n ? reach(&shape, &strides, ac_itemsize(dtype)) : -1;
    if (bytes < 0 || (bytes > 0 && !address) || device < 0 || device >= AC_MAX_GPUS)
        return PyErr_SetString(PyExc_ValueError, "address, shape and strides do not fit, or a stride is negative"),
               NULL;
    AC_PY_TRY(ac_gpu_check_device(AC_CUDA(device)));
    ac_storage *s = ac_storage_wrap((void *)(uintptr_t)address, bytes, NULL, owner);
    if (!s) return ac_raise();
    s->device = AC_CUDA(device);
    ac_tensor *t = ac_tensor_from_storage(s, dtype, &shape, &strides);
    if (!t) return ac_raise();
    Py_INCREF(owner);
    s->release = drop_owner;
    return ac_wrap_new(t);
}

static PyMethodDef functions[] = {{"_to_dlpack", to_dlpack, METH_VARARGS, NULL},
                                  {"_from_dlpack", from_dlpack, METH_O, NULL},
                                  {"_from_device_pointer", from_device_pointer, METH_VARARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

int ac_dlpack_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
