/* More words of compositions: matrices [..., rows, columns]. */
#ifndef AC_DISPATCH_COMPOSE_LINALG_H
#define AC_DISPATCH_COMPOSE_LINALG_H

#include "dispatch/compose_read.h"

static inline int64_t ac_rows_of(const ac_tensor *A) { return A->shape[A->ndim - 2]; }
static inline int64_t ac_cols_of(const ac_tensor *A) { return A->shape[A->ndim - 1]; }
static inline int64_t ac_smaller_size(const ac_tensor *A) {
    return ac_rows_of(A) < ac_cols_of(A) ? ac_rows_of(A) : ac_cols_of(A);
}

/* Refuse what is no matrix of float32 or float64, or no square one; `what` names the operator. */
int ac_need_matrices(const ac_tensor *A, const char *what) AC_CHECKED;
int ac_need_square(const ac_tensor *A, const char *what) AC_CHECKED;
/* Both with the batch dimensions of both, each as the operator needs it. */
int ac_c_same_batch(ac_scratch *s, T *A, T *B, const char *what) AC_CHECKED;

/* The unit matrix of that many rows and columns, in the batch, dtype and place of A. */
T ac_c_eye(ac_scratch *s, T A, int64_t rows, int64_t cols);
/* The triangles of a matrix up to, or from, that diagonal; zeros elsewhere. */
T ac_c_lower(ac_scratch *s, T A, int64_t diagonal);
T ac_c_upper(ac_scratch *s, T A, int64_t diagonal);
/* A row of numbers [..., n] times each column; a column times each row. */
T ac_c_scale_columns(ac_scratch *s, T A, T row);
/* X with A X = B, A being a triangle. */
T ac_c_triangular(ac_scratch *s, T A, T B, bool upper, bool unit);
T ac_c_empty(ac_scratch *s, T like);

/* X with A X = B (X A = B when not `left`), and for each matrix the pivot that is 0, or 0; `check`: an error there. */
T ac_c_solve(ac_scratch *s, T A, T B, bool left, bool check, T *info);
T ac_c_inverse(ac_scratch *s, T A, bool check, T *info, const char *what);
T ac_c_singular_values(ac_scratch *s, T A);

#endif
