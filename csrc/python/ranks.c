/* The order of a group's operations, and the collectives of its ranks that share memory (cpu/ranks/ranks.h), for
 * ampc.distributed. The group's thread and the script's threads take turns; a call that waits for its result runs at
 * once in its own thread, where no operation is before it. */
#include "python/state.h"

#include "cpu/ranks/ranks.h"
#include "dispatch/deferred_scale.h"

#include <string.h>

/* Up to so many bytes a call keeps the GIL until it sleeps; giving it back and taking it again costs as much. */
enum { KEEPS_GIL_BYTES = 1 << 16, MOST_WORDS = 16, TEXT_BYTES = 120, N_OPS = 8, OP_SUM = 0, OP_AVG = 1 };

/* What a call is named in words, for who waits for it, and what must be the same in all ranks. */
typedef struct {
    bool known;
    ac_collective kind;
    ac_dtype dtype;
    int op, root;
    int64_t n;
    uint64_t said;
    char text[TEXT_BYTES];
} words;

typedef struct {
    PyObject_HEAD PyObject *owner; /* the ProcessGroup, which is asked and told, see groups.py */
    PyObject *ops;                 /* the members of ReduceOp, a tuple in the order of their values */
    Py_buffer entered, doing;      /* of the board: the number of the group's last operation, and its words */
    PyThread_type_lock turn;       /* of the thread that runs an operation */
    int64_t count, given;          /* operations so far; those of the group's thread that have not ended */
    Py_buffer memory;              /* shared; obj is NULL where the group shares none */
    ac_ranks ranks;
    bool checked; /* calls are compared */
    int spins;    /* looks before a thread sleeps */
    words kept[MOST_WORDS];
    int next_kept;
    char within[TEXT_BYTES]; /* what operations are parts of, as who waits for them is told; or "" */
} PyRanks;

static PyObject *none(void) { return Py_NewRef(Py_None); }

/* -- the order of operations ------------------------------------------------------------------------ */

static void take_turn(PyRanks *r) {
    Py_BEGIN_ALLOW_THREADS;
    (void)PyThread_acquire_lock(r->turn, WAIT_LOCK);
    Py_END_ALLOW_THREADS;
}

/* The number of an operation that begins in its caller's thread; 0 where one before it has not ended. */
static int64_t begin_here(PyRanks *r) {
    if (r->given > 0 || PyThread_acquire_lock(r->turn, NOWAIT_LOCK) != PY_LOCK_ACQUIRED) return 0;
    return ++r->count;
}

static void end_here(PyRanks *r) { PyThread_release_lock(r->turn); }

/* give() -> the number of an operation that the group's thread will run between begin() and end() */
static PyObject *give(PyObject *self, PyObject *unused) {
    PyRanks *r = (PyRanks *)self;
    (void)unused;
    r->given++;
    return PyLong_FromLongLong(++r->count);
}

static PyObject *begin(PyObject *self, PyObject *unused) {
    (void)unused;
    take_turn((PyRanks *)self);
    return none();
}

static PyObject *end(PyObject *self, PyObject *unused) {
    PyRanks *r = (PyRanks *)self;
    (void)unused;
    r->given--;
    PyThread_release_lock(r->turn);
    return none();
}

/* within(text): operations are told as parts of this; of "" as themselves */
static PyObject *within(PyObject *self, PyObject *text) {
    const char *bytes = PyUnicode_AsUTF8(text);
    if (!bytes) return NULL;
    (void)strncpy(((PyRanks *)self)->within, bytes, TEXT_BYTES - 1);
    return none();
}

/* number() -> the number of an operation that the script's thread queues elsewhere, as on a GPU */
static PyObject *number(PyObject *self, PyObject *unused) {
    (void)unused;
    return PyLong_FromLongLong(++((PyRanks *)self)->count);
}

