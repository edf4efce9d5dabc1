/* Reads a Python call's arguments by the signatures of ops.def: one parser for every operator. */
#include "python/state.h"

#include <math.h>
#include <string.h>

/* -- numbers ---------------------------------------------------------------------------------------- */

bool ac_is_number(PyObject *o) {
    if (PyFloat_Check(o) || PyLong_Check(o)) return true;
    if (ac_is_tensor(o) || PyUnicode_Check(o) || PyBytes_Check(o) || PySequence_Check(o)) return false;
    PyNumberMethods *m = Py_TYPE(o)->tp_as_number;
    return m && (m->nb_float || m->nb_index); /* NumPy's scalars among others */
}

/* A tensor of another library, whose ways to numbers are for those of one element. An exception that is set stays. */
static bool is_foreign(PyObject *o) {
    PyObject *type, *why, *trace;
    if (PyFloat_Check(o) || PyLong_Check(o)) return false;
    PyErr_Fetch(&type, &why, &trace); /* looking for attributes would clear it */
    bool foreign = PyObject_HasAttrString(o, "__dlpack_device__") && !PyObject_HasAttrString(o, "__array_interface__");
    PyErr_Restore(type, why, trace);
    return foreign;
}

int ac_scalar_from(PyObject *o, ac_scalar *s) {
    if (PyBool_Check(o)) {
        *s = (ac_scalar){AC_BOOL, {o == Py_True}};
        return 0;
    }
    if (PyLong_Check(o) || (!PyFloat_Check(o) && PyIndex_Check(o))) {
        int64_t i = PyLong_AsLongLong(o);
        *s = (ac_scalar){AC_INT, {i}};
        if (i != -1 || !PyErr_Occurred()) return 0;
        if (!is_foreign(o)) return -1;
        PyErr_Clear(); /* it may be one of floating point */
    }
    double f = PyFloat_AsDouble(o);
    *s = (ac_scalar){.kind = AC_FLOAT, .f = f};
    if (f != -1 || !PyErr_Occurred()) return 0;
    if (is_foreign(o))
        PyErr_Format(PyExc_TypeError,
                     "expected a Tensor or a number, got %s of another library; use ampc.from_dlpack()",
                     Py_TYPE(o)->tp_name);
    return -1;
}

int ac_scalar_beside(PyObject *o, const ac_tensor *beside, ac_scalar *s) {
    if (ac_scalar_from(o, s) == 0) return 0;
    bool large = PyLong_Check(o) && PyErr_ExceptionMatches(PyExc_OverflowError);
    if (!large || !beside || !ac_is_floating(beside->dtype)) return -1;
    PyErr_Clear();
    unsigned long long whole = PyLong_AsUnsignedLongLong(o);
    if (PyErr_Occurred()) return -1;
    *s = (ac_scalar){.kind = AC_FLOAT, .f = (double)whole};
    return 0;
}

ac_tensor *ac_number_tensor(PyObject *o, const ac_tensor *beside) {
    ac_scalar s;
    if (ac_scalar_beside(o, beside, &s) < 0) return NULL;
    ac_tensor *t = s.kind == AC_FLOAT ? ac_tensor_scalar(AC_float64, s.f)
                                      : ac_tensor_scalar_int(s.kind == AC_BOOL ? AC_bool : AC_int64, s.i);
    if (!t) return (ac_tensor *)ac_raise();
    t->is_scalar = true;
    return t;
}

/* -- one argument ----------------------------------------------------------------------------------- */

static int wrong_type(const char *op, const ac_param *p, const char *expected, PyObject *got) {
    bool tensor = p->kind == AC_P_TENSOR;
    bool values = PyList_Check(got) || PyTuple_Check(got) || !strcmp(Py_TYPE(got)->tp_name, "numpy.ndarray");
    const char *advice = !tensor  ? ""
                         : values ? "; make one with ampc.tensor()"
                         : PyObject_HasAttrString(got, "__dlpack_device__")
                             ? " of another library; use ampc.from_dlpack()"
                             : "";
    PyErr_Format(tensor ? ac_py->no_tensor : PyExc_TypeError, "%s: argument `%s` must be %s%s, got %s%s", op, p->name,
                 expected, p->optional ? " or None" : "", Py_TYPE(got)->tp_name, advice);
    return -1;
}

