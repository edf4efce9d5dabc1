/* Backward formulas of factorisations (Giles 2008; Townsend 2016 for the SVD; Walter and Lehmann 2010 for QR). */
#include "autograd/formula_list.h"

#define MM(x, y) BIN(matmul, x, y)

/* column - row, for every entry of a matrix of that size */
static T off_diagonal(ac_scratch *s, T like) {
    if (!like) return NULL;
    ac_device device = ac_device_of(like);
    int64_t rows = like->shape[like->ndim - 2];
    T column = ac_c_unsqueeze(s, ac_c_arange(s, rows, device), 1);
    return SUB(ac_c_arange(s, like->shape[like->ndim - 1], device), column);
}
static T below(ac_scratch *s, T x) { return WHERE(BIN(lt, off_diagonal(s, x), NUM(0)), x, NUM(0)); }
static T on_diagonal(ac_scratch *s, T x) { return WHERE(BIN(eq, off_diagonal(s, x), NUM(0)), x, NUM(0)); }
/* a row of numbers [..., n] on the diagonal of matrices */
static T as_diagonal(ac_scratch *s, T row) {
    if (!row) return NULL;
    ac_dims wide = ac_shape_of(row);
    wide.v[wide.n] = wide.v[wide.n - 1], wide.n++;
    return on_diagonal(s, ac_c_expand(s, ac_c_unsqueeze(s, row, -1), &wide));
}
static T solved(ac_scratch *s, T a, T b, const ac_attrs_check *check) {
    b = b ? ac_c_call(s, AC_OP_contiguous, NULL, 1, b) : NULL;
    return ac_c_call(s, AC_OP_solve, check, 2, a, b);
}
static const ac_attrs_check lenient = {false};

FORMULA(solve) { /* of a matrix that had no result: nan, as that was */
    ATTR(check);
    T b = solved(s, TR(SAVED(0)), G, a);
    GIVE(1, b);
    if (WANTS(0)) ac_f_give(c, 0, UN(neg, MM(b, TR(RESULT(0)))));
    DONE;
}

static T eye_like(ac_scratch *s, T a) {
    if (!a) return NULL;
    ac_dims shape = ac_shape_of(a);
    ac_attrs_full one = {{2, {shape.v[shape.n - 1], shape.v[shape.n - 1]}}, {AC_INT, {1}}, a->dtype, ac_device_of(a)};
    return ac_c_expand(s, on_diagonal(s, ac_c_call(s, AC_OP_full, &one, 0)), &shape);
}
/* a number for each matrix, as matrices of one element */
static T as_matrix(ac_scratch *s, T x) { return ac_c_unsqueeze(s, ac_c_unsqueeze(s, x, -1), -1); }
/* A^-T; nan of a matrix without an inverse */
static T inverse_turned(ac_scratch *s, T a) { return solved(s, TR(a), eye_like(s, a), &lenient); }

/* The cofactors of U diag(d) V^T: det(U) det(V) U diag(the product of the other d) V^T. */
static T cofactors(ac_scratch *s, T a) {
    T usv[AC_MAX_OUT] = {NULL};
    ac_attrs_full_matrices reduced = {false};
    if (!a || ac_c_call_many(s, AC_OP_svd, &reduced, &a, 1, usv) < 0) return NULL;
    ac_dims shape = ac_shape_of(a);
    ac_attrs_reduce rows = {{1, {-1}}, 0, AC_NO_DTYPE};
    T same = BIN(eq, off_diagonal(s, a), NUM(0)), d = ac_c_expand(s, ac_c_unsqueeze(s, usv[1], -2), &shape);
    T others = ac_c_call(s, AC_OP_prod, &rows, 1, WHERE(same, NUM(1), d));
    T sign = MUL(UN(det, usv[0]), UN(det, usv[2]));
    return MUL(as_matrix(s, sign), MM(MUL(usv[0], ac_c_unsqueeze(s, others, -2)), usv[2]));
}

/* det(A) A^-T; the cofactors where A has no inverse, or one of few digits (a condition above 1e4); nan where A is not
 * finite. Each way is given harmless matrices where another one is taken: of 1, 2, 3, ... on the diagonal, because
 * equal singular values have vectors without a derivative. */
