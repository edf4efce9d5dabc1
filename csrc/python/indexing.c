/* x[index] and x[index] = value: ints, slices, None, ..., and tensors, lists or masks. */
#include "python/state.h"

#include "dispatch/placement.h"
#include "dispatch/write.h"

/* A basic index is applied view by view; what is left for advanced indexing stands in `advanced`,
 * one entry a dimension of the view, NULL where the whole dimension is meant. */
typedef struct {
    ac_tensor *view; /* owned */
    ac_tensor *advanced[AC_MAX_DIMS];
    int n;                       /* entries in use; 0: basic indexing was enough */
    int dim;                     /* the dimension of `view` that the next index item is about */
    PyObject *keep[AC_MAX_DIMS]; /* tensors made from lists */
    int n_keep;
    int ndim; /* of the tensor that is indexed */
} indexer;

static int apply(indexer *x, ac_op op, const void *attrs) {
    ac_tensor *out[AC_MAX_OUT] = {NULL};
    if (ac_call(op, &x->view, 1, attrs, out) < 0) return (void)ac_raise(), -1;
    ac_tensor_release(x->view);
    x->view = out[0];
    return 0;
}

static int need_dim(const indexer *x) {
    if (x->dim < x->view->ndim) return 0;
    PyErr_Format(PyExc_IndexError, "too many indices for a tensor of %d dimensions", x->ndim);
    return -1;
}

/* Steals index. */
static int put(indexer *x, ac_tensor *index) {
    if (need_dim(x) < 0) {
        ac_tensor_release(index);
        return -1;
    }
    if (ac_device_of(index) != ac_device_of(x->view)) { /* an index of the CPU for a tensor elsewhere */
        ac_attrs_to_device there = {ac_device_of(x->view), 0};
        ac_tensor *moved = NULL;
        int failed = ac_call(AC_OP_to_device, &index, 1, &there, &moved);
        ac_tensor_release(index);
        if (failed) return (void)ac_raise(), -1;
        index = moved;
    }
    x->advanced[x->dim++] = index;
    x->n = x->dim;
    return 0;
}

static int by_int(indexer *x, PyObject *item) {
    int64_t i = PyLong_AsLongLong(item);
    if (i == -1 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_OverflowError))
            PyErr_SetString(PyExc_ValueError, "the index does not fit 64 bits");
        return -1;
    }
    if (need_dim(x) < 0) return -1;
    ac_attrs_select a = {x->dim, i};
    return apply(x, AC_OP_select, &a);
}

static int bound(PyObject *o, int64_t *out) {
    *out = AC_ABSENT;
    if (o == Py_None) return 0;
    PyObject *i = PyNumber_Index(o);
    if (!i) return -1;
    int overflow;
    *out = PyLong_AsLongLongAndOverflow(i, &overflow);
    if (overflow) *out = overflow < 0 ? INT64_MIN + 1 : INT64_MAX;
    Py_DECREF(i);
    return 0;
}

static int by_slice(indexer *x, PyObject *item) {
    ac_attrs_slice a = {.dim = x->dim, .step = 1};
    PySliceObject *s = (PySliceObject *)item;
    int64_t stride;
    if (need_dim(x) < 0 || bound(s->start, &a.start) < 0 || bound(s->stop, &a.end) < 0 || bound(s->step, &stride) < 0)
        return -1;
    if (stride != AC_ABSENT) a.step = stride;
    x->dim++;
    if (a.start == AC_ABSENT && a.end == AC_ABSENT && a.step == 1) return 0;
    return apply(x, AC_OP_slice, &a);
}

static int by_none(indexer *x) {
    ac_attrs_one_dim a = {x->dim++};
    return apply(x, AC_OP_unsqueeze, &a);
}

/* The one integer in t, wherever that lies. */
static int read_one(ac_tensor *t, int64_t *value) {
    ac_tensor *here = ac_on_cpu(t);
    if (!here) return (void)ac_raise(), -1;
    *value = ac_read_int(ac_data(here), here->dtype, 0);
    ac_tensor_release(here);
    return 0;
}

