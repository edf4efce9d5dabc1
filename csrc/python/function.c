/* OpFunction: an operator of the table (or several of one Python name) as a Python callable. OpMethod: the same as a
 * method of Tensor. A class that has a function as its attribute gets that from its objects, and not a method. */
#include "python/override.h"

#include <stddef.h>
#include <structmember.h>
#include <string.h>

enum { MAX_OVERLOADS = 3 };

typedef struct {
    PyObject_HEAD vectorcallfunc call;
    ac_op ops[MAX_OVERLOADS];
    int n;
    bool in_place; /* name_: the result is written into the first tensor */
    PyObject *name;
} PyOpFunction;

PyObject *ac_result_object(ac_op op, ac_tensor **out) {
    const ac_op_info *info = &ac_ops[op];
    if (!ac_py->results[op]) { /* one result to show; others serve backward */
        for (int i = 1; i < info->n_out; i++) ac_tensor_clear(&out[i]);
        return ac_wrap(out[0]);
    }
    for (int i = info->n_shown; i < info->n_out; i++) ac_tensor_clear(&out[i]);
    PyObject *all = PyStructSequence_New(ac_py->results[op]);
    for (int i = 0; i < info->n_shown; i++) {
        PyObject *one = ac_wrap(out[i]);
        if (all && one) PyStructSequence_SET_ITEM(all, i, one);
        else {
            Py_XDECREF(one);
            Py_CLEAR(all);
        }
    }
    return all;
}

/* The results of an operator whose argument `return_indices` chooses: a tuple of all, or the first alone. */
static PyObject *chosen_object(const ac_op_info *info, const ac_call_args *c, ac_tensor **out) {
    if (!*(const int64_t *)(const void *)(c->attrs.bytes + info->pairs_at)) {
        for (int i = 1; i < info->n_out; i++) ac_tensor_clear(&out[i]);
        return ac_wrap(out[0]);
    }
    PyObject *first = ac_wrap(out[0]), *second = ac_wrap(out[1]);
    if (first && second) return Py_BuildValue("(NN)", first, second);
    Py_XDECREF(first);
    Py_XDECREF(second);
    return NULL;
}

static bool records(ac_tensor *const *t, int n) {
    bool grad = false;
    for (int i = 0; i < n && !grad; i++) grad = t[i] && ac_requires_grad(t[i]);
    return grad && ac_grad_enabled();
}

/* In torch's words, by which scripts filter it; for the script's line. */
static int warn_resized(const ac_tensor *target) {
    char text[AC_SHAPE_TEXT];
    return ac_py_warn(PyUnicode_FromFormat(
        "An output with one or more elements was resized: it has the result's shape %s now. torch means to end this; "
        "give `out` that shape, or none of its elements: out.resize_(0)",
        ac_shape_text(target, text)));
}

static int write_out(ac_op op, const ac_call_args *c) {
    struct {
        int64_t numel;
        uint32_t changes;
    } before[AC_MAX_OUT];
    for (int i = 0; i < c->n_targets; i++)
        before[i].numel = c->targets[i]->numel, before[i].changes = c->targets[i]->changes;
    if (ac_call_out(op, c->in.at, c->in.n, c->attrs.bytes, c->targets, c->n_targets) < 0) return (void)ac_raise(), -1;
    for (int i = 0; i < c->n_targets; i++)
        if (before[i].numel && before[i].changes != c->targets[i]->changes && warn_resized(c->targets[i]) < 0)
            return -1;
    return 0;
}

static PyObject *run(const PyOpFunction *f, ac_op op, ac_call_args *c) {
    ac_tensor *out[AC_MAX_OUT] = {NULL};
    if (f->in_place || c->in_place) {
        AC_PY_TRY(ac_call_into(op, c->in.at, c->in.n, c->attrs.bytes, c->in.at[0]));
        return ac_wrap_borrowed(c->in.at[0]);
    }
    if (c->n_targets == 0) {
        AC_PY_TRY(ac_call(op, c->in.at, c->in.n, c->attrs.bytes, out));
        return ac_ops[op].pairs_at < 0 ? ac_result_object(op, out) : chosen_object(&ac_ops[op], c, out);
    }
    if (records(c->in.at, c->in.n) || records(c->targets, c->n_targets)) { /* not differentiable, as in torch */
        PyErr_Format(PyExc_RuntimeError, "%s: `out` cannot be used where gradients are recorded", ac_ops[op].shown);
        return NULL;
    }
    if (write_out(op, c) < 0) return NULL;
    if (c->n_targets == 1) return ac_wrap_borrowed(c->targets[0]);
    for (int i = 0; i < c->n_targets; i++) out[i] = ac_tensor_retain(c->targets[i]);
    return ac_result_object(op, out);
}