/* begin_here() -> the number of an operation, which end_here() ends; 0 where one before it has not ended */
static PyObject *py_begin_here(PyObject *self, PyObject *unused) {
    (void)unused;
    return PyLong_FromLongLong(begin_here((PyRanks *)self));
}

static PyObject *py_end_here(PyObject *self, PyObject *unused) {
    (void)unused;
    end_here((PyRanks *)self);
    return none();
}

/* -- collectives in shared memory ------------------------------------------------------------------- */

/* A collective that runs. */
typedef struct {
    PyRanks *r;
    const words *words; /* of a call that runs at once, else NULL */
    int64_t number;
    PyThreadState *rests; /* while the GIL is given back */
} running;

/* What a call that runs at once is for who waits for it. */
static const char *told(const running *c) { return *c->r->within ? c->r->within : c->words->text; }

/* Asks the group while a rank waits; what it raises ends the wait. */
static int ask(void *context) {
    const running *c = context;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *answer = NULL;
    if (PyErr_CheckSignals() == 0)
        answer = c->words ? PyObject_CallMethod(c->r->owner, "_wait", "sL", told(c), (long long)c->number)
                          : PyObject_CallMethod(c->r->owner, "_wait", NULL);
    int failed = answer ? 0 : -1;
    Py_XDECREF(answer);
    PyGILState_Release(state);
    return failed;
}

static void rest(void *context, bool begins) {
    running *c = context;
    if (begins) c->rests = PyEval_SaveThread();
    else PyEval_RestoreThread(c->rests);
}

/* Tells the group that a collective has ended half way, by the error that is set. */
static void lose(const running *c) {
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    PyErr_NormalizeException(&kind, &error, &trace);
    PyObject *answer = c->words ? PyObject_CallMethod(c->r->owner, "_lose", "Os", error, told(c))
                                : PyObject_CallMethod(c->r->owner, "_lose", "O", error);
    if (!answer) PyErr_Clear();
    Py_XDECREF(answer);
    PyErr_Restore(kind, error, trace);
}

/* 0; 1 where the ranks do not agree; -1 with an error, which the group knows. */
static int run_in_memory(running *c, ac_rank_call *call, int64_t bytes) {
    ac_ranks *g = &c->r->ranks;
    bool keeps = c->words && bytes <= KEEPS_GIL_BYTES;
    int result;
    call->unchecked = !c->r->checked;
    g->spins = c->r->spins, g->waits = ask, g->rests = keeps ? rest : NULL, g->context = c;
    if (keeps) {
        result = ac_ranks_run(g, call);
    } else {
        Py_BEGIN_ALLOW_THREADS;
        result = ac_ranks_run(g, call);
        Py_END_ALLOW_THREADS;
    }
    if (result < 0) lose(c);
    return result;
}

static char *data_of(PyObject *o) { return ac_is_tensor(o) ? ac_data(ac_unwrap(o)) : NULL; }

/* Rows of a call's elements: those of a tuple of tensors. NULL with an error. */
static ac_rank_part *parts_of(PyObject *tensors) {
    Py_ssize_t count = PyTuple_GET_SIZE(tensors);
    ac_rank_part *parts = PyMem_Calloc((size_t)count + 1, sizeof *parts);
    if (!parts) return (ac_rank_part *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        const ac_tensor *t = ac_unwrap(PyTuple_GET_ITEM(tensors, i));
        parts[i] = (ac_rank_part){ac_data(t), t->numel};
    }
    return parts;
}

/* run(collective, combination, from, to, elements, root, divisor, said) -> whether the ranks agree; between begin and
 * end. `from` and `to` are tensors or None; of an all_reduce in place `from` may be a tuple of tensors of one dtype. */
