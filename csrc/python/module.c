/* The extension module ampc._C. */
#include "python/state.h"

#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

#include "backend/backend.h"
#include "base/alloc.h"
#include "base/machine.h"
#include "base/pool.h"
#include "base/rng.h"
#include "cuda/gpu.h"
#include "cpu/loops.h"
#include "dispatch/fork.h"
#include "dispatch/lock.h"
#include "dispatch/waiting.h"

ac_py_state *ac_py;

/* -- the core's lock is the GIL --------------------------------------------------------------------- */

static void *release_lock(void) { return PyEval_SaveThread(); }
static void acquire_lock(void *state) { PyEval_RestoreThread(state); }

/* Runs signal handlers, in the main thread; nonzero when one raised (KeyboardInterrupt). */
static int wants_stop(void) {
#if defined(__linux__)
    if (syscall(SYS_gettid) != getpid()) return 0; /* signals are the main thread's */
#endif
    PyGILState_STATE state = PyGILState_Ensure();
    int raised = 0;
    if (!PyErr_Occurred()) AC_OUTSIDE(raised = PyErr_CheckSignals());
    PyGILState_Release(state);
    return raised;
}

/* -- small functions of the whole process ----------------------------------------------------------- */

static PyObject *manual_seed(PyObject *m, PyObject *seed) {
    (void)m;
    PyObject *i = PyNumber_Index(seed);
    unsigned long long value = i ? PyLong_AsUnsignedLongLongMask(i) : 0;
    Py_XDECREF(i);
    if (PyErr_Occurred()) return NULL;
    ac_manual_seed(value);
    Py_RETURN_NONE;
}

static PyObject *rng_state(PyObject *m, PyObject *unused) {
    (void)m, (void)unused;
    const ac_generator *g = ac_default_generator();
    return Py_BuildValue("KK", (unsigned long long)g->seed, (unsigned long long)g->offset);
}

static PyObject *set_rng_state(PyObject *m, PyObject *args) {
    unsigned long long seed, offset;
    (void)m;
    if (!PyArg_ParseTuple(args, "KK", &seed, &offset)) return NULL;
    *ac_default_generator() = (ac_generator){seed, offset};
    Py_RETURN_NONE;
}

static PyObject *num_threads(PyObject *m, PyObject *unused) {
    (void)m, (void)unused;
    return PyLong_FromLong(ac_num_threads());
}

static PyObject *set_num_threads(PyObject *m, PyObject *n) {
    (void)m;
    if (!PyIndex_Check(n) || PyBool_Check(n) || ac_is_tensor(n))
        return PyErr_Format(PyExc_RuntimeError, "set_num_threads: expected an int, got %s", Py_TYPE(n)->tp_name);
    long value = PyLong_AsLong(n);
    if (value == -1 && PyErr_Occurred()) return NULL;
    if (value < 1) return PyErr_Format(PyExc_RuntimeError, "set_num_threads: expected 1 or more, got %ld", value);
    if (value > AC_MOST_THREADS &&
        PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "set_num_threads: %d threads are the most there can be, got %ld",
                         AC_MOST_THREADS, value) < 0)
        return NULL;
    ac_set_num_threads((int)(value > AC_MOST_THREADS ? AC_MOST_THREADS : value));
    Py_RETURN_NONE;
}

static PyObject *memory(PyObject *m, PyObject *unused) {
    (void)m, (void)unused;
    ac_compute_waiting(); /* what it holds is no memory of the script's */
    ac_memory_stats s = ac_memory();
    return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L}", "current", (long long)s.current, "peak", (long long)s.peak, "blocks",
                         (long long)s.blocks, "cached", (long long)s.cached, "system_calls", (long long)s.system_calls);
}
static PyObject *memory_reset_peak(PyObject *m, PyObject *unused) {
    (void)m, (void)unused;
    ac_memory_reset_peak();
    Py_RETURN_NONE;
}
static PyObject *memory_trim(PyObject *m, PyObject *unused) {
    (void)m, (void)unused;
    ac_memory_trim();
    Py_RETURN_NONE;
}

static PyObject *fail_alloc(PyObject *m, PyObject *args) {
    long long n;
    int forever = 0;
    (void)m;
    if (!PyArg_ParseTuple(args, "L|p", &n, &forever)) return NULL;
    ac_alloc_fail_at(n, forever);
    Py_RETURN_NONE;
}
static PyObject *alloc_calls(PyObject *m, PyObject *unused) {
    (void)m, (void)unused;
    return PyLong_FromLongLong(ac_alloc_calls());
}