/* A mask stands for the indices where it is true, one index a dimension of the mask. */
static int by_mask(indexer *x, ac_tensor *mask) {
    ac_tensor *indices[AC_MAX_OUT] = {NULL};
    for (int d = 0; d < mask->ndim; d++) {
        if (x->dim + d >= x->view->ndim || mask->shape[d] != x->view->shape[x->dim + d]) {
            char m[AC_SHAPE_TEXT], v[AC_SHAPE_TEXT];
            PyErr_Format(PyExc_IndexError, "the mask's shape %s does not fit the indexed dimensions of %s",
                         ac_shape_text(mask, m), ac_shape_text(x->view, v));
            return -1;
        }
    }
    if (mask->ndim == 0) { /* index 0 of a dimension of size 1 in front, or no index */
        int64_t on;
        if (read_one(mask, &on) < 0) return -1;
        ac_attrs_one_dim front = {x->dim};
        ac_dims count = {1, {on != 0}};
        if (apply(x, AC_OP_unsqueeze, &front) < 0) return -1;
        ac_tensor *indexed = ac_tensor_new(AC_int64, &count);
        if (!indexed) return (void)ac_raise(), -1;
        if (on) ac_write_int(ac_data(indexed), AC_int64, 0, 0);
        return put(x, indexed);
    }
    if (ac_call(AC_OP_nonzero, &mask, 1, NULL, indices) < 0) return (void)ac_raise(), -1;
    int failed = 0;
    for (int d = 0; d < mask->ndim && !failed; d++) {
        ac_attrs_select column = {1, d};
        ac_tensor *index[AC_MAX_OUT] = {NULL};
        if (ac_call(AC_OP_select, indices, 1, &column, index) < 0) failed = ((void)ac_raise(), -1);
        else failed = put(x, index[0]);
    }
    ac_tensor_release(indices[0]);
    return failed;
}

static int by_tensor(indexer *x, ac_tensor *t) {
    if (t->dtype == AC_bool || t->dtype == AC_uint8) return by_mask(x, t);
    if (!ac_is_floating(t->dtype)) {
        if (t->ndim == 0 && !x->n) {
            ac_attrs_select a = {.dim = x->dim};
            return read_one(t, &a.index) < 0 || need_dim(x) < 0 ? -1 : apply(x, AC_OP_select, &a);
        }
        ac_attrs_dtype wide = {AC_int64};
        ac_tensor *out[AC_MAX_OUT] = {NULL};
        if (t->dtype == AC_int64 || t->dtype == AC_int32) return put(x, ac_tensor_retain(t));
        if (ac_call(AC_OP_cast, &t, 1, &wide, out) < 0) return (void)ac_raise(), -1;
        return put(x, out[0]);
    }
    PyErr_Format(PyExc_IndexError, "tensors used as indices must be integer or bool, got %s", ac_dtypes[t->dtype].name);
    return -1;
}

/* Lists, ranges and NumPy arrays become tensors. */
static int by_sequence(indexer *x, PyObject *item) {
    PyObject *module = PyImport_ImportModule("ampc._C");
    PyObject *t = module ? PyObject_CallMethod(module, "_tensor_from", "O", item) : NULL;
    Py_XDECREF(module);
    if (!t) return -1;
    if (x->n_keep == AC_MAX_DIMS) {
        Py_DECREF(t);
        PyErr_SetString(PyExc_IndexError, "too many indices");
        return -1;
    }
    x->keep[x->n_keep++] = t;
    ac_tensor *index = ac_unwrap(t);
    if (index->numel > 0 || !ac_is_floating(index->dtype)) return by_tensor(x, index);
    ac_attrs_dtype wide = {AC_int64}; /* x[[]] */
    ac_tensor *out[AC_MAX_OUT] = {NULL};
    if (ac_call(AC_OP_cast, &index, 1, &wide, out) < 0) return (void)ac_raise(), -1;
    return put(x, out[0]);
}

