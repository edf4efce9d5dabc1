/* NumPy: the only file that includes its header. Imported when first needed, so that importing
 * ampc does not pay for it. Both directions share memory. */
#include "python/state.h"

#include "dispatch/deferred_scale.h"

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>

#include <string.h>

static int load(void) {
    if (PyArray_API) return 0;
    import_array1(-1);
    return 0;
}

static int type_number(ac_dtype t) {
    switch (t) {
    case AC_bool: return NPY_BOOL;
    case AC_uint8: return NPY_UINT8;
    case AC_int8: return NPY_INT8;
    case AC_int16: return NPY_INT16;
    case AC_int32: return NPY_INT32;
    case AC_int64: return NPY_INT64;
    case AC_float16: return NPY_FLOAT16;
    case AC_float32: return NPY_FLOAT32;
    case AC_float64: return NPY_FLOAT64;
    default: return -1;
    }
}

/* new reference: NumPy's description of a dtype */
static PyArray_Descr *descr_of(ac_dtype t) {
    if (type_number(t) >= 0) return PyArray_DescrFromType(type_number(t));
    PyObject *descr = PyObject_GetAttrString(ac_py->dtypes[t], "numpy_dtype");
    return (PyArray_Descr *)descr;
}

static int dtype_of(PyArrayObject *a, ac_dtype *out) {
    for (int i = 0; i < AC_N_DTYPES; i++)
        if (type_number((ac_dtype)i) >= 0 && PyArray_EquivTypenums(PyArray_TYPE(a), type_number((ac_dtype)i)))
            return *out = (ac_dtype)i, 0;
    PyObject *name = PyObject_GetAttrString((PyObject *)PyArray_DESCR(a), "name");
    bool bfloat = name && PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, "bfloat16") == 0;
    if (bfloat) *out = AC_bfloat16;
    else
        PyErr_Format(PyExc_TypeError,
                     "cannot make a tensor of a NumPy array of dtype %S; float, int and bool arrays can be shared",
                     (PyObject *)PyArray_DESCR(a));
    Py_XDECREF(name);
    return bfloat ? 0 : -1;
}

/* -- tensor to array -------------------------------------------------------------------------------- */

static void capsule_free(PyObject *capsule) { ac_storage_release(PyCapsule_GetPointer(capsule, "ampc storage")); }

static PyObject *to_numpy(PyObject *module, PyObject *self) {
    (void)module;
    if (load() < 0) return NULL;
    if (!ac_is_tensor(self)) return PyErr_SetString(PyExc_TypeError, "_to_numpy: expected a Tensor"), NULL;
    ac_tensor *t = ac_unwrap(self);
    if (ac_requires_grad(t) && ac_grad_enabled())
        return PyErr_SetString(PyExc_RuntimeError, "numpy(): the tensor requires gradients, and writes to the array "
                                                   "would not be seen; use .detach().numpy()"),
               NULL;
    if (ac_device_of(t) == AC_META)
        return PyErr_SetString(PyExc_TypeError, "numpy(): tensors on 'meta' have no values"), NULL;
    if (ac_device_of(t) != AC_CPU)
        return PyErr_Format(PyExc_TypeError,
                            "numpy(): the tensor is on %s, where NumPy cannot read; use .cpu().numpy() or "
                            ".numpy(force=True)",
                            ac_device_name(ac_device_of(t)));
    AC_PY_TRY(ac_settle(t));
    npy_intp dims[AC_MAX_DIMS], strides[AC_MAX_DIMS];
    for (int d = 0; d < t->ndim; d++)
        dims[d] = (npy_intp)t->shape[d], strides[d] = (npy_intp)(t->strides[d] * ac_itemsize(t->dtype));
    PyArray_Descr *descr = descr_of(t->dtype);
    if (!descr) return NULL;
    PyObject *array =
        PyArray_NewFromDescr(&PyArray_Type, descr, t->ndim, dims, strides, ac_data(t), NPY_ARRAY_WRITEABLE, NULL);
    if (!array) return NULL;
    PyObject *keeper = PyCapsule_New(t->storage, "ampc storage", capsule_free);
    if (!keeper) {
        Py_DECREF(array);
        return NULL;
    }
    (void)ac_storage_retain(t->storage);
    t->storage->exported = true; /* it may be written behind our back from now on */
    if (PyArray_SetBaseObject((PyArrayObject *)array, keeper) < 0) Py_CLEAR(array);
    return array;
}

/* -- array to tensor -------------------------------------------------------------------------------- */

