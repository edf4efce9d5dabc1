/* Composite operators made of matrix products. Autocast leaves casting to the product inside, which rounds its
 * operands while it packs them. */
#include "dispatch/compose.h"

#include "autograd/node.h"
#include "backend/backend.h"
#include "dispatch/compose_read.h"

#include <math.h>

static const ac_attrs_product plain = {AC_NO_DTYPE};
#define MM(x, y) ac_c_call(s, AC_OP_mm, &plain, 2, x, y)

static int need_matrix_and_vector(const char *what, const ac_tensor *a, const ac_tensor *b) {
    if (a->ndim == 2 && b->ndim == 1) return 0;
    return ac_fail(AC_RUNTIME, "%s: needs a matrix and a vector, got %d and %d dimensions", what, a->ndim, b->ndim);
}

COMPOSE(mv) {
    NEED(need_matrix_and_vector("mv", in[0], in[1]));
    return ac_c_squeeze(s, MM(in[0], ac_c_unsqueeze(s, in[1], 1)), 1);
}

static int need_vectors(const char *what, const ac_tensor *x, const ac_tensor *y) {
    if (x->ndim == 1 && y->ndim == 1 && x->numel == y->numel && x->dtype == y->dtype) return 0;
    return ac_fail(AC_RUNTIME,
                   "%s: needs two vectors of one length and dtype, got %d and %d dimensions, %" PRId64 " and %" PRId64
                   " elements, %s and %s",
                   what, x->ndim, y->ndim, x->numel, y->numel, ac_dtypes[x->dtype].name, ac_dtypes[y->dtype].name);
}

COMPOSE(dot) {
    NEED(need_vectors("dot", in[0], in[1]));
    T x = ac_c_wide(s, in[0]), y = ac_c_wide(s, in[1]);
    ac_attrs_reduce all = {{.n = -1}, 0, x ? x->dtype : AC_float32};
    return ac_c_cast(s, ac_c_call(s, AC_OP_sum, &all, 1, MUL(x, y)), in[0]->dtype);
}

/* beta x + alpha product; no value of x is looked at where beta is 0, nor of the product where alpha is, as in torch.
 * Their gradients are zeros then. */
static T blend(ac_scratch *s, T x, T product, const ac_attrs_addmm *a) {
    if (!product) return NULL;
    double alpha = ac_c_factor(a->alpha, product->dtype), beta = ac_c_factor(a->beta, product->dtype);
    ac_dims shape = ac_shape_of(product), wide = shape, given = ac_shape_of(x);
    NEED(ac_dims_broadcast(&wide, &given, "the sum of a tensor and a product"));
    if (!ac_dims_equal(&wide, &shape)) {
        char want[AC_SHAPE_TEXT], got[AC_SHAPE_TEXT];
        REFUSE(AC_RUNTIME, "a tensor of shape %s cannot be added to a product of shape %s", ac_shape_text(x, got),
               ac_shape_text(product, want));
    }
    if (alpha == 0) product = ac_c_cast(s, ac_c_zeros_of(s, product), product->dtype);
    else if (alpha != 1) product = TIMES(product, alpha);
    if (!product || (beta == 0 && !ac_c_records(x))) return product;
    x = ac_autocast.active ? ac_c_cast(s, x, product->dtype) : product->dtype == AC_float32 ? ac_c_wide(s, x) : x;
    if (beta == 0) return WHERE(BIN(ne, NUM(0), NUM(0)), x, product);
    return ADD(product, beta != 1 ? TIMES(x, beta) : x);
}

/* x blended with a b, products of half operands as the float32 sums that they are, and rounded once. `column`: b is
 * one, and so is their product. */
static const ac_attrs_product in_float32 = {AC_float32};
static T blended(ac_scratch *s, ac_op op, T x, T a, T b, bool column, const void *attrs) {
    ac_dtype chosen;
    if (!a || !b) return NULL;
    if (x->dtype != a->dtype && !ac_autocast.active)
        REFUSE(AC_RUNTIME, "%s: `x` and the operands of the product must have the same dtype, got %s and %s",
               ac_ops[op].shown, ac_dtypes[x->dtype].name, ac_dtypes[a->dtype].name);
    bool low = ac_autocast_casts((T[]){x, a, b}, 3, &chosen) && a->dtype != AC_float64 && b->dtype != AC_float64;
    ac_dtype dtype = low ? chosen : a->dtype;
    bool half = ac_is_half(dtype) && ac_is_floating(a->dtype) && (low || a->dtype == b->dtype);
    T product = ac_c_call(s, op, half ? &in_float32 : &plain, 2, a, b);
    if (column && product) product = ac_c_squeeze(s, product, 1);
    T y = blend(s, x, product, attrs);
    return half ? ac_c_cast(s, y, dtype) : y;
}

