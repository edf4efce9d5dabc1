/* NCCL (cuda/nccl.h) for ampc.distributed. */
#include "python/state.h"

#include "cuda/nccl.h"
#include "dispatch/lock.h"

static const char *const NAME = "ampc._C.nccl";
enum { MOST_CALLS = 2048 };

static ac_nccl_group *group_of(PyObject *capsule) { return PyCapsule_GetPointer(capsule, NAME); }

/* Others run while NCCL is called. */
#define UNLOCKED(call)                                                                                                 \
    do {                                                                                                               \
        void *lock_ = ac_lock.release();                                                                               \
        int failed_ = (call);                                                                                          \
        ac_lock.acquire(lock_);                                                                                        \
        if (failed_ < 0) return ac_raise();                                                                            \
    } while (0)

/* _nccl_version() -> 22703 for 2.27.3. RuntimeError where NCCL or a GPU is missing */
static PyObject *version(PyObject *module, PyObject *none) {
    int v;
    (void)module, (void)none;
    AC_PY_TRY(ac_nccl_version(&v));
    return PyLong_FromLong(v);
}

/* _nccl_id() -> bytes */
static PyObject *unique_id(PyObject *module, PyObject *none) {
    ncclUniqueId id;
    (void)module, (void)none;
    UNLOCKED(ac_nccl_unique_id(&id));
    return PyBytes_FromStringAndSize(id.internal, sizeof id.internal);
}

static void forget(PyObject *capsule) {
    ac_nccl_forget(group_of(capsule));
    PyMem_Free(group_of(capsule));
}

/* _nccl_begin(GPU, id, rank, size) -> the group, which connects until _nccl_state says it has */
static PyObject *begin(PyObject *module, PyObject *args) {
    int device, rank, size;
    const char *bytes;
    Py_ssize_t length;
    ncclUniqueId id;
    (void)module;
    if (!PyArg_ParseTuple(args, "iy#ii", &device, &bytes, &length, &rank, &size)) return NULL;
    if (length != sizeof id.internal)
        return PyErr_Format(PyExc_ValueError, "an id of NCCL has %zu bytes, got %zd", sizeof id.internal, length);
    memcpy(id.internal, bytes, sizeof id.internal);
    ac_nccl_group *g = PyMem_Calloc(1, sizeof *g);
    PyObject *capsule = g ? PyCapsule_New(g, NAME, forget) : PyErr_NoMemory();
    if (!capsule) return PyMem_Free(g), NULL;
    void *lock = ac_lock.release();
    int failed = ac_nccl_begin(g, AC_CUDA(device), &id, rank, size);
    ac_lock.acquire(lock);
    if (!failed) return capsule;
    Py_DECREF(capsule);
    return ac_raise();
}

/* _nccl_state(group) -> whether the last call is still in progress */
static PyObject *state(PyObject *module, PyObject *capsule) {
    ac_nccl_group *g = group_of(capsule);
    bool in_progress;
    (void)module;
    if (!g) return NULL;
    UNLOCKED(ac_nccl_state(g, &in_progress));
    return PyBool_FromLong(in_progress);
}

static PyObject *stream(PyObject *module, PyObject *capsule) {
    ac_nccl_group *g = group_of(capsule);
    (void)module;
    return g ? PyLong_FromUnsignedLongLong((unsigned long long)(uintptr_t)g->stream) : NULL;
}

static int take_tensor(const ac_nccl_group *g, PyObject *o, const ac_tensor **t) {
    *t = NULL;
    if (o == Py_None) return 0;
    if (ac_is_tensor(o) && ac_device_of(ac_unwrap(o)) == g->device && ac_is_contiguous(ac_unwrap(o))) {
        *t = ac_unwrap(o);
        return 0;
    }
    PyErr_SetString(PyExc_ValueError, "_nccl_queue: expected contiguous tensors of the group's GPU");
    return -1;
}

/* A call of NCCL is (kind, from | None, to | None, operation, root). */
static int take_call(const ac_nccl_group *g, PyObject *o, ac_nccl_call *c) {
    PyObject *from, *to;
    int kind, op;
    if (!PyTuple_Check(o)) return PyErr_SetString(PyExc_TypeError, "_nccl_queue: expected tuples"), -1;
    if (!PyArg_ParseTuple(o, "iOOii", &kind, &from, &to, &op, &c->root)) return -1;
    if (take_tensor(g, from, &c->from) < 0 || take_tensor(g, to, &c->to) < 0) return -1;
    c->kind = (ac_nccl_kind)kind, c->op = (ncclRedOp_t)op;
    bool fits =
        kind >= 0 && kind < AC_NCCL_N_KINDS && (c->from || kind == AC_NCCL_RECV) && (c->to || kind == AC_NCCL_SEND);
    if (!fits) return PyErr_SetString(PyExc_ValueError, "_nccl_queue: no such call"), -1;
    return 0;
}

