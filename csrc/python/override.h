/* __torch_function__: functions that a class of arguments, or a mode, answers in ampc's place. */
#ifndef AC_PYTHON_OVERRIDE_H
#define AC_PYTHON_OVERRIDE_H

#include "python/state.h"

/* How many subclasses of Tensor are defined that may answer, and modes entered. While it is 0, which plain programs
 * never change, tensors need no look at all. Other objects are asked where they do not fit as arguments. */
extern int ac_overriding;

/* Whether a mode is entered, or one of these, or of the elements of a list or tuple among them, answers. */
bool ac_overrides(PyObject *const *args, Py_ssize_t n);
/* The same for tensors alone, in no time where nothing may answer. */
static inline bool ac_overrides_now(PyObject *const *args, Py_ssize_t n) {
    return ac_overriding && ac_overrides(args, n);
}
/* The same after an argument did not fit; the error goes if something answers. */
bool ac_overrides_misfit(PyObject *const *args, Py_ssize_t n);
/* new: what the answer to a call is; NULL with an error */
PyObject *ac_override(PyObject *function, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
/* The same for the method or property of Tensor of that name, without words. */
PyObject *ac_override_method(const char *name, PyObject *const *args, Py_ssize_t n);
PyObject *ac_override_property(const char *name, PyObject *self);

/* For a method in C: returns what answers, if anything does. */
#define AC_ASK_OVERRIDE(name, args, n)                                                                                 \
    do {                                                                                                               \
        if (ac_overrides_now(args, n)) return ac_override_method(name, args, n);                                       \
    } while (0)

#endif