/* Puts what the parser says of a number beyond 64 bits in place of Python's OverflowError. */
static int too_large(PyObject *kind, const char *name) {
    if (!PyErr_ExceptionMatches(PyExc_OverflowError)) return -1;
    PyErr_Clear();
    PyErr_Format(kind, "`%s`: the number does not fit 64 bits", name);
    return -1;
}

/* As torch has it, one integer in a tensor is an int. */
static inline bool stands_for_int(PyObject *o) {
    if (PyLong_CheckExact(o)) return true;
    if (!ac_is_tensor(o)) return PyIndex_Check(o);
    const ac_tensor *t = ac_unwrap(o);
    return t->numel == 1 && !ac_is_floating(t->dtype);
}

static int take_int(const char *op, const ac_param *p, PyObject *o, int64_t *out) {
    if (PyBool_Check(o) || !PyIndex_Check(o)) return wrong_type(op, p, "int", o);
    *out = PyLong_AsLongLong(o);
    return *out == -1 && PyErr_Occurred() ? too_large(PyExc_ValueError, p->name) : 0;
}

static int dims_from(PyObject *o, ac_dims *d, const char *name, bool holes) {
    PyObject *list = PySequence_Fast(o, name);
    if (!list) return -1;
    d->n = PySequence_Fast_GET_SIZE(list);
    int failed = 0;
    if (d->n > AC_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "`%s` has %zd entries; tensors have at most %d dimensions", name,
                     (Py_ssize_t)d->n, AC_MAX_DIMS);
        failed = -1;
    }
    for (Py_ssize_t i = 0; i < d->n && !failed; i++) {
        PyObject *one = PySequence_Fast_GET_ITEM(list, i);
        if (holes && one == Py_None) d->v[i] = AC_ABSENT;
        else if (!PyIndex_Check(one) ||
                 (i == 0 && PyBool_Check(one))) { /* torch looks at the first alone for bools, too */
            PyErr_Format(PyExc_TypeError, "`%s` must hold integers, got %s at position %zd%s", name,
                         Py_TYPE(one)->tp_name, i, PyFloat_Check(one) ? "; a // b divides integers to an integer" : "");
            failed = -1;
        } else {
            d->v[i] = PyLong_AsLongLong(one);
            if (d->v[i] == -1 && PyErr_Occurred()) failed = too_large(PyExc_TypeError, name);
        }
    }
    Py_DECREF(list);
    return failed;
}

int ac_dims_from(PyObject *o, ac_dims *d, const char *name) { return dims_from(o, d, name, false); }

/* torch reads these words in Python, and those of other arguments in its core. */
static ac_error no_word(const char *op, const ac_param *p) {
    static const char *const in_python[] = {"reduction", "compute_mode", "mode", "padding_mode"};
    for (size_t i = 0; i < sizeof in_python / sizeof *in_python; i++)
        if (strcmp(p->name, in_python[i]) == 0 && strncmp(op, "linalg.", 7) != 0) return AC_VALUE;
    return AC_RUNTIME;
}

static int take_choice(const char *op, const ac_param *p, PyObject *o, int64_t *out) {
    const char *word = PyUnicode_Check(o) ? PyUnicode_AsUTF8(o) : NULL;
    if (!word && PyErr_Occurred()) return -1;
    if (!word && strcmp(p->name, "reduction") == 0) {
        PyErr_Format(PyExc_ValueError, "%s: `reduction` must be a word, such as 'mean', got %R", op, o);
        return -1;
    }
    if (!word) return wrong_type(op, p, "a string", o);
    *out = ac_choice(p, word);
    if (*out >= 0) return 0;
    (void)ac_fail(no_word(op, p), "%s: `%s` must be one of %.*s; got '%s'", op, p->name, (int)strcspn(p->choices, "}"),
                  p->choices, word);
    (void)ac_raise();
    return -1;
}