COMPOSE(addmm) { return blended(s, AC_OP_mm, in[0], in[1], in[2], false, attrs); }
COMPOSE(baddbmm) { return blended(s, AC_OP_bmm, in[0], in[1], in[2], false, attrs); }
COMPOSE(addmv) {
    NEED(need_matrix_and_vector("addmv", in[1], in[2]));
    return blended(s, AC_OP_mm, in[0], in[1], ac_c_unsqueeze(s, in[2], 1), true, attrs);
}

COMPOSE(addbmm) { /* one product over all batches: [n, b k] @ [b k, m] */
    T x = in[1], y = in[2];
    if (x->ndim != 3 || y->ndim != 3 || x->shape[0] != y->shape[0] || x->shape[2] != y->shape[1]) {
        char left[AC_SHAPE_TEXT], right[AC_SHAPE_TEXT];
        REFUSE(AC_RUNTIME, "addbmm: needs batches [b, n, k] and [b, k, m], got %s and %s", ac_shape_text(x, left),
               ac_shape_text(y, right));
    }
    ac_dims order = {3, {1, 0, 2}}, wide = {2, {x->shape[1], x->shape[0] * x->shape[2]}},
            tall = {2, {y->shape[0] * y->shape[1], y->shape[2]}};
    T left = ac_c_reshape(s, ac_c_permute(s, x, &order), &wide);
    return blended(s, AC_OP_mm, in[0], left, ac_c_reshape(s, y, &tall), false, attrs);
}

static T outer_product(ac_scratch *s, const char *what, T x, T y) {
    if (!x || !y) return NULL;
    if (x->ndim != 1 || y->ndim != 1)
        REFUSE(AC_RUNTIME, "%s: needs two vectors, got %d and %d dimensions", what, x->ndim, y->ndim);
    return MUL(ac_c_unsqueeze(s, x, 1), y);
}

COMPOSE(outer) { return outer_product(s, "outer", in[0], in[1]); }
COMPOSE(addr) {
    T x = ac_c_low(s, in, n_in, in[1]), y = ac_c_low(s, in, n_in, in[2]);
    if (!x || !y) return NULL;
    const ac_attrs_addmm *a = attrs;
    if (!ac_is_floating(x->dtype) && !ac_is_floating(y->dtype) &&
        (a->alpha.kind == AC_FLOAT || a->beta.kind == AC_FLOAT))
        REFUSE(AC_RUNTIME, "addr: `alpha` and `beta` of integer tensors must be integers");
    T base = in[0];
    if (!ac_autocast.active) { /* all three in one dtype, which a 0-d `x` decides as any other, as in torch */
        ac_dtype joint = ac_promote(base->dtype, ac_promote(x->dtype, y->dtype));
        base = ac_c_cast(s, base, joint), x = ac_c_cast(s, x, joint), y = ac_c_cast(s, y, joint);
        if (!base || !x || !y) return NULL;
    }
    T sum = blend(s, base, outer_product(s, "addr", ac_c_wide(s, x), ac_c_wide(s, y)), attrs);
    return ac_is_half(x->dtype) && x->dtype == y->dtype && sum ? ac_c_cast(s, sum, x->dtype) : sum;
}
COMPOSE(vdot) {
    NEED(need_vectors("vdot", in[0], in[1]));
    return BIN(dot, in[0], in[1]);
}
COMPOSE(wide) { return in[0]; }
COMPOSE(low) { return ac_c_low(s, in, n_in, in[0]); }

/* Leading dimensions broadcast to `batch`, flattened to one, the last two kept. */
static T as_batch(ac_scratch *s, T x, const ac_dims *batch, int64_t numel) {
    if (!x) return NULL;
    ac_dims wide = *batch;
    int64_t rows = x->shape[x->ndim - 2], cols = x->shape[x->ndim - 1];
    wide.v[wide.n++] = rows, wide.v[wide.n++] = cols;
    ac_dims flat = {3, {numel, rows, cols}};
    return ac_c_reshape(s, ac_c_expand(s, x, &wide), &flat);
}

static T batched_product(ac_scratch *s, T x, T y, const ac_attrs_product *to) {
    ac_dims batch = ac_shape_of(x), other = ac_shape_of(y);
    batch.n -= 2, other.n -= 2;
    NEED(ac_dims_broadcast(&batch, &other, "matmul"));
    if (batch.n + 2 > AC_MAX_DIMS) REFUSE(AC_RUNTIME, "matmul: more than %d dimensions", AC_MAX_DIMS);
    int64_t numel = ac_dims_numel(&batch);
    T product = ac_c_call(s, AC_OP_bmm, to, 2, as_batch(s, x, &batch, numel), as_batch(s, y, &batch, numel));
    if (!product) return NULL;
    ac_dims shape = batch;
    shape.v[shape.n++] = product->shape[1], shape.v[shape.n++] = product->shape[2];
    return ac_c_reshape(s, product, &shape);
}

