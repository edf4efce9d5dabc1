/* Exposes the facts of base/machine.h and the ways of base/ways.h, for `ampc info`, `ampc selftest` and tests. */
#include "python/state.h"

#include "base/machine.h"
#include "base/pool.h"
#include "base/ways.h"

/* The list with the text behind it; NULL where there is none, or no memory. */
static PyObject *with_text(PyObject *list, const char *text) {
    PyObject *item = list ? PyUnicode_FromString(text) : NULL;
    if (!item || PyList_Append(list, item) < 0) Py_CLEAR(list);
    Py_XDECREF(item);
    return list;
}

/* What set facts: variables, and a call. */
static PyObject *setters(const ac_machine *m) {
    PyObject *list = PyList_New(0);
    for (int i = 0; i < AC_N_FACTS; i++)
        if (m->set[i]) list = with_text(list, ac_fact_variable(i));
    return ac_num_threads() == m->threads ? list : with_text(list, "ampc.set_num_threads");
}

/* Those that AMPC_CPU can hold this CPU to, beside its own. */
static PyObject *lower_levels(ac_isa own) {
    PyObject *list = PyList_New(own);
    for (ac_isa i = 0; list && i < own; i++) {
        PyObject *name = PyUnicode_FromString(ac_isa_name(i));
        if (name) PyList_SET_ITEM(list, i, name);
        else Py_CLEAR(list);
    }
    return list;
}

static PyObject *facts(PyObject *m, PyObject *unused) {
    (void)m, (void)unused;
    const ac_machine *now = ac_this_machine();
    return Py_BuildValue("{s:s,s:s,s:s,s:z,s:N,s:O,s:L,s:i,s:i,s:O,s:N}", "isa", ac_isa_name(now->isa), "cpu",
                         ac_isa_name(now->cpu), "asked", ac_isa_name(now->asked), "note", ac_machine_note(),
                         "lower_levels", lower_levels(now->isa), "fast_dot", now->fast_dot ? Py_True : Py_False,
                         "l2_bytes", (long long)now->l2_bytes, "cores", now->cores, "threads", ac_num_threads(),
                         "huge_pages", now->huge_pages ? Py_True : Py_False, "set", setters(now));
}

static PyObject *pretend(PyObject *module, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"l2_bytes", "huge_pages", NULL};
    ac_machine m = *ac_this_machine();
    long long l2 = m.l2_bytes;
    int huge = m.huge_pages;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$Lp", names, &l2, &huge)) return NULL;
    if (l2 < 64 << 10) return PyErr_Format(PyExc_ValueError, "expected l2_bytes of 64 KiB or more, got %lld", l2);
    m.l2_bytes = l2, m.huge_pages = huge != 0;
    ac_machine_pretend(&m);
    Py_RETURN_NONE;
}

static PyObject *way(ac_way i) {
    const ac_way_entry *entry = &ac_ways[i];
    return Py_BuildValue("{s:s,s:s,s:z,s:s,s:O,s:s,s:O}", "name", entry->name, "fact", ac_way_fact_name(entry->fact),
                         "variable", ac_way_variable(entry->fact), "needs", ac_isa_name(entry->needs), "reachable",
                         entry->needs <= ac_cpu_isa() ? Py_True : Py_False, "sentence", entry->sentence, "entered",
                         atomic_load(&ac_ways_entered[i]) ? Py_True : Py_False);
}

static PyObject *ways(PyObject *m, PyObject *unused) {
    (void)m, (void)unused;
    PyObject *list = PyList_New(AC_N_WAYS);
    for (int i = 0; list && i < AC_N_WAYS; i++) {
        PyObject *entry = way(i);
        if (entry) PyList_SET_ITEM(list, i, entry);
        else Py_CLEAR(list);
    }
    return list;
}

static PyObject *reset_ways(PyObject *m, PyObject *unused) {
    (void)m, (void)unused;
    ac_ways_reset();
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"_ways", ways, METH_NOARGS, NULL},
    {"_reset_ways", reset_ways, METH_NOARGS, NULL},
    {"_machine", facts, METH_NOARGS, NULL},
    {"_pretend_machine", (PyCFunction)(void (*)(void))pretend, METH_VARARGS | METH_KEYWORDS, NULL},
    {NULL, NULL, 0, NULL}};

int ac_machine_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
