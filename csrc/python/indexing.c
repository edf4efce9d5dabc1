/* x[index] and x[index] = value: ints, slices, None, ..., and tensors, lists or masks. */
#include "python/override.h"

#include "amp/autocast.h"
#include "dispatch/placement.h"
#include "dispatch/write.h"

/* A slice with a negative step: strides are not negative, so what follows indexes a copy in the other order. An
 * assignment then goes the way back: the copy, turned again, is written into the view. */
typedef struct turn {
    ac_tensor *view, *turned; /* owned */
    ac_attrs_dims dims;
    struct turn *before;
} turn;

/* A basic index is applied view by view; what is left for advanced indexing stands in `advanced`,
 * one entry a dimension of the view, NULL where the whole dimension is meant. */
typedef struct {
    ac_tensor *view; /* owned */
    ac_tensor *advanced[AC_MAX_DIMS];
    int n;                       /* entries in use; 0: basic indexing was enough */
    int dim;                     /* the dimension of `view` that the next index item is about */
    PyObject *keep[AC_MAX_DIMS]; /* tensors made from lists */
    int n_keep;
    int ndim;        /* of the tensor that is indexed */
    int ellipses;    /* met so far */
    bool lone_mask;  /* all of `advanced` comes of one mask */
    turn *turns;     /* owned: the last one; NULL where no step is negative */
    PyObject *items; /* owned: the tuple that a list of indices stands for, or NULL */
} indexer;

static int apply(indexer *x, ac_op op, const void *attrs) {
    ac_tensor *out[AC_MAX_OUT] = {NULL};
    if (ac_call(op, &x->view, 1, attrs, out) < 0) return (void)ac_raise(), -1;
    ac_tensor_release(x->view);
    x->view = out[0];
    return 0;
}

static int too_many(const indexer *x) {
    if (x->ellipses > 1) PyErr_SetString(PyExc_IndexError, "only one ellipsis (...) can have indices behind it");
    else PyErr_Format(PyExc_IndexError, "too many indices for a tensor of %d dimensions", x->ndim);
    return -1;
}

static int need_dim(const indexer *x) { return x->dim < x->view->ndim ? 0 : too_many(x); }

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
    x->lone_mask = false;
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

/* The same elements with the step's sign changed, and then in the other order. */
static int by_negative_slice(indexer *x, PyObject *item) {
    Py_ssize_t start, stop, step;
    if (need_dim(x) < 0 || PySlice_Unpack(item, &start, &stop, &step) < 0) return -1;
    Py_ssize_t n = PySlice_AdjustIndices((Py_ssize_t)x->view->shape[x->dim], &start, &stop, step);
    ac_attrs_slice a = {
        .dim = x->dim, .start = n ? start + (n - 1) * step : 0, .end = n ? start + 1 : 0, .step = -step};
    if (apply(x, AC_OP_slice, &a) < 0) return -1;
    turn *t = PyMem_Calloc(1, sizeof *t);
    if (!t) return PyErr_NoMemory(), -1;
    *t = (turn){.view = ac_tensor_retain(x->view), .dims = {{1, {x->dim++}}}, .before = x->turns};
    x->turns = t;
    if (apply(x, AC_OP_flip, &t->dims) < 0) return -1;
    t->turned = ac_tensor_retain(x->view);
    return 0;
}