FORMULA(det) {
    T a = SAVED(0), det = RESULT(0), inverse[AC_MAX_OUT] = {NULL};
    if (!a || !det) return -1;
    T sides[] = {TR(a), ac_c_call(s, AC_OP_contiguous, NULL, 1, eye_like(s, a))};
    if (!sides[0] || !sides[1] || ac_c_call_many(s, AC_OP_solve, &lenient, sides, 2, inverse) < 0) return -1;
    ac_dims both = {2, {-2, -1}};
    T condition =
        MUL(ac_c_sum_over(s, UN(square, a), &both, false), ac_c_sum_over(s, UN(square, inverse[0]), &both, false));
    T spoiled = ac_c_sum_over(s, SUB(a, a), &both, false); /* 0, or nan where A is not finite */
    T no_number = UN(isnan, spoiled);
    T regular_ones = BIN(logical_or, BIN(lt, condition, NUM(1e8)), no_number); /* not where the inverse is nan */
    if (!ac_f_any_zero(s, regular_ones)) {
        GIVE(0, MUL(as_matrix(s, MUL(G, det)), inverse[0]));
        DONE;
    }
    T singular = as_matrix(s, UN(logical_not, regular_ones)),
      other = BIN(logical_or, singular, as_matrix(s, no_number));
    T count = ac_c_arange(s, a->shape[a->ndim - 1] + 1, ac_device_of(a)),
      harmless = MUL(eye_like(s, a), ac_c_slice(s, count, 0, 1, a->shape[a->ndim - 1] + 1));
    T regular = MUL(as_matrix(s, det), inverse_turned(s, WHERE(other, harmless, a)));
    T either = WHERE(singular, cofactors(s, WHERE(singular, a, harmless)), regular);
    GIVE(0, MUL(as_matrix(s, G), ADD(either, as_matrix(s, spoiled))));
    DONE;
}

FORMULA(slogdet) {
    T g = ac_f_grad(c, 1);
    GIVE(0, MUL(as_matrix(s, g), inverse_turned(s, SAVED(0))));
    DONE;
}

/* L^-T Phi(L^T G) L^-1 made symmetric; Phi: the lower triangle with half the diagonal */
FORMULA(cholesky) {
    ATTR(check);
    T l = RESULT(0), inner = MM(TR(l), G);
    T phi = ADD(below(s, inner), TIMES(on_diagonal(s, inner), 0.5));
    T left = solved(s, TR(l), phi, a), both = TR(solved(s, TR(l), TR(left), a));
    GIVE(0, TIMES(ADD(both, TR(both)), 0.5));
    DONE;
}

/* Of at least as many rows as columns, so that r is square; nan where r has no inverse. */
static T from_square(ac_scratch *s, T q, T r, T gq, T gr) {
    T m = SUB(MM(r, TR(gr)), MM(TR(gq), q));
    T mirrored = ADD(ADD(below(s, m), TR(below(s, m))), on_diagonal(s, m));
    return TR(solved(s, r, TR(ADD(gq, MM(q, mirrored))), &lenient));
}

/* A wide matrix is [X Y] with X square: X = Q R1, and Y = Q R2 has no factorisation of its own. */
FORMULA(qr) {
    T q = RESULT(0), r = RESULT(1), gq = ac_f_grad(c, 0), gr = ac_f_grad(c, 1);
    if (!q || !r) return -1;
    int64_t rows = r->shape[r->ndim - 2], all = r->shape[r->ndim - 1];
    if (rows == all) {
        GIVE(0, from_square(s, q, r, gq, gr));
        DONE;
    }
    T beside = ac_c_slice(s, gr, -1, rows, all),
      joined = ADD(gq, MM(q, MM(ac_c_slice(s, r, -1, rows, all), TR(beside))));
    T square = from_square(s, q, ac_c_slice(s, r, -1, 0, rows), joined, ac_c_slice(s, gr, -1, 0, rows));
    ac_attrs_one_dim last = {-1};
    GIVE(0, ac_c_call(s, AC_OP_cat, &last, 2, square, MM(q, beside)));
    DONE;
}

/* 1 / (w_j - w_i), 0 on the diagonal */
static T gaps(ac_scratch *s, T w) {
    T off = SUB(ac_c_unsqueeze(s, w, -2), ac_c_unsqueeze(s, w, -1));
    T same = BIN(eq, off_diagonal(s, off), NUM(0));
    return WHERE(same, NUM(0), UN(reciprocal, WHERE(same, NUM(1), off)));
}

/* Repeated eigenvalues have vectors without a derivative: where only the values are asked for, theirs are not made. */
FORMULA(eigh) {
    T w = RESULT(0), v = RESULT(1), gw = ac_f_grad(c, 0);
    T inner = as_diagonal(s, gw);
    if (c->g[1]) inner = ADD(inner, MUL(gaps(s, w), MM(TR(v), c->g[1])));
    T g = MM(MM(v, inner), TR(v));
    GIVE(0, TIMES(ADD(g, TR(g)), 0.5));
    DONE;
}

