/* Tensor's attributes, and its methods that are not operators of the table. */
#include "python/override.h"
#include "python/tensor.h"

#include "base/alloc.h"
#include "dispatch/deferred_scale.h"
#include "dispatch/placement.h"
#include "dispatch/write.h"

#include <string.h>

#define SELF ac_tensor *t = ac_unwrap(self)
#define GETTER(name) static PyObject *get_##name(PyObject *self, void *unused)
#define METHOD(name) static PyObject *m_##name(PyObject *self, PyObject *unused)

/* -- attributes ------------------------------------------------------------------------------------- */

PyObject *ac_dims_object(const int64_t *v, int64_t n) {
    PyObject *tuple = PyTuple_New((Py_ssize_t)n);
    for (Py_ssize_t i = 0; tuple && i < n; i++) {
        PyObject *one = PyLong_FromLongLong(v[i]);
        if (!one) Py_CLEAR(tuple);
        else PyTuple_SET_ITEM(tuple, i, one);
    }
    if (!tuple || !ac_py->size_type) return tuple;
    PyObject *args = PyTuple_Pack(1, tuple); /* past Size's own look at its values, which are ints here */
    PyObject *size = args ? PyTuple_Type.tp_new((PyTypeObject *)ac_py->size_type, args, NULL) : NULL;
    Py_XDECREF(args);
    Py_DECREF(tuple);
    return size;
}

GETTER(shape) {
    SELF;
    (void)unused;
    return ac_dims_object(t->shape, t->ndim);
}
GETTER(ndim) {
    SELF;
    (void)unused;
    return PyLong_FromLong(t->ndim);
}
GETTER(dtype) {
    SELF;
    (void)unused;
    return Py_NewRef(ac_py->dtypes[t->dtype]);
}
GETTER(requires_grad) {
    SELF;
    (void)unused;
    return PyBool_FromLong(ac_requires_grad(t));
}
GETTER(is_leaf) {
    SELF;
    (void)unused;
    return PyBool_FromLong(ac_is_leaf(t));
}
GETTER(version) {
    SELF;
    (void)unused;
    return PyLong_FromUnsignedLong(ac_version_seen(t));
}
GETTER(content) {
    SELF;
    (void)unused;
    if (t->storage->exported) Py_RETURN_NONE;
    return PyLong_FromUnsignedLongLong(t->storage->content);
}
GETTER(is_inference) {
    SELF;
    (void)unused;
    return PyBool_FromLong(t->is_inference);
}
GETTER(output_nr) {
    SELF;
    (void)unused;
    return PyLong_FromLong(t->meta ? t->meta->index : 0);
}
GETTER(itemsize) {
    SELF;
    (void)unused;
    return PyLong_FromLongLong(ac_itemsize(t->dtype));
}
GETTER(nbytes) {
    SELF;
    (void)unused;
    return PyLong_FromLongLong(t->numel * ac_itemsize(t->dtype));
}

GETTER(base) {
    SELF;
    (void)unused;
    if (!t->base) Py_RETURN_NONE;
    return ac_wrap_borrowed(t->base);
}

static int set_requires_grad(PyObject *self, PyObject *value, void *unused) {
    SELF;
    (void)unused;
    if (!value) return PyErr_SetString(PyExc_AttributeError, "requires_grad cannot be deleted"), -1;
    if (!PyBool_Check(value)) {
        PyErr_Format(PyExc_RuntimeError, "requires_grad must be a bool, got %s", Py_TYPE(value)->tp_name);
        return -1;
    }
    bool on = value == Py_True;
    if (ac_set_requires_grad(t, on) == 0) return 0;
    (void)ac_raise();
    return -1;
}

