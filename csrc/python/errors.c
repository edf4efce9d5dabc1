/* The one place where a core error becomes a Python exception. */
#include "state.h"

static PyObject *exception_of(ac_error code) {
    switch (code) {
#define ERROR(name, exception)                                                                                         \
    case AC_##name: return PyExc_##exception;
#include "../base/errors.def"
#undef ERROR
    default: return PyExc_SystemError;
    }
}

PyObject *ac_raise(void) {
    /* an exception that a hook or a Python backward raised stands as it is */
    if (!PyErr_Occurred()) PyErr_SetString(exception_of(ac_error_code()), ac_error_message());
    ac_error_clear();
    return NULL;
}
