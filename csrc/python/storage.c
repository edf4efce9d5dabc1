/* The Python type of storages, and tensors on the memory of one. A storage has one object, which lives as long as the
 * storage (tensor/storage.h); ampc/storage.py derives torch's classes from it. */
#include "python/state.h"

#include "dispatch/deferred_scale.h"

#include <string.h>

typedef struct {
    PyObject_HEAD ac_storage *s;
} PyStorage;

static ac_storage *storage_of(PyObject *o) {
    if (PyObject_TypeCheck(o, ac_py->storage)) return ((PyStorage *)o)->s;
    PyErr_Format(PyExc_TypeError, "expected a storage, got %s", Py_TYPE(o)->tp_name);
    return NULL;
}

static void py_incref(void *object) { Py_INCREF((PyObject *)object); }
static void py_decref(void *object) { Py_DECREF((PyObject *)object); }

/* new object, or a reference to the one there is; steals s, on failure too */
static PyObject *wrap(PyTypeObject *type, ac_storage *s) {
    if (!s) return ac_raise();
    if (s->py) {
        PyObject *self = Py_NewRef((PyObject *)s->py);
        ac_storage_release(s);
        return self;
    }
    PyStorage *self = (PyStorage *)type->tp_alloc(type, 0);
    if (!self) {
        ac_storage_release(s);
        return NULL;
    }
    self->s = s, s->py = self;
    s->addressed = true;              /* its bytes can be read at any time: no factor may wait */
    if (s->refs > 1) py_incref(self); /* held by the other references together */
    return (PyObject *)self;
}

static void dealloc(PyObject *o) {
    ac_storage *s = ((PyStorage *)o)->s;
    PyTypeObject *type = Py_TYPE(o);
    ((PyStorage *)o)->s = NULL;
    if (s) {
        s->py = NULL;
        ac_storage_release(s);
    }
    type->tp_free(o);
    Py_DECREF(type);
}

static PyObject *no_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)args, (void)kwargs;
    return PyErr_Format(PyExc_TypeError, "%s: make storages with ampc.UntypedStorage(nbytes)", type->tp_name);
}

static PyObject *get_nbytes(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromLongLong(((PyStorage *)self)->s->bytes);
}
static PyObject *get_room(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromLongLong(ac_storage_room(((PyStorage *)self)->s));
}
static PyObject *get_cdata(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromVoidPtr(((PyStorage *)self)->s);
}
static PyObject *get_address(PyObject *self, void *unused) {
    ac_storage *s = ((PyStorage *)self)->s;
    (void)unused;
    AC_PY_TRY(ac_settle_storage(s));
    if (s->device == AC_META) return PyLong_FromLong(0);
    return PyLong_FromVoidPtr(s->data);
}
static PyObject *get_device(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromLong(((PyStorage *)self)->s->device);
}
static PyObject *get_foreign(PyObject *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(((PyStorage *)self)->s->exported);
}
static PyObject *get_shared(PyObject *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(((PyStorage *)self)->s->shared);
}
static int set_shared(PyObject *self, PyObject *value, void *unused) {
    ac_storage *s = ((PyStorage *)self)->s;
    (void)unused;
    int on = value ? PyObject_IsTrue(value) : (PyErr_SetString(PyExc_AttributeError, "cannot be deleted"), -1);
    if (on < 0) return -1;
    s->shared = on, s->exported = s->exported || on;
    return 0;
}

