/* Tensor's Python operators: +, @, <, [], len and their in-place forms. */
#include "python/override.h"
#include "python/tensor.h"

#include "amp/autocast.h"

static const ac_attrs_alpha plus_one = {{AC_INT, {1}}};

/* NumPy's arrays become tensors; its scalars have an interface too, but are numbers. */
static int from_array(PyObject *o, const ac_tensor *beside, ac_tensor **t, bool *owned) {
    if (ac_is_number(o)) {
        *t = ac_number_tensor(o, beside);
    } else {
        PyObject *module = PyImport_ImportModule("ampc._C"),
                 *made = module ? PyObject_CallMethod(module, "_tensor_from", "O", o) : NULL;
        *t = made ? ac_tensor_retain(ac_unwrap(made)) : NULL;
        Py_XDECREF(made);
        Py_XDECREF(module);
    }
    *owned = *t != NULL;
    return *t ? 0 : -1;
}

static const ac_tensor *tensor_of(PyObject *o) { return ac_is_tensor(o) ? ac_unwrap(o) : NULL; }

/* borrowed or owned operand; 0, or -1 with an error, or 1 when Python should try the other side */
static int operand(PyObject *o, PyObject *other, ac_tensor **t, bool *owned) {
    *owned = false;
    if (ac_is_tensor(o)) {
        *t = ac_unwrap(o);
        return 0;
    }
    if (!PyFloat_CheckExact(o) && !PyLong_CheckExact(o) && PyObject_HasAttrString(o, "__array_interface__"))
        return from_array(o, tensor_of(other), t, owned);
    if (!ac_is_number(o)) return 1;
    *t = ac_number_tensor(o, tensor_of(other));
    *owned = *t != NULL;
    return *t ? 0 : -1;
}

/* The methods of Tensor that torch's Python operators stand for. */
typedef struct {
    const char *plain, *reflected, *in_place;
} slot_names;

static PyObject *override_slot(const slot_names *names, PyObject *left, PyObject *right, bool in_place) {
    bool reflected = !ac_is_tensor(left);
    PyObject *args[2] = {reflected ? right : left, reflected ? left : right};
    return ac_override_method(in_place ? names->in_place : reflected ? names->reflected : names->plain, args, 2);
}

static PyObject *binary(const slot_names *names, ac_op op, const void *attrs, PyObject *left, PyObject *right,
                        bool in_place) {
    if (ac_overrides_now((PyObject *[2]){left, right}, 2)) return override_slot(names, left, right, in_place);
    ac_tensor *in[2], *out[AC_MAX_OUT] = {NULL};
    bool own[2] = {false, false};
    int state = operand(left, right, &in[0], &own[0]);
    if (state == 0) {
        state = operand(right, left, &in[1], &own[1]);
        if (state == 0) {
            ac_inside_enter();
            int failed = in_place ? ac_call_into(op, in, 2, attrs, in[0]) : ac_call(op, in, 2, attrs, out);
            ac_inside_leave();
            if (failed) {
                (void)ac_raise();
                state = -1;
            }
        }
    }
    if (own[0]) ac_tensor_release(in[0]);
    if (own[1]) ac_tensor_release(in[1]);
    if (state == 1) {
        if (ac_overrides((PyObject *[2]){left, right}, 2)) return override_slot(names, left, right, in_place);
        Py_RETURN_NOTIMPLEMENTED;
    }
    if (state < 0) return NULL;
    return in_place ? Py_NewRef(left) : ac_wrap(out[0]);
}

static PyObject *unary(const char *name, ac_op op, PyObject *x) {
    AC_ASK_OVERRIDE(name, &x, 1);
    ac_tensor *in = ac_unwrap(x), *out[AC_MAX_OUT] = {NULL};
    AC_PY_TRY(ac_call(op, &in, 1, NULL, out));
    return ac_wrap(out[0]);
}

#define NAMES(name, plain, reflected, in_place) static const slot_names name##_names = {plain, reflected, in_place};
NAMES(add, "add", "add", "add_")
NAMES(sub, "sub", "__rsub__", "sub_")
NAMES(mul, "mul", "mul", "mul_")
NAMES(div, "div", "__rtruediv__", "div_")
NAMES(floordiv, "floor_divide", "__rfloordiv__", "floor_divide_")
NAMES(mod, "remainder", "__rmod__", "remainder_")
NAMES(pow, "pow", "__rpow__", "pow_")
NAMES(lshift, "__lshift__", "__rlshift__", "__ilshift__")
NAMES(rshift, "__rshift__", "__rrshift__", "__irshift__")
NAMES(and, "__and__", "__rand__", "__iand__")
NAMES(or, "__or__", "__ror__", "__ior__")
NAMES(xor, "__xor__", "__rxor__", "__ixor__")
NAMES(matmul, "matmul", "__rmatmul__", NULL)

