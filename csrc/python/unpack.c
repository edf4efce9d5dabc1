/* Unpacks the GPU code for csrc/cuda/images.c, by Python's lzma. */
#include "python/state.h"

#include "cuda/gpu.h"

#include <stdlib.h>
#include <string.h>

/* A copy of bytes that the core frees, with a 0 behind it. */
static char *copy_of(PyObject *bytes) {
    size_t n = (size_t)PyBytes_GET_SIZE(bytes);
    char *copy = malloc(n + 1);
    if (copy) memcpy(copy, PyBytes_AS_STRING(bytes), n + 1);
    else PyErr_NoMemory();
    return copy;
}

/* On any thread, whoever holds the interpreter's lock. Python may run anybody's code meanwhile: a signal's handler, or
 * what the collection of garbage ends. */
static char *unpack(const char *packed, size_t n) {
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *bytes = NULL, *module = PyImport_ImportModule("ampc._process.gpu_code");
    if (module) AC_OUTSIDE(bytes = PyObject_CallMethod(module, "unpacked", "y#", packed, (Py_ssize_t)n));
    char *copy = bytes ? copy_of(bytes) : NULL;
    if (!copy) (void)ac_fail(AC_PYTHON, "the GPU code could not be unpacked");
    Py_XDECREF(module);
    Py_XDECREF(bytes);
    PyGILState_Release(state);
    return copy;
}

int ac_unpack_init(PyObject *module) {
    (void)module;
    ac_gpu_unpack = unpack;
    return 0;
}