/* Dimensions that an index item uses up. */
static int consumed(PyObject *item) {
    if (item == Py_None || item == Py_Ellipsis || PyBool_Check(item)) return 0;
    if (!ac_is_tensor(item)) return 1;
    const ac_tensor *t = ac_unwrap(item);
    return t->dtype == AC_bool || t->dtype == AC_uint8 ? t->ndim : 1;
}

static int by_item(indexer *x, PyObject *item, int rest) {
    if (item == Py_Ellipsis) {
        int skipped = x->view->ndim - x->dim - rest;
        if (skipped > 0) x->dim += skipped;
        return 0;
    }
    if (item == Py_None) return by_none(x);
    if (PySlice_Check(item)) return by_slice(x, item);
    if (ac_is_tensor(item)) return by_tensor(x, ac_unwrap(item));
    if (PyBool_Check(item)) {
        ac_tensor *mask = ac_tensor_scalar_int(AC_bool, item == Py_True);
        int failed = mask ? by_mask(x, mask) : ((void)ac_raise(), -1);
        ac_tensor_clear(&mask);
        return failed;
    }
    if (PySequence_Check(item) && !PyUnicode_Check(item))
        return by_sequence(x, item); /* arrays are both this and an index */
    if (PyIndex_Check(item)) return by_int(x, item);
    PyErr_Format(PyExc_IndexError,
                 "tensors are indexed with ints, slices, None, ..., integer or bool tensors and lists; got %s",
                 Py_TYPE(item)->tp_name);
    return -1;
}

static void indexer_free(indexer *x) {
    ac_tensor_clear(&x->view);
    for (int d = 0; d < AC_MAX_DIMS; d++) ac_tensor_clear(&x->advanced[d]);
    for (int i = 0; i < x->n_keep; i++) Py_DECREF(x->keep[i]);
}

static int indexer_init(indexer *x, PyObject *self, PyObject *index) {
    *x = (indexer){.view = ac_tensor_retain(ac_unwrap(self)), .ndim = ac_unwrap(self)->ndim};
    bool many = PyTuple_Check(index);
    Py_ssize_t n = many ? PyTuple_GET_SIZE(index) : 1;
    int rest = 0;
    for (Py_ssize_t i = 0; i < n; i++) rest += consumed(many ? PyTuple_GET_ITEM(index, i) : index);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = many ? PyTuple_GET_ITEM(index, i) : index;
        rest -= consumed(item);
        if (by_item(x, item, rest) < 0) return -1;
    }
    return 0;
}

/* The inputs of index and index_put: x, then an index or NULL for each dimension. */
static int inputs(const indexer *x, ac_tensor **in) {
    in[0] = x->view;
    for (int d = 0; d < x->n; d++) in[1 + d] = x->advanced[d];
    return 1 + x->n;
}

PyObject *ac_tensor_subscript(PyObject *self, PyObject *index) {
    indexer x;
    PyObject *result = NULL;
    if (indexer_init(&x, self, index) == 0) {
        ac_tensor *in[AC_MAX_DIMS + 2], *out[AC_MAX_OUT] = {NULL};
        if (x.n == 0 && x.view == ac_unwrap(self)) { /* x[...] is a view of its own, as in torch */
            if (ac_call(AC_OP_alias, &x.view, 1, NULL, out) < 0) (void)ac_raise();
            else result = ac_wrap(out[0]);
        } else if (x.n == 0) result = ac_wrap_borrowed(x.view);
        else if (ac_call(AC_OP_index, in, inputs(&x, in), NULL, out) < 0) (void)ac_raise();
        else result = ac_wrap(out[0]);
    }
    indexer_free(&x);
    return result;
}