/* Rows of x [..., n, k] against one matrix are one tall product. */
static T folded_product(ac_scratch *s, T x, T y) {
    int last = x->ndim - 1;
    int64_t width = x->shape[last];
    ac_dims rows = {2, {width ? x->numel / width : 0, width}}, shape = ac_shape_of(x);
    if (!width)
        for (int64_t d = rows.v[0] = 1; d <= last; d++) rows.v[0] *= x->shape[d - 1];
    shape.v[last] = y->shape[1];
    T product = MM(ac_c_reshape(s, x, &rows), y);
    return product ? ac_c_reshape(s, product, &shape) : NULL;
}

COMPOSE(matmul) {
    T x = in[0], y = in[1];
    if (x->ndim == 0 || y->ndim == 0) REFUSE(AC_RUNTIME, "matmul: 0-d operands cannot be multiplied; use *");
    bool vector_x = x->ndim == 1, vector_y = y->ndim == 1;
    if (vector_x) x = ac_c_unsqueeze(s, x, 0);
    if (vector_y) y = ac_c_unsqueeze(s, y, 1);
    if (!x || !y) return NULL;
    T product = x->ndim == 2 && y->ndim == 2 ? MM(x, y)
                : y->ndim == 2               ? folded_product(s, x, y)
                                             : batched_product(s, x, y, &plain);
    ac_attrs_maybe_dims drop = {{.n = 0}};
    if (vector_x) drop.dim.v[drop.dim.n++] = -2;
    if (vector_y) drop.dim.v[drop.dim.n++] = -1;
    return product && drop.dim.n ? ac_c_call(s, AC_OP_squeeze, &drop, 1, product) : product;
}

COMPOSE(inner) {
    T x = in[0], y = in[1];
    if (x->ndim == 0 || y->ndim == 0) return MUL(ac_c_low(s, in, n_in, x), ac_c_low(s, in, n_in, y));
    if (y->ndim == 1) return ac_c_product(s, x, y);
    ac_dims shape = ac_shape_of(x), tall = {2, {1, y->shape[y->ndim - 1]}};
    for (int d = 0; d + 1 < y->ndim; d++) tall.v[0] *= y->shape[d];
    T product = ac_c_product(s, x, ac_c_transpose(s, ac_c_reshape(s, y, &tall), 0, 1));
    shape.n--;
    for (int d = 0; d + 1 < y->ndim; d++) shape.v[shape.n++] = y->shape[d];
    return ac_c_reshape(s, product, &shape);
}

COMPOSE(vecdot) {
    ATTRS(one_dim);
    T x = in[0], y = in[1];
    ac_dims shape = ac_shape_of(x), other = ac_shape_of(y);
    NEED(ac_dims_broadcast(&shape, &other, "linalg.vecdot"));
    x = ac_c_transpose(s, ac_c_expand(s, x, &shape), a->dim, -1);
    y = ac_c_transpose(s, ac_c_expand(s, y, &shape), a->dim, -1);
    T product = ac_c_product(s, ac_c_unsqueeze(s, x, -2), ac_c_unsqueeze(s, y, -1));
    T sums = ac_c_squeeze(s, ac_c_squeeze(s, product, -1), -1); /* dim's place is taken by what was last */
    int64_t dim = a->dim;
    NEED(ac_dim_wrap(&dim, shape.n, "linalg.vecdot"));
    if (!sums || dim == shape.n - 1) return sums;
    ac_dims order = {.n = sums->ndim};
    for (int64_t d = 0; d < order.n; d++) order.v[d] = d < dim ? d : d + 1 < order.n ? d + 1 : dim;
    return ac_c_permute(s, sums, &order);
}

/* -- chains: the cheapest order, by dynamic programming (Cormen et al., Introduction to Algorithms, 15.2) -- */

enum { MAX_CHAIN = 32 };
typedef struct {
    int64_t size[MAX_CHAIN + 1]; /* matrix i is size[i] x size[i + 1] */
    double cost[MAX_CHAIN][MAX_CHAIN];
    int cut[MAX_CHAIN][MAX_CHAIN];
} chain;

static void plan_chain(chain *c, int n) {
    for (int i = 0; i < n; i++) c->cost[i][i] = 0;
    for (int length = 2; length <= n; length++)
        for (int i = 0; i + length <= n; i++) {
            int j = i + length - 1;
            c->cost[i][j] = INFINITY;
            for (int k = i; k < j; k++) {
                double here = (double)c->size[i] * (double)c->size[k + 1] * (double)c->size[j + 1];
                double cost = c->cost[i][k] + c->cost[k + 1][j] + here;
                if (cost < c->cost[i][j]) c->cost[i][j] = cost, c->cut[i][j] = k;
            }
        }
}

