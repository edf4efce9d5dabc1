/* The table of element types, built from dtypes.def, and the promotion of two of them. */
#include "base/dtype.h"

const ac_dtype_facts ac_dtypes[AC_N_DTYPES] = {
#define DTYPE(name, alias, ctype, bytes, category) [AC_##name] = {#name, alias, bytes, (ac_category)(category)},
#include "base/dtypes.def"
#undef DTYPE
};

static ac_dtype default_dtype = AC_float32;

ac_dtype ac_default_dtype(void) { return default_dtype; }
void ac_set_default_dtype(ac_dtype t) { default_dtype = t; }

ac_dtype ac_promote(ac_dtype a, ac_dtype b) {
    ac_dtype lo = a < b ? a : b, hi = a < b ? b : a;
    if (lo == hi) return hi;
    /* Neither holds the other's values: the pairs that meet in a third type. */
    if (lo == AC_float16 && hi == AC_bfloat16) return AC_float32;
    if (lo == AC_uint8 && hi == AC_int8) return AC_int16;
    return hi;
}

ac_dtype ac_copy_dtype(ac_dtype to, ac_dtype from) { return to == AC_int64 || ac_is_floating(to) ? to : from; }

ac_dtype ac_compute_dtype(ac_dtype t) {
    if (t == AC_float64) return AC_float64;
    return ac_is_floating(t) ? AC_float32 : AC_int64;
}

double ac_dtype_largest(ac_dtype t) {
    return t == AC_float16    ? 65504
           : t == AC_bfloat16 ? 0x1.fep127
           : t == AC_float32  ? 0x1.fffffep127
                              : 0x1.fffffffffffffp1023;
}