/* Words that stand for a list are its size: AC_WORD, AC_WORD - 1 and so on. */
static int take_word(const char *op, const ac_param *p, PyObject *o, ac_dims *d) {
    int64_t at;
    if (take_choice(op, p, o, &at) < 0) return -1;
    d->n = AC_WORD - at;
    return 0;
}

static int take_dims(const char *op, const ac_param *p, PyObject *o, ac_dims *d) {
    if (o == Py_None && p->optional) return d->n = -1, 0;
    if (p->choices && PyUnicode_Check(o)) return take_word(op, p, o, d);
    if (stands_for_int(o)) {
        d->n = 1;
        return take_int(op, p, o, d->v);
    }
    if (!PyTuple_Check(o) && !PyList_Check(o)) return wrong_type(op, p, "int or a sequence of ints", o);
    return dims_from(o, d, p->name, p->holes);
}

static int take_attr(const char *op, const ac_param *p, PyObject *o, const ac_tensor *beside, char *to) {
    int64_t *i = (int64_t *)(void *)to;
    ac_dtype dtype;
    switch (p->kind) {
    case AC_P_INT: return o == Py_None && p->optional ? (*i = AC_ABSENT, 0) : take_int(op, p, o, i);
    case AC_P_BOOL:
        if (o == Py_None && p->optional) return *i = 0, 0;
        if (!PyBool_Check(o) && !PyLong_Check(o)) return wrong_type(op, p, "bool", o);
        *i = PyObject_IsTrue(o);
        return *i < 0 ? -1 : 0;
    case AC_P_FLOAT:
        if (!ac_is_number(o) && !(ac_is_tensor(o) && ac_unwrap(o)->ndim == 0 && !ac_requires_grad(ac_unwrap(o))))
            return wrong_type(op, p, "a number", o);
        *(double *)(void *)to = PyFloat_AsDouble(o);
        return PyErr_Occurred() ? -1 : 0;
    case AC_P_SCALAR:
        if (o == Py_None && p->optional) return *(ac_scalar *)(void *)to = (ac_scalar){AC_NONE, {0}}, 0;
        if (ac_is_tensor(o) && ac_unwrap(o)->numel == 1 && !ac_requires_grad(ac_unwrap(o))) {
            PyObject *number = ac_item(ac_unwrap(o), 0);
            int failed = number ? ac_scalar_from(number, (ac_scalar *)(void *)to) : -1;
            Py_XDECREF(number);
            return failed;
        }
        if (PyComplex_Check(o)) {
            PyErr_Format(PyExc_RuntimeError, "%s: argument `%s` must be a real number, ampc has no complex ones", op,
                         p->name);
            return -1;
        }
        if (!ac_is_number(o)) return wrong_type(op, p, "a number", o);
        return ac_scalar_beside(o, beside, (ac_scalar *)(void *)to);
    case AC_P_DIMS: return take_dims(op, p, o, (ac_dims *)(void *)to);
    case AC_P_DTYPE:
        if (o == Py_None && p->optional) return *i = AC_NO_DTYPE, 0;
        if (ac_dtype_from(o, &dtype) < 0) return ac_no_dtype(op, o);
        *i = dtype;
        return 0;
    case AC_P_TEXT: /* borrowed from the string, which outlives the call */
        *(const char **)(void *)to = PyUnicode_Check(o) ? PyUnicode_AsUTF8(o) : NULL;
        return PyUnicode_Check(o) ? (*(const char **)(void *)to ? 0 : -1) : wrong_type(op, p, "a string", o);
    case AC_P_CHOICE: return o == Py_None && p->optional ? (*i = 0, 0) : take_choice(op, p, o, i); /* the first */
    default: return -1;
    }
}

static inline const ac_tensor *first_of(const ac_call_args *c) { return c->in.n ? c->in.at[0] : NULL; }

static int push(ac_call_args *c, ac_tensor *t) { return ac_list_push(&c->in, t) < 0 ? ((void)ac_raise(), -1) : 0; }