static T chain_part(ac_scratch *s, const chain *c, T const *m, int i, int j) { /* as deep as the chain is long */
    if (i == j) return m[i];
    return MM(chain_part(s, c, m, i, c->cut[i][j]), chain_part(s, c, m, c->cut[i][j] + 1, j));
}

static T cheapest(ac_scratch *s, T const *m, int n) {
    chain c;
    for (int i = 0; i < n; i++) c.size[i] = m[i]->shape[0], c.size[i + 1] = m[i]->shape[1];
    plan_chain(&c, n);
    return chain_part(s, &c, m, 0, n - 1);
}

/* -- longer chains: one pass, at most a sixth above the cheapest (Chin 1978, Hu and Shing 1981) -----------------------
 */

/* Whether the size between two matrices is so large that they go together at once; the other way would be to multiply
 * both sides by what has the `least` of all sizes. */
static bool goes_first(const ac_tensor *x, const ac_tensor *y, double least) {
    double outer = (double)x->shape[0], inner = (double)y->shape[0], other = (double)y->shape[1];
    return inner * least * (outer + other) > outer * other * (inner + least);
}

/* What is left when those are multiplied stays in front: m[0] to m[the result]. */
static int multiply_first(ac_scratch *s, T *m, int n, double least) {
    int top = 0;
    for (int i = 1; i < n; i++) {
        m[++top] = m[i];
        for (; top > 0 && goes_first(m[top - 1], m[top], least); top--) {
            m[top - 1] = MM(m[top - 1], m[top]);
            if (!m[top - 1]) return -1;
        }
    }
    return top;
}

static T nearly_cheapest(ac_scratch *s, T *m, int n) {
    int64_t least = m[n - 1]->shape[1];
    for (int i = 0; i < n; i++) least = m[i]->shape[0] < least ? m[i]->shape[0] : least;
    int last = multiply_first(s, m, n, (double)least), middle = 0;
    if (last < 0) return NULL;
    while (middle <= last && m[middle]->shape[0] != least) middle++; /* the least size is in front of this one */
    T left = NULL, right = NULL;
    for (int i = middle - 1; i >= 0; i--) left = left ? MM(m[i], left) : m[i];
    for (int i = middle; i <= last; i++) right = right ? MM(right, m[i]) : m[i];
    return !left ? right : !right ? left : MM(left, right);
}

/* The chain as matrices. */
static int matrices_of(ac_scratch *s, T const *in, int n, T *m) {
    for (int i = 0; i < n; i++) {
        bool row = i == 0 && in[i]->ndim == 1, column = i == n - 1 && in[i]->ndim == 1;
        m[i] = row ? ac_c_unsqueeze(s, in[i], 0) : column ? ac_c_unsqueeze(s, in[i], 1) : in[i];
        if (!m[i]) return -1;
        if (m[i]->ndim != 2)
            return ac_fail(
                AC_RUNTIME,
                "linalg.multi_dot: tensor %d must be a matrix (the first and last may be vectors), got %d dimensions",
                i, in[i]->ndim);
        if (i && m[i]->shape[0] != m[i - 1]->shape[1])
            return ac_fail(AC_RUNTIME,
                           "linalg.multi_dot: tensors %d and %d cannot be multiplied: inner sizes %" PRId64
                           " and %" PRId64,
                           i - 1, i, m[i - 1]->shape[1], m[i]->shape[0]);
    }
    return 0;
}

COMPOSE(multi_dot) {
    ac_list m;
    if (n_in < 2) REFUSE(AC_RUNTIME, "linalg.multi_dot: takes at least 2 tensors, got %d", n_in);
    NEED(ac_list_start(&m, n_in));
    bool failed = matrices_of(s, in, n_in, m.at) < 0;
    T product = failed              ? ac_c_refuse(s, -1)
                : n_in <= MAX_CHAIN ? cheapest(s, m.at, n_in)
                                    : nearly_cheapest(s, m.at, n_in);
    ac_list_free(&m);
    if (in[n_in - 1]->ndim == 1) product = ac_c_squeeze(s, product, 1);
    return in[0]->ndim == 1 ? ac_c_squeeze(s, product, 0) : product;
}

/* -- sums over chosen dimensions ------------------------------------------------------------------------ */

