/* The parts the Tensor type is put together from. */
#ifndef AC_PYTHON_TENSOR_H
#define AC_PYTHON_TENSOR_H

#include "state.h"

extern PyGetSetDef ac_tensor_getset[];
extern PyMethodDef ac_tensor_methods[];
extern PyType_Slot ac_tensor_number_slots[]; /* ended by {0, NULL} */

#endif