static int take_tensor(const char *op, const ac_param *p, PyObject *o, ac_call_args *c) {
    if (ac_is_tensor(o)) return push(c, ac_unwrap(o));
    if (o == Py_None && p->optional) return push(c, NULL);
    if (!p->number || !ac_is_number(o)) return wrong_type(op, p, p->number ? "a Tensor or a number" : "a Tensor", o);
    ac_tensor *t = ac_number_tensor(o, first_of(c));
    if (!t) return -1;
    c->owned[c->n_owned++] = t;
    return push(c, t);
}

/* Whoever else has the Python list may empty it while the call reads its other arguments, or runs: the call holds what
 * was in it. */
static int take_list(const char *op, const ac_param *p, PyObject *o, ac_call_args *c) {
    bool optional = p->optional || strstr(p->name, "indices"); /* Tensor?[]: holes are allowed */
    if (!PyTuple_Check(o) && !PyList_Check(o)) return wrong_type(op, p, "a list or tuple of Tensors", o);
    Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
    c->held_from = c->in.n;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *one = PySequence_Fast_GET_ITEM(o, i);
        if (one == Py_None && optional) {
            if (push(c, NULL) < 0) return -1;
        } else if (!ac_is_tensor(one)) {
            PyErr_Format(PyExc_TypeError, "%s: `%s` must hold Tensors, got %s at position %zd", op, p->name,
                         Py_TYPE(one)->tp_name, i);
            return -1;
        } else if (push(c, ac_unwrap(one)) < 0) return -1;
        else Py_INCREF(one);
        c->held_to = c->in.n;
    }
    return 0;
}

static void take_default(const ac_param *p, char *to) {
    if (p->kind == AC_P_DIMS) {
        ac_dims *d = (ac_dims *)(void *)to;
        d->n = p->fallback.i == AC_ABSENT ? -1 : 1, d->v[0] = p->fallback.i;
    } else if (p->kind == AC_P_IN_PLACE || p->kind == AC_P_HINT || p->kind == AC_P_OLD) return;
    else if (p->kind == AC_P_SCALAR) *(ac_scalar *)(void *)to = p->fallback.scalar;
    else *(int64_t *)(void *)to = p->fallback.i; /* int, bool, float, dtype, choice: eight bytes each */
}

/* -- a whole call ----------------------------------------------------------------------------------- */

