/* Element types, their sizes and categories, and the promotion of two of them. */
#ifndef AC_BASE_DTYPE_H
#define AC_BASE_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum {
#define DTYPE(name, alias, ctype, bytes, category) AC_##name,
#include "base/dtypes.def"
#undef DTYPE
    AC_N_DTYPES
} ac_dtype;

enum { AC_NO_DTYPE = -1 }; /* an absent `dtype?` attribute */

typedef enum { AC_BOOLEAN, AC_INTEGER, AC_FLOATING } ac_category;

typedef struct {
    const char *name;
    const char *alias; /* torch's other name, or "" */
    int64_t bytes;
    ac_category category;
} ac_dtype_facts;

extern const ac_dtype_facts ac_dtypes[AC_N_DTYPES];

static inline int64_t ac_itemsize(ac_dtype t) { return ac_dtypes[t].bytes; }
static inline bool ac_is_floating(ac_dtype t) { return ac_dtypes[t].category == AC_FLOATING; }
static inline bool ac_is_half(ac_dtype t) { return t == AC_float16 || t == AC_bfloat16; }

/* The largest finite number of a floating point dtype. */
double ac_dtype_largest(ac_dtype t);
/* The dtype both promote to, as torch.promote_types. */
ac_dtype ac_promote(ac_dtype a, ac_dtype b);
/* The dtype the loops compute in: float32 for the half types, int64 for integers and bool. */
ac_dtype ac_compute_dtype(ac_dtype t);
/* The dtype that a copy's opmath type is chosen by. It holds what the target can: truth, and what is narrower than
 * int64, are decided by the source. */
ac_dtype ac_copy_dtype(ac_dtype to, ac_dtype from);

/* What float literals become (torch.get_default_dtype). */
ac_dtype ac_default_dtype(void);
void ac_set_default_dtype(ac_dtype t);

#endif
