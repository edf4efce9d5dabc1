/* Backward formulas of factorisations (Giles 2008; Townsend 2016 for the SVD; Walter and Lehmann 2010 for QR). */
#include "autograd/formula_list.h"

#define MM(x, y) ac_f_call(c, AC_OP_matmul, NULL, 2, x, y)
#define TR(x) turned(c, x)
static T turned(ac_formula *c, T x) { return x ? ac_f_transpose(c, x) : NULL; }

static T unsqueezed(ac_formula *c, T x, int64_t dim) {
    ac_attrs_one_dim at = {dim};
    return ac_f_call(c, AC_OP_unsqueeze, &at, 1, x);
}

/* column - row, for every entry of a matrix of that size */
static T off_diagonal(ac_formula *c, T like) {
    if (!like) return NULL;
    ac_device d = ac_device_of(like);
    ac_attrs_arange cols = {{AC_INT, {0}}, {AC_INT, {like->shape[like->ndim - 1]}}, {AC_INT, {1}}, AC_int64, d},
                    rows = cols;
    rows.end.i = like->shape[like->ndim - 2];
    ac_dims column = {2, {rows.end.i, 1}};
    return SUB(ac_f_call(c, AC_OP_arange, &cols, 0), ac_f_reshape(c, ac_f_call(c, AC_OP_arange, &rows, 0), &column));
}
static T below(ac_formula *c, T x) { return WHERE(CMP(lt, off_diagonal(c, x), NUM(0)), x, NUM(0)); }
static T on_diagonal(ac_formula *c, T x) { return WHERE(CMP(eq, off_diagonal(c, x), NUM(0)), x, NUM(0)); }
/* a row of numbers [..., n] on the diagonal of matrices */
static T as_diagonal(ac_formula *c, T row) {
    if (!row) return NULL;
    ac_dims wide = ac_shape_of(row);
    wide.v[wide.n] = wide.v[wide.n - 1], wide.n++;
    return on_diagonal(c, ac_f_expand(c, unsqueezed(c, row, -1), &wide));
}
static T solved(ac_formula *c, T a, T b, const ac_attrs_check *check) {
    b = b ? ac_f_call(c, AC_OP_contiguous, NULL, 1, b) : NULL;
    return ac_f_call(c, AC_OP_solve, check, 2, a, b);
}
static const ac_attrs_check checked = {true};

FORMULA(solve) { /* of a matrix that had no result: nan, as that was */
    ATTR(check);
    T b = solved(c, TR(SAVED(0)), G, a);
    GIVE(1, b);
    if (WANTS(0)) ac_f_give(c, 0, UN(neg, MM(b, TR(RESULT(0)))));
    DONE;
}

FORMULA(slogdet) { /* inverse, turned */
    T a = SAVED(0), g = ac_f_grad(c, 1);
    if (!a || !g) return -1;
    ac_dims shape = ac_shape_of(a);
    ac_attrs_full one = {{2, {shape.v[shape.n - 1], shape.v[shape.n - 1]}}, {AC_INT, {1}}, a->dtype, ac_device_of(a)};
    T eye = ac_f_expand(c, on_diagonal(c, ac_f_call(c, AC_OP_full, &one, 0)), &shape);
    GIVE(0, MUL(unsqueezed(c, unsqueezed(c, g, -1), -1), solved(c, TR(a), eye, &checked)));
    DONE;
}

/* L^-T Phi(L^T G) L^-1 made symmetric; Phi: the lower triangle with half the diagonal */
FORMULA(cholesky) {
    ATTR(check);
    T l = RESULT(0), inner = MM(TR(l), G);
    T phi = ADD(below(c, inner), TIMES(on_diagonal(c, inner), 0.5));
    T left = solved(c, TR(l), phi, a), both = TR(solved(c, TR(l), TR(left), a));
    GIVE(0, TIMES(ADD(both, TR(both)), 0.5));
    DONE;
}

/* Of at least as many rows as columns, so that r is square. */
static T from_square(ac_formula *c, T q, T r, T gq, T gr) {
    T m = SUB(MM(r, TR(gr)), MM(TR(gq), q));
    T mirrored = ADD(ADD(below(c, m), TR(below(c, m))), on_diagonal(c, m));
    return TR(solved(c, r, TR(ADD(gq, MM(q, mirrored))), &checked));
}

static T columns(ac_formula *c, T x, int64_t from, int64_t to) {
    ac_attrs_slice part = {-1, from, to, 1};
    return ac_f_call(c, AC_OP_slice, &part, 1, x);
}

/* A wide matrix is [X Y] with X square: X = Q R1, and Y = Q R2 has no factorisation of its own. */
FORMULA(qr) {
    T q = RESULT(0), r = RESULT(1), gq = ac_f_grad(c, 0), gr = ac_f_grad(c, 1);
    if (!q || !r) return -1;
    int64_t rows = r->shape[r->ndim - 2], all = r->shape[r->ndim - 1];
    if (rows == all) {
        GIVE(0, from_square(c, q, r, gq, gr));
        DONE;
    }
    T beside = columns(c, gr, rows, all), joined = ADD(gq, MM(q, MM(columns(c, r, rows, all), TR(beside))));
    T square = from_square(c, q, columns(c, r, 0, rows), joined, columns(c, gr, 0, rows));
    ac_attrs_one_dim last = {-1};
    GIVE(0, ac_f_call(c, AC_OP_cat, &last, 2, square, MM(q, beside)));
    DONE;
}

/* 1 / (w_j - w_i), 0 on the diagonal */
static T gaps(ac_formula *c, T w) {
    T off = SUB(unsqueezed(c, w, -2), unsqueezed(c, w, -1));
    T same = CMP(eq, off_diagonal(c, off), NUM(0));
    return WHERE(same, NUM(0), UN(reciprocal, WHERE(same, NUM(1), off)));
}

/* Repeated eigenvalues have vectors without a derivative: where only the values are asked for, theirs are not made. */
FORMULA(eigh) {
    T w = RESULT(0), v = RESULT(1), gw = ac_f_grad(c, 0);
    T inner = as_diagonal(c, gw);
    if (c->g[1]) inner = ADD(inner, MUL(gaps(c, w), MM(TR(v), c->g[1])));
    T g = MM(MM(v, inner), TR(v));
    GIVE(0, TIMES(ADD(g, TR(g)), 0.5));
    DONE;
}

FORMULA(svd) {
    T u = RESULT(0), s = RESULT(1), vh = RESULT(2), gu = ac_f_grad(c, 0), gs = ac_f_grad(c, 1), gvh = ac_f_grad(c, 2);
    if (!u || !vh) return -1;
    if (!c->g[0] && !c->g[2]) {
        GIVE(0, MM(MM(u, as_diagonal(c, gs)), vh));
        DONE;
    }
    T v = TR(vh), gv = TR(gvh), f = gaps(c, UN(square, s)), column = unsqueezed(c, s, -1), row = unsqueezed(c, s, -2);
    T su = MM(TR(u), gu), sv = MM(TR(v), gv);
    T from_u = MUL(MUL(f, SUB(su, TR(su))), row), from_v = MUL(column, MUL(f, SUB(sv, TR(sv))));
    T g = MM(MM(u, ADD(ADD(from_u, from_v), as_diagonal(c, gs))), vh);
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