/* x as a matrix: the dimensions in `dims` last (or first), in that order, the others in their own. */
static T as_matrix(ac_scratch *s, T x, const ac_dims *dims, bool summed_first, ac_dims *kept) {
    uint32_t mask = 0;
    ac_dims order = {.n = 0}, sum = {.n = 0};
    int64_t inner = 1, outer = 1;
    for (int64_t i = 0; i < dims->n; i++) {
        int64_t d = dims->v[i];
        NEED(ac_dim_wrap(&d, x->ndim, "tensordot"));
        if (x->ndim == 0 || (mask & (1u << d))) REFUSE(AC_RUNTIME, "tensordot: dimension %" PRId64 " appears twice", d);
        mask |= 1u << d, sum.v[sum.n++] = d, inner *= x->shape[d];
    }
    for (int64_t i = 0; summed_first && i < sum.n; i++) order.v[order.n++] = sum.v[i];
    for (int d = 0; d < x->ndim; d++)
        if (!(mask & (1u << d))) order.v[order.n++] = d, kept->v[kept->n++] = x->shape[d], outer *= x->shape[d];
    for (int64_t i = 0; !summed_first && i < sum.n; i++) order.v[order.n++] = sum.v[i];
    ac_dims shape = {2, {summed_first ? inner : outer, summed_first ? outer : inner}};
    return ac_c_reshape(s, ac_c_permute(s, x, &order), &shape);
}

static T summed_to_one(ac_scratch *s, T x, int64_t dim) {
    ac_attrs_reduce one = {{1, {dim}}, true, x->dtype};
    return x->shape[dim] == 1 ? x : ac_c_call(s, AC_OP_sum, &one, 1, x);
}

COMPOSE(chain_matmul) {
    T out[AC_MAX_OUT] = {NULL};
    if (n_in == 1) return ac_c_low(s, in, n_in, in[0]);
    return ac_c_call_many(s, AC_OP_multi_dot, NULL, in, n_in, out) < 0 ? NULL : out[0];
}

COMPOSE(tensordot) {
    ATTRS(tensordot);
    ac_dims left = {.n = 0}, right = {.n = 0};
    T x = in[0], y = in[1];
    if (a->dims.n != a->other_dims.n)
        REFUSE(AC_RUNTIME, "tensordot: as many dimensions of each, got %" PRId64 " and %" PRId64, a->dims.n,
               a->other_dims.n);
    for (int64_t i = 0; i < a->dims.n; i++) {
        int64_t d = a->dims.v[i], e = a->other_dims.v[i];
        NEED(ac_dim_wrap(&d, x->ndim, "tensordot"));
        NEED(ac_dim_wrap(&e, y->ndim, "tensordot"));
        if (!x->ndim || !y->ndim || (x->shape[d] != y->shape[e] && x->shape[d] != 1 && y->shape[e] != 1))
            REFUSE(AC_RUNTIME,
                   "tensordot: dimension %" PRId64 " of `x` and %" PRId64 " of `other` have different sizes", d, e);
        /* a size of 1 stands for as many as the other has, so those are summed alone */
        if (x->shape[d] == 1) y = summed_to_one(s, y, e);
        else if (y->shape[e] == 1) x = summed_to_one(s, x, d);
        if (!x || !y) return NULL;
    }
    x = as_matrix(s, x, &a->dims, false, &left), y = as_matrix(s, y, &a->other_dims, true, &right);
    if (!x || !y) return NULL;
    if (left.n + right.n > AC_MAX_DIMS)
        REFUSE(AC_RUNTIME, "tensordot: the result would have more than %d dimensions", AC_MAX_DIMS);
    for (int64_t i = 0; i < right.n; i++) left.v[left.n++] = right.v[i];
    return ac_c_reshape(s, MM(x, y), &left);
}

COMPOSE(bilinear) {
    T x = in[0], y = in[1], w = in[2];
    for (int k = 1; k < 4; k++)
        if (in[k] && in[k]->dtype != x->dtype)
            REFUSE(AC_RUNTIME, "bilinear: inputs, weight and bias must have the same dtype, got %s and %s",
                   ac_dtypes[x->dtype].name, ac_dtypes[in[k]->dtype].name);
    if (w->ndim != 3 || !x->ndim || x->ndim != y->ndim || x->shape[x->ndim - 1] != w->shape[1] ||
        y->shape[y->ndim - 1] != w->shape[2]) {
        char xt[AC_SHAPE_TEXT], yt[AC_SHAPE_TEXT], wt[AC_SHAPE_TEXT];
        REFUSE(AC_RUNTIME, "bilinear: `weight` %s [out, in1, in2] does not fit inputs %s and %s", ac_shape_text(w, wt),
               ac_shape_text(x, xt), ac_shape_text(y, yt));
    }
    for (int d = 0; d < x->ndim - 1; d++)
        if (x->shape[d] != y->shape[d])
            REFUSE(AC_RUNTIME, "bilinear: dimension %d of the inputs must be the same, got %" PRId64 " and %" PRId64, d,
                   x->shape[d], y->shape[d]);
    int64_t outs = w->shape[0];
    ac_dtype dtype = x->dtype;
    x = ac_c_wide(s, x), y = ac_c_wide(s, y), w = ac_c_wide(s, w);
    if (!x || !y || !w) return NULL;
    ac_dims order = {3, {1, 0, 2}}, flat = {2, {w->shape[1], outs * w->shape[2]}}, shape = ac_shape_of(x);
    T mixed = ac_c_product(s, x, ac_c_reshape(s, ac_c_permute(s, w, &order), &flat));
    shape.v[shape.n - 1] = outs, shape.v[shape.n++] = w->shape[2];
    T each = MUL(ac_c_reshape(s, mixed, &shape), ac_c_unsqueeze(s, y, -2));
    T sums = ac_c_sum(s, each, -1);
    T all = in[3] ? ADD(sums, in[3]) : sums;
    return ac_c_cast(s, all, dtype); /* of integers, too, whose sums are int64 */
}

