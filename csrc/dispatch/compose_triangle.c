/* Composite operators that solve with a triangle: a Cholesky factor, or half of a matrix. */
#include "dispatch/compose_linalg.h"

static const ac_attrs_check checked = {1};

static int need_matrix(const char *what, const ac_tensor *t, bool square) {
    char text[AC_SHAPE_TEXT];
    if (t->ndim >= 2 && (!square || t->shape[t->ndim - 1] == t->shape[t->ndim - 2])) return 0;
    return ac_fail(AC_RUNTIME, "%s: needs %smatrices, got shape %s", what, square ? "square " : "",
                   ac_shape_text(t, text));
}

/* A Cholesky factor as a lower triangle. Its gradient is that of the whole matrix, as in torch. */
static T lower(ac_scratch *s, T factor, bool upper) {
    T low = upper ? TR(factor) : factor, triangle = ac_c_lower(s, ac_c_detach(s, low), 0);
    if (!triangle) return NULL;
    return ac_c_records(low) ? BIN(stands_for, triangle, low) : triangle;
}

static T identity(ac_scratch *s, T like) { return ac_c_eye(s, like, ac_rows_of(like), ac_cols_of(like)); }

/* X with A X = B, batches broadcast. */
static T solved(ac_scratch *s, T A, T B) {
    if (!A || !B) return NULL;
    if (ac_rows_of(B) != ac_cols_of(A))
        REFUSE(AC_RUNTIME, "solve: matrices of %" PRId64 " columns and of %" PRId64 " rows do not fit", ac_cols_of(A),
               ac_rows_of(B));
    NEED(ac_c_same_batch(s, &A, &B, "solve"));
    return ac_c_call(s, AC_OP_solve, &checked, 2, A, B);
}

COMPOSE(cholesky_solve) {
    ATTRS(upper_factor);
    NEED(need_matrix("cholesky_solve", in[0], false));
    NEED(need_matrix("cholesky_solve", in[1], true));
    T low = lower(s, in[1], a->upper);
    return solved(s, TR(low), solved(s, low, in[0]));
}

COMPOSE(cholesky_inverse) {
    ATTRS(upper_factor);
    NEED(need_matrix("cholesky_inverse", in[0], true));
    T low = lower(s, in[0], a->upper);
    return solved(s, TR(low), solved(s, low, identity(s, in[0])));
}

COMPOSE(triangular_solve) {
    ATTRS(triangular_solve);
    NEED(need_matrix("triangular_solve", in[0], false));
    NEED(need_matrix("triangular_solve", in[1], true));
    T half = a->upper ? ac_c_upper(s, in[1], 0) : ac_c_lower(s, in[1], 0);
    if (a->unitriangular) {
        T one = identity(s, in[1]);
        half = ADD(MUL(half, SUB(NUM(1), one)), one);
    }
    T X = solved(s, a->transpose ? TR(half) : half, in[0]);
    if (!X) return NULL;
    ac_dims shape = ac_shape_of(X);
    shape.v[shape.n - 1] = shape.v[shape.n - 2];
    s->also[1] = UN(clone, ac_c_expand(s, in[1], &shape));
    return s->also[1] ? X : NULL;
}
