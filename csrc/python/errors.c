/* The one place where a core error becomes a Python exception. */
#include "state.h"

/* ampc.OutOfMemoryError: a RuntimeError, as in torch */
#define PyExc_OutOfMemoryError ac_py->out_of_memory

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

int ac_errors_init(PyObject *module) {
    ac_py->out_of_memory = PyErr_NewExceptionWithDoc(
        "ampc.OutOfMemoryError", "A GPU's memory is out; the process goes on.", PyExc_RuntimeError, NULL);
    return ac_py->out_of_memory ? PyModule_AddObjectRef(module, "OutOfMemoryError", ac_py->out_of_memory) : -1;
}