static PyObject *set_blas(PyObject *m, PyObject *path) {
    (void)m;
    PyObject *bytes; /* as the system writes paths, whatever the locale makes of their letters */
    if (!PyUnicode_FSConverter(path, &bytes)) return NULL;
    ac_blas_set_path(PyBytes_AS_STRING(bytes));
    Py_DECREF(bytes);
    Py_RETURN_NONE;
}

static PyObject *build_info(PyObject *m, PyObject *unused) {
    (void)m, (void)unused;
    return Py_BuildValue("{s:s,s:s,s:s,s:s,s:i}", "compiler", __VERSION__, "cpu_features", ac_isa_name(ac_cpu_isa()),
                         "cpu_loops", ac_cpu_loops()->name, "blas", ac_blas_name(), "threads", ac_num_threads());
}

static PyObject *set_size_type(PyObject *m, PyObject *type) {
    (void)m;
    Py_XSETREF(ac_py->size_type, Py_NewRef(type));
    Py_RETURN_NONE;
}

static PyObject *find_function(PyObject *m, PyObject *name) {
    (void)m;
    PyObject *f = PyDict_GetItemWithError(ac_py->functions, name);
    if (!f && !PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "there is no operator named %R", name);
    return f ? Py_NewRef(f) : NULL;
}

/* op_table(): every entry as a dictionary, for tests, stubs and documentation */
static PyObject *op_table(PyObject *m, PyObject *unused) {
    static const char *kinds[] = {"pointwise", "kernel", "view", "composite"}, *memories[] = {"copy", "view", "either"},
                      *casts[] = {"keep", "low", "f32", "promote", "banned", "unsafe"};
    (void)m, (void)unused;
    PyObject *entries = PyList_New(0);
    for (int op = 0; entries && op < AC_N_OPS; op++) {
        const ac_op_info *i = &ac_ops[op];
        PyObject *entry = Py_BuildValue("{s:s,s:s,s:s,s:s,s:s,s:s,s:i,s:O,s:s,s:s,s:i}", "name", i->name, "python",
                                        i->python, "shown", i->shown, "kind", kinds[i->kind], "memory",
                                        memories[i->memory], "cast", casts[i->cast], "home", i->home, "differentiable",
                                        i->kind == AC_KIND_COMPOSITE || ac_formulas[op] ? Py_True : Py_False,
                                        "signature", i->signature, "doc", i->doc, "outputs", i->n_out);
        if (!entry || PyList_Append(entries, entry) < 0) Py_CLEAR(entries);
        Py_XDECREF(entry);
    }
    return entries;
}