/* Its name as users write it, in two parts. */
#define SHOWN(f) ac_ops[(f)->ops[0]].shown, (f)->in_place ? "_" : ""

static PyObject *no_overload(const PyOpFunction *f) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (!PyErr_GivenExceptionMatches(type, PyExc_TypeError)) {
        PyErr_Restore(type, value, trace);
        return NULL;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    PyObject *text = PyUnicode_FromFormat("%s%s: the arguments fit none of its signatures:", SHOWN(f));
    for (int i = 0; i < f->n && text; i++) {
        PyObject *more = PyUnicode_FromFormat("%U\n  %s%s%s", text, SHOWN(f), ac_ops[f->ops[i]].signature);
        Py_SETREF(text, more);
    }
    if (text) PyErr_SetObject(PyExc_TypeError, text);
    Py_XDECREF(text);
    return NULL;
}

/* Whether no number stands where a signature wants a tensor. Tells in no time that another one is meant. */
static bool may_fit(ac_op op, PyObject *const *args, Py_ssize_t n) {
    for (Py_ssize_t i = 0; i < n && i < ac_ops[op].n_params; i++) {
        const ac_param *p = &ac_ops[op].params[i];
        if (p->kind == AC_P_TENSOR && !p->number && (PyFloat_CheckExact(args[i]) || PyLong_CheckExact(args[i])))
            return false;
    }
    return true;
}

static PyObject *call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    const PyOpFunction *f = (PyOpFunction *)self;
    Py_ssize_t n = PyVectorcall_NARGS(nargsf), all = n + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    if (ac_overrides_now(args, all)) return ac_override(self, args, n, kwnames);
    for (int i = 0; i < f->n; i++) {
        ac_call_args c;
        if (i + 1 < f->n && !may_fit(f->ops[i], args, n)) continue;
        if (ac_parse(f->ops[i], args, n, kwnames, &c) == 0) {
            ac_inside_enter();
            PyObject *result = run(f, f->ops[i], &c);
            ac_inside_leave();
            ac_parse_release(&c);
            return result;
        }
        ac_parse_release(&c);
        if (!PyErr_ExceptionMatches(PyExc_TypeError)) return NULL; /* the signature fits, and a value does not */
        if (i + 1 < f->n) PyErr_Clear();
    }
    if (ac_overrides_misfit(args, all)) return ac_override(self, args, n, kwnames); /* an object that is no Tensor */
    return f->n > 1 ? no_overload(f) : NULL;
}

static void dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(((PyOpFunction *)self)->name);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *get_function(PyObject *self, PyObject *object, PyObject *type) { /* makes inspect read its signature */
    (void)object, (void)type;
    return Py_NewRef(self);
}
static PyObject *get_method(PyObject *self, PyObject *object, PyObject *type) {
    (void)type;
    return object ? PyMethod_New(self, object) : Py_NewRef(self);
}

static PyObject *repr(PyObject *self) {
    const PyOpFunction *f = (PyOpFunction *)self;
    return PyUnicode_FromFormat("<ampc operator %s%s%s>", SHOWN(f), ac_ops[f->ops[0]].signature);
}

static PyObject *get_name(PyObject *self, void *unused) {
    (void)unused;
    return Py_NewRef(((PyOpFunction *)self)->name);
}

static PyObject *get_module(PyObject *self, void *unused) {
    int home = ac_ops[((PyOpFunction *)self)->ops[0]].home;
    (void)unused;
    return PyUnicode_FromString(home & AC_HOME_F   ? "ampc"
                                : home & AC_HOME_N ? "ampc.nn.functional"
                                : home & AC_HOME_P ? "ampc.special"
                                                   : "ampc");
}

/* Every overload's signature and what it computes. */
static PyObject *get_doc(PyObject *self, void *unused) {
    const PyOpFunction *f = (PyOpFunction *)self;
    (void)unused;
    PyObject *text = PyUnicode_FromString("");
    for (int i = 0; i < f->n && text; i++) {
        const ac_op_info *info = &ac_ops[f->ops[i]];
        PyObject *more = PyUnicode_FromFormat("%U%s%s%s\n\n%s%s\n", text, SHOWN(f), info->signature, info->doc,
                                              f->in_place ? "; written into x" : "");
        Py_SETREF(text, more);
    }
    return text;
}

/* NumPy's words, which every operator with `dim` and `keepdim` takes in their place. None beside these says nothing. */
static size_t other_words(const ac_op_info *info, bool star, char *text, size_t used, size_t size) {
    static const char *const words[][2] = {{"dim", "axis=None"}, {"keepdim", "keepdims=None"}};
    for (size_t w = 0; w < sizeof words / sizeof *words; w++)
        for (int i = 0; i < info->n_params; i++)
            if (strcmp(info->params[i].name, words[w][0]) == 0) {
                used += (size_t)snprintf(text + used, size - used, "%s%s", star ? ", " : ", *, ", words[w][1]);
                star = true;
            }
    return used;
}