/* _nccl_watch(group, seconds): without this, nobody looks at it while a thread keeps the GIL */
static PyObject *watch(PyObject *module, PyObject *args) {
    PyObject *capsule;
    double seconds;
    (void)module;
    if (!PyArg_ParseTuple(args, "Od", &capsule, &seconds) || !group_of(capsule)) return NULL;
    UNLOCKED(ac_nccl_watch(group_of(capsule), seconds));
    Py_RETURN_NONE;
}

/* _nccl_check(group): RuntimeError where the watch has broken it off */
static PyObject *check_late(PyObject *module, PyObject *capsule) {
    ac_nccl_group *g = group_of(capsule);
    (void)module;
    if (!g) return NULL;
    AC_PY_TRY(ac_nccl_check(g));
    Py_RETURN_NONE;
}

/* _nccl_queue(group, calls) -> whether the tensors may be given back before they are done */
static PyObject *queue(PyObject *module, PyObject *args) {
    PyObject *capsule, *list;
    ac_nccl_group *g;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO!", &capsule, &PyList_Type, &list) || !(g = group_of(capsule))) return NULL;
    Py_ssize_t n = PyList_GET_SIZE(list);
    if (n < 1 || n > MOST_CALLS) return PyErr_Format(PyExc_ValueError, "_nccl_queue: %zd calls", n);
    ac_nccl_call *calls = PyMem_Calloc((size_t)n, sizeof *calls);
    if (!calls) return PyErr_NoMemory();
    int failed = 0;
    bool kept;
    for (Py_ssize_t i = 0; i < n && !failed; i++) failed = take_call(g, PyList_GET_ITEM(list, i), &calls[i]);
    if (failed) return PyMem_Free(calls), NULL;
    void *lock = ac_lock.release();
    failed = ac_nccl_queue(g, calls, (int)n, &kept);
    ac_lock.acquire(lock);
    PyMem_Free(calls);
    return failed ? ac_raise() : PyBool_FromLong(kept);
}

#define ENDING(name, how)                                                                                              \
    static PyObject *name(PyObject *module, PyObject *capsule) {                                                       \
        ac_nccl_group *g = group_of(capsule);                                                                          \
        (void)module;                                                                                                  \
        if (!g) return NULL;                                                                                           \
        UNLOCKED(how(g));                                                                                              \
        Py_RETURN_NONE;                                                                                                \
    }
ENDING(end, ac_nccl_end)
ENDING(stop, ac_nccl_abort)

/* _nccl_refuse_capture(): CaptureError while this thread captures a CUDA graph */
static PyObject *refuse_capture(PyObject *module, PyObject *none) {
    (void)module, (void)none;
    AC_PY_TRY(ac_gpu_refuse_capture("a collective of NCCL"));
    Py_RETURN_NONE;
}

static int raise_told(void) {
    PyGILState_STATE lock = PyGILState_Ensure();
    PyObject *exception = ac_py->told;
    ac_py->told = NULL, ac_gpu_told = NULL;
    if (exception) PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
    Py_XDECREF(exception);
    PyGILState_Release(lock);
    return exception ? ac_fail(AC_PYTHON, "an operation between GPUs has failed") : 0;
}

/* _nccl_tell(exception): who waits for the GPU next is raised it */
static PyObject *tell(PyObject *module, PyObject *exception) {
    (void)module;
    Py_XSETREF(ac_py->told, Py_NewRef(exception));
    ac_gpu_told = raise_told;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {{"_nccl_version", version, METH_NOARGS, NULL},
                                  {"_nccl_id", unique_id, METH_NOARGS, NULL},
                                  {"_nccl_refuse_capture", refuse_capture, METH_NOARGS, NULL},
                                  {"_nccl_begin", begin, METH_VARARGS, NULL},
                                  {"_nccl_state", state, METH_O, NULL},
                                  {"_nccl_stream", stream, METH_O, NULL},
                                  {"_nccl_queue", queue, METH_VARARGS, NULL},
                                  {"_nccl_check", check_late, METH_O, NULL},
                                  {"_nccl_watch", watch, METH_VARARGS, NULL},
                                  {"_nccl_end", end, METH_O, NULL},
                                  {"_nccl_abort", stop, METH_O, NULL},
                                  {"_nccl_tell", tell, METH_O, NULL},
                                  {NULL, NULL, 0, NULL}};

int ac_nccl_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