GETTER(grad) {
    SELF;
    (void)unused;
    if (t->meta && t->meta->grad) return ac_wrap_borrowed(t->meta->grad);
    if (t->meta && t->meta->node && !t->meta->retains_grad &&
        PyErr_WarnEx(
            PyExc_UserWarning,
            "the .grad of a tensor that is no leaf is None: backward does not keep it. Call retain_grad() on the "
            "tensor before backward if you need it",
            1) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static int set_grad(PyObject *self, PyObject *value, void *unused) {
    SELF;
    (void)unused;
    if (!value || value == Py_None) {
        if (t->meta) ac_tensor_clear(&t->meta->grad);
        return 0;
    }
    if (!ac_is_tensor(value)) {
        PyErr_Format(PyExc_TypeError, "grad must be a Tensor or None, got %s", Py_TYPE(value)->tp_name);
        return -1;
    }
    ac_tensor *g = ac_unwrap(value);
    if (g == t) return PyErr_SetString(PyExc_RuntimeError, "a tensor cannot be its own .grad"), -1;
    if (!ac_same_shape(g, t) || g->dtype != t->dtype) {
        char want[AC_SHAPE_TEXT], got[AC_SHAPE_TEXT];
        PyErr_Format(PyExc_RuntimeError, "grad must have the tensor's shape and dtype: %s %s, got %s %s",
                     ac_dtypes[t->dtype].name, ac_shape_text(t, want), ac_dtypes[g->dtype].name, ac_shape_text(g, got));
        return -1;
    }
    ac_meta *m = ac_meta_of(t);
    if (!m) return (void)ac_raise(), -1;
    ac_tensor *old = m->grad;
    m->grad = ac_tensor_retain(g);
    if (old) ac_tensor_release(old);
    return 0;
}

/* new: the same memory without history, with a version counter of its own when `data` */
static ac_tensor *detached(ac_tensor *t, bool data) {
    ac_tensor *v = ac_tensor_alias(t);
    if (v && data && ac_tensor_own_counter(v) < 0) ac_tensor_clear(&v);
    return v;
}

GETTER(data) {
    SELF;
    if (ac_overrides_now(&self, 1)) return ac_override_property("data", self);
    (void)unused;
    return ac_wrap(detached(t, true));
}

/* Takes over another tensor's memory, keeping identity and history. */
static int set_data(PyObject *self, PyObject *value, void *unused) {
    SELF;
    (void)unused;
    if (!value) return PyErr_SetString(PyExc_RuntimeError, "data cannot be deleted; delete the tensor"), -1;
    if (!ac_is_tensor(value)) return PyErr_SetString(PyExc_TypeError, "data must be a Tensor"), -1;
    ac_tensor *from = ac_unwrap(value);
    if (ac_requires_grad(t) && !ac_is_floating(from->dtype)) {
        PyErr_Format(PyExc_RuntimeError, "data of a tensor that requires gradients must be floating point, got %s",
                     ac_dtypes[from->dtype].name);
        return -1;
    }
    ac_tensor_take(t, from);
    return 0;
}

static PyObject *turned_into(PyObject *self, const ac_tensor *view) {
    SELF;
    if (view == t) return t->changes++, Py_NewRef(self);
    if (view->storage != t->storage || view->dtype != t->dtype)
        return PyErr_SetString(PyExc_ValueError, "expected a view of the tensor"), NULL;
    if (view->meta && view->meta->node) AC_PY_TRY(ac_set_history(t, view->meta->node, view->meta->index));
    t->offset = view->offset, t->numel = view->numel, t->ndim = view->ndim;
    memcpy(t->shape, view->shape, sizeof t->shape);
    memcpy(t->strides, view->strides, sizeof t->strides);
    t->changes++;
    return Py_NewRef(self);
}

/* What a function makes of a tensor. Of one that has a history it is recorded under no_grad, too: gradients must find
 * back to the old geometry. */
static PyObject *made_view(const ac_tensor *t, PyObject *make) {
    ac_grad_mode mode = ac_mode;
    if (t->meta && t->meta->node && !mode.inference) ac_mode.no_grad = false;
    PyObject *made = PyObject_CallNoArgs(make);
    ac_mode = mode;
    return made;
}

/* Takes over the geometry and history of the view of it that a function makes. */
METHOD(_turned_into) {
    SELF;
    AC_PY_TRY(ac_check_changed("a new geometry", t));
    PyObject *made = made_view(t, unused);
    if (!made) return NULL;
    PyObject *done = ac_is_tensor(made) ? turned_into(self, ac_unwrap(made)) : NULL;
    if (!done && !PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "expected a function that makes a Tensor");
    Py_DECREF(made);
    return done;
}

/* Takes over the memory and geometry of another tensor of its dtype and device, as an in-place write that is not
 * recorded. */
METHOD(_taken_over) {
    SELF;
    AC_PY_TRY(ac_check_changed("other memory", t));
    if (!ac_is_tensor(unused)) return PyErr_SetString(PyExc_TypeError, "expected a Tensor"), NULL;
    const ac_tensor *from = ac_unwrap(unused);
    if (from->dtype != t->dtype || ac_device_of(from) != ac_device_of(t))
        return PyErr_Format(PyExc_RuntimeError, "the tensor is %s on %s and cannot take over memory of %s on %s",
                            ac_dtypes[t->dtype].name, ac_device_name(ac_device_of(t)), ac_dtypes[from->dtype].name,
                            ac_device_name(ac_device_of(from)));
    ac_tensor_take(t, from);
    t->changes++;
    return Py_NewRef(self);
}

static PyObject *transposed(PyObject *self, bool matrices) {
    SELF;
    ac_tensor *out[AC_MAX_OUT] = {NULL};
    if (matrices && t->ndim == 0) return Py_NewRef(self);
    if (matrices || t->ndim == 2) {
        ac_attrs_two_dims last = {-2, -1};
        if (t->ndim < 2) return PyErr_SetString(PyExc_RuntimeError, "mT needs at least 2 dimensions"), NULL;
        AC_PY_TRY(ac_call(AC_OP_transpose, &t, 1, &last, out));
        return ac_wrap(out[0]);
    }
    ac_attrs_size reversed = {{.n = t->ndim}};
    for (int d = 0; d < t->ndim; d++) reversed.size.v[d] = t->ndim - 1 - d;
    AC_PY_TRY(ac_call(AC_OP_permute, &t, 1, &reversed, out));
    return ac_wrap(out[0]);
}
GETTER(T) {
    (void)unused;
    if (ac_overrides_now(&self, 1)) return ac_override_property("T", self);
    return transposed(self, false);
}
GETTER(mT) {
    (void)unused;
    if (ac_overrides_now(&self, 1)) return ac_override_property("mT", self);
    return transposed(self, true);
}

PyGetSetDef ac_tensor_getset[] = {
    {"shape", get_shape, NULL, "Sizes of the dimensions.", NULL},
    {"ndim", get_ndim, NULL, "Number of dimensions.", NULL},
    {"dtype", get_dtype, NULL, "Type of the elements.", NULL},
    {"requires_grad", get_requires_grad, set_requires_grad, "Whether operations on it are recorded.", NULL},
    {"grad", get_grad, set_grad, "The accumulated gradient, or None.", NULL},
    {"_grad", get_grad, set_grad, "Another name of grad.", NULL},
    {"is_leaf", get_is_leaf, NULL, "True unless a recorded operation made it.", NULL},
    {"data", get_data, set_data, "The same memory without history; writes to it do not disturb backward's checks.",
     NULL},
    {"T", get_T, NULL, "Dimensions reversed.", NULL},
    {"mT", get_mT, NULL, "The last two dimensions exchanged.", NULL},
    {"_version", get_version, NULL, "Autograd's count of in-place writes.", NULL},
    {"_content", get_content, NULL,
     "Count of all writes to the memory, which caches key on; None where others may write it.", NULL},
    {"_base", get_base, NULL, "The tensor this is a view of, or None.", NULL},
    {"_is_inference", get_is_inference, NULL, "Made under inference_mode.", NULL},
    {"output_nr", get_output_nr, NULL, "Which result of its grad_fn it is.", NULL},
    {"itemsize", get_itemsize, NULL, "Bytes of an element.", NULL},
    {"nbytes", get_nbytes, NULL, "Bytes of all elements.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

/* -- elements --------------------------------------------------------------------------------------- */

PyObject *ac_item(ac_tensor *t, int64_t offset) {
    if (ac_device_of(t) != AC_CPU) { /* one element is fetched */
        ac_dims none = {.n = 0};
        ac_tensor *one = ac_tensor_view(t, &none, &none, t->offset + offset), *here = one ? ac_on_cpu(one) : NULL;
        ac_tensor_clear(&one);
        if (!here) (void)ac_fail_as("item");
        PyObject *number = here ? ac_item(here, 0) : ac_raise();
        ac_tensor_clear(&here);
        return number;
    }
    AC_PY_TRY(ac_settle(t));
    const void *data = ac_data(t);
    if (ac_is_floating(t->dtype)) return PyFloat_FromDouble(ac_read_double(data, t->dtype, offset));
    int64_t i = ac_read_int(data, t->dtype, offset);
    return t->dtype == AC_bool ? PyBool_FromLong(i != 0) : PyLong_FromLongLong(i);
}

METHOD(item) {
    SELF;
    (void)unused;
    if (t->numel == 1) return ac_item(t, 0);
    char text[AC_SHAPE_TEXT];
    PyErr_Format(PyExc_RuntimeError, "item: needs a tensor of one element, got shape %s; use tolist()",
                 ac_shape_text(t, text));
    return NULL;
}

static PyObject *list_from(ac_tensor *t, int dim, int64_t offset) {
    if (dim == t->ndim) return ac_item(t, offset);
    PyObject *list = PyList_New((Py_ssize_t)t->shape[dim]);
    for (Py_ssize_t i = 0; list && i < t->shape[dim]; i++) {
        PyObject *one = list_from(t, dim + 1, offset + i * t->strides[dim]);
        if (!one) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, one);
    }
    return list;
}
METHOD(tolist) {
    SELF;
    (void)unused;
    ac_tensor *here = ac_on_cpu(t);
    if (!here) return (void)ac_fail_as("tolist"), ac_raise();
    PyObject *list = list_from(here, 0, 0);
    ac_tensor_release(here);
    return list;
}

/* -- geometry --------------------------------------------------------------------------------------- */

static PyObject *one_of(PyObject *arg, const int64_t *v, int64_t n, const char *what) {
    if (!arg || arg == Py_None) return ac_dims_object(v, n);
    int64_t dim = PyLong_AsLongLong(arg);
    if (dim == -1 && PyErr_Occurred()) return NULL;
    if (n == 0) return PyErr_Format(PyExc_IndexError, "%s: a 0-d tensor has no dimensions", what);
    AC_PY_TRY(ac_dim_wrap(&dim, n, what));
    return PyLong_FromLongLong(v[dim]);
}

static PyObject *m_size(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"dim", NULL};
    PyObject *dim = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:size", names, &dim)) return NULL;
    return one_of(dim, ac_unwrap(self)->shape, ac_unwrap(self)->ndim, "size");
}

static PyObject *m_stride(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"dim", NULL};
    PyObject *dim = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:stride", names, &dim)) return NULL;
    const ac_tensor *t = ac_unwrap(self);
    if (dim && dim != Py_None) return one_of(dim, t->strides, t->ndim, "stride");
    PyObject *size = ac_dims_object(t->strides, t->ndim), *tuple = size ? PySequence_Tuple(size) : NULL;
    Py_XDECREF(size);
    return tuple;
}

METHOD(numel) {
    SELF;
    (void)unused;
    return PyLong_FromLongLong(t->numel);
}
METHOD(dim) {
    SELF;
    (void)unused;
    return PyLong_FromLong(t->ndim);
}
METHOD(data_ptr) {
    SELF;
    (void)unused;
    if (ac_device_of(t) == AC_META) return PyLong_FromLong(0);
    AC_PY_TRY(ac_settle(t));
    t->storage->addressed = true;
    return PyLong_FromVoidPtr(ac_data(t));
}
METHOD(storage_ptr) {
    SELF;
    (void)unused;
    AC_PY_TRY(ac_settle(t));
    t->storage->addressed = true;
    return PyLong_FromVoidPtr(t->storage->data);
}
METHOD(storage_bytes) {
    SELF;
    (void)unused;
    return PyLong_FromLongLong(t->storage->bytes);
}
METHOD(storage_offset) {
    SELF;
    (void)unused;
    return PyLong_FromLongLong(t->offset);
}
METHOD(is_view) {
    SELF;
    (void)unused;
    return PyBool_FromLong(t->base != NULL);
}

METHOD(is_contiguous) {
    SELF;
    (void)unused;
    return PyBool_FromLong(ac_is_contiguous(t));
}
METHOD(is_floating_point) {
    SELF;
    (void)unused;
    return PyBool_FromLong(ac_is_floating(t->dtype));
}

/* -- history ---------------------------------------------------------------------------------------- */

METHOD(detach) {
    SELF;
    AC_ASK_OVERRIDE("detach", &self, 1);
    (void)unused;
    ac_tensor *v = detached(t, false);
    if (v && ac_grad_enabled()) v->view_version = *ac_version(v);
    return ac_wrap(v);
}

METHOD(detach_) {
    SELF;
    AC_ASK_OVERRIDE("detach_", &self, 1);
    (void)unused;
    ac_detach_lone_base(t);
    if (t->base)
        return PyErr_SetString(PyExc_RuntimeError, "detach_: a view cannot be detached in place; use detach()"), NULL;
    if (t->meta) {
        t->meta->requires_grad = false;
        t->meta->detached = t->meta->node != NULL;
        ac_meta_set_node(t->meta, NULL, 0);
    }
    return Py_NewRef(self);
}

/* _view_dtype(dtype): the same bytes read as another dtype, without history; the last dimension grows or shrinks with
 * its size */
METHOD(view_dtype) {
    SELF;
    ac_dtype dtype;
    if (ac_dtype_from(unused, &dtype) < 0) return ac_no_dtype("view", unused), NULL;
    int64_t old = ac_itemsize(t->dtype), item = ac_itemsize(dtype), last = t->ndim - 1;
    ac_dims shape = ac_shape_of(t), strides = ac_strides_of(t);
    if (last >= 0 && shape.v[last] == 1) strides.v[last] = 1;
    bool fits = old == item ||
                (last >= 0 && strides.v[last] == 1 && shape.v[last] * old % item == 0 && t->offset * old % item == 0);
    for (int64_t d = 0; d < last && fits; d++) fits = strides.v[d] * old % item == 0;
    if (fits && item > old && (uintptr_t)t->storage->data % (uintptr_t)item)
        return PyErr_Format(PyExc_RuntimeError,
                            "view: the memory is not aligned to %lld bytes; clone() the tensor first", (long long)item);
    if (!fits)
        return PyErr_SetString(
                   PyExc_RuntimeError,
                   "view: the last dimension does not divide into values of that size, or is not contiguous"),
               NULL;
    if (last >= 0) shape.v[last] = shape.v[last] * old / item;
    for (int64_t d = 0; d < last; d++) strides.v[d] = strides.v[d] * old / item;
    ac_tensor *v = ac_tensor_view(t, &shape, &strides, t->offset * old / item);
    if (!v) return ac_raise();
    v->dtype = dtype;
    return ac_wrap(v);
}

/* -- writes that the table has no operator for ----------------------------------------------------------- */

/* A number to be written into t; a TypeError names the argument that is none. */
static int number_for(const ac_tensor *t, const char *argument, PyObject *o, ac_scalar *value) {
    PyNumberMethods *m = Py_TYPE(o)->tp_as_number;
    if (m && (m->nb_float || m->nb_index)) return ac_scalar_beside(o, t, value);
    PyErr_Format(PyExc_TypeError, "%s must be a Tensor or a number, got %s", argument, Py_TYPE(o)->tp_name);
    return -1;
}

static PyObject *m_fill_(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names) {
    SELF;
    ac_scalar value;
    AC_ASK_OVERRIDE("fill_", ((PyObject *[2]){self, n ? args[0] : Py_None}), 2);
    Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0;
    bool known = named == 0 || PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "value") == 0;
    if (n + named != 1 || !known)
        return PyErr_Format(PyExc_TypeError, "fill_: takes one argument, `value`, got %zd", n + named);
    if (ac_is_tensor(args[0])) {
        ac_tensor *number = ac_unwrap(args[0]);
        if (number->ndim)
            return PyErr_Format(PyExc_RuntimeError,
                                "fill_: `value` must be a number or a 0-d tensor, got %d dimensions", number->ndim);
        AC_PY_TRY(ac_copy_into(t, number));
    } else {
        if (number_for(t, "fill_: argument `value`", args[0], &value) < 0) return NULL;
        AC_PY_TRY(ac_fill(t, value));
    }
    return Py_NewRef(self);
}