static void array_free(void *owner) {
    PyGILState_STATE gil = PyGILState_Ensure();
    Py_DECREF((PyObject *)owner);
    PyGILState_Release(gil);
}

static ac_tensor *share(PyArrayObject *a) {
    ac_dtype dtype;
    if (dtype_of(a, &dtype) < 0) return NULL;
    ac_dims shape = {.n = PyArray_NDIM(a)}, strides = {.n = PyArray_NDIM(a)};
    int64_t item = ac_itemsize(dtype), last = 0;
    if (shape.n > AC_MAX_DIMS)
        return PyErr_Format(PyExc_ValueError, "arrays of more than %d dimensions cannot be shared", AC_MAX_DIMS), NULL;
    for (int d = 0; d < shape.n; d++) {
        shape.v[d] = PyArray_DIM(a, d);
        if (PyArray_STRIDE(a, d) < 0)
            return PyErr_SetString(PyExc_ValueError,
                                   "arrays with negative strides cannot be shared; pass array.copy()"),
                   NULL;
        if (PyArray_STRIDE(a, d) % item)
            return PyErr_SetString(PyExc_ValueError, "the array's strides are not whole elements; pass array.copy()"),
                   NULL;
        strides.v[d] = PyArray_STRIDE(a, d) / item;
        if (shape.v[d]) last += (shape.v[d] - 1) * strides.v[d];
    }
    ac_storage *s = ac_storage_wrap(PyArray_DATA(a), PyArray_SIZE(a) ? (last + 1) * item : 0, array_free, a);
    if (!s) return (ac_tensor *)ac_raise();
    Py_INCREF(a);
    ac_tensor *t = ac_tensor_from_storage(s, dtype, &shape, &strides);
    return t ? t : (ac_tensor *)ac_raise();
}

static PyObject *from_numpy(PyObject *module, PyObject *o) {
    (void)module;
    if (load() < 0) return NULL;
    if (!PyArray_Check(o))
        return PyErr_Format(PyExc_TypeError, "from_numpy: expected a NumPy array, got %s", Py_TYPE(o)->tp_name);
    PyArrayObject *a = (PyArrayObject *)o;
    if (!PyArray_ISNOTSWAPPED(a) || !PyArray_ISALIGNED(a))
        return PyErr_SetString(PyExc_ValueError, "from_numpy: the array is byte-swapped or not aligned; pass "
                                                 "array.astype(array.dtype.newbyteorder('='))"),
               NULL;
    if (!PyArray_ISWRITEABLE(a)) { /* a tensor can always be written, and must not write this */
        if (PyErr_WarnEx(PyExc_UserWarning, "from_numpy: the array is read-only, so the tensor is a copy of it", 1) < 0)
            return NULL;
        PyObject *copy = PyArray_NewCopy(a, NPY_KEEPORDER);
        ac_tensor *own = copy ? share((PyArrayObject *)copy) : NULL;
        Py_XDECREF(copy);
        return own ? ac_wrap_new(own) : NULL;
    }
    ac_tensor *t = share(a);
    return t ? ac_wrap_new(t) : NULL;
}

/* _copy_numpy(data, dtype): a tensor of its own from anything with NumPy's array interface */
static PyObject *copy_numpy(PyObject *module, PyObject *args) {
    PyObject *data, *as;
    ac_dtype dtype;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO", &data, &as) || load() < 0) return NULL;
    PyObject *array = PyArray_FROM_OF(data, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_NOTSWAPPED);
    if (!array) return NULL;
    ac_tensor *t = share((PyArrayObject *)array), *out[AC_MAX_OUT] = {NULL};
    Py_DECREF(array);
    if (!t) return NULL;
    ac_attrs_dtype to = {t->dtype};
    int failed = 0;
    if (as != Py_None && ac_dtype_from(as, &dtype) < 0) {
        failed = ac_no_dtype("tensor", as);
    } else if (as != Py_None) to.dtype = dtype;
    if (!failed && ac_call(AC_OP_cast, &t, 1, &to, out) < 0) failed = ((void)ac_raise(), -1);
    ac_tensor_release(t);
    return failed ? NULL : ac_wrap_new(out[0]);
}

static PyMethodDef functions[] = {{"_to_numpy", to_numpy, METH_O, NULL},
                                  {"from_numpy", from_numpy, METH_O,
                                   "from_numpy(ndarray, /)\n--\n\n"
                                   "A tensor that shares a NumPy array's memory."},
                                  {"_copy_numpy", copy_numpy, METH_VARARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

int ac_numpy_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
