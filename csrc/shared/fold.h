/* The kinds of reductions that both backends implement. */
#ifndef AC_SHARED_FOLD_H
#define AC_SHARED_FOLD_H

/* What a reduction does to each value before it is combined. */
typedef enum {
    AC_FOLD_SUM,
    AC_FOLD_SUM_SQUARES, /* of x - p */
    AC_FOLD_SUM_ABS,
    AC_FOLD_SUM_POWERS, /* |x|^p */
    AC_FOLD_COUNT,      /* nonzero values */
    AC_FOLD_PROD,
    AC_FOLD_MAX,
    AC_FOLD_MIN,
    AC_FOLD_MAX_ABS,
    AC_FOLD_MIN_ABS,
    AC_N_FOLDS
} ac_fold;

#endif
