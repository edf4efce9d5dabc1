/* Convolution kernels: they select the implicit product (conv_implicit.c, conv_wgrad.c), the depthwise loops
 * (conv_depthwise.c), or products with im2col columns, which are in this file. All of them accumulate in float32 and
 * round once, as the matrix product does. */
#include "cpu/kernels.h"

#include "base/ways.h"
#include "cpu/conv/im2col.h"

#include <math.h>
#include <string.h>

/* One call, and memory for one image of one group. */
typedef struct {
    const ac_run *r;
    ac_windows w;
    int64_t groups, images;
    int64_t inner, outer; /* channels of a group on the columns' side and on the other */
    int64_t taps, positions, pixels;
    ac_dtype dtype; /* of columns and image */
    ac_dims image_shape;
    char *image, *columns;
    size_t image_bytes, column_bytes;
} convolution;

static int open_convolution(convolution *c, const ac_dims *spatial, ac_dtype dtype, bool with_ones) {
    c->taps = ac_product3(c->w.kernel), c->positions = ac_product3(c->w.out), c->pixels = ac_product3(c->w.in);
    c->dtype = dtype;
    c->image_shape = (ac_dims){spatial->n + 1, {c->inner}};
    for (int64_t d = 0; d < spatial->n; d++) c->image_shape.v[d + 1] = spatial->v[d];
    c->image_bytes = (size_t)(c->inner * c->pixels * ac_itemsize(dtype)) + 1;
    c->column_bytes = (size_t)((c->inner * c->taps + with_ones) * c->positions * ac_itemsize(dtype)) + 1;
    c->image = ac_alloc(c->image_bytes);
    c->columns = c->image ? ac_alloc(c->column_bytes) : NULL;
    if (c->columns) return 0;
    if (c->image) ac_free(c->image, c->image_bytes);
    return -1;
}

static void close_convolution(convolution *c) {
    ac_free(c->columns, c->column_bytes);
    ac_free(c->image, c->image_bytes);
}

static void unfold_from(convolution *c, const ac_tensor *x, int64_t n, int64_t group) {
    ac_storage memory;
    ac_tensor image = ac_tensor_over(&memory, c->image, c->dtype, &c->image_shape),
              from = ac_part_of(x, n, group * c->inner, c->inner);
    ac_cpu_copy_into(&image, &from);
    ac_cpu_unfold_image(&c->w, c->inner, ac_itemsize(c->dtype), c->image, c->columns);
}

/* out [m, n] (+)= a [m, k] b [k, n] */
static int multiply(const convolution *c, ac_tensor *a, ac_tensor *b, ac_tensor *out, bool add) {
    ac_tensor *in[2] = {a, b}, *to[1] = {out};
    ac_attrs_product plain = {AC_NO_DTYPE};
    ac_run product = {.op = AC_OP_mm,
                      .in = in,
                      .n_in = 2,
                      .attrs = &plain,
                      .out = to,
                      .n_out = 1,
                      .compute = c->r->compute,
                      .add = add};
    return ac_cpu_mm(&product);
}

static ac_tensor matrix(ac_storage *s, void *data, ac_dtype dtype, int64_t rows, int64_t cols) {
    ac_dims shape = {2, {rows, cols}};
    return ac_tensor_over(s, data, dtype, &shape);
}
static ac_tensor transposed(ac_tensor t) {
    int64_t size = t.shape[0], stride = t.strides[0];
    t.shape[0] = t.shape[1], t.strides[0] = t.strides[1];
    t.shape[1] = size, t.strides[1] = stride;
    return t;
}

/* The weight as [out, inner * taps (+ 1: the bias)] in the dtype of the columns. */
static char *dense_weight(const convolution *c, const ac_tensor *w, const ac_tensor *bias, size_t *bytes) {
    int64_t rows = w->shape[0], k = rows ? w->numel / rows : 0, wide = k + (bias != NULL), item = ac_itemsize(c->dtype);
    *bytes = (size_t)(rows * wide * item) + 1;
    char *data = ac_alloc(*bytes);
    if (!data) return NULL;
    ac_storage memory;
    ac_dims shape = ac_shape_of(w), vector = {1, {rows}};
    ac_tensor to = ac_tensor_over(&memory, data, c->dtype, &shape);
    for (int d = 0; d < 1; d++) to.strides[d] = wide;
    ac_cpu_copy_into(&to, w);
    if (!bias) return data;
    ac_tensor last = ac_tensor_over(&memory, data, c->dtype, &vector);
    last.offset = k, last.strides[0] = wide;
    ac_cpu_copy_into(&last, bias);
    return data;
}