COMPOSE(cross) {
    ATTRS(maybe_one_dim);
    ac_dims shape = ac_shape_of(in[0]), other = ac_shape_of(in[1]);
    if (in[0]->dtype != in[1]->dtype)
        REFUSE(AC_RUNTIME, "cross: `x` and `other` must have the same dtype, got %s and %s",
               ac_dtypes[in[0]->dtype].name, ac_dtypes[in[1]->dtype].name);
    if (shape.n != other.n)
        REFUSE(AC_RUNTIME, "cross: both tensors must have as many dimensions, got %" PRId64 " and %" PRId64, shape.n,
               other.n);
    int64_t dim = a->dim == AC_ABSENT ? 0 : a->dim;
    if (a->dim != AC_ABSENT) NEED(ac_dim_wrap(&dim, (int)(shape.n > other.n ? shape.n : other.n), "cross"));
    NEED(ac_dims_broadcast(&shape, &other, "cross"));
    if (a->dim == AC_ABSENT)
        while (dim < shape.n && shape.v[dim] != 3) dim++;
    if (dim >= shape.n || shape.v[dim] != 3)
        REFUSE(AC_RUNTIME, "cross: needs a dimension of size 3, got shape %s",
               ac_dims_text(&shape, (char[AC_SHAPE_TEXT]){0}));
    T x = ac_c_expand(s, ac_c_wide(s, in[0]), &shape), y = ac_c_expand(s, ac_c_wide(s, in[1]), &shape);
    T part[3], out[AC_MAX_OUT]; /* differences of products: rounded once, at the end */
    for (int i = 0; i < 3; i++) {
        int j = (i + 1) % 3, k = (i + 2) % 3;
        T plus = MUL(ac_c_select(s, x, dim, j), ac_c_select(s, y, dim, k));
        part[i] = SUB(plus, MUL(ac_c_select(s, x, dim, k), ac_c_select(s, y, dim, j)));
    }
    ac_attrs_one_dim at = {dim};
    if (ac_c_call_many(s, AC_OP_stack, &at, part, 3, out) < 0) return NULL;
    return ac_c_cast(s, out[0], ac_result_type(in, 2));
}

/* -- attention ------------------------------------------------------------------------------------------- */

/* True below the diagonal that ends in the upper left corner. */
static T causal_mask(ac_scratch *s, int64_t rows, int64_t cols, ac_device device) {
    ac_dims column = {2, {rows, 1}};
    return BIN(ge, ac_c_reshape(s, ac_c_arange(s, rows, device), &column), ac_c_arange(s, cols, device));
}

/* The mask, and nothing above the diagonal. */
static T below_diagonal(ac_scratch *s, T mask, T q, T k) {
    T below = causal_mask(s, q->shape[q->ndim - 2], k->shape[k->ndim - 2], ac_device_of(q));
    return mask->dtype == AC_bool ? BIN(logical_and, mask, below) : WHERE(below, mask, NUM(-INFINITY));
}

static T shared_heads(ac_scratch *s, T x, T query) { /* one key for several queries: repeated along dimension -3 */
    int at = x->ndim - 3;
    int64_t each = x->shape[at] ? query->shape[at] / x->shape[at] : 0;
    if (each * x->shape[at] != query->shape[at])
        REFUSE(AC_RUNTIME, "scaled_dot_product_attention: %" PRId64 " heads of the query are no multiple of %" PRId64,
               query->shape[at], x->shape[at]);
    ac_dims wide = ac_shape_of(x), flat = wide;
    for (int64_t d = wide.n++; d > at + 1; d--) wide.v[d] = wide.v[d - 1];
    wide.v[at + 1] = each, flat.v[at] = query->shape[at];
    return ac_c_reshape(s, ac_c_expand(s, ac_c_unsqueeze(s, x, at + 1), &wide), &flat);
}