static PyObject *run(PyObject *self, PyObject *args) {
    PyObject *from, *to;
    int kind, how, root, divisor;
    long long n;
    unsigned long long said;
    if (!PyArg_ParseTuple(args, "iiOOLiiK", &kind, &how, &from, &to, &n, &root, &divisor, &said)) return NULL;
    running c = {.r = (PyRanks *)self};
    if (!c.r->memory.obj) return PyErr_SetString(PyExc_RuntimeError, "the group shares no memory"), NULL;
    bool in_parts = PyTuple_Check(from) && PyTuple_GET_SIZE(from) > 0;
    PyObject *first = in_parts ? PyTuple_GET_ITEM(from, 0) : from;
    ac_rank_part *parts = in_parts ? parts_of(from) : NULL;
    if (in_parts && !parts) return NULL;
    ac_rank_call call = {.kind = (ac_collective)kind,
                         .how = (ac_combine)how,
                         .dtype = ac_is_tensor(first) ? ac_unwrap(first)->dtype : AC_uint8,
                         .n = n,
                         .from = data_of(from),
                         .to = data_of(to),
                         .parts = parts,
                         .root = root,
                         .divisor = divisor,
                         .said = said};
    int result = run_in_memory(&c, &call, 0);
    PyMem_Free(parts);
    return result < 0 ? NULL : PyBool_FromLong(result == 0);
}

/* -- at once ---------------------------------------------------------------------------------------- */

/* Whether its memory can be read and written as it is. */
static bool lies_in_a_row(PyObject *o) {
    if (!ac_is_tensor(o)) return false;
    const ac_tensor *t = ac_unwrap(o);
    return !t->is_part && ac_device_of(t) == AC_CPU && ac_is_contiguous(t);
}

static int op_of(const PyRanks *r, PyObject *o) {
    for (int i = 0; i < N_OPS; i++)
        if (PyTuple_GET_ITEM(r->ops, i) == o) return i;
    return -1;
}

static bool has_op(ac_dtype dtype, int op) {
    bool bitwise = op - 1 >= AC_COMBINE_AND;
    return op >= 0 && (ac_is_floating(dtype) ? !bitwise : op != OP_AVG);
}

/* Whether the call can run at once: its arguments are good and need no copy. */
static bool read_call(const PyRanks *r, ac_collective kind, PyObject *to, PyObject *from, int op, ac_rank_call *c) {
    if (kind == AC_MEET) {
        *c = (ac_rank_call){.kind = kind, .dtype = AC_uint8, .divisor = 1};
        return true;
    }
    if (!lies_in_a_row(from) || !lies_in_a_row(to)) return false;
    const ac_tensor *source = ac_unwrap(from), *target = ac_unwrap(to);
    bool reduces = kind == AC_ALL_REDUCE || kind == AC_REDUCE_SCATTER;
    int64_t n = kind == AC_REDUCE_SCATTER ? target->numel : source->numel;
    int64_t given = kind == AC_REDUCE_SCATTER ? n * r->ranks.size : n,
            taken = kind == AC_ALL_GATHER ? n * r->ranks.size : n;
    if (source->dtype != target->dtype || source->numel != given || target->numel != taken) return false;
    if (reduces && !has_op(source->dtype, op)) return false;
    *c = (ac_rank_call){.kind = kind,
                        .how = (ac_combine)(op > OP_AVG ? op - 1 : AC_COMBINE_SUM),
                        .dtype = source->dtype,
                        .n = n,
                        .divisor = op == OP_AVG ? r->ranks.size : 1};
    return true;
}

/* Borrowed: the words of a call, which the group is asked for once; NULL with an error. */
static const words *words_of(PyRanks *r, const ac_rank_call *c, int op, PyObject *op_object) {
    for (int i = 0; i < MOST_WORDS; i++) {
        const words *w = &r->kept[i];
        if (w->known && w->kind == c->kind && w->n == c->n && w->dtype == c->dtype && w->op == op && w->root == c->root)
            return w;
    }
    unsigned long long said;
    const char *text;
    PyObject *made = PyObject_CallMethod(r->owner, "_in_words", "iLOOi", (int)c->kind, (long long)c->n,
                                         ac_py->dtypes[c->dtype], op_object, c->root);
    if (!made || !PyArg_ParseTuple(made, "Ks", &said, &text)) return Py_XDECREF(made), NULL;
    words *w = &r->kept[r->next_kept];
    r->next_kept = (r->next_kept + 1) % MOST_WORDS;
    *w = (words){.known = true, .kind = c->kind, .dtype = c->dtype, .op = op, .root = c->root, .n = c->n, .said = said};
    (void)strncpy(w->text, text, TEXT_BYTES - 1);
    Py_DECREF(made);
    return w;
}

