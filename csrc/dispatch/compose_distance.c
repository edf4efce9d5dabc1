/* Composite operators made of norms: distances, similarity, normalisation by a norm. */
#include "dispatch/compose.h"

/* The p-norm along one dimension; the gradient at 0 is 0. */
static T norm_along(ac_scratch *s, T x, ac_scalar p, int64_t dim, bool keepdim) {
    ac_attrs_norm a = {p, {1, {dim}}, keepdim, AC_NO_DTYPE};
    return ac_c_call(s, AC_OP_norm, &a, 1, x);
}
static ac_scalar real(double p) { return (ac_scalar){.kind = AC_FLOAT, .f = p}; }

COMPOSE(dist) {
    ATTRS(p);
    ac_attrs_norm all = {a->p, {.n = -1}, 0, AC_NO_DTYPE};
    return ac_c_call(s, AC_OP_norm, &all, 1, SUB(in[0], in[1]));
}

static int need_rows(const char *what, const ac_tensor *x, int dims) {
    if (x->ndim >= dims && ac_is_floating(x->dtype)) return 0;
    char text[AC_SHAPE_TEXT];
    return ac_fail(AC_RUNTIME, "%s: needs floating point rows in at least %d dimensions, got %s %s", what, dims,
                   ac_dtypes[x->dtype].name, ac_shape_text(x, text));
}

static T all_distances(ac_scratch *s, T x, T y, ac_scalar p) {
    return norm_along(s, SUB(ac_c_unsqueeze(s, x, -2), ac_c_unsqueeze(s, y, -3)), p, -1, false);
}

static int need_order(const char *what, ac_scalar p) {
    double order = ac_scalar_double(p);
    return order >= 0 ? 0 : ac_fail(AC_RUNTIME, "%s: `p` must be 0 or more, got %g", what, order);
}

COMPOSE(cdist) {
    ATTRS(cdist);
    NEED(need_rows("cdist", in[0], 2));
    NEED(need_rows("cdist", in[1], 2));
    int64_t left = in[0]->shape[in[0]->ndim - 1], right = in[1]->shape[in[1]->ndim - 1];
    if (left != right)
        REFUSE(AC_RUNTIME, "cdist: rows of %" PRId64 " and of %" PRId64 " numbers cannot be compared", left, right);
    NEED(need_order("cdist", a->p));
    return all_distances(s, in[0], in[1], a->p);
}

COMPOSE(pdist) {
    ATTRS(p);
    NEED(need_rows("pdist", in[0], 2));
    NEED(need_order("pdist", a->p));
    if (in[0]->ndim != 2) REFUSE(AC_RUNTIME, "pdist: needs 2 dimensions, got %d", in[0]->ndim);
    int64_t n = in[0]->shape[0];
    ac_device device = ac_device_of(in[0]);
    T range = ac_c_arange(s, n, device), rows = ac_c_unsqueeze(s, range, 1);
    ac_dims square = {2, {n, n}}, flat = {1, {n * n}};
    T rank = ADD(TIMES(rows, (double)n), range); /* of the pairs above the diagonal, sorted to the front */
    ac_attrs_value past = {{AC_INT, {INT64_MAX}}};
    T key = ac_c_call(s, AC_OP_masked_fill, &past, 2, rank, ac_c_expand(s, BIN(ge, rows, range), &square));
    ac_attrs_sort up = {0, 0, 1};
    T order = ac_c_slice(s, ac_c_call(s, AC_OP_sort, &up, 1, ac_c_reshape(s, key, &flat)), 0, 0, n * (n - 1) / 2);
    ac_attrs_index_dim first = {0};
    T distances = ac_c_reshape(s, all_distances(s, in[0], in[0], a->p), &flat);
    return ac_c_call(s, AC_OP_index_select, &first, 2, distances, order);
}

COMPOSE(pairwise_distance) {
    ATTRS(pairwise);
    return norm_along(s, ADD(SUB(in[0], in[1]), ac_c_real(s, a->eps)), real(a->p), -1, a->keepdim);
}

COMPOSE(renorm) {
    ATTRS(renorm);
    int64_t dim = a->dim;
    double most = ac_scalar_double(a->maxnorm);
    NEED(ac_dim_wrap(&dim, in[0]->ndim, "renorm"));
    if (in[0]->ndim < 2) REFUSE(AC_RUNTIME, "renorm: needs at least 2 dimensions, got %d", in[0]->ndim);
    if (!(ac_scalar_double(a->p) > 0) || !(most >= 0))
        REFUSE(AC_RUNTIME, "renorm: `p` must be above 0 and `maxnorm` 0 or more, got %g and %g", ac_scalar_double(a->p),
               most);
    ac_attrs_norm others = {a->p, {.n = 0}, 1, AC_NO_DTYPE};
    for (int64_t d = 0; d < in[0]->ndim; d++)
        if (d != dim) others.dim.v[others.dim.n++] = d;
    T norm = ac_c_call(s, AC_OP_norm, &others, 1, in[0]);
    T factor = WHERE(BIN(gt, norm, NUM(most)), DIV(NUM(most), PLUS(norm, 1e-7)), NUM(1));
    return MUL(in[0], factor);
}

/* x / max(norm, eps) */
static T unit(ac_scratch *s, T x, ac_scalar p, const ac_dims *dims, double eps) {
    ac_attrs_norm a = {p, *dims, true, AC_NO_DTYPE};
    return DIV(x, ac_c_clamp_min(s, ac_c_call(s, AC_OP_norm, &a, 1, x), eps));
}

COMPOSE(normalize) {
    ATTRS(normalize);
    return unit(s, in[0], real(a->p), &a->dim, a->eps);
}

COMPOSE(cosine_similarity) {
    ATTRS(cosine);
    ac_dtype common = ac_result_type(in, 2);
    ac_dims shape = ac_shape_of(in[0]), other = ac_shape_of(in[1]);
    NEED(ac_dims_broadcast(&shape, &other, "cosine_similarity"));
    if (!ac_is_floating(common))
        REFUSE(AC_RUNTIME,
               "cosine_similarity: x1 or x2 must be floating point, got %s and %s; convert one with .float()",
               ac_dtypes[in[0]->dtype].name, ac_dtypes[in[1]->dtype].name);
    T x = ac_c_cast(s, in[0], common), y = ac_c_cast(s, in[1], common);
    if (!x || !y) return NULL;
    ac_dims along = {1, {a->dim}};
    x = unit(s, ac_c_expand(s, x, &shape), real(2), &along, a->eps);
    return ac_c_sum(s, MUL(x, unit(s, ac_c_expand(s, y, &shape), real(2), &along, a->eps)), a->dim);
}
