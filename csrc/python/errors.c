/* The one place where a core error becomes a Python exception. */
#include "python/state.h"

/* ampc.OutOfMemoryError: a RuntimeError, as in torch */
#define PyExc_OutOfMemoryError ac_py->out_of_memory
/* ampc.linalg.LinAlgError: another one */
#define PyExc_LinAlgError ac_py->linalg_error
/* ampc.errors.WrongOut: a TypeError and a RuntimeError */
#define PyExc_WrongOut ac_py->wrong_out
/* ampc.errors.CaptureError: a RuntimeError */
#define PyExc_CaptureError ac_py->capture_error
/* ampc.errors.NoGPU: a RuntimeError and an AssertionError */
#define PyExc_NoGPU ac_py->no_gpu

static PyObject *exception_of(ac_error code) {
    switch (code) {
#define ERROR(name, exception)                                                                                         \
    case AC_##name: return PyExc_##exception;
#include "base/errors.def"
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

static int warn(const char *text) {
    return ac_py_warn(PyUnicode_FromString(text)) < 0 ? ac_fail(AC_PYTHON, "a warning became an error") : 0;
}

int ac_py_warn(PyObject *message) {
    PyObject *module = message ? PyImport_ImportModule("ampc._messages.callers") : NULL;
    PyObject *done = module ? PyObject_CallMethod(module, "warn", "O", message) : NULL;
    Py_XDECREF(module);
    Py_XDECREF(message);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* new: an exception that is `one`, and `other`, too */
static PyObject *joined(const char *name, const char *doc, PyObject *one, PyObject *other) {
    PyObject *kinds = PyTuple_Pack(2, one, other);
    PyObject *made = kinds ? PyErr_NewExceptionWithDoc(name, doc, kinds, NULL) : NULL;
    Py_XDECREF(kinds);
    return made;
}

int ac_errors_init(PyObject *module) {
    ac_warn = warn;
    ac_py->out_of_memory = PyErr_NewExceptionWithDoc(
        "ampc.OutOfMemoryError", "A GPU's memory is out; the process goes on.", PyExc_RuntimeError, NULL);
    ac_py->linalg_error = PyErr_NewExceptionWithDoc("ampc.linalg.LinAlgError", "A matrix has not what was asked of it.",
                                                    PyExc_RuntimeError, NULL);
    ac_py->no_tensor = joined("ampc.errors.NoTensor",
                              "Something else stands where a Tensor is expected. Whoever asks it for a shape meets an "
                              "AttributeError, as in torch's functions that are made in Python, so it is one, too.",
                              PyExc_TypeError, PyExc_AttributeError);
    ac_py->no_number =
        joined("ampc.errors.NoNumber",
               "Something else stands where numbers are expected: a TypeError, and the RuntimeError that "
               "torch raises where it finds no dtype for it.",
               PyExc_TypeError, PyExc_RuntimeError);
    ac_py->wrong_out =
        joined("ampc.errors.WrongOut",
               "The tensor to write into has a dtype that cannot hold the result: a RuntimeError, and the "
               "TypeError that torch's `cat` and what is made of it raise.",
               PyExc_TypeError, PyExc_RuntimeError);
    ac_py->no_gpu = joined("ampc.errors.NoGPU",
                           "There is no GPU to use: a RuntimeError, and the AssertionError that torch's builds "
                           "without CUDA raise.",
                           PyExc_RuntimeError, PyExc_AssertionError);
    ac_py->capture_error = PyErr_NewExceptionWithDoc(
        "ampc.errors.CaptureError", "A CUDA graph cannot capture what was asked for.", PyExc_RuntimeError, NULL);
    if (!ac_py->out_of_memory || !ac_py->linalg_error || !ac_py->no_tensor || !ac_py->no_number || !ac_py->wrong_out ||
        !ac_py->no_gpu || !ac_py->capture_error)
        return -1;
    if (PyModule_AddObjectRef(module, "NoTensor", ac_py->no_tensor) < 0) return -1;
    if (PyModule_AddObjectRef(module, "NoNumber", ac_py->no_number) < 0) return -1;
    if (PyModule_AddObjectRef(module, "WrongOut", ac_py->wrong_out) < 0) return -1;
    if (PyModule_AddObjectRef(module, "NoGPU", ac_py->no_gpu) < 0) return -1;
    if (PyModule_AddObjectRef(module, "CaptureError", ac_py->capture_error) < 0) return -1;
    if (PyModule_AddObjectRef(module, "LinAlgError", ac_py->linalg_error) < 0) return -1;
    return PyModule_AddObjectRef(module, "OutOfMemoryError", ac_py->out_of_memory);
}