/* Which of the leading tensors a word of torch's or NumPy's means in every operator, or -1. */
static int place_of(PyObject *word) {
    static const struct {
        const char *word;
        int at;
    } places[] = {{"input", 0}, {"a", 0}, {"x", 0}, {"x1", 0}, {"x2", 1}, {"input2", 1}, {"input3", 2}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (PyUnicode_CompareWithASCIIString(word, places[i].word) == 0) return places[i].at;
    return -1;
}

/* Which parameter a keyword names; torch's other spellings included. -1 when none. */
static int keyword_param(ac_op op, PyObject *word) {
    const ac_op_info *info = &ac_ops[op];
    for (int i = 0; i < info->n_params; i++)
        if (ac_py->names[op][i] == word) return i;
    for (int i = 0; i < info->n_params; i++)
        if (PyUnicode_Compare(ac_py->names[op][i], word) == 0) return i;
    int at = place_of(word);
    if (at >= 0) return at < info->n_params && info->params[at].kind == AC_P_TENSOR ? at : -1;
    PyObject *other = PyUnicode_Compare(word, ac_py->axis) == 0       ? ac_py->dim
                      : PyUnicode_Compare(word, ac_py->keepdims) == 0 ? ac_py->keepdim
                                                                      : NULL;
    for (int i = 0; i < info->n_params && other; i++)
        if (ac_py->names[op][i] == other) return i;
    return -1;
}

/* `out`: a Tensor, or a tuple of one for each result of an operator that shows several. */
static int take_targets(ac_op op, PyObject *value, ac_call_args *c) {
    const ac_op_info *info = &ac_ops[op];
    if (value == Py_None) return 0;
    if (!ac_py->results[op]) {
        if (!ac_is_tensor(value)) {
            PyErr_Format(PyExc_TypeError, "%s: `out` must be a Tensor, got %s", info->shown, Py_TYPE(value)->tp_name);
            return -1;
        }
        c->targets[c->n_targets++] = ac_unwrap(value);
        return 0;
    }
    bool fits = (PyTuple_Check(value) || PyList_Check(value)) && PySequence_Fast_GET_SIZE(value) == info->n_shown;
    for (int i = 0; i < info->n_shown && fits; i++) fits = ac_is_tensor(PySequence_Fast_GET_ITEM(value, i));
    if (!fits) {
        PyErr_Format(PyExc_TypeError, "%s: `out` must be a tuple of %d Tensors, one for each result, got %s",
                     info->shown, info->n_shown, Py_TYPE(value)->tp_name);
        return -1;
    }
    for (int i = 0; i < info->n_shown; i++) c->targets[c->n_targets++] = ac_unwrap(PySequence_Fast_GET_ITEM(value, i));
    return 0;
}

static int assign_keywords(ac_op op, PyObject *const *values, PyObject *kwnames, PyObject **given, ac_call_args *c) {
    const char *name = ac_ops[op].shown;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(kwnames); k++) {
        PyObject *word = PyTuple_GET_ITEM(kwnames, k), *value = values[k];
        if (word == ac_py->out || PyUnicode_Compare(word, ac_py->out) == 0) {
            if (take_targets(op, value, c) < 0) return -1;
            continue;
        }
        int at = keyword_param(op, word);
        if (at < 0) {
            PyErr_Format(PyExc_TypeError, "%s: unknown argument `%U`; its signature is %s%s", name, word, name,
                         ac_ops[op].signature);
            return -1;
        }
        if (given[at]) {
            if (value == Py_None && PyUnicode_Compare(ac_py->names[op][at], word) != 0)
                continue; /* axis=None, and dim */
            PyErr_Format(PyExc_TypeError, "%s: argument `%U` was given twice", name, word);
            return -1;
        }
        given[at] = value;
    }
    return 0;
}

/* True when positional arguments from `at` on are the sizes of an int[] written out, x.view(2, 3), or the tensors of a
 * variadic list. */
static bool spreads(const ac_op_info *info, int at, PyObject *first) {
    const ac_param *p = &info->params[at];
    if (p->variadic) return true;
    bool last = at + 1 == info->n_params || info->params[at + 1].keyword_only;
    return p->kind == AC_P_DIMS && last && stands_for_int(first) && !PyBool_Check(first);
}

static int take(const char *op, const ac_param *p, PyObject *o, ac_call_args *c) {
    char *to = c->attrs.bytes + p->offset;
    switch (p->kind) {
    case AC_P_TENSOR: return o ? take_tensor(op, p, o, c) : push(c, NULL);
    case AC_P_TENSOR_LIST: return o ? take_list(op, p, o, c) : 0;
    case AC_P_OLD: return 0; /* take_old_words reads both */
    case AC_P_HINT:
    case AC_P_IN_PLACE:
        if (o && !PyBool_Check(o) && !PyLong_Check(o)) return wrong_type(op, p, "bool", o);
        if (p->kind == AC_P_IN_PLACE) c->in_place = o && PyObject_IsTrue(o);
        return 0;
    default: return o ? take_attr(op, p, o, first_of(c), to) : (take_default(p, to), 0);
    }
}

/* `size_average` and `reduce`, torch's former words for `reduction`: Python knows what they mean, and warns. */
static int take_old_words(const ac_op_info *info, PyObject *const *given, ac_call_args *c) {
    PyObject *words[2] = {Py_None, Py_None}, *word, *module;
    const ac_param *reduction = &info->params[info->reduction_at];
    int n = 0, failed;
    for (int i = 0; i < info->n_params; i++)
        if (info->params[i].kind == AC_P_OLD) words[n++] = given[i] ? given[i] : Py_None;
    if (words[0] == Py_None && words[1] == Py_None) return 0;
    module = PyImport_ImportModule("ampc._messages.checks");
    word = module ? PyObject_CallMethod(module, "reduction_word", "OOs", words[0], words[1], "mean") : NULL;
    failed =
        word ? take_choice(info->shown, reduction, word, (int64_t *)(void *)(c->attrs.bytes + reduction->offset)) : -1;
    Py_XDECREF(word);
    Py_XDECREF(module);
    return failed;
}