METHOD(zero_) {
    SELF;
    AC_ASK_OVERRIDE("zero_", &self, 1);
    (void)unused;
    AC_PY_TRY(ac_fill(t, (ac_scalar){AC_INT, {0}}));
    return Py_NewRef(self);
}

static PyObject *m_copy_(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *named[] = {"src", "non_blocking", NULL}, *other[] = {"other", "non_blocking", NULL};
    char **names = kwargs && PyDict_GetItemString(kwargs, "other") ? other : named; /* torch takes both words */
    PyObject *src;
    int non_blocking = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|p:copy_", names, &src, &non_blocking)) return NULL;
    PyObject *both[2] = {self, src};
    AC_ASK_OVERRIDE("copy_", both, 2);
    if (!ac_is_tensor(src)) {
        ac_scalar value;
        if (ac_overrides(&src, 1)) return ac_override_method("copy_", both, 2);
        if (number_for(ac_unwrap(self), "copy_: argument `src`", src, &value) < 0) return NULL;
        AC_PY_TRY(ac_fill(ac_unwrap(self), value));
        return Py_NewRef(self);
    }
    AC_PY_TRY(ac_copy_into_async(ac_unwrap(self), ac_unwrap(src), non_blocking));
    return Py_NewRef(self);
}

#define KEYWORDS(f) (PyCFunction)(void (*)(void)) f
static PyObject *m_complex(PyObject *self, PyObject *unused) {
    (void)unused;
    PyObject *real = PyNumber_Float(self), *result = real ? PyComplex_FromDoubles(PyFloat_AS_DOUBLE(real), 0) : NULL;
    Py_XDECREF(real);
    return result;
}