/* In this thread's turn. */
static PyObject *run_at_once(running *c, ac_rank_call *call, int op, PyObject *op_object, PyObject *to) {
    PyRanks *r = c->r;
    c->words = words_of(r, call, op, op_object);
    if (!c->words) return NULL;
    call->said = c->words->said;
    memcpy(r->doing.buf, told(c), TEXT_BYTES);
    *(int64_t *)r->entered.buf = c->number;
    int result = run_in_memory(c, call, call->n * ac_itemsize(call->dtype));
    if (result < 0) return NULL;
    if (result > 0) return PyObject_CallMethod(r->owner, "_differ", "sO", c->words->text, to);
    if (call->kind != AC_MEET) ac_wrote(ac_unwrap(to));
    Py_RETURN_TRUE;
}

enum { KIND, TO, FROM, OP, ROOT, N_ARGS };

/* Whether what is read and what is written lie apart, or the shorter one is this rank's part of the longer. */
static bool lie_apart(const PyRanks *r, const ac_rank_call *c) {
    if (c->kind != AC_ALL_GATHER && c->kind != AC_REDUCE_SCATTER) return true;
    const char *whole = c->kind == AC_ALL_GATHER ? c->to : c->from, *part = c->kind == AC_ALL_GATHER ? c->from : c->to;
    int64_t bytes = c->n * ac_itemsize(c->dtype);
    return part == whole + r->ranks.rank * bytes || part + bytes <= whole || whole + r->ranks.size * bytes <= part;
}

/* at_once(collective, to, from, op, root) -> True: it has run. False: arguments or other operations are in the way. */
static PyObject *at_once(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    running c = {.r = (PyRanks *)self};
    ac_rank_call call;
    if (n != N_ARGS) return PyErr_Format(PyExc_TypeError, "expected %d arguments, got %zd", N_ARGS, n);
    long kind = PyLong_AsLong(args[KIND]), root = PyLong_AsLong(args[ROOT]);
    if (PyErr_Occurred()) return NULL;
    int op = args[OP] == Py_None ? -1 : op_of(c.r, args[OP]);
    if (!c.r->memory.obj || !read_call(c.r, (ac_collective)kind, args[TO], args[FROM], op, &call)) Py_RETURN_FALSE;
    if (call.kind != AC_MEET) {
        AC_PY_TRY(ac_settle(ac_unwrap(args[FROM])));
        AC_PY_TRY(ac_settle(ac_unwrap(args[TO])));
    }
    call.from = data_of(args[FROM]), call.to = data_of(args[TO]), call.root = (int)root;
    if (!lie_apart(c.r, &call)) Py_RETURN_FALSE;
    c.number = begin_here(c.r);
    if (c.number == 0) Py_RETURN_FALSE;
    PyObject *result = run_at_once(&c, &call, op, args[OP], args[TO]);
    end_here(c.r);
    return result;
}

/* -- the type --------------------------------------------------------------------------------------- */

/* Ranks(owner, the reductions) */
static PyObject *ranks_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *owner, *ops;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "OO!", &owner, &PyTuple_Type, &ops)) return NULL;
    if (PyTuple_GET_SIZE(ops) != N_OPS)
        return PyErr_SetString(PyExc_ValueError, "the reductions are other than the core's"), NULL;
    PyRanks *r = (PyRanks *)type->tp_alloc(type, 0);
    if (!r) return NULL;
    r->owner = Py_NewRef(owner), r->ops = Py_NewRef(ops);
    r->turn = PyThread_allocate_lock();
    if (!r->turn) return PyErr_NoMemory(), Py_DECREF(r), NULL;
    return (PyObject *)r;
}