static int assign_advanced(indexer *x, ac_tensor *value) {
    ac_tensor *in[AC_MAX_DIMS + 2], *cast[AC_MAX_OUT] = {NULL};
    ac_attrs_dtype as = {x->view->dtype};
    ac_attrs_accumulate set = {0};
    int n = inputs(x, in);
    if (value->dtype != x->view->dtype) {
        if (ac_call(AC_OP_cast, &value, 1, &as, cast) < 0) return -1;
        value = cast[0];
    }
    in[n] = value;
    ac_tensor *moved = NULL;
    if (value->ndim == 0 && ac_device_of(value) != ac_device_of(x->view)) {
        ac_attrs_to_device there = {ac_device_of(x->view), 0};
        if (ac_call(AC_OP_to_device, &value, 1, &there, &moved) < 0) {
            ac_tensor_clear(&cast[0]);
            return -1;
        }
        in[n] = moved;
    }
    int failed = ac_call_into(AC_OP_index_put, in, n + 1, &set, x->view);
    ac_tensor_clear(&cast[0]);
    ac_tensor_clear(&moved);
    return failed;
}

/* Tells a value whose shape does not fit from all else that may have failed. */
static void raise_assign(const ac_dims *indexed, const ac_tensor *value) {
    bool fits = value->ndim <= indexed->n;
    for (int d = 1; fits && d <= value->ndim; d++) {
        int64_t size = value->shape[value->ndim - d];
        fits = size == 1 || size == indexed->v[indexed->n - d];
    }
    char got[AC_SHAPE_TEXT], want[AC_SHAPE_TEXT];
    if (fits) (void)ac_raise();
    else
        PyErr_Format(
            PyExc_RuntimeError,
            "x[index] = value: a value of shape %s does not fit, nor broadcast to, the indexed part of shape %s",
            ac_shape_text(value, got), ac_dims_text(indexed, want));
}

/* A reference to the value, or to a view of it: leading dimensions of size 1 are dropped down to `ndim`, as in torch.
 */
static ac_tensor *without_leading_ones(ac_tensor *value, int ndim) {
    ac_attrs_maybe_dims front = {{0}};
    while (value->ndim - front.dim.n > ndim && value->shape[front.dim.n] == 1) {
        front.dim.v[front.dim.n] = front.dim.n;
        front.dim.n++;
    }
    ac_tensor *out[AC_MAX_OUT] = {NULL};
    if (front.dim.n == 0) return ac_tensor_retain(value);
    return ac_call(AC_OP_squeeze, &value, 1, &front, out) < 0 ? NULL : out[0];
}

static int assign(indexer *x, PyObject *value) {
    ac_tensor *t = NULL;
    bool owned = false;
    if (ac_is_tensor(value)) t = ac_unwrap(value);
    else if (ac_is_number(value)) {
        ac_scalar number;
        if (ac_scalar_from(value, &number) < 0) return -1;
        if (ac_scalar_fits(number, x->view->dtype, "x[...] = number") < 0) return (void)ac_raise(), -1;
        t = ac_number_tensor(value);
        if (!t) return -1;
        owned = true;
    } else {
        PyErr_Format(PyExc_TypeError, "only a Tensor or a number can be assigned to a tensor's elements, got %s",
                     Py_TYPE(value)->tp_name);
        return -1;
    }
    ac_tensor *value_of = without_leading_ones(t, x->n ? 1 : x->view->ndim);
    if (owned) ac_tensor_release(t);
    if (!value_of) return (void)ac_raise(), -1;
    int failed = x->n ? assign_advanced(x, value_of) : ac_copy_into(x->view, value_of);
    ac_dims indexed = ac_shape_of(x->view);
    if (failed && x->n == 0) raise_assign(&indexed, value_of);
    else if (failed) (void)ac_raise();
    ac_tensor_release(value_of);
    return failed;
}

int ac_tensor_assign(PyObject *self, PyObject *index, PyObject *value) {
    indexer x;
    if (!value) return PyErr_SetString(PyExc_TypeError, "elements of a tensor cannot be deleted"), -1;
    int failed = indexer_init(&x, self, index);
    if (!failed) failed = assign(&x, value);
    indexer_free(&x);
    return failed;
}
