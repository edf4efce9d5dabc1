/* Composite operators that solve with a triangle: a Cholesky factor, or half of a matrix. */
#include "dispatch/compose_read.h"

static const ac_attrs_check checked = {1};

static int need_matrix(const char *what, const ac_tensor *t, bool square) {
    char text[AC_SHAPE_TEXT];
    if (t->ndim >= 2 && (!square || t->shape[t->ndim - 1] == t->shape[t->ndim - 2])) return 0;
    return ac_fail(AC_RUNTIME, "%s: needs %smatrices, got shape %s", what, square ? "square " : "",
                   ac_shape_text(t, text));
}

/* A Cholesky factor as a lower triangle. Its gradient is that of the whole matrix, as in torch. */
static T lower(ac_scratch *s, T factor, bool upper) {
    ac_attrs_offset whole = {0};
    T low = upper ? TR(factor) : factor, triangle = ac_c_call(s, AC_OP_tril, &whole, 1, ac_c_detach(s, low));
    return ac_c_records(low) ? BIN(stands_for, triangle, low) : triangle;
}

static T triangle_of(ac_scratch *s, T A, bool upper) {
    ac_attrs_offset whole = {0};
    return ac_c_call(s, upper ? AC_OP_triu : AC_OP_tril, &whole, 1, A);
}

static T identity(ac_scratch *s, T like) {
    ac_dims ones = ac_shape_of(like);
    ac_attrs_diagonal square = {0, -2, -1};
    ones.n--;
    return ac_c_call(s, AC_OP_diag_embed, &square, 1, ac_c_full(s, &ones, 1, like->dtype, ac_device_of(like)));
}

/* X with A X = B, batches broadcast. */
static T solved(ac_scratch *s, T A, T B) {
    if (!A || !B) return NULL;
    ac_dims left = ac_shape_of(A), right = ac_shape_of(B), lead = left, other = right;
    if (right.v[right.n - 2] != left.v[left.n - 1])
        REFUSE(AC_RUNTIME, "matrices of %" PRId64 " columns and of %" PRId64 " rows do not fit", left.v[left.n - 1],
               right.v[right.n - 2]);
    lead.n -= 2, other.n -= 2;
    NEED(ac_dims_broadcast(&lead, &other, "a batch of matrices and one of right sides"));
    ac_dims wide = lead, tall = lead;
    for (int i = 2; i > 0; i--) wide.v[wide.n++] = left.v[left.n - i], tall.v[tall.n++] = right.v[right.n - i];
    return ac_c_call(s, AC_OP_solve, &checked, 2, ac_c_expand(s, A, &wide), ac_c_expand(s, B, &tall));
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
    T half = triangle_of(s, in[1], a->upper);
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
