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

/* The exception that is set, as an error of the core, which outlives the interpreter's lock. */
static void fail_unpacking(void) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    bool absent = PyErr_GivenExceptionMatches(type, PyExc_ImportError);
    PyObject *text = value ? PyObject_Str(value) : NULL;
    const char *why = text ? PyUnicode_AsUTF8(text) : NULL;
    (void)ac_fail(PyErr_GivenExceptionMatches(type, PyExc_MemoryError) ? AC_MEMORY : AC_RUNTIME,
                  "unpacking the GPU code: %s%s", why ? why : "failed",
                  absent ? "; it needs a Python with the module lzma, which is left out where Python was compiled "
                           "without the headers of liblzma"
                         : "");
    PyErr_Clear();
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
}

/* lzma.decompress; on any thread, whoever holds the interpreter's lock. */
static char *unpack(const char *packed, size_t n) {
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *lzma = PyImport_ImportModule("lzma");
    PyObject *bytes = lzma ? PyObject_CallMethod(lzma, "decompress", "y#", packed, (Py_ssize_t)n) : NULL;
    char *copy = bytes ? copy_of(bytes) : NULL;
    if (!copy) fail_unpacking();
    Py_XDECREF(lzma);
    Py_XDECREF(bytes);
    PyGILState_Release(state);
    return copy;
}

int ac_unpack_init(PyObject *module) {
    (void)module;
    ac_gpu_unpack = unpack;
    return 0;
}
