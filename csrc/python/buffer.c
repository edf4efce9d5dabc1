/* The buffer protocol: memoryview(tensor), bytes(tensor) and other readers of buffers see a CPU tensor's own memory. */
#include "python/state.h"

#include "dispatch/deferred_scale.h"
#include "tensor/shape.h"

static const char *format_of(ac_dtype t) { /* struct's letters; NULL where it has none */
    switch (t) {
    case AC_bool: return "?";
    case AC_uint8: return "B";
    case AC_int8: return "b";
    case AC_int16: return "h";
    case AC_int32: return "i";
    case AC_int64: return "q";
    case AC_float16: return "e";
    case AC_float32: return "f";
    case AC_float64: return "d";
    default: return NULL;
    }
}

static int refuse(Py_buffer *view, const char *why) {
    view->obj = NULL;
    PyErr_Format(PyExc_BufferError, "the tensor's memory cannot be shown as a buffer: %s", why);
    return -1;
}

int ac_tensor_getbuffer(PyObject *self, Py_buffer *view, int flags) {
    ac_tensor *t = ac_unwrap(self);
    const char *format = format_of(t->dtype);
    bool by_rows = ac_is_contiguous(t), strided = (flags & PyBUF_STRIDES) == PyBUF_STRIDES;
    if (ac_device_of(t) == AC_META) return refuse(view, "it is on 'meta' and has no values");
    if (ac_device_of(t) != AC_CPU) return refuse(view, "it is on a GPU; use .cpu()");
    if (ac_requires_grad(t) && ac_grad_enabled())
        return refuse(view, "it requires gradients, and writes would not be seen; use .detach()");
    if (!format) return refuse(view, "bfloat16 has no format there; use .float() or .view(dtype)");
    if (!by_rows && (!strided || (flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS))
        return refuse(view, "it is not contiguous; use .contiguous()");
    if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && t->ndim > 1)
        return refuse(view, "it is not stored by columns");
    if (ac_settle(t) < 0) return (void)ac_raise(), -1;
    Py_ssize_t *sizes = PyMem_Malloc((size_t)(2 * t->ndim + 1) * sizeof *sizes);
    if (!sizes) return view->obj = NULL, PyErr_NoMemory(), -1;
    int64_t item = ac_itemsize(t->dtype);
    for (int d = 0; d < t->ndim; d++)
        sizes[d] = (Py_ssize_t)t->shape[d], sizes[t->ndim + d] = (Py_ssize_t)(t->strides[d] * item);
    t->storage->exported = true; /* it may be written behind our back from now on */
    *view = (Py_buffer){.buf = ac_data(t),
                        .obj = Py_NewRef(self),
                        .len = (Py_ssize_t)(t->numel * item),
                        .itemsize = (Py_ssize_t)item,
                        .readonly = 0,
                        .ndim = t->ndim,
                        .format = (flags & PyBUF_FORMAT) ? (char *)(uintptr_t)format : NULL,
                        .shape = (flags & PyBUF_ND) == PyBUF_ND ? sizes : NULL,
                        .strides = strided ? sizes + t->ndim : NULL,
                        .internal = sizes};
    return 0;
}

void ac_tensor_releasebuffer(PyObject *self, Py_buffer *view) {
    (void)self;
    PyMem_Free(view->internal);
}