PyMethodDef ac_tensor_methods[] = {
    {"__complex__", m_complex, METH_NOARGS, "The only element as a Python complex."},
    {"item", m_item, METH_NOARGS,
     "item($self, /)\n--\n\n"
     "The one element as a Python number."},
    {"tolist", m_tolist, METH_NOARGS,
     "tolist($self, /)\n--\n\n"
     "The elements as nested lists."},
    {"size", KEYWORDS(m_size), METH_VARARGS | METH_KEYWORDS,
     "size($self, dim=None)\n--\n\n"
     "shape, or the size of one dimension."},
    {"stride", KEYWORDS(m_stride), METH_VARARGS | METH_KEYWORDS,
     "stride($self, dim=None)\n--\n\n"
     "Steps between neighbours, in elements."},
    {"numel", m_numel, METH_NOARGS,
     "numel($self, /)\n--\n\n"
     "Number of elements."},
    {"nelement", m_numel, METH_NOARGS,
     "nelement($self, /)\n--\n\n"
     "Number of elements."},
    {"dim", m_dim, METH_NOARGS,
     "dim($self, /)\n--\n\n"
     "Number of dimensions."},
    {"ndimension", m_dim, METH_NOARGS,
     "ndimension($self, /)\n--\n\n"
     "Number of dimensions."},
    {"data_ptr", m_data_ptr, METH_NOARGS,
     "data_ptr($self, /)\n--\n\n"
     "Address of the first element."},
    {"_storage_ptr", m_storage_ptr, METH_NOARGS, "Address of the storage."},
    {"_storage_bytes", m_storage_bytes, METH_NOARGS, "Size of the storage."},
    {"storage_offset", m_storage_offset, METH_NOARGS,
     "storage_offset($self, /)\n--\n\n"
     "Offset of the first element in the storage, in elements."},
    {"_is_view", m_is_view, METH_NOARGS, "Whether it is a view of another tensor, which `_base` is."},
    {"_is_row_major", m_is_contiguous, METH_NOARGS, "True when row-major without gaps."},
    {"is_floating_point", m_is_floating_point, METH_NOARGS,
     "is_floating_point($self, /)\n--\n\n"
     "True for floating point elements."},
    {"detach", m_detach, METH_NOARGS,
     "detach($self, /)\n--\n\n"
     "The same memory without history; its writes are seen by backward's checks."},
    {"detach_", m_detach_, METH_NOARGS,
     "detach_($self, /)\n--\n\n"
     "Forgets the history of this tensor."},
    {"_view_dtype", m_view_dtype, METH_O, "The same bytes read as another dtype."},
    {"_cut_into", ac_tensor_cut_into, METH_VARARGS, "Views along a dimension: of these sizes, or of each slice."},
    {"_turned_into", m__turned_into, METH_O,
     "_turned_into($self, make, /)\n--\n\n"
     "Takes over the geometry and history of the view of it that a function makes."},
    {"_taken_over", m__taken_over, METH_O,
     "_taken_over($self, source, /)\n--\n\n"
     "Takes over the memory of another tensor of its dtype and device, as a write."},
    {"fill_", KEYWORDS(m_fill_), METH_FASTCALL | METH_KEYWORDS,
     "fill_($self, value)\n--\n\n"
     "Sets every element to a number."},
    {"zero_", m_zero_, METH_NOARGS,
     "zero_($self, /)\n--\n\n"
     "Sets every element to 0."},
    {"copy_", KEYWORDS(m_copy_), METH_VARARGS | METH_KEYWORDS,
     "copy_($self, src, non_blocking=False)\n--\n\n"
     "Copies another tensor in, broadcast and cast."},
    {NULL, NULL, 0, NULL}};