static int by_slice(indexer *x, PyObject *item) {
    ac_attrs_slice a = {.dim = x->dim, .step = 1};
    PySliceObject *s = (PySliceObject *)item;
    int64_t stride;
    if (bound(s->start, &a.start) < 0 || bound(s->stop, &a.end) < 0 || bound(s->step, &stride) < 0) return -1;
    if (stride != AC_ABSENT && stride < 0) return by_negative_slice(x, item);
    if (stride != AC_ABSENT) a.step = stride;
    bool whole = a.start == AC_ABSENT && a.end == AC_ABSENT && a.step == 1;
    if (!whole && (need_dim(x) < 0 || apply(x, AC_OP_slice, &a) < 0)) return -1;
    x->dim++;
    return 0;
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
    bool lone = x->n == 0;
    for (int d = 0; d < mask->ndim; d++) {
        int64_t size = mask->shape[d]; /* 0 chooses nothing, by the array API; where torch raises */
        if (x->dim + d >= x->view->ndim || (size && size != x->view->shape[x->dim + d])) {
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
    x->lone_mask = lone;
    return failed;
}

static int by_tensor(indexer *x, ac_tensor *t) {
    if (t->dtype == AC_uint8 && t->ndim > 0 &&
        PyErr_WarnEx(PyExc_UserWarning, "a uint8 tensor as an index is read as a mask; use bool for masks", 1) < 0)
        return -1;
    if (t->dtype == AC_bool || t->dtype == AC_uint8) return by_mask(x, t);
    if (t->ndim == 0 && !ac_is_floating(t->dtype)) { /* an int in all but name */
        ac_attrs_select a = {.dim = x->dim};
        return need_dim(x) < 0 || read_one(t, &a.index) < 0 ? -1 : apply(x, AC_OP_select, &a);
    }
    if (t->dtype == AC_int64 || t->dtype == AC_int32) return put(x, ac_tensor_retain(t));
    PyErr_Format(
        PyExc_IndexError,
        "tensors used as indices must be int64, int32, bool or uint8, got %s; convert them with .long() or .bool()",
        ac_dtypes[t->dtype].name);
    return -1;
}

/* Lists, tuples, ranges and NumPy arrays become tensors of int64, or masks. */
static int by_sequence(indexer *x, PyObject *item) {
    PyObject *module = PyImport_ImportModule("ampc._C");
    PyObject *t = module ? PyObject_CallMethod(module, "_tensor_from", "(O)", item) : NULL;
    Py_XDECREF(module);
    if (!t) return -1;
    if (x->n_keep == AC_MAX_DIMS) {
        Py_DECREF(t);
        PyErr_SetString(PyExc_IndexError, "too many indices");
        return -1;
    }
    x->keep[x->n_keep++] = t;
    ac_tensor *index = ac_unwrap(t), *out[AC_MAX_OUT] = {NULL};
    if (index->dtype == AC_int64 || index->dtype == AC_bool || index->dtype == AC_uint8) return by_tensor(x, index);
    ac_attrs_dtype wide = {AC_int64};
    if (ac_call(AC_OP_cast, &index, 1, &wide, out) < 0) return (void)ac_raise(), -1;
    int failed = by_tensor(x, out[0]);
    ac_tensor_release(out[0]);
    return failed;
}

/* Dimensions that an index item uses up. */
static int consumed(PyObject *item) {
    if (item == Py_None || item == Py_Ellipsis || PyBool_Check(item)) return 0;
    if (!ac_is_tensor(item)) return 1;
    const ac_tensor *t = ac_unwrap(item);
    return t->dtype == AC_bool || t->dtype == AC_uint8 ? t->ndim : 1;
}

/* `used`: the dimensions that all the items use up. Each ellipsis skips the others, a second one too, as in torch. */
static int by_item(indexer *x, PyObject *item, int used) {
    if (item == Py_Ellipsis) {
        x->ellipses++;
        if (x->ndim > used) x->dim += x->ndim - used;
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
    PyErr_Format(PyUnicode_Check(item) ? PyExc_TypeError : PyExc_IndexError,
                 "tensors are indexed with ints, slices, None, ..., integer or bool tensors and lists; got %s",
                 Py_TYPE(item)->tp_name);
    return -1;
}

static void indexer_free(indexer *x) {
    for (turn *t = x->turns, *before; t; t = before) {
        before = t->before;
        ac_tensor_clear(&t->view);
        ac_tensor_clear(&t->turned);
        PyMem_Free(t);
    }
    ac_tensor_clear(&x->view);
    for (int d = 0; d < AC_MAX_DIMS; d++) ac_tensor_clear(&x->advanced[d]);
    for (int i = 0; i < x->n_keep; i++) Py_DECREF(x->keep[i]);
    Py_XDECREF(x->items);
}

static bool is_index_of_its_own(PyObject *one) {
    return ac_is_tensor(one) || PySequence_Check(one) || PySlice_Check(one) || one == Py_Ellipsis || one == Py_None;
}

/* Torch's rule, once NumPy's: a short sequence that holds a sequence, tensor, slice, None or ... is a tuple of indices
 * and not one index. */
static bool lists_indices(PyObject *index) {
    if (ac_is_tensor(index) || !PySequence_Check(index) || PyUnicode_Check(index)) return false;
    if (!PyList_Check(index) && PyObject_HasAttrString(index, "__array_interface__")) return false;
    Py_ssize_t n = PySequence_Size(index);
    bool found = false;
    for (Py_ssize_t i = 0; i < n && n < 32 && !found; i++) {
        PyObject *one = PySequence_GetItem(index, i);
        if (!one) break;
        found = is_index_of_its_own(one);
        Py_DECREF(one);
    }
    PyErr_Clear();
    return found;
}

/* The tuple of indices that `index` is or stands for; NULL where it is one index. */
static PyObject *index_tuple(indexer *x, PyObject *index) {
    if (PyTuple_Check(index)) return index;
    if (!lists_indices(index)) return NULL;
    int failed =
        PyErr_WarnEx(PyExc_UserWarning,
                     "a list that holds sequences, tensors, slices, None or ... is read as a tuple of indices, "
                     "as in torch; write x[tuple(list)], or x[ampc.tensor(list)] for one index",
                     1);
    return failed ? NULL : (x->items = PySequence_Tuple(index));
}

static int indexer_init(indexer *x, PyObject *self, PyObject *index) {
    *x = (indexer){.view = ac_tensor_retain(ac_unwrap(self)), .ndim = ac_unwrap(self)->ndim};
    PyObject *items = index_tuple(x, index);
    if (!items && PyErr_Occurred()) return -1;
    Py_ssize_t n = items ? PyTuple_GET_SIZE(items) : 1;
    int used = 0;
    for (Py_ssize_t i = 0; i < n; i++) used += consumed(items ? PyTuple_GET_ITEM(items, i) : index);
    if (used > x->ndim) return too_many(x);
    for (Py_ssize_t i = 0; i < n; i++)
        if (by_item(x, items ? PyTuple_GET_ITEM(items, i) : index, used) < 0) return -1;
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
    PyObject *result = NULL, *both[2] = {self, index};
    AC_ASK_OVERRIDE("__getitem__", both, 2);
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

/* Whether a value of another dtype is converted: numbers, one element under a mask (masked_fill), and floats under
 * autocast, where dtypes mix. index_put refuses all else, as in torch. */
static bool may_convert(const indexer *x, const ac_tensor *value) {
    if (value->is_scalar || (x->lone_mask && value->numel == 1)) return true;
    return ac_autocast.active && ac_is_floating(value->dtype) && ac_is_floating(x->view->dtype);
}

static int assign_advanced(indexer *x, ac_tensor *value) {
    ac_tensor *in[AC_MAX_DIMS + 2], *cast[AC_MAX_OUT] = {NULL};
    ac_attrs_dtype as = {x->view->dtype};
    ac_attrs_index_put set = {0};
    int n = inputs(x, in);
    if (value->dtype != x->view->dtype && may_convert(x, value)) {
        if (x->lone_mask) AC_TRY(ac_number_held(value, x->view->dtype, "x[mask] = value"));
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

/* What is assigned, as a tensor: new, or another reference to the value. NULL with an error. */
static ac_tensor *value_tensor(const ac_tensor *x, PyObject *value) {
    if (ac_is_tensor(value)) return ac_tensor_retain(ac_unwrap(value));
    if (!ac_is_number(value)) {
        PyErr_Format(PyExc_TypeError, "only a Tensor or a number can be assigned to a tensor's elements, got %s",
                     Py_TYPE(value)->tp_name);
        return NULL;
    }
    ac_scalar number;
    if (ac_scalar_beside(value, x, &number) < 0) return NULL;
    if (ac_scalar_fits(number, x->dtype, "x[...] = number") < 0) return ac_raise(), NULL;
    return ac_number_tensor(value, x);
}

static int assign(indexer *x, ac_tensor *value) {
    ac_tensor *value_of = without_leading_ones(value, x->n ? 1 : x->view->ndim);
    if (!value_of) return (void)ac_raise(), -1;
    int failed = x->n ? assign_advanced(x, value_of) : ac_copy_into(x->view, value_of);
    ac_dims indexed = ac_shape_of(x->view);
    if (failed && x->n == 0) raise_assign(&indexed, value_of);
    else if (failed) (void)ac_raise();
    ac_tensor_release(value_of);
    return failed;
}

/* What was assigned to turned copies, into the views that they are copies of. */
static int turn_back(const indexer *x) {
    for (turn *t = x->turns; t; t = t->before) {
        ac_tensor *out[AC_MAX_OUT] = {NULL};
        if (ac_call(AC_OP_flip, &t->turned, 1, &t->dims, out) < 0) return (void)ac_raise(), -1;
        int failed = ac_copy_into(t->view, out[0]);
        ac_tensor_release(out[0]);
        if (failed) return (void)ac_raise(), -1;
    }
    return 0;
}

static int override_assign(PyObject *const *all) {
    PyObject *done = ac_override_method("__setitem__", all, 3);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

int ac_tensor_assign(PyObject *self, PyObject *index, PyObject *value) {
    if (!value) return PyErr_SetString(PyExc_TypeError, "elements of a tensor cannot be deleted"), -1;
    PyObject *all[3] = {self, index, value};
    if (ac_overrides_now(all, 3)) return override_assign(all);
    ac_tensor *given = value_tensor(ac_unwrap(self), value);
    if (!given) return ac_overrides_misfit(&value, 1) ? override_assign(all) : -1;
    indexer x = {0};
    int failed = 0;
    if (index != Py_False) { /* x[False] = value writes nothing, whatever the value's shape */
        failed = indexer_init(&x, self, index == Py_True ? Py_None : index);
        if (!failed) failed = assign(&x, given);
        if (!failed) failed = turn_back(&x);
    }
    indexer_free(&x);
    ac_tensor_release(given);
    return failed;
}