/* y[n, g] = weight[g] columns(x[n, g]); the bias is one more row of ones below the columns. */
static int forward(convolution *c, const ac_tensor *bias) {
    const ac_tensor *x = c->r->in[0], *w = c->r->in[1];
    ac_tensor *y = c->r->out[0];
    size_t bytes;
    int64_t k = c->inner * c->taps, wide = k + (bias != NULL), item = ac_itemsize(c->dtype);
    AC_WAY(columns_forward);
    char *weight = dense_weight(c, w, bias, &bytes);
    if (!weight) return -1;
    ac_storage s[4];
    ac_dims vector = {1, {c->positions}}, none = {.n = 0};
    if (bias) {
        double one = 1;
        ac_tensor ones = ac_tensor_over(&s[0], c->columns + k * c->positions * item, c->dtype, &vector),
                  number = ac_tensor_over(&s[1], &one, AC_float64, &none);
        ac_cpu_copy_into(&ones, &number);
    }
    int failed = 0;
    for (int64_t i = 0; i < c->images * c->groups && !failed; i++) {
        int64_t n = i / c->groups, g = i % c->groups;
        unfold_from(c, x, n, g);
        ac_tensor a = matrix(&s[0], weight + g * c->outer * wide * item, c->dtype, c->outer, wide);
        ac_tensor b = matrix(&s[1], c->columns, c->dtype, wide, c->positions);
        ac_tensor out = matrix(&s[2], (char *)ac_data(y) + i * c->outer * c->positions * ac_itemsize(y->dtype),
                               y->dtype, c->outer, c->positions);
        failed = multiply(c, &a, &b, &out, false);
        if (ac_poll()) break;
    }
    ac_free(weight, bytes);
    return failed;
}

/* y[n, g] = fold(weight[g]^T x[n, g]) + bias */
static int backward(convolution *c, const ac_tensor *bias) {
    const ac_tensor *x = c->r->in[0], *w = c->r->in[1];
    ac_tensor *y = c->r->out[0];
    size_t weight_bytes, input_bytes = (size_t)(c->outer * c->positions * ac_itemsize(w->dtype)) + 1;
    ac_dtype opmath_dtype = c->dtype;
    ac_opmath opmath = ac_opmath_of(opmath_dtype);
    int64_t k = c->inner * c->taps;
    AC_WAY(columns_transposed);
    double *add = bias ? ac_alloc((size_t)(bias->numel + 1) * sizeof *add) : NULL;
    for (int64_t i = 0; add && i < bias->numel; i++)
        add[i] = ac_read_double(ac_data(bias), bias->dtype, i * bias->strides[0]);
    c->dtype = w->dtype;
    char *weight = bias && !add ? NULL : dense_weight(c, w, NULL, &weight_bytes);
    char *input = weight ? ac_alloc(input_bytes) : NULL;
    int failed = input ? 0 : -1;
    ac_storage s[4];
    ac_dims flat = c->image_shape;
    flat.v[0] = c->outer;
    for (int64_t d = 1; d < flat.n; d++) flat.v[d] = c->w.out[3 - (flat.n - 1) + d - 1];
    for (int64_t i = 0; i < c->images * c->groups && !failed; i++) {
        int64_t n = i / c->groups, g = i % c->groups;
        ac_tensor dense = ac_tensor_over(&s[0], input, w->dtype, &flat),
                  from = ac_part_of(x, n, g * c->outer, c->outer);
        ac_cpu_copy_into(&dense, &from);
        ac_tensor a =
            transposed(matrix(&s[1], weight + g * c->outer * k * ac_itemsize(w->dtype), w->dtype, c->outer, k));
        ac_tensor b = matrix(&s[0], input, w->dtype, c->outer, c->positions);
        ac_tensor columns = matrix(&s[2], c->columns, opmath_dtype, k, c->positions);
        failed = multiply(c, &a, &b, &columns, false);
        if (failed || ac_poll()) break;
        ac_cpu_fold_image(&c->w, c->inner, opmath, c->columns, add ? add + g * c->inner : NULL, c->image);
        ac_tensor sums = ac_tensor_over(&s[3], c->image, opmath_dtype, &c->image_shape),
                  to = ac_part_of(y, n, g * c->inner, c->inner);
        ac_cpu_copy_into(&to, &sums);
    }
    if (input) ac_free(input, input_bytes);
    if (weight) ac_free(weight, weight_bytes);
    if (add) ac_free(add, (size_t)(bias->numel + 1) * sizeof *add);
    c->dtype = opmath_dtype;
    return failed;
}

static ac_dims spatial_of(const ac_tensor *t) {
    ac_dims s = {.n = t->ndim - 2};
    for (int64_t d = 0; d < s.n; d++) s.v[d] = t->shape[d + 2];
    return s;
}

/* Columns in what the product rounds to, where that is known to be exact. */
static ac_dtype column_dtype(const ac_run *r) { return r->in[0]->dtype == AC_float64 ? AC_float64 : r->compute; }