static void release_memory(PyRanks *r) {
    PyBuffer_Release(&r->entered);
    PyBuffer_Release(&r->doing);
    PyBuffer_Release(&r->memory);
}

static int open_memory(PyRanks *r, PyObject *memory, PyObject *entered, PyObject *doing) {
    if (PyObject_GetBuffer(entered, &r->entered, PyBUF_WRITABLE) < 0 ||
        PyObject_GetBuffer(doing, &r->doing, PyBUF_WRITABLE) < 0 ||
        PyObject_GetBuffer(memory, &r->memory, PyBUF_WRITABLE) < 0)
        return release_memory(r), -1;
    return 0;
}

/* share(memory, rank, size, bytes of a buffer, whether calls are compared, looks before a thread sleeps, the board's
 * number and text for the group) */
static PyObject *share(PyObject *self, PyObject *args) {
    PyRanks *r = (PyRanks *)self;
    PyObject *memory, *entered, *doing;
    int rank, size, checked, spins;
    long long bytes;
    if (!PyArg_ParseTuple(args, "OiiLpiOO", &memory, &rank, &size, &bytes, &checked, &spins, &entered, &doing))
        return NULL;
    AC_PY_TRY(open_memory(r, memory, entered, doing));
    if (size < 1 || size > AC_MOST_RANKS || rank < 0 || rank >= size || bytes < 64 * size || bytes % 128 != 0 ||
        r->memory.len < ac_ranks_bytes(size, bytes) || r->entered.len != sizeof(int64_t) ||
        r->doing.len != TEXT_BYTES) {
        release_memory(r);
        PyErr_SetString(PyExc_ValueError, "the memory does not fit so many ranks with buffers of this size");
        return NULL;
    }
    ac_rank_line *lines = r->memory.buf;
    r->ranks =
        (ac_ranks){.lines = lines, .buffers = (char *)(lines + size), .rank = rank, .size = size, .bytes = bytes};
    r->checked = checked, r->spins = spins;
    return none();
}

/* unshare(): gives the memory back */
static PyObject *let_go(PyObject *self, PyObject *unused) {
    (void)unused;
    release_memory((PyRanks *)self);
    return none();
}

static int traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(((PyRanks *)self)->owner);
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static int clear(PyObject *self) {
    Py_CLEAR(((PyRanks *)self)->owner);
    return 0;
}

