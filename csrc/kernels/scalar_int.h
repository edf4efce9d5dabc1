// clang-format off
/* The integer lane: operators of result KEEP, BOOL and INT on int64. Narrower integers and bool
 * are widened before and cut after, which equals arithmetic modulo their size. */

#define UN(name) AC_INLINE int64_t name##_i64(int64_t x, const void *a)
#define BIN(name) AC_INLINE int64_t name##_i64(int64_t x, int64_t y, const void *a)
#define TER(name) AC_INLINE int64_t name##_i64(int64_t x, int64_t y, int64_t z, const void *a)
#define ATTR(type) const ac_attrs_##type *t = (const ac_attrs_##type *)a
#define NONE ((void)a)
#define WRAP(op, l, r) ((int64_t)((uint64_t)(l) op (uint64_t)(r))) /* overflow wraps */

UN(neg) { NONE; return WRAP(-, 0, x); }
UN(abs) { NONE; return x < 0 ? WRAP(-, 0, x) : x; }
UN(sign) { NONE; return (x > 0) - (x < 0); }
UN(square) { NONE; return WRAP(*, x, x); }
UN(floor) { NONE; return x; }
UN(ceil) { NONE; return x; }
UN(round) { NONE; return x; }
UN(trunc) { NONE; return x; }
UN(relu) { NONE; return x < 0 ? 0 : x; }
UN(isnan) { NONE; (void)x; return 0; }
UN(isinf) { NONE; (void)x; return 0; }
UN(isfinite) { NONE; (void)x; return 1; }
UN(logical_not) { NONE; return x == 0; }
UN(bitwise_not) { NONE; return ~x; }
UN(clamp) {
    ATTR(clamp);
    int64_t y = x;
    if (t->min.kind != AC_NONE) y = y < t->min.i ? t->min.i : y;
    if (t->max.kind != AC_NONE) y = y > t->max.i ? t->max.i : y;
    return y;
}

UN(hardtanh) {
    ATTR(bounds);
    return (double)x < t->low ? (int64_t)t->low : (double)x > t->high ? (int64_t)t->high : x;
}
UN(threshold) { ATTR(threshold); return (double)x <= t->threshold ? (int64_t)t->value : x; }
UN(nan_to_num) { NONE; return x; }
UN(signbit) { NONE; return x < 0; }

BIN(add) { ATTR(alpha); return WRAP(+, x, WRAP(*, ac_scalar_int(t->alpha), y)); }
BIN(sub) { ATTR(alpha); return WRAP(-, x, WRAP(*, ac_scalar_int(t->alpha), y)); }
BIN(mul) { NONE; return WRAP(*, x, y); }
BIN(floor_divide) {
    NONE;
    if (y == 0 || y == -1) return y ? WRAP(-, 0, x) : 0; /* the kernel has refused 0 */
    int64_t q = x / y;
    return q - (x % y != 0 && (x < 0) != (y < 0));
}
BIN(remainder) {
    NONE;
    if (y == 0 || y == -1) return 0;
    int64_t r = x % y;
    return r && (r < 0) != (y < 0) ? r + y : r;
}
BIN(pow) {
    NONE;
    if (y < 0) return x == 1 ? 1 : x == -1 ? (y & 1 ? -1 : 1) : 0;
    int64_t r = 1;
    for (; y; y >>= 1, x = WRAP(*, x, x))
        if (y & 1) r = WRAP(*, r, x);
    return r;
}
BIN(maximum) { NONE; return x > y ? x : y; }
BIN(minimum) { NONE; return x < y ? x : y; }
BIN(fmax) { NONE; return x > y ? x : y; }
BIN(fmin) { NONE; return x < y ? x : y; }
BIN(fmod) { NONE; return y == 0 || y == -1 ? 0 : x % y; }
BIN(heaviside) { NONE; return x > 0 ? 1 : x < 0 ? 0 : y; }
BIN(bitwise_left_shift) { NONE; return y < 0 || y > 63 ? 0 : (int64_t)((uint64_t)x << y); }
BIN(bitwise_right_shift) { NONE; return y < 0 || y > 63 ? (x < 0 ? -1 : 0) : x >> y; }
BIN(eq) { NONE; return x == y; }
BIN(ne) { NONE; return x != y; }
BIN(lt) { NONE; return x < y; }
BIN(le) { NONE; return x <= y; }
BIN(gt) { NONE; return x > y; }
BIN(ge) { NONE; return x >= y; }
BIN(logical_and) { NONE; return x && y; }
BIN(logical_or) { NONE; return x || y; }
BIN(logical_xor) { NONE; return (x != 0) != (y != 0); }
BIN(bitwise_and) { NONE; return x & y; }
BIN(bitwise_or) { NONE; return x | y; }
BIN(bitwise_xor) { NONE; return x ^ y; }
BIN(masked_fill) { ATTR(value); return y ? ac_scalar_int(t->value) : x; }

TER(where) { NONE; return x ? y : z; }
TER(addcmul) { ATTR(value); return WRAP(+, x, WRAP(*, ac_scalar_int(t->value), WRAP(*, y, z))); }

#undef UN
#undef BIN
#undef TER
#undef ATTR
#undef NONE
#undef WRAP