/* The signature in the form inspect understands: names and defaults. */
static PyObject *get_text_signature(PyObject *self, void *unused) {
    const ac_op_info *info = &ac_ops[((PyOpFunction *)self)->ops[0]];
    char text[512] = "(";
    size_t used = 1;
    bool star = false;
    (void)unused;
    const char *s = info->signature + 1;
    for (int i = 0; i < info->n_params; i++) {
        const ac_param *p = &info->params[i];
        const char *at = strstr(s, p->name), *end = strchr(at, ':') + 1;
        const char *equals = p->has_default ? strstr(end, "= ") : NULL;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s%s", i ? ", " : "",
                                 p->variadic                ? "*"
                                 : p->keyword_only && !star ? "*, "
                                                            : "",
                                 p->name);
        star = star || p->keyword_only || p->variadic;
        if (equals) {
            const char *quote = p->kind == AC_P_CHOICE ? "'" : "";
            int length = (int)strcspn(equals + 2, ",) ");
            used += (size_t)snprintf(text + used, sizeof text - used, "=%s%.*s%s", quote, length, equals + 2, quote);
        } else if (p->optional && p->kind == AC_P_TENSOR && i + 1 < info->n_params &&
                   !info->params[i + 1].has_default) { /* required */
        } else if (p->optional) used += (size_t)snprintf(text + used, sizeof text - used, "=None");
        s = end;
    }
    used = other_words(info, star, text, used, sizeof text);
    (void)snprintf(text + used, sizeof text - used, ")");
    return PyUnicode_FromString(text);
}

/* By the name under which its module has it, so that a pickle names it as torch's does; else by the operator's. */
static PyObject *reduce(PyObject *self, PyObject *unused) {
    (void)unused;
    PyObject *name = get_name(self, NULL), *home = get_module(self, NULL),
             *module = home ? PyImport_Import(home) : NULL,
             *found = name && module ? PyObject_GetAttr(module, name) : NULL;
    Py_XDECREF(home), Py_XDECREF(module);
    if (found == self) {
        Py_DECREF(found);
        return name;
    }
    PyErr_Clear();
    Py_XDECREF(found), Py_XDECREF(name);
    module = PyImport_ImportModule("ampc._C");
    PyObject *find = module ? PyObject_GetAttrString(module, "_function") : NULL;
    Py_XDECREF(module);
    return find ? Py_BuildValue("N(O)", find, ((PyOpFunction *)self)->name) : NULL;
}

static PyObject *reduce_method(PyObject *self, PyObject *unused) {
    (void)unused;
    PyObject *get = PyDict_GetItemString(PyEval_GetBuiltins(), "getattr");
    return Py_BuildValue("O(OO)", get, ac_py->tensor, ((PyOpFunction *)self)->name);
}

static PyGetSetDef getset[] = {{"__name__", get_name, NULL, NULL, NULL},
                               {"__qualname__", get_name, NULL, NULL, NULL},
                               {"__module__", get_module, NULL, NULL, NULL},
                               {"__doc__", get_doc, NULL, NULL, NULL},
                               {"__text_signature__", get_text_signature, NULL, NULL, NULL},
                               {NULL, NULL, NULL, NULL, NULL}};
