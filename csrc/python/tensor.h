/* The parts that the Tensor type is made of. */
#ifndef AC_PYTHON_TENSOR_H
#define AC_PYTHON_TENSOR_H

#include "python/state.h"

extern PyGetSetDef ac_tensor_getset[];
extern PyMethodDef ac_tensor_methods[];
extern PyType_Slot ac_tensor_number_slots[]; /* ended by {0, NULL} */

/* split.c */
PyObject *ac_tensor_cut_into(PyObject *self, PyObject *args);

/* buffer.c */
int ac_tensor_getbuffer(PyObject *self, Py_buffer *view, int flags);
void ac_tensor_releasebuffer(PyObject *self, Py_buffer *view);

#endif