static PyGetSetDef getset[] = {
    {"_nbytes", get_nbytes, NULL, "Its size in bytes.", NULL},
    {"_room", get_room, NULL, "Bytes that it can have without moving.", NULL},
    {"_cdata", get_cdata, NULL, "A number of its own while it lives.", NULL},
    {"_address", get_address, NULL, "Where its first byte lies.", NULL},
    {"_device_number", get_device, NULL, "0 for the CPU, 1 for the first GPU.", NULL},
    {"_foreign", get_foreign, NULL, "Whether others hold its memory's address: it may not move.", NULL},
    {"_shared", get_shared, set_shared, "Whether other processes may write the same memory.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {{Py_tp_dealloc, dealloc}, {Py_tp_new, no_new}, {Py_tp_getset, getset}, {0, NULL}};

/* -- functions ---------------------------------------------------------------------------------------- */

static int is_class(PyObject *type) {
    if (PyType_Check(type) && PyType_IsSubtype((PyTypeObject *)type, ac_py->storage)) return 0;
    PyErr_SetString(PyExc_TypeError, "expected a class of storages");
    return -1;
}

/* _storage_new(class, bytes, device's number): memory of its own, its values undefined */
static PyObject *storage_new(PyObject *module, PyObject *args) {
    PyObject *type;
    long long bytes;
    int device;
    (void)module;
    if (!PyArg_ParseTuple(args, "OLi", &type, &bytes, &device) || is_class(type) < 0) return NULL;
    if (bytes < 0 || (device != AC_CPU && device != AC_META && !ac_is_gpu(device)))
        return PyErr_Format(PyExc_RuntimeError, "a storage has 0 bytes or more, got %lld", bytes);
    return wrap((PyTypeObject *)type, ac_storage_new(device, bytes));
}

/* _storage_of(class, tensor): the storage that the tensor is a view of */
static PyObject *storage_of_tensor(PyObject *module, PyObject *args) {
    PyObject *type, *o;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO", &type, &o) || is_class(type) < 0) return NULL;
    if (!ac_is_tensor(o)) return PyErr_SetString(PyExc_TypeError, "expected a Tensor"), NULL;
    AC_PY_TRY(ac_settle(ac_unwrap(o)));
    return wrap((PyTypeObject *)type, ac_storage_retain(ac_unwrap(o)->storage));
}

static void release_parent(void *parent) { ac_storage_release((ac_storage *)parent); }

/* _storage_slice(storage, start, stop): a storage on a part of its memory */
static PyObject *storage_slice(PyObject *module, PyObject *args) {
    PyObject *o;
    long long start, stop;
    (void)module;
    if (!PyArg_ParseTuple(args, "OLL", &o, &start, &stop)) return NULL;
    ac_storage *s = storage_of(o);
    if (!s) return NULL;
    if (start < 0 || stop < start || stop > s->bytes) return PyErr_SetString(PyExc_IndexError, "out of range"), NULL;
    AC_PY_TRY(ac_settle_storage(s));
    ac_storage *part = ac_storage_wrap(s->data + start, stop - start, release_parent, s);
    if (!part) return ac_raise();
    (void)ac_storage_retain(s);
    part->device = s->device, part->shared = s->shared;
    s->exported = true; /* writes to the part are not counted here, and it must not move */
    return wrap(Py_TYPE(o), part);
}

/* Bytes from the storage's begin on that a view reaches, or -1 with an error. */
static int64_t reach(const ac_dims *shape, const ac_dims *strides, int64_t offset, int64_t item) {
    int64_t last = offset, most = INT64_MAX / item - 1;
    bool empty = false, good = shape->n == strides->n && offset >= 0 && offset <= most;
    for (int64_t d = 0; good && d < shape->n; d++) {
        int64_t by = 0;
        good = shape->v[d] >= 0 && strides->v[d] >= 0;
        if (good && shape->v[d] == 0) empty = true;
        else if (good)
            good = !__builtin_mul_overflow(shape->v[d] - 1, strides->v[d], &by) &&
                   !__builtin_add_overflow(last, by, &last) && last <= most;
    }
    if (good) return empty ? 0 : (last + 1) * item;
    PyErr_SetString(PyExc_RuntimeError, "a tensor of a storage needs an offset, sizes and strides of 0 or more, "
                                        "as many strides as sizes, and may not be longer than memory");
    return -1;
}

/* _storage_reach(itemsize, offset, shape, strides): the bytes that a storage needs for such a tensor */
static PyObject *storage_reach(PyObject *module, PyObject *args) {
    long long item, offset;
    PyObject *size, *stride;
    ac_dims shape, strides;
    (void)module;
    if (!PyArg_ParseTuple(args, "LLOO", &item, &offset, &size, &stride)) return NULL;
    if (ac_dims_from(size, &shape, "size") < 0 || ac_dims_from(stride, &strides, "stride") < 0) return NULL;
    if (item < 1) return PyErr_SetString(PyExc_ValueError, "expected the bytes of an element"), NULL;
    int64_t bytes = reach(&shape, &strides, offset, item);
    return bytes < 0 ? NULL : PyLong_FromLongLong(bytes);
}

/* _storage_tensor(storage, dtype, offset, shape, strides): a tensor on its memory, the numbers in elements */
static PyObject *storage_tensor(PyObject *module, PyObject *args) {
    PyObject *o, *as, *size, *stride;
    long long offset;
    ac_dtype dtype;
    ac_dims shape, strides;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOLOO", &o, &as, &offset, &size, &stride)) return NULL;
    ac_storage *s = storage_of(o);
    if (!s) return NULL;
    if (ac_dtype_from(as, &dtype) < 0) return PyErr_SetString(PyExc_TypeError, "expected a dtype"), NULL;
    if (ac_dims_from(size, &shape, "size") < 0 || ac_dims_from(stride, &strides, "stride") < 0) return NULL;
    int64_t item = ac_itemsize(dtype), bytes = reach(&shape, &strides, offset, item);
    if (bytes < 0) return NULL;
    if (bytes > s->bytes)
        return PyErr_Format(PyExc_RuntimeError, "the tensor would reach %lld bytes of a storage that has %lld",
                            (long long)bytes, (long long)s->bytes);
    if (bytes && (uintptr_t)s->data % (uintptr_t)item)
        return PyErr_Format(PyExc_RuntimeError, "the storage's memory is not aligned to %lld bytes; clone() it first",
                            (long long)item);
    ac_tensor *t = ac_tensor_from_storage(ac_storage_retain(s), dtype, &shape, &strides);
    if (t) t->offset = bytes || (offset >= 0 && offset <= s->bytes / item) ? offset : 0;
    return t ? ac_wrap_new(t) : ac_raise();
}

/* _storage_set_bytes(storage, bytes): fewer bytes, or more within its room */
static PyObject *storage_set_bytes(PyObject *module, PyObject *args) {
    PyObject *o;
    long long bytes;
    (void)module;
    if (!PyArg_ParseTuple(args, "OL", &o, &bytes)) return NULL;
    ac_storage *s = storage_of(o);
    if (!s) return NULL;
    if (s->exported || s->device == AC_META || bytes < 0 || bytes > ac_storage_room(s))
        return PyErr_SetString(PyExc_RuntimeError, "the storage cannot have that many bytes"), NULL;
    AC_PY_TRY(ac_storage_set_bytes(s, bytes));
    Py_RETURN_NONE;
}

/* _storage_move(storage, other): its memory is the other's from now on, which is new */
static PyObject *storage_move(PyObject *module, PyObject *args) {
    PyObject *o, *other;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO", &o, &other)) return NULL;
    ac_storage *s = storage_of(o), *to = s ? storage_of(other) : NULL;
    if (!to) return NULL;
    if (s == to || (to->moved && to->moved->keeps) || s->device == AC_META || to->device != s->device ||
        ac_storage_room(to) < ac_storage_room(s))
        return PyErr_SetString(PyExc_RuntimeError, "a storage moves to new memory of its device that is large enough"),
               NULL;
    AC_PY_TRY(ac_settle_storage(s));
    AC_PY_TRY(ac_storage_move(s, to));
    Py_RETURN_NONE;
}

static bool may_be_filled(ac_storage *s) {
    if (s->device != AC_META && !s->exported && (s->moved ? s->moved->own : s->bytes) == 0) return true;
    PyErr_SetString(PyExc_RuntimeError, "only a storage that was made with no bytes can be filled");
    return false;
}

/* _storage_fill(storage, other): it takes over the other's memory, and may give it back */
static PyObject *storage_fill(PyObject *module, PyObject *args) {
    PyObject *o, *other;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO", &o, &other)) return NULL;
    ac_storage *s = storage_of(o), *from = s ? storage_of(other) : NULL;
    if (!from || !may_be_filled(s)) return NULL;
    if (s == from || from->device != s->device)
        return PyErr_SetString(PyExc_RuntimeError, "expected another storage of the same device"), NULL;
    AC_PY_TRY(ac_settle_storage(from));
    AC_PY_TRY(ac_storage_fill(s, from));
    Py_RETURN_NONE;
}

/* _storage_drop(storage, dtype): it gives the memory back, and is blank */
static PyObject *storage_drop(PyObject *module, PyObject *args) {
    PyObject *o, *as;
    ac_dtype dtype;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO", &o, &as)) return NULL;
    ac_storage *s = storage_of(o);
    if (!s || !may_be_filled(s)) return NULL;
    if (ac_dtype_from(as, &dtype) < 0) return PyErr_SetString(PyExc_TypeError, "expected a dtype"), NULL;
    ac_compute_waiting();
    AC_PY_TRY(ac_storage_drop(s, dtype));
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {{"_storage_new", storage_new, METH_VARARGS, NULL},
                                  {"_storage_of", storage_of_tensor, METH_VARARGS, NULL},
                                  {"_storage_slice", storage_slice, METH_VARARGS, NULL},
                                  {"_storage_reach", storage_reach, METH_VARARGS, NULL},
                                  {"_storage_tensor", storage_tensor, METH_VARARGS, NULL},
                                  {"_storage_set_bytes", storage_set_bytes, METH_VARARGS, NULL},
                                  {"_storage_move", storage_move, METH_VARARGS, NULL},
                                  {"_storage_fill", storage_fill, METH_VARARGS, NULL},
                                  {"_storage_drop", storage_drop, METH_VARARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

int ac_storage_init(PyObject *module) {
    PyType_Spec spec = {"ampc._C.StorageBase", sizeof(PyStorage), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
    ac_py->storage = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
    if (!ac_py->storage) return -1;
    ac_storage_object.incref = py_incref;
    ac_storage_object.decref = py_decref;
    if (PyModule_AddFunctions(module, functions) < 0) return -1;
    return PyModule_AddObjectRef(module, "StorageBase", (PyObject *)ac_py->storage);
}
