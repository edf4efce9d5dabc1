/* Collectives of ranks that share memory (cpu/ranks/ranks.h), for ampc.distributed. */
#include "python/state.h"

#include "cpu/ranks/ranks.h"
#include "dispatch/deferred_scale.h"

static const char *const NAME = "ampc._C.ranks";

typedef struct {
    ac_ranks ranks;
    Py_buffer memory;
} shared;

static void close_shared(PyObject *capsule) {
    shared *s = PyCapsule_GetPointer(capsule, NAME);
    PyBuffer_Release(&s->memory);
    PyMem_Free(s);
}

/* _ranks_open(memory, rank, size, bytes of a buffer) -> the group, which keeps the memory */
static PyObject *ranks_open(PyObject *module, PyObject *args) {
    PyObject *memory, *capsule;
    int rank, size;
    long long bytes;
    (void)module;
    if (!PyArg_ParseTuple(args, "OiiL", &memory, &rank, &size, &bytes)) return NULL;
    shared *s = PyMem_Calloc(1, sizeof *s);
    if (!s) return PyErr_NoMemory();
    if (PyObject_GetBuffer(memory, &s->memory, PyBUF_WRITABLE) < 0) return PyMem_Free(s), NULL;
    capsule = PyCapsule_New(s, NAME, close_shared);
    if (!capsule) return PyBuffer_Release(&s->memory), PyMem_Free(s), NULL;
    if (size < 1 || size > AC_MOST_RANKS || rank < 0 || rank >= size || bytes < 64 * size || bytes % 128 != 0 ||
        s->memory.len < ac_ranks_bytes(size, bytes)) {
        PyErr_SetString(PyExc_ValueError, "the memory does not fit so many ranks with buffers of this size");
        return Py_DECREF(capsule), NULL;
    }
    ac_rank_line *lines = s->memory.buf;
    s->ranks =
        (ac_ranks){.lines = lines, .buffers = (char *)(lines + size), .rank = rank, .size = size, .bytes = bytes};
    return capsule;
}

/* Calls the function of Python that is asked while a rank waits; what it raises ends the wait. */
static int ask(void *context) {
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *answer = PyErr_CheckSignals() < 0 ? NULL : PyObject_CallNoArgs(context);
    int failed = answer ? 0 : -1;
    Py_XDECREF(answer);
    PyGILState_Release(state);
    return failed;
}

/* _settle(tensor): a factor that was left for later is multiplied in */
static PyObject *settle(PyObject *module, PyObject *o) {
    (void)module;
    if (!ac_is_tensor(o)) return PyErr_SetString(PyExc_TypeError, "expected a Tensor"), NULL;
    AC_PY_TRY(ac_settle(ac_unwrap(o)));
    Py_RETURN_NONE;
}

static char *data_of(PyObject *o) { return ac_is_tensor(o) ? ac_data(ac_unwrap(o)) : NULL; }

enum { GROUP, KIND, HOW, FROM, TO, N, ROOT, DIVISOR, SAID, UNCHECKED, SPINS, WAITS, N_ARGS };

/* _ranks_run(group, collective, combination, from, to, elements, root, divisor, said, unchecked, spins, waits)
 * -> whether the ranks agree */
static PyObject *ranks_run(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    long long numbers[N_ARGS];
    (void)module;
    if (n != N_ARGS) return PyErr_Format(PyExc_TypeError, "expected %d arguments, got %zd", N_ARGS, n);
    shared *s = PyCapsule_GetPointer(args[GROUP], NAME);
    if (!s) return NULL;
    for (int i = 0; i < N_ARGS; i++) {
        bool number = i != GROUP && i != FROM && i != TO && i != WAITS;
        numbers[i] = number ? PyLong_AsLongLong(args[i]) : 0;
        if (numbers[i] == -1 && PyErr_Occurred()) return NULL;
    }
    ac_rank_call call = {.kind = (ac_collective)numbers[KIND],
                         .how = (ac_combine)numbers[HOW],
                         .dtype = ac_is_tensor(args[FROM]) ? ac_unwrap(args[FROM])->dtype : AC_uint8,
                         .n = numbers[N],
                         .from = data_of(args[FROM]),
                         .to = data_of(args[TO]),
                         .root = (int)numbers[ROOT],
                         .divisor = (int)numbers[DIVISOR],
                         .said = (uint64_t)numbers[SAID],
                         .unchecked = numbers[UNCHECKED] != 0};
    ac_ranks *g = &s->ranks;
    int result;
    g->spins = (int)numbers[SPINS], g->waits = ask, g->context = args[WAITS];
    Py_BEGIN_ALLOW_THREADS;
    result = ac_ranks_run(g, &call);
    Py_END_ALLOW_THREADS;
    if (result < 0) return NULL;
    return PyBool_FromLong(result == 0);
}

/* _ranks_combine(combination, parts, count, divisor, out): of `count` arrays of out's length, which lie in a row */
static PyObject *ranks_combine(PyObject *module, PyObject *args) {
    PyObject *parts, *out;
    int how, count, divisor;
    const void *from[AC_MOST_RANKS];
    (void)module;
    if (!PyArg_ParseTuple(args, "iO!iiO!", &how, ac_py->tensor, &parts, &count, &divisor, ac_py->tensor, &out))
        return NULL;
    const ac_tensor *t = ac_unwrap(parts), *to = ac_unwrap(out);
    if (count < 1 || count > AC_MOST_RANKS || how < 0 || how >= AC_N_COMBINES || t->numel != count * to->numel)
        return PyErr_SetString(PyExc_ValueError, "the parts do not fit the result"), NULL;
    for (int i = 0; i < count; i++) from[i] = (char *)ac_data(t) + i * to->numel * ac_itemsize(t->dtype);
    Py_BEGIN_ALLOW_THREADS;
    ac_cpu_combine((ac_combine)how, t->dtype, to->numel, count, from, divisor, to->dtype, ac_data(to));
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {{"_ranks_open", ranks_open, METH_VARARGS, NULL},
                                  {"_ranks_run", (PyCFunction)(void (*)(void))ranks_run, METH_FASTCALL, NULL},
                                  {"_ranks_combine", ranks_combine, METH_VARARGS, NULL},
                                  {"_settle", settle, METH_O, NULL},
                                  {NULL, NULL, 0, NULL}};

int ac_ranks_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