#define BINARY(name, op, attrs)                                                                                        \
    static PyObject *nb_##name(PyObject *l, PyObject *r) {                                                             \
        return binary(&name##_names, AC_OP_##op, attrs, l, r, false);                                                  \
    }
#define INPLACE(name, op, attrs)                                                                                       \
    static PyObject *nb_i##name(PyObject *l, PyObject *r) {                                                            \
        return binary(&name##_names, AC_OP_##op, attrs, l, r, true);                                                   \
    }
#define BOTH(name, op, attrs) BINARY(name, op, attrs) INPLACE(name, op, attrs)

BOTH(add, add, &plus_one)
BOTH(sub, sub, &plus_one)
BOTH(mul, mul, NULL)
INPLACE(div, div, NULL)
BOTH(floordiv, floor_divide, NULL)
BOTH(mod, remainder, NULL)
BOTH(lshift, bitwise_left_shift, NULL)
BOTH(rshift, bitwise_right_shift, NULL)
BOTH(and, bitwise_and, NULL)
BOTH(or, bitwise_or, NULL)
BOTH(xor, bitwise_xor, NULL)
BINARY(matmul, matmul, NULL)

/* A number over a 16-bit tensor is reciprocal's kin: autocast computes it in float32. */
static PyObject *nb_div(PyObject *l, PyObject *r) {
    bool number = PyFloat_Check(l) || PyLong_CheckExact(l);
    if (!number || ac_overrides_now(&r, 1) || !ac_autocast.active || !ac_is_tensor(r) ||
        !ac_is_half(ac_unwrap(r)->dtype))
        return binary(&div_names, AC_OP_div, NULL, l, r, false);
    ac_attrs_value value = {{.kind = AC_FLOAT, .f = PyFloat_AsDouble(l)}};
    ac_tensor *in = ac_unwrap(r), *out[AC_MAX_OUT] = {NULL};
    if (PyErr_Occurred()) return NULL;
    AC_PY_TRY(ac_call(AC_OP_rdiv, &in, 1, &value, out));
    return ac_wrap(out[0]);
}

static PyObject *nb_pow(PyObject *l, PyObject *r, PyObject *mod) {
    (void)mod;
    /* the commonest exponent, without a logarithm; under autocast pow has its own category */
    if (PyLong_CheckExact(r) && PyLong_AsLong(r) == 2 && ac_is_tensor(l) && !ac_is_half(ac_unwrap(l)->dtype) &&
        !PyErr_Occurred() && !ac_overrides_now(&l, 1))
        return unary("square", AC_OP_square, l);
    PyErr_Clear();
    return binary(&pow_names, AC_OP_pow, NULL, l, r, false);
}
static PyObject *nb_ipow(PyObject *l, PyObject *r, PyObject *mod) {
    (void)mod;
    return binary(&pow_names, AC_OP_pow, NULL, l, r, true);
}

static PyObject *nb_neg(PyObject *x) { return unary("neg", AC_OP_neg, x); }
static PyObject *nb_abs(PyObject *x) { return unary("abs", AC_OP_abs, x); }
static PyObject *nb_invert(PyObject *x) { return unary("bitwise_not", AC_OP_bitwise_not, x); }
static PyObject *nb_positive(PyObject *x) { return Py_NewRef(x); }

static PyObject *only_element(PyObject *x, const char *what, PyObject *error) {
    ac_tensor *t = ac_unwrap(x);
    if (t->numel == 1) return ac_item(t, 0);
    char text[AC_SHAPE_TEXT];
    PyErr_Format(error, "%s of a tensor of shape %s is ambiguous: it needs exactly one element%s", what,
                 ac_shape_text(t, text), what[0] == 't' ? "; use .any() or .all()" : "");
    return NULL;
}

static int nb_bool(PyObject *x) {
    PyObject *one = only_element(x, "truth value", PyExc_RuntimeError);
    int truth = one ? PyObject_IsTrue(one) : -1;
    Py_XDECREF(one);
    return truth;
}