/* What completes U and Vh to square matrices has no gradient. */
FORMULA(svd) {
    T u = RESULT(0), d = RESULT(1), vh = RESULT(2), gu = ac_f_grad(c, 0), gs = ac_f_grad(c, 1), gvh = ac_f_grad(c, 2);
    if (!u || !d || !vh) return -1;
    int64_t k = d->shape[d->ndim - 1];
    u = ac_c_slice(s, u, -1, 0, k), gu = ac_c_slice(s, gu, -1, 0, k);
    vh = ac_c_slice(s, vh, -2, 0, k), gvh = ac_c_slice(s, gvh, -2, 0, k);
    if (!u || !vh) return -1;
    if (!c->g[0] && !c->g[2]) {
        GIVE(0, MM(MM(u, as_diagonal(s, gs)), vh));
        DONE;
    }
    T v = TR(vh), gv = TR(gvh), f = gaps(s, UN(square, d)), column = ac_c_unsqueeze(s, d, -1),
      row = ac_c_unsqueeze(s, d, -2);
    T su = MM(TR(u), gu), sv = MM(TR(v), gv);
    T from_u = MUL(MUL(f, SUB(su, TR(su))), row), from_v = MUL(column, MUL(f, SUB(sv, TR(sv))));
    T g = MM(MM(u, ADD(ADD(from_u, from_v), as_diagonal(s, gs))), vh);
    if (u->shape[u->ndim - 2] > u->shape[u->ndim - 1]) {
        T over = DIV(gu, row);
        g = ADD(g, MM(SUB(over, MM(u, MM(TR(u), over))), vh));
    }
    if (vh->shape[vh->ndim - 1] > vh->shape[vh->ndim - 2]) {
        T over = DIV(gv, row);
        g = ADD(g, MM(u, TR(SUB(over, MM(v, MM(vh, over))))));
    }
    GIVE(0, g);
    DONE;
}

/* -- triangles -------------------------------------------------------------------------------------------- */

static T triangle_of(ac_scratch *s, T x, bool upper, int64_t diagonal) {
    ac_attrs_offset from = {diagonal};
    return ac_c_call(s, upper ? AC_OP_triu : AC_OP_tril, &from, 1, x);
}
static T by_triangle(ac_scratch *s, T a, T b, bool upper, bool unit) {
    ac_attrs_triangle which = {upper, unit};
    return ac_c_call(s, AC_OP_solve_triangle, &which, 2, a, b);
}

FORMULA(solve_triangle) {
    ATTR(triangle);
    T b = by_triangle(s, TR(SAVED(0)), G, !a->upper, a->unit);
    GIVE(1, b);
    if (WANTS(0)) {
        T g = UN(neg, MM(b, TR(RESULT(0))));
        ac_f_give(c, 0, triangle_of(s, g, a->upper, a->unit ? a->upper ? 1 : -1 : 0));
    }
    DONE;
}

/* Of A = P L U, the square part of L being L1 and that of U being U1: what lies beside or below these has a gradient of
 * its own, and adds to theirs. */
FORMULA(lu_factor) {
    T lu = RESULT(0), g = G, in[2] = {lu, RESULT(1)}, out[AC_MAX_OUT];
    ac_attrs_unpack both = {1, 1};
    if (!lu || ac_c_call_many(s, AC_OP_lu_unpack, &both, in, 2, out) < 0) return -1;
    int64_t m = lu->shape[lu->ndim - 2], n = lu->shape[lu->ndim - 1], k = m < n ? m : n;
    T lower = ac_c_slice(s, out[1], -2, 0, k), upper = ac_c_slice(s, out[2], -1, 0, k), rest = NULL;
    T own = ac_c_slice(s, ac_c_slice(s, g, -2, 0, k), -1, 0, k);
    T of_lower = MM(TR(lower), triangle_of(s, own, false, -1)), of_upper = MM(triangle_of(s, own, true, 0), TR(upper));
    if (m > n) {
        rest = ac_c_slice(s, g, -2, k, m);
        of_upper = SUB(of_upper, MM(TR(ac_c_slice(s, out[1], -2, k, m)), rest));
        rest = TR(by_triangle(s, upper, TR(rest), true, false));
    } else if (m < n) {
        rest = ac_c_slice(s, g, -1, k, n);
        of_lower = SUB(of_lower, MM(rest, TR(ac_c_slice(s, out[2], -1, k, n))));
        rest = by_triangle(s, TR(lower), rest, true, true);
    }
    T inner = ADD(triangle_of(s, of_lower, false, -1), triangle_of(s, of_upper, true, 0));
    T square = by_triangle(s, TR(lower), inner, true, true), parts[2];
    parts[0] = TR(by_triangle(s, upper, TR(square), true, false)), parts[1] = rest;
    T whole = m == n ? parts[0] : ac_c_cat(s, parts, 2, m > n ? -2 : -1);
    GIVE(0, MM(out[0], whole));
    DONE;
}

/* Of the inverse X of A, given with it. A is not needed, so it may be overwritten. */
FORMULA(inverse_of) {
    T x = TR(RESULT(0));
    GIVE(1, UN(neg, MM(MM(x, G), x)));
    DONE;
}

/* Of the pseudo-inverse P of A, given with it (Golub and Pereyra 1973). */
FORMULA(pinv_of) {
    T p = RESULT(0), a = SAVED(1), g = G, gt = TR(g), pt = TR(p);
    T rows = MM(MM(gt, p), pt), cols = MM(MM(pt, p), gt);
    rows = SUB(rows, MM(a, MM(p, rows))), cols = SUB(cols, MM(MM(cols, p), a));
    GIVE(1, SUB(ADD(rows, cols), MM(MM(pt, g), pt)));
    DONE;
}
