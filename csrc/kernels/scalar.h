// clang-format off
/* Scalar mathematics of the elementwise operators, written once for both real types. The
 * including file defines R (float or double), S(name) (name with the type's suffix) and the
 * functions M_EXP, M_LOG, M_TANH, M_ERF, M_SQRT, M_SIN, M_COS, M_POW, M_FLOOR, M_CEIL, M_RINT,
 * M_TRUNC of that type; and again, for the integer lane, scalar_int.h.
 *
 * Each function takes its operands and the operator's attributes (`a`, unused where there are
 * none) and is compiled into a loop by loops.inc. */

#define K(x) ((R)(x))
#define UN(name) AC_INLINE R S(name)(R x, const void *a)
#define BIN(name) AC_INLINE R S(name)(R x, R y, const void *a)
#define TER(name) AC_INLINE R S(name)(R x, R y, R z, const void *a)
#define ATTR(type) const ac_attrs_##type *t = (const ac_attrs_##type *)a
#define NONE ((void)a)
#define NUMBER(s) ((R)ac_scalar_double(s))

AC_INLINE R S(sigmoid_of)(R x) { return K(1) / (K(1) + M_EXP(-x)); }

UN(neg) { NONE; return -x; }
UN(abs) { NONE; return x < 0 ? -x : x == 0 ? K(0) : x; }
UN(sign) { NONE; return x > 0 ? K(1) : x < 0 ? K(-1) : x; }
UN(square) { NONE; return x * x; }
UN(floor) { NONE; return M_FLOOR(x); }
UN(ceil) { NONE; return M_CEIL(x); }
UN(round) { NONE; return M_RINT(x); }
UN(trunc) { NONE; return M_TRUNC(x); }
UN(exp) { NONE; return M_EXP(x); }
UN(log) { NONE; return M_LOG(x); }
UN(sqrt) { NONE; return M_SQRT(x); }
UN(rsqrt) { NONE; return K(1) / M_SQRT(x); }
UN(reciprocal) { NONE; return K(1) / x; }
UN(sin) { NONE; return M_SIN(x); }
UN(cos) { NONE; return M_COS(x); }
UN(erf) { NONE; return M_ERF(x); }
UN(tanh) { NONE; return M_TANH(x); }
UN(sigmoid) { NONE; return S(sigmoid_of)(x); }
UN(relu) { NONE; return x < 0 ? K(0) : x; }
UN(silu) { NONE; return x * S(sigmoid_of)(x); }
UN(isnan) { NONE; return x != x ? K(1) : K(0); }
UN(isinf) { NONE; return x - x != 0 && x == x ? K(1) : K(0); }
UN(isfinite) { NONE; return x - x == 0 ? K(1) : K(0); }
UN(logical_not) { NONE; return x == 0 ? K(1) : K(0); }

/* max(x, 0) + log(1 + exp(-|x|)), the logarithm by the identity that keeps small arguments. */
UN(softplus_) {
    NONE;
    R e = M_EXP(x < 0 ? x : -x), u = K(1) + e;
    R tail = u == K(1) ? e : M_LOG(u) * e / (u - K(1));
    return (x > 0 ? x : x != x ? x : K(0)) + tail;
}

/* sqrt(2 / pi) * (x + 0.044715 x^3), the argument of the tanh approximation */
AC_INLINE R S(gelu_inner)(R x) { return K(0.79788456080286535588) * (x + K(0.044715) * x * x * x); }
AC_INLINE R S(normal_cdf)(R x) { return K(0.5) * (K(1) + M_ERF(x * K(0.70710678118654752440))); }

UN(gelu) {
    ATTR(approximate);
    if (t->tanh) return K(0.5) * x * (K(1) + M_TANH(S(gelu_inner)(x)));
    return x * S(normal_cdf)(x);
}

UN(clamp) {
    ATTR(clamp);
    R y = x;
    if (t->min.kind != AC_NONE) y = y < NUMBER(t->min) ? NUMBER(t->min) : y;
    if (t->max.kind != AC_NONE) y = y > NUMBER(t->max) ? NUMBER(t->max) : y;
    return y;
}

BIN(add) { ATTR(alpha); return x + NUMBER(t->alpha) * y; }
BIN(sub) { ATTR(alpha); return x - NUMBER(t->alpha) * y; }
BIN(mul) { NONE; return x * y; }
BIN(div) { NONE; return x / y; }
BIN(floor_divide) { NONE; return M_FLOOR(x / y); }
BIN(remainder) {
    NONE;
    R r = M_FMOD(x, y);
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
BIN(pow) { NONE; return M_POW(x, y); }
BIN(maximum) { NONE; return x > y || x != x ? x : y; }
BIN(minimum) { NONE; return x < y || x != x ? x : y; }
BIN(eq) { NONE; return x == y ? K(1) : K(0); }
BIN(ne) { NONE; return x != y ? K(1) : K(0); }
BIN(lt) { NONE; return x < y ? K(1) : K(0); }
BIN(le) { NONE; return x <= y ? K(1) : K(0); }
BIN(gt) { NONE; return x > y ? K(1) : K(0); }
BIN(ge) { NONE; return x >= y ? K(1) : K(0); }
BIN(logical_and) { NONE; return x != 0 && y != 0 ? K(1) : K(0); }
BIN(logical_or) { NONE; return x != 0 || y != 0 ? K(1) : K(0); }
BIN(logical_xor) { NONE; return (x != 0) != (y != 0) ? K(1) : K(0); }
BIN(masked_fill) { ATTR(value); return y != 0 ? NUMBER(t->value) : x; }

/* x is the gradient of the result, y what the forward saved */
BIN(tanh_backward) { NONE; return x * (K(1) - y * y); }
BIN(sigmoid_backward) { NONE; return x * y * (K(1) - y); }
BIN(relu_backward) { NONE; return y > 0 ? x : K(0); }
BIN(silu_backward) {
    NONE;
    R s = S(sigmoid_of)(y);
    return x * s * (K(1) + y * (K(1) - s));
}
BIN(gelu_backward) {
    ATTR(approximate);
    if (!t->tanh) {
        R density = K(0.39894228040143267794) * M_EXP(K(-0.5) * y * y);
        return x * (S(normal_cdf)(y) + y * density);
    }
    R h = M_TANH(S(gelu_inner)(y));
    R inner = K(0.79788456080286535588) * (K(1) + K(3 * 0.044715) * y * y);
    return x * (K(0.5) * (K(1) + h) + K(0.5) * y * (K(1) - h * h) * inner);
}

TER(where) { NONE; return x != 0 ? y : z; }
TER(addcmul) { ATTR(value); return x + NUMBER(t->value) * y * z; }
TER(addcdiv) { ATTR(value); return x + NUMBER(t->value) * y / z; }
TER(lerp) { NONE; return z < K(0.5) ? x + z * (y - x) : y - (y - x) * (K(1) - z); }
TER(mse_backward) { ATTR(value); return NUMBER(t->value) * x * (y - z); }

#undef K
#undef UN
#undef BIN
#undef TER
#undef ATTR
#undef NONE
#undef NUMBER