static PyObject *converted(PyObject *x, PyObject *(*convert)(PyObject *), const char *what) {
    PyObject *one = only_element(x, what, PyExc_ValueError), *result = one ? convert(one) : NULL;
    Py_XDECREF(one);
    return result;
}
static PyObject *nb_float(PyObject *x) { return converted(x, PyNumber_Float, "float()"); }
static PyObject *nb_int(PyObject *x) { return converted(x, PyNumber_Long, "int()"); }
static PyObject *nb_index(PyObject *x) {
    if (ac_is_floating(ac_unwrap(x)->dtype) || ac_unwrap(x)->numel != 1) {
        PyErr_SetString(ac_py->no_number, "only an integer tensor of one element can be used as an index");
        return NULL;
    }
    return converted(x, PyNumber_Index, "an index");
}

static PyObject *compare(PyObject *l, PyObject *r, int how) {
    static const ac_op ops[] = {[Py_LT] = AC_OP_lt, [Py_LE] = AC_OP_le, [Py_EQ] = AC_OP_eq,
                                [Py_NE] = AC_OP_ne, [Py_GT] = AC_OP_gt, [Py_GE] = AC_OP_ge};
    static const slot_names names[] = {[Py_LT] = {"lt", NULL, NULL}, [Py_LE] = {"le", NULL, NULL},
                                       [Py_EQ] = {"eq", NULL, NULL}, [Py_NE] = {"ne", NULL, NULL},
                                       [Py_GT] = {"gt", NULL, NULL}, [Py_GE] = {"ge", NULL, NULL}};
    return binary(&names[how], ops[how], NULL, l, r, false);
}

static Py_hash_t hash(PyObject *x) { return (Py_hash_t)((uintptr_t)x >> 4); } /* by identity, as torch */

static Py_ssize_t length(PyObject *x) {
    const ac_tensor *t = ac_unwrap(x);
    if (t->ndim > 0) return (Py_ssize_t)t->shape[0];
    PyErr_SetString(PyExc_TypeError, "a 0-d tensor has no length");
    return -1;
}

PyType_Slot ac_tensor_number_slots[] = {{Py_nb_add, nb_add},
                                        {Py_nb_subtract, nb_sub},
                                        {Py_nb_multiply, nb_mul},
                                        {Py_nb_true_divide, nb_div},
                                        {Py_nb_floor_divide, nb_floordiv},
                                        {Py_nb_remainder, nb_mod},
                                        {Py_nb_power, nb_pow},
                                        {Py_nb_matrix_multiply, nb_matmul},
                                        {Py_nb_lshift, nb_lshift},
                                        {Py_nb_rshift, nb_rshift},
                                        {Py_nb_and, nb_and},
                                        {Py_nb_or, nb_or},
                                        {Py_nb_xor, nb_xor},
                                        {Py_nb_negative, nb_neg},
                                        {Py_nb_positive, nb_positive},
                                        {Py_nb_absolute, nb_abs},
                                        {Py_nb_invert, nb_invert},
                                        {Py_nb_bool, nb_bool},
                                        {Py_nb_float, nb_float},
                                        {Py_nb_int, nb_int},
                                        {Py_nb_index, nb_index},
                                        {Py_nb_inplace_add, nb_iadd},
                                        {Py_nb_inplace_subtract, nb_isub},
                                        {Py_nb_inplace_multiply, nb_imul},
                                        {Py_nb_inplace_true_divide, nb_idiv},
                                        {Py_nb_inplace_floor_divide, nb_ifloordiv},
                                        {Py_nb_inplace_remainder, nb_imod},
                                        {Py_nb_inplace_power, nb_ipow},
                                        {Py_nb_inplace_lshift, nb_ilshift},
                                        {Py_nb_inplace_rshift, nb_irshift},
                                        {Py_nb_inplace_and, nb_iand},
                                        {Py_nb_inplace_or, nb_ior},
                                        {Py_nb_inplace_xor, nb_ixor},
                                        {Py_tp_richcompare, compare},
                                        {Py_tp_hash, hash},
                                        {Py_mp_length, length},
                                        {Py_mp_subscript, ac_tensor_subscript},
                                        {Py_mp_ass_subscript, ac_tensor_assign},
                                        {0, NULL}};