static void dealloc(PyObject *self) {
    PyRanks *r = (PyRanks *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_CLEAR(r->owner);
    Py_CLEAR(r->ops);
    release_memory(r);
    if (r->turn) PyThread_free_lock(r->turn);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {{"share", share, METH_VARARGS, NULL},
                                {"unshare", let_go, METH_NOARGS, NULL},
                                {"give", give, METH_NOARGS, NULL},
                                {"number", number, METH_NOARGS, NULL},
                                {"within", within, METH_O, NULL},
                                {"begin", begin, METH_NOARGS, NULL},
                                {"end", end, METH_NOARGS, NULL},
                                {"begin_here", py_begin_here, METH_NOARGS, NULL},
                                {"end_here", py_end_here, METH_NOARGS, NULL},
                                {"run", run, METH_VARARGS, NULL},
                                {"at_once", (PyCFunction)(void (*)(void))at_once, METH_FASTCALL, NULL},
                                {NULL, NULL, 0, NULL}};
static PyType_Slot slots[] = {{Py_tp_new, ranks_new}, {Py_tp_dealloc, dealloc}, {Py_tp_traverse, traverse},
                              {Py_tp_clear, clear},   {Py_tp_methods, methods}, {0, NULL}};
static PyType_Spec spec = {"ampc._C.Ranks", sizeof(PyRanks), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};

/* -- beside the type -------------------------------------------------------------------------------- */

/* _settle(tensor): a factor that was left for later is multiplied in */
static PyObject *settle(PyObject *module, PyObject *o) {
    (void)module;
    if (!ac_is_tensor(o)) return PyErr_SetString(PyExc_TypeError, "expected a Tensor"), NULL;
    AC_PY_TRY(ac_settle(ac_unwrap(o)));
    return none();
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
    return none();
}

/* Reads a list of addresses; 0 is that of `own`. How many they are; -1 with an error. */
static int read_addresses(PyObject *list, const void *own, const void **from) {
    Py_ssize_t count = PyList_GET_SIZE(list);
    if (count < 1 || count > AC_MOST_RANKS) return PyErr_SetString(PyExc_ValueError, "too many parts, or none"), -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        void *address = PyLong_AsVoidPtr(PyList_GET_ITEM(list, i));
        if (PyErr_Occurred()) return -1;
        from[i] = address ? address : own;
    }
    return (int)count;
}

/* _ranks_combine_at(combination, addresses, divisor, out, begin, n): of arrays of out's dtype, into n elements of out.
 * An address is where the array's element 0 is; 0 is out itself. */
static PyObject *ranks_combine_at(PyObject *module, PyObject *args) {
    PyObject *addresses, *out;
    int how, divisor;
    long long begin, n;
    const void *from[AC_MOST_RANKS];
    (void)module;
    if (!PyArg_ParseTuple(args, "iO!iO!LL", &how, &PyList_Type, &addresses, &divisor, ac_py->tensor, &out, &begin, &n))
        return NULL;
    const ac_tensor *to = ac_unwrap(out);
    if (how < 0 || how >= AC_N_COMBINES || begin < 0 || n < 0 || begin + n > to->numel)
        return PyErr_SetString(PyExc_ValueError, "the parts do not fit the result"), NULL;
    int count = read_addresses(addresses, ac_data(to), from);
    if (count < 0) return NULL;
    int64_t offset = begin * ac_itemsize(to->dtype);
    for (int i = 0; i < count; i++) from[i] = (const char *)from[i] + offset;
    Py_BEGIN_ALLOW_THREADS;
    ac_cpu_combine((ac_combine)how, to->dtype, n, count, from, divisor, to->dtype, (char *)ac_data(to) + offset);
    Py_END_ALLOW_THREADS;
    return none();
}

/* _ranks_row(tensor) -> the address of its memory, the number of its elements and its dtype; None of what is no tensor,
 * or needs a copy */
static PyObject *ranks_row(PyObject *module, PyObject *o) {
    (void)module;
    if (!lies_in_a_row(o)) return none();
    ac_tensor *t = ac_unwrap(o);
    AC_PY_TRY(ac_settle(t));
    return Py_BuildValue("KLO", (unsigned long long)(uintptr_t)ac_data(t), (long long)t->numel,
                         ac_py->dtypes[t->dtype]);
}

/* _ranks_wrote(tensor): its values are new */
static PyObject *ranks_wrote(PyObject *module, PyObject *o) {
    (void)module;
    ac_wrote(ac_unwrap(o));
    return none();
}

static PyMethodDef functions[] = {{"_ranks_combine", ranks_combine, METH_VARARGS, NULL},
                                  {"_ranks_combine_at", ranks_combine_at, METH_VARARGS, NULL},
                                  {"_ranks_row", ranks_row, METH_O, NULL},
                                  {"_ranks_wrote", ranks_wrote, METH_O, NULL},
                                  {"_settle", settle, METH_O, NULL},
                                  {NULL, NULL, 0, NULL}};

int ac_ranks_init(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    int failed = type ? PyModule_AddObjectRef(module, "Ranks", type) : -1;
    Py_XDECREF(type);
    return failed ? -1 : PyModule_AddFunctions(module, functions);
}