/* With its last dimension contiguous. */
static T with_dense_rows(ac_scratch *s, T x) {
    return !x || x->shape[x->ndim - 1] <= 1 || x->strides[x->ndim - 1] == 1 ? x : UN(in_rows, x);
}

/* Whether the device has a kernel that keeps no scores and takes these: the CPU's knows no dropout, and gives a mask no
 * gradient. */
static bool has_kernel(const ac_tensor *q, const ac_tensor *v, const ac_tensor *mask, const ac_attrs_attention *a) {
    const ac_backend *backend = ac_backend_of(ac_device_of(q));
    if (ac_device_of(q) == AC_CPU) return a->dropout_p == 0 && !(mask && ac_requires_grad(mask));
    return backend->attends && backend->attends(q, v, ac_autocast.active ? ac_autocast.dtype : q->dtype);
}

/* Whether that kernel is called: nothing is broadcast. */
static bool is_fused(T const *in, T k, T v, T mask, const ac_attrs_attention *a) {
    const ac_tensor *q = in[0];
    bool fits = has_kernel(q, v, mask, a);
    bool same = ac_autocast.active ? q->dtype != AC_float64 && k->dtype != AC_float64 && v->dtype != AC_float64
                                   : q->dtype == k->dtype && q->dtype == v->dtype;
    fits = fits && same && q->ndim == k->ndim && q->ndim == v->ndim && q->shape[q->ndim - 1] == k->shape[k->ndim - 1];
    for (int d = 0; fits && d + 2 < q->ndim; d++) fits = q->shape[d] == k->shape[d] && q->shape[d] == v->shape[d];
    return fits && k->shape[k->ndim - 2] == v->shape[v->ndim - 2] && k->shape[k->ndim - 2] > 0;
}

static T whole_mask(ac_scratch *s, T mask, T q, T k) {
    if (!mask) return ABSENT;
    ac_dims shape = ac_shape_of(q);
    shape.v[shape.n - 1] = k->shape[k->ndim - 2];
    return ac_c_expand(s, mask, &shape);
}

/* q k^T. For 16-bit operands the result is float32, as in the fused kernel. In bfloat16 a score of 50 would be wrong by
 * up to 1/8, and the weights with it. */
static T attention_scores(ac_scratch *s, T q, T k) {
    T turned = ac_c_transpose(s, k, -2, -1);
    if (!q || !turned || !ac_is_half(q->dtype) || q->dtype != k->dtype) return ac_c_product(s, q, turned);
    return batched_product(s, q, turned, &(ac_attrs_product){AC_float32});
}

static T attention_by_parts(ac_scratch *s, T q, T k, T v, T mask, double scale, const ac_attrs_attention *a) {
    T both[2] = {q, k}, low = ac_c_low(s, both, 2, q);
    T scores = TIMES(attention_scores(s, low, ac_c_low(s, both, 2, k)), scale);
    if (a->is_causal) mask = causal_mask(s, q->shape[q->ndim - 2], k->shape[k->ndim - 2], ac_device_of(q));
    bool keeps = mask && mask->dtype == AC_bool;
    if (keeps) scores = WHERE(mask, scores, NUM(-INFINITY));
    else if (mask && scores) scores = ADD(scores, ac_c_cast(s, mask, scores->dtype));
    if (!low || !scores) return NULL;
    ac_attrs_softmax last = {-1, AC_NO_DTYPE};
    T weights = ac_c_cast(s, ac_c_call(s, AC_OP_safe_softmax, &last, 1, scores), low->dtype);
    ac_attrs_dropout drop = {a->dropout_p, 1};
    if (a->dropout_p > 0) weights = ac_c_call(s, AC_OP_dropout, &drop, 1, weights);
    return ac_c_product(s, weights, v);
}

/* The GPU's kernel, which reads 16 bits alone. A 16-bit mask that is trained is widened, so that its gradient's sums
 * are rounded once. */
static T flash_attention(ac_scratch *s, T q, T k, T v, T mask, double scale, const ac_attrs_attention *a) {
    ac_attrs_flash_attention flash = {.scale = scale, .is_causal = a->is_causal};
    int64_t keys = k->shape[k->ndim - 2], width = q->shape[q->ndim - 1];
    if (a->dropout_p != 0) NEED(ac_c_draw_mask(a->dropout_p, q->numel / width * keys, &flash.drop));
    if (mask && ac_is_half(mask->dtype) && ac_requires_grad(mask)) mask = ac_c_cast(s, mask, AC_float32);
    T all[3] = {q, k, v}, low[3];
    for (int i = 0; i < 3; i++) low[i] = with_dense_rows(s, ac_c_low(s, all, 3, all[i]));
    return ac_c_call(s, AC_OP_flash_attention, &flash, 4, low[0], low[1], low[2], whole_mask(s, mask, q, k));
}

