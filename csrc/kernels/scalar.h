// clang-format off
/* Scalar mathematics of the elementwise operators, written once for both real types. The
 * including file defines R (float or double), S(name) (name with the type's suffix) and the
 * functions M_EXP, M_LOG, M_TANH, M_ERF, M_SQRT, M_SIN, M_COS, M_POW, M_FLOOR, M_CEIL, M_RINT,
 * M_TRUNC of that type, and M(name), the C library's function; and again, for the integer lane, scalar_int.h.
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
AC_INLINE R S(log1pexp)(R x) {
    R e = M_EXP(x < 0 ? x : -x), u = K(1) + e;
    R tail = u == K(1) ? e : M_LOG(u) * e / (u - K(1));
    return (x > 0 ? x : x != x ? x : K(0)) + tail;
}
UN(softplus) {
    ATTR(softplus);
    R scaled = x * K(t->beta);
    return scaled > K(t->threshold) ? x : S(log1pexp)(scaled) / K(t->beta);
}
UN(logsigmoid) { NONE; return -S(log1pexp)(-x); }
UN(mish) { NONE; return x * M_TANH(S(log1pexp)(x)); }
UN(softsign) { NONE; return x / (K(1) + (x < 0 ? -x : x)); }
AC_INLINE R S(limited)(R x, R low, R high) { return x < low ? low : x > high ? high : x; }
UN(hardsigmoid) { NONE; return S(limited)(x + K(3), K(0), K(6)) / K(6); }
UN(hardswish) { NONE; return x * S(limited)(x + K(3), K(0), K(6)) / K(6); }
UN(hardtanh) { ATTR(bounds); return S(limited)(x, K(t->low), K(t->high)); }
UN(elu) {
    ATTR(elu);
    R low = K(t->scale * t->alpha) * M(expm1)(x * K(t->input_scale));
    return x > 0 ? x * K(t->scale) : low;
}
UN(leaky_relu) { ATTR(slope); return x > 0 ? x : x * K(t->slope); }
UN(hardshrink) { ATTR(lambd); return x >= K(-t->lambd) && x <= K(t->lambd) ? K(0) : x; }
UN(softshrink) { ATTR(lambd); return x > K(t->lambd) ? x - K(t->lambd) : x < K(-t->lambd) ? x + K(t->lambd) : x * K(0); }
UN(threshold) { ATTR(threshold); return x <= K(t->threshold) ? K(t->value) : x; }
UN(nan_to_num) {
    ATTR(nan_to_num);
    return x != x ? K(t->nan) : x - x == 0 ? x : x > 0 ? K(t->posinf) : K(t->neginf);
}

UN(tan) { NONE; return M(tan)(x); }
UN(asin) { NONE; return M(asin)(x); }
UN(acos) { NONE; return M(acos)(x); }
UN(atan) { NONE; return M(atan)(x); }
UN(sinh) { NONE; return M(sinh)(x); }
UN(cosh) { NONE; return M(cosh)(x); }
UN(asinh) { NONE; return M(asinh)(x); }
UN(acosh) { NONE; return M(acosh)(x); }
UN(atanh) { NONE; return M(atanh)(x); }
UN(exp2) { NONE; return M(exp2)(x); }
UN(expm1) { NONE; return M(expm1)(x); }
UN(log1p) { NONE; return M(log1p)(x); }
UN(log2) { NONE; return M(log2)(x); }
UN(log10) { NONE; return M(log10)(x); }
UN(erfc) { NONE; return M(erfc)(x); }
UN(frac) { NONE; return x - M_TRUNC(x); }
UN(signbit) { NONE; return M(copysign)(K(1), x) < 0 ? K(1) : K(0); }

/* A first guess by Winitzki (2008), then Halley's steps on erfc or erf, the smaller one, which keeps its digits. */
UN(erfinv) {
    NONE;
    double y = x < 0 ? -(double)x : (double)x, rest = 1 - y;
    if (!(y < 1)) return y == 1 ? x * K(INFINITY) : x - x + K(NAN);
    double l = log(rest * (1 + y)), half = 4.3307467508 + l / 2; /* 2 / (pi 0.147) */
    double root = sqrt(sqrt(half * half - l / 0.147) - half);
    for (int step = 0; step < 2; step++) {
        double off = (y < 0.5 ? y - erf(root) : erfc(root) - rest) / (1.12837916709551257390 * exp(-root * root));
        root += off / (1 - root * off);
    }
    return x < 0 ? K(-root) : x == 0 ? x : K(root);
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
    R low = t->min.kind == AC_NONE ? K(-INFINITY) : NUMBER(t->min), high = t->max.kind == AC_NONE ? K(INFINITY) : NUMBER(t->max);
    R y = x < low ? low : x;
    y = y > high ? high : y;
    return low != low ? low : high != high ? high : y; /* no number lies within a limit that is nan */
}

BIN(add) { ATTR(alpha); return x + NUMBER(t->alpha) * y; }
BIN(sub) { ATTR(alpha); return x - NUMBER(t->alpha) * y; }
BIN(mul) { NONE; return x * y; }
BIN(div) { NONE; return x / y; }
/* The largest whole q such that q y and remainder(x, y) add up to x. floor(x / y) may be one more: 1 / 0.1 is rounded up to 10. */
BIN(floor_divide) {
    NONE;
    if (y == 0) return x / y;
    R r = M_FMOD(x, y), q = (x - r) / y;
    if (r != 0 && (r < 0) != (y < 0)) q -= K(1);
    if (q == 0) return M(copysign)(K(0), x / y);
    R whole = M_FLOOR(q); /* q is whole but for its own rounding */
    return q - whole > K(0.5) ? whole + K(1) : whole;
}
BIN(remainder) {
    NONE;
    R r = M_FMOD(x, y);
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
BIN(pow) { NONE; return M_POW(x, y); }
BIN(maximum) { NONE; return x > y || x != x ? x : y; }
BIN(minimum) { NONE; return x < y || x != x ? x : y; }
BIN(fmax) { NONE; return x > y || y != y ? x : y; }
BIN(fmin) { NONE; return x < y || y != y ? x : y; }
BIN(fmod) { NONE; return M_FMOD(x, y); }
BIN(atan2) { NONE; return M(atan2)(x, y); }
BIN(hypot) { NONE; return M(hypot)(x, y); }
BIN(copysign) { NONE; return M(copysign)(x, y); }
BIN(logaddexp) {
    NONE;
    R high = x > y ? x : y, low = x > y ? y : x;
    return x == y ? x + K(0.69314718055994530942) : x != x || y != y ? x + y : high + M(log1p)(M_EXP(low - high));
}
BIN(logaddexp2) {
    NONE;
    R high = x > y ? x : y, low = x > y ? y : x;
    if (x == y) return x + K(1);
    return x != x || y != y ? x + y : high + M(log1p)(M(exp2)(low - high)) * K(1.44269504088896340736);
}
BIN(xlogy) { NONE; return y != y ? y : x == 0 ? K(0) : x * M_LOG(y); }
BIN(heaviside) { NONE; return x > 0 ? K(1) : x < 0 ? K(0) : x == 0 ? y : x; }
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
BIN(relu_backward) { NONE; return y <= 0 ? K(0) : x; }
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
TER(lerp) { NONE; return z < K(0.5) && z > K(-0.5) ? x + z * (y - x) : y - (y - x) * (K(1) - z); }
TER(mse_backward) { ATTR(value); return NUMBER(t->value) * x * (y - z); }

#undef K
#undef UN
#undef BIN
#undef TER
#undef ATTR
#undef NONE
#undef NUMBER