static PyMethodDef methods[] = {{"__reduce__", reduce, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyMethodDef methods_of_method[] = {{"__reduce__", reduce_method, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyMemberDef members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(PyOpFunction, call), READONLY, NULL},
                                {NULL, 0, 0, 0, NULL}};
#define SLOTS(get, methods)                                                                                            \
    {Py_tp_dealloc, dealloc}, {Py_tp_call, PyVectorcall_Call}, {Py_tp_descr_get, get}, {Py_tp_repr, repr},             \
        {Py_tp_getset, getset}, {Py_tp_methods, methods}, {Py_tp_members, members}, {                                  \
        0, NULL                                                                                                        \
    }
static PyType_Slot slots[] = {SLOTS(get_function, methods)}, slots_of_method[] = {SLOTS(get_method, methods_of_method)};
static PyType_Spec spec = {"ampc._C.OpFunction", sizeof(PyOpFunction), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, slots};
static PyType_Spec spec_of_method = {"ampc._C.OpMethod", sizeof(PyOpFunction), 0,
                                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
                                     slots_of_method};

/* -- making them ------------------------------------------------------------------------------------ */

/* borrowed: the function of that name, made when it is new */
static PyOpFunction *function_named(const char *name, bool in_place) {
    PyObject *found = PyDict_GetItemString(ac_py->functions, name);
    if (found) return (PyOpFunction *)found;
    PyOpFunction *f = (PyOpFunction *)ac_py->function->tp_alloc(ac_py->function, 0);
    if (!f) return NULL;
    f->call = call, f->n = 0, f->in_place = in_place;
    f->name = PyUnicode_FromString(name);
    int failed = !f->name || PyDict_SetItemString(ac_py->functions, name, (PyObject *)f) < 0;
    Py_DECREF(f); /* the dictionary holds it */
    return failed ? NULL : f;
}

/* _method(function): the same as a method of Tensor */
static PyObject *method_of(PyObject *module, PyObject *o) {
    (void)module;
    if (Py_TYPE(o) != ac_py->function) return PyErr_SetString(PyExc_TypeError, "expected an OpFunction"), NULL;
    PyOpFunction *f = (PyOpFunction *)o, *m = (PyOpFunction *)ac_py->method->tp_alloc(ac_py->method, 0);
    if (!m) return NULL;
    m->call = call, m->n = f->n, m->in_place = f->in_place, m->name = Py_NewRef(f->name);
    memcpy(m->ops, f->ops, sizeof m->ops);
    return (PyObject *)m;
}
static PyMethodDef functions[] = {{"_method", method_of, METH_O, NULL}, {NULL, NULL, 0, NULL}};

static int add_overload(ac_op op, const char *name, bool in_place) {
    PyOpFunction *f = function_named(name, in_place);
    if (!f) return -1;
    if (f->n == MAX_OVERLOADS) return PyErr_Format(PyExc_SystemError, "%s has too many overloads", name), -1;
    f->ops[f->n++] = op;
    return 0;
}

/* As torch shows several results: each name on a line of its own. */
static PyObject *show_results(PyObject *all) {
    PyObject *text = PyUnicode_FromFormat("%s(", Py_TYPE(all)->tp_name);
    for (Py_ssize_t i = 0, n = PyTuple_GET_SIZE(all); text && i < n; i++) {
        PyObject *head = text;
        text = PyUnicode_FromFormat("%U\n%s=%R%s", head, Py_TYPE(all)->tp_members[i].name, PyTuple_GET_ITEM(all, i),
                                    i + 1 < n ? "," : ")");
        Py_DECREF(head);
    }
    return text;
}

/* The struct sequence of an operator with several results to show. */
static int make_result_type(ac_op op) {
    const ac_op_info *info = &ac_ops[op];
    if (info->n_shown < 2) return 0;
    PyStructSequence_Field fields[AC_MAX_OUT + 1] = {{NULL, NULL}};
    char full[64];
    for (int i = 0; i < info->n_shown; i++) {
        size_t n = strcspn(info->out_names[i], ":");
        char *keep = PyMem_Malloc(n + 1); /* the type keeps the pointer for as long as it lives */
        if (!keep) return PyErr_NoMemory(), -1;
        memcpy(keep, info->out_names[i], n);
        keep[n] = '\0';
        fields[i].name = keep;
    }
    (void)snprintf(full, sizeof full, "ampc.return_types.%s", info->python);
    PyStructSequence_Desc desc = {full, NULL, fields, info->n_shown};
    ac_py->results[op] = PyStructSequence_NewType(&desc);
    if (!ac_py->results[op]) return -1;
    ac_py->results[op]->tp_repr = show_results;
    return 0;
}

static int intern_names(ac_op op) {
    for (int i = 0; i < ac_ops[op].n_params; i++) {
        ac_py->names[op][i] = PyUnicode_InternFromString(ac_ops[op].params[i].name);
        if (!ac_py->names[op][i]) return -1;
    }
    return 0;
}

int ac_functions_init(PyObject *module) {
    ac_py->function = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
    ac_py->method = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec_of_method, NULL);
    ac_py->functions = PyDict_New();
    if (!ac_py->function || !ac_py->method || !ac_py->functions || PyModule_AddFunctions(module, functions) < 0)
        return -1;
    for (int op = 0; op < AC_N_OPS; op++) {
        char in_place[40];
        if (intern_names((ac_op)op) < 0 || make_result_type((ac_op)op) < 0) return -1;
        if (add_overload((ac_op)op, ac_ops[op].python, false) < 0) return -1;
        (void)snprintf(in_place, sizeof in_place, "%s_", ac_ops[op].python);
        if ((ac_ops[op].home & AC_HOME_I) && add_overload((ac_op)op, in_place, true) < 0) return -1;
    }
    return PyModule_AddObjectRef(module, "_functions", ac_py->functions);
}