static int fill(ac_op op, PyObject *const *given, ac_call_args *c) {
    const ac_op_info *info = &ac_ops[op];
    for (int i = 0; i < info->n_params; i++) {
        const ac_param *p = &info->params[i];
        if (!given[i] && !p->has_default && !(p->optional && p->kind == AC_P_TENSOR) && !p->variadic) {
            PyErr_Format(PyExc_TypeError, "%s: argument `%s` is missing; the signature is %s%s", info->shown, p->name,
                         info->shown, info->signature);
            return -1;
        }
        if (take(info->shown, p, given[i], c) < 0) return -1;
    }
    return info->old ? take_old_words(info, given, c) : 0;
}

/* torch's former order, which optimizers of older scripts use: the numbers behind `*` stand among the tensors, as in
 * x.add_(2, y) and addmm(beta, x, alpha, a, b). False where the arguments are no such call. */
static bool takes_old_order(const ac_op_info *info, PyObject *const *args, Py_ssize_t n, PyObject **given) {
    int first = 0, tensor = 0, number;
    while (first < info->n_params && !info->params[first].keyword_only) first++;
    number = first;
    for (Py_ssize_t i = 0; i < n; i++) {
        bool counts = ac_is_number(args[i]);
        int at = counts ? number++ : tensor++;
        if (at >= (counts ? info->n_params : first)) return false;
        if (info->params[at].kind != (counts ? AC_P_SCALAR : AC_P_TENSOR) || (!counts && !ac_is_tensor(args[i])))
            return false;
        given[at] = args[i];
    }
    return tensor == first;
}

int ac_parse(ac_op op, PyObject *const *args, Py_ssize_t n, PyObject *kwnames, ac_call_args *c) {
    const ac_op_info *info = &ac_ops[op];
    PyObject *given[AC_MAX_PARAMS] = {NULL}, *spread = NULL;
    ac_list_init(&c->in);
    c->held_from = c->held_to = 0;
    c->n_owned = 0;
    c->n_targets = 0;
    c->in_place = false;
    for (int i = 0; i < n; i++) {
        if (i >= info->n_params || info->params[i].keyword_only) {
            if (takes_old_order(info, args, n, given)) break;
            PyErr_Format(PyExc_TypeError, "%s: %zd positional arguments given, %d taken; the signature is %s%s",
                         info->shown, n, i, info->shown, info->signature);
            return -1;
        }
        given[i] = args[i];
        if (!spreads(info, i, args[i]) || (i + 1 == n && !info->params[i].variadic)) continue;
        spread = PyTuple_New(n - i);
        if (!spread) return -1;
        for (Py_ssize_t k = i; k < n; k++) {
            Py_INCREF(args[k]);
            PyTuple_SET_ITEM(spread, k - i, args[k]);
        }
        given[i] = spread;
        break;
    }
    int failed = kwnames ? assign_keywords(op, args + n, kwnames, given, c) : 0;
    if (!failed && spread == NULL && n == 1 && info->n_params == 2 && info->params[1].kind == AC_P_DIMS && !given[1] &&
        !kwnames && info->kind == AC_KIND_VIEW && !info->params[1].has_default) {
        spread = PyTuple_New(0); /* x.view() and x.permute() of a 0-d tensor */
        given[1] = spread;
        failed = spread ? 0 : -1;
    }
    if (!failed) failed = fill(op, given, c);
    Py_XDECREF(spread);
    return failed;
}

void ac_parse_release(ac_call_args *c) {
    for (int i = c->held_from; i < c->held_to; i++)
        if (c->in.at[i]) Py_DECREF((PyObject *)c->in.at[i]->py);
    for (int i = 0; i < c->n_owned; i++) ac_tensor_release(c->owned[i]);
    ac_list_free(&c->in);
}