int ac_cpu_convolution(const ac_run *r) {
    ATTRS(convolution);
    const ac_tensor *x = r->in[0], *w = r->in[1], *bias = r->in[2];
    ac_dims kernel = spatial_of(w), size = spatial_of(a->transposed ? r->out[0] : x);
    convolution c = {.r = r, .groups = a->groups, .images = x->shape[0]};
    AC_TRY(ac_convolution_windows(&c.w, x, &kernel, a));
    c.inner = w->shape[1], c.outer = w->shape[0] / a->groups;
    if (ac_direct_fits(&c.w, c.inner, c.outer, column_dtype(r))) return ac_direct_convolution(r, &c.w);
    if (ac_depthwise_fits(&c.w, c.groups, c.inner, c.outer, column_dtype(r))) return ac_depthwise_convolution(r, &c.w);
    bool wide = x->dtype == AC_float64 || r->out[0]->dtype == AC_float64;
    ac_dtype dtype = !a->transposed ? column_dtype(r) : wide ? AC_float64 : AC_float32;
    AC_TRY(open_convolution(&c, &size, dtype, bias && !a->transposed));
    int failed = a->transposed ? backward(&c, bias) : forward(&c, bias);
    close_convolution(&c);
    return failed;
}

/* dW as a product of g with columns, whose windows hold what they read and nothing else. */
static int columns_weight(convolution *c, const ac_run *r) {
    const ac_tensor *x = r->in[0], *g = r->in[1];
    ac_tensor *out = r->out[0];
    ac_dims size = spatial_of(x);
    AC_TRY(open_convolution(c, &size, column_dtype(r), false));
    bool wide = x->dtype == AC_float64 || out->dtype == AC_float64;
    ac_dtype sum = wide ? AC_float64 : AC_float32;
    int64_t k = c->inner * c->taps;
    size_t sum_bytes = (size_t)(out->numel * ac_itemsize(sum)) + 1,
           g_bytes = (size_t)(c->outer * c->positions * ac_itemsize(c->dtype)) + 1;
    char *sums = ac_alloc(sum_bytes), *dense = sums ? ac_alloc(g_bytes) : NULL;
    int failed = dense ? 0 : -1;
    if (!failed) memset(sums, 0, sum_bytes);
    ac_storage s[3];
    ac_dims positions = c->image_shape, shape = ac_shape_of(out);
    positions.v[0] = c->outer;
    for (int64_t d = 1; d < positions.n; d++) positions.v[d] = g->shape[d + 1];
    for (int64_t i = 0; i < c->images * c->groups && !failed; i++) {
        int64_t n = i / c->groups, group = i % c->groups;
        unfold_from(c, x, n, group);
        ac_tensor to = ac_tensor_over(&s[0], dense, c->dtype, &positions),
                  from = ac_part_of(g, n, group * c->outer, c->outer);
        ac_cpu_copy_into(&to, &from);
        ac_tensor left = matrix(&s[0], dense, c->dtype, c->outer, c->positions);
        ac_tensor right = transposed(matrix(&s[1], c->columns, c->dtype, k, c->positions));
        ac_tensor total = matrix(&s[2], sums + group * c->outer * k * ac_itemsize(sum), sum, c->outer, k);
        failed = multiply(c, &left, &right, &total, true);
        if (ac_poll()) break;
    }
    ac_tensor all = ac_tensor_over(&s[0], sums, sum, &shape);
    if (!failed) ac_cpu_copy_into(out, &all);
    if (dense) ac_free(dense, g_bytes);
    if (sums) ac_free(sums, sum_bytes);
    close_convolution(c);
    return failed;
}

static bool may_have_nonfinite(const ac_tensor *t) { return !ac_is_contiguous(t) || !isfinite(ac_cpu_largest(t)); }

int ac_cpu_convolution_weight(const ac_run *r) {
    ATTRS(convolution_weight);
    const ac_tensor *x = r->in[0], *g = r->in[1];
    ac_window_lists l = {"convolution", &a->kernel, &a->stride, &a->padding, &a->dilation, false};
    convolution c = {.r = r, .groups = a->groups, .images = x->shape[0]};
    AC_TRY(ac_windows_of(&c.w, &l, x->shape + 2, a->kernel.n));
    c.inner = x->shape[1] / a->groups, c.outer = g->shape[1] / a->groups;
    bool direct = ac_direct_fits(&c.w, c.inner, c.outer, column_dtype(r));
    if (!direct && !ac_depthwise_fits(&c.w, c.groups, c.inner, c.outer, column_dtype(r))) {
        AC_WAY(columns_weight);
        return columns_weight(&c, r);
    }
    AC_TRY(direct ? ac_direct_convolution_weight(r, &c.w) : ac_depthwise_convolution_weight(r, &c.w));
    if (!may_have_nonfinite(r->out[0]) || !may_have_nonfinite(x)) return 0;
    AC_WAY(columns_weight_again); /* both ways multiply some pixels by zeros, where no window is */
    return columns_weight(&c, r);
}