/* _swap_rng(bytearray of the size of a generator): it and the process's change places. Asks for no memory. */
static PyObject *swap_rng(PyObject *m, PyObject *cell) {
    ac_generator *g = ac_default_generator(), before = *g;
    (void)m;
    if (!PyByteArray_Check(cell) || PyByteArray_GET_SIZE(cell) != sizeof *g)
        return PyErr_Format(PyExc_TypeError, "expected a bytearray of %zu bytes", sizeof *g);
    memcpy(g, PyByteArray_AS_STRING(cell), sizeof *g);
    memcpy(PyByteArray_AS_STRING(cell), &before, sizeof before);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {{"manual_seed", manual_seed, METH_O, NULL},
                                  {"_rng_state", rng_state, METH_NOARGS, NULL},
                                  {"_set_rng_state", set_rng_state, METH_VARARGS, NULL},
                                  {"_swap_rng", swap_rng, METH_O, NULL},
                                  {"get_num_threads", num_threads, METH_NOARGS,
                                   "get_num_threads()\n--\n\n"
                                   "Threads that work on one operator."},
                                  {"set_num_threads", set_num_threads, METH_O,
                                   "set_num_threads(int, /)\n--\n\n"
                                   "Sets how many threads work on one operator."},
                                  {"_memory", memory, METH_NOARGS, NULL},
                                  {"_memory_reset_peak", memory_reset_peak, METH_NOARGS, NULL},
                                  {"_memory_trim", memory_trim, METH_NOARGS, NULL},
                                  {"_fail_alloc", fail_alloc, METH_VARARGS, NULL},
                                  {"_alloc_calls", alloc_calls, METH_NOARGS, NULL},
                                  {"_set_blas", set_blas, METH_O, NULL},
                                  {"_build_info", build_info, METH_NOARGS, NULL},
                                  {"_set_size_type", set_size_type, METH_O, NULL},
                                  {"_function", find_function, METH_O, NULL},
                                  {"op_table", op_table, METH_NOARGS, "Every operator's entry of the table."},
                                  {NULL, NULL, 0, NULL}};

/* -- the module ------------------------------------------------------------------------------------- */

static int intern_words(void) {
    struct {
        PyObject **to;
        const char *word;
    } words[] = {{&ac_py->torch_function, "__torch_function__"},
                 {&ac_py->out, "out"},
                 {&ac_py->axis, "axis"},
                 {&ac_py->dim, "dim"},
                 {&ac_py->keepdims, "keepdims"},
                 {&ac_py->keepdim, "keepdim"},
                 {&ac_py->params, "params"},
                 {&ac_py->grad, "grad"},
                 {&ac_py->records, "_records"},
                 {&ac_py->inference, "_inference"},
                 {&ac_py->prev, "prev"},
                 {&ac_py->region_words[0], "device_type"},
                 {&ac_py->region_words[1], "dtype"},
                 {&ac_py->region_words[2], "enabled"},
                 {&ac_py->region_words[3], "cache_enabled"},
                 {&ac_py->init, "__init__"},
                 {&ac_py->chosen, "chosen"},
                 {&ac_py->by_module, "by_module"},
                 {&ac_py->table, "_table"},
                 {&ac_py->modules, "modules"},
                 {&ac_py->saw, "_saw"},
                 {&ac_py->observable, "_observable"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!(*words[i].to = PyUnicode_InternFromString(words[i].word))) return -1;
    return 0;
}

static int add_parts(PyObject *module) {
    int (*const parts[])(PyObject *) = {ac_errors_init,     ac_cuda_init,     ac_dtype_type_init, ac_tensor_type_init,
                                        ac_functions_init,  ac_autograd_init, ac_node_type_init,  ac_amp_init,
                                        ac_provenance_init, ac_watch_init,    ac_optim_init,      ac_create_init,
                                        ac_numpy_init,      ac_dlpack_init,   ac_machine_init,    ac_scope_init,
                                        ac_storage_init,    ac_foreach_init,  ac_ranks_init,      ac_nccl_init,
                                        ac_unpack_init,     ac_autocast_init, ac_gradients_init,  ac_override_init};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i](module) < 0) return -1;
    return PyModule_AddFunctions(module, functions);
}

/* The core's state is of the process, and its reference counts are plain integers: one interpreter, under its GIL. */
static int refuse_interpreter(void) {
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError,
                        "ampc works in the main interpreter only; import it there, not in a subinterpreter");
        return -1;
    }
    PyObject *asks = PySys_GetObject("_is_gil_enabled"); /* borrowed; of Python 3.13 on */
    PyObject *enabled = asks ? PyObject_CallNoArgs(asks) : Py_NewRef(Py_True);
    int ok = enabled ? PyObject_IsTrue(enabled) : -1;
    Py_XDECREF(enabled);
    if (ok == 0)
        PyErr_SetString(PyExc_ImportError,
                        "ampc needs the GIL, which is off; start Python without PYTHON_GIL=0 and -X gil=0");
    return ok > 0 ? 0 : -1;
}

static int exec(PyObject *module) {
    const char *fail = getenv("AMPC_FAIL_ALLOC"); /* tests fail the n-th allocation of an import */
    if (refuse_interpreter() < 0) return -1;
    if (ac_py) return PyErr_SetString(PyExc_ImportError, "ampc cannot be loaded twice in one process"), -1;
    if (fail) ac_alloc_fail_at(atoll(fail), 0);
    if (ac_machine_fault()) return PyErr_SetString(PyExc_ValueError, ac_machine_fault()), -1;
    if (ac_ops_init() < 0 || ac_fork_init() < 0) return (void)ac_raise(), -1;
    ac_py = PyModule_GetState(module);
    if (intern_words() < 0 || add_parts(module) < 0) {
        ac_py = NULL; /* a later import may succeed */
        return -1;
    }
    ac_lock.release = release_lock;
    ac_lock.acquire = acquire_lock;
    ac_stop_hook = wants_stop;
    ac_gpu_memory = ac_cuda_memory;
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, exec},
#ifdef Py_mod_multiple_interpreters
                                   {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
                                   {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "ampc._C", "The core of ampc.", sizeof(ac_py_state), NULL, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__C(void) { return PyModuleDef_Init(&definition); }