/* What does not go together, by the names that the caller gave it. */
static int check_attention(const ac_tensor *q, const ac_tensor *k, const ac_tensor *v) {
    const char *why = NULL;
    bool typed = ac_autocast.active || (q->dtype == k->dtype && q->dtype == v->dtype);
    if (!typed) why = "one dtype";
    else if (q->shape[q->ndim - 1] != k->shape[k->ndim - 1]) why = "as many features in query as in key";
    else if (k->shape[k->ndim - 2] != v->shape[v->ndim - 2]) why = "as many rows in key as in value";
    for (int d = 3; !why && d <= q->ndim && d <= k->ndim && d <= v->ndim; d++) {
        int64_t a = q->shape[q->ndim - d], b = k->shape[k->ndim - d], c = v->shape[v->ndim - d];
        if ((a != b && a != 1 && b != 1) || (b != c && b != 1 && c != 1) || (a != c && a != 1 && c != 1))
            why = "batches, and heads, that broadcast (enable_gqa=True lets several heads of the query share one)";
    }
    if (!why) return 0;
    char of_q[AC_SHAPE_TEXT], of_k[AC_SHAPE_TEXT], of_v[AC_SHAPE_TEXT];
    return ac_fail(AC_RUNTIME, "scaled_dot_product_attention: needs %s, got query %s %s, key %s %s and value %s %s",
                   why, ac_dtypes[q->dtype].name, ac_shape_text(q, of_q), ac_dtypes[k->dtype].name,
                   ac_shape_text(k, of_k), ac_dtypes[v->dtype].name, ac_shape_text(v, of_v));
}

static int check_mask(const ac_tensor *mask, const ac_tensor *q, const ac_tensor *k) {
    if (mask->dtype != AC_bool && !ac_is_floating(mask->dtype))
        return ac_fail(AC_RUNTIME,
                       "scaled_dot_product_attention: `attn_mask` must be bool, True where a query looks, or floating "
                       "point, which is added to the scores; got %s: convert it with .bool() or .to(query.dtype)",
                       ac_dtypes[mask->dtype].name);
    int64_t keys = k->shape[k->ndim - 2], queries = q->shape[q->ndim - 2];
    bool fits = true;
    for (int d = 1; fits && d <= mask->ndim; d++) {
        int64_t size = mask->shape[mask->ndim - d], want = d == 1 ? keys : d > q->ndim ? 1 : q->shape[q->ndim - d];
        fits = size == 1 || size == want || (d > 2 && want == 1);
    }
    if (fits) return 0;
    char text[AC_SHAPE_TEXT];
    return ac_fail(AC_RUNTIME,
                   "scaled_dot_product_attention: `attn_mask` %s does not broadcast to the scores [..., %" PRId64
                   ", %" PRId64 "], a row for each query and a column for each key",
                   ac_shape_text(mask, text), queries, keys);
}

COMPOSE(attention) {
    ATTRS(attention);
    T q = in[0], k = in[1], v = in[2], mask = in[3];
    if (q->ndim < 2 || k->ndim < 2 || v->ndim < 2)
        REFUSE(AC_RUNTIME, "scaled_dot_product_attention: query, key and value need at least 2 dimensions");
    if (a->enable_gqa && q->ndim > 2 && k->ndim == q->ndim) k = shared_heads(s, k, q), v = shared_heads(s, v, q);
    if (!k || !v) return NULL;
    if (mask) NEED(check_mask(mask, q, k));
    ac_attrs_attention one = *a; /* of the mask and is_causal */
    if (mask && a->is_causal) mask = below_diagonal(s, mask, q, k), one.is_causal = 0;
    double scale = a->scale.kind == AC_NONE ? 1 / sqrt((double)q->shape[q->ndim - 1]) : ac_scalar_double(a->scale);
    if (!is_fused(in, k, v, mask, &one)) {
        NEED(check_attention(q, k, v));
        return attention_by_parts(s, q, k, v, mask, scale, &one);
    }
    if (ac_device_of(q) != AC_CPU) return flash_attention(s, q, k, v, mask, scale, &one);
    ac_attrs_fused_attention fused = {scale, one.is_causal, AC_NO_DTYPE};
    return ac_c_call(s, AC_OP_fused_attention, &fused, 4, with_dense_rows(s, q), with_dense_rows(s, k),
                     with_dense_rows(s, v), whole_mask(s, mask, q, k));
}
