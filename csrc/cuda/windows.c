/* Convolution by im2col columns, pooling and resampling on a GPU: the host side of windows.cu. */
#include "cuda/gpu.h"

#include "shared/tensor_iter.h"
#include "ops/window_args.h"

#define KERNELS(id) static ac_gpu_kernel id[AC_N_OPMATHS] = AC_GPU_BY_OPMATH(AC_IMAGE_WINDOWS, "ac_" #id);
KERNELS(im2col)
KERNELS(col2im)
KERNELS(max_pool)
KERNELS(max_pool_backward)
KERNELS(avg_pool)
KERNELS(avg_pool_backward)
KERNELS(resample)
#undef KERNELS
static ac_gpu_kernel max_pool_flat = {.image = AC_IMAGE_WINDOWS, .name = "ac_max_pool_flat"},
                     max_pool_backward_flat = {.image = AC_IMAGE_WINDOWS, .name = "ac_max_pool_backward_flat"};

/* -- columns ------------------------------------------------------------------------------------------ */

/* Images [first, first + images) and channels [channel, channel + channels) of x, and their columns. */
static ac_gpu_columned columned(const ac_windows *w, const ac_tensor *x, int64_t first, int64_t images, int64_t channel,
                                int64_t channels) {
    ac_tensor part = *x;
    part.offset += first * x->strides[0] + channel * x->strides[1];
    ac_gpu_columned a = {.w = *w, .x = ac_gpu_ref_of(&part), .images = images, .channels = channels};
    a.x_stride[0] = x->strides[0], a.x_stride[1] = x->strides[1];
    for (int d = 2; d < x->ndim; d++) a.x_stride[5 - x->ndim + d] = x->strides[d];
    return a;
}

static void with_columns(ac_gpu_columned *a, const ac_tensor *columns, int64_t row_stride, int64_t image_stride) {
    a->columns = ac_gpu_ref_of(columns), a->row_stride = row_stride, a->image_stride = image_stride;
}

static int opmath_of(const ac_tensor *x, const ac_tensor *y) {
    return x->dtype == AC_float64 || y->dtype == AC_float64 ? AC_OPMATH_F64 : AC_OPMATH_F32;
}

static int launch_columned(ac_device d, ac_gpu_kernel *kernels, int opmath, bool to_columns, const ac_gpu_columned *a) {
    int64_t n = a->images * a->channels *
                (to_columns ? ac_product3(a->w.kernel) * ac_product3(a->w.out) : ac_product3(a->w.in));
    return n ? ac_gpu_launch(d, &kernels[opmath], ac_gpu_blocks(d, n, 1), 0, a) : 0;
}

int ac_cuda_im2col(const ac_run *r) {
    ATTRS(im2col);
    const ac_tensor *x = r->in[0], *y = r->out[0];
    ac_window_lists l = {"unfold", &a->kernel, &a->stride, &a->padding, &a->dilation, false};
    ac_windows w;
    AC_TRY(ac_windows_of(&w, &l, x->shape + 2, a->kernel.n));
    ac_gpu_columned args = columned(&w, x, 0, x->shape[0], 0, x->shape[1]);
    with_columns(&args, y, y->strides[1], y->strides[0]);
    return launch_columned(ac_run_device(r), im2col, opmath_of(x, y), true, &args);
}

int ac_cuda_col2im(const ac_run *r) {
    ATTRS(col2im);
    const ac_tensor *y = r->out[0];
    ac_window_lists l = {"fold", &a->kernel, &a->stride, &a->padding, &a->dilation, false};
    ac_windows w;
    AC_TRY(ac_windows_of(&w, &l, a->size.v, a->kernel.n));
    ac_tensor *columns = ac_gpu_contiguous(r->in[0]);
    if (!columns) return -1;
    ac_gpu_columned args = columned(&w, y, 0, y->shape[0], 0, y->shape[1]);
    with_columns(&args, columns, columns->strides[1], columns->strides[0]);
    int failed = launch_columned(ac_run_device(r), col2im, opmath_of(columns, y), false, &args);
    ac_tensor_release(columns);
    return failed;
}

/* -- convolution ---------------------------------------------------------------------------------------- */

enum { MOST_COLUMNS = 256 << 20 }; /* bytes; more images go in several rounds */

typedef struct {
    const ac_run *r;
    ac_device d;
    ac_windows w;
    int64_t groups, images, chunk;
    int64_t inner, outer; /* channels of a group on the columns' side and on the other */
    int64_t k, positions;
    ac_dtype dtype;  /* that the products round to */
    ac_tensor *bias; /* contiguous, or NULL */
} convolution;

static void plan_chunks(convolution *c) {
    int64_t each = c->k * c->positions * ac_itemsize(c->dtype) + 1;
    c->chunk = MOST_COLUMNS / each > 1 ? MOST_COLUMNS / each : 1;
    if (c->chunk > c->images) c->chunk = c->images > 0 ? c->images : 1;
}

static ac_tensor *fresh(const convolution *c, ac_dtype dtype, int64_t a, int64_t b, int64_t e) {
    ac_dims shape = {3, {a, b, e}};
    return ac_tensor_new_on(c->d, dtype, &shape);
}

/* t seen as [n, rows, cols] with these strides, `offset` further on: new. */
static ac_tensor *seen(const ac_tensor *t, int64_t offset, const int64_t size[3], const int64_t stride[3]) {
    ac_dims shape = {3, {size[0], size[1], size[2]}}, strides = {3, {stride[0], stride[1], stride[2]}};
    return ac_tensor_view(t, &shape, &strides, t->offset + offset);
}

/* Images [n, n + images) of group g of t [N, C, ...] as [images, channels, positions], contiguous: new. */
static ac_tensor *dense_images(const convolution *c, const ac_tensor *t, int64_t n, int64_t images, int64_t g) {
    int64_t channels = t->shape[1] / c->groups, positions = 1;
    ac_dims shape = ac_shape_of(t), strides = ac_strides_of(t);
    shape.v[0] = images, shape.v[1] = channels;
    for (int d = 2; d < t->ndim; d++) positions *= t->shape[d];
    ac_tensor *part = ac_tensor_view(t, &shape, &strides, t->offset + n * t->strides[0] + g * channels * t->strides[1]);
    ac_tensor *dense = part ? ac_gpu_copy_as(part, c->dtype) : NULL;
    int64_t size[3] = {images, channels, positions}, stride[3] = {channels * positions, positions, 1};
    ac_tensor *flat = dense ? seen(dense, 0, size, stride) : NULL;
    ac_tensor_clear(&dense);
    ac_tensor_clear(&part);
    return flat;
}

static int multiply(const convolution *c, ac_tensor *a, ac_tensor *b, ac_tensor *out, bool add) {
    ac_tensor *in[2] = {a, b}, *to[1] = {out};
    ac_attrs_product plain = {AC_NO_DTYPE};
    ac_run product = {
        .op = AC_OP_bmm, .in = in, .n_in = 2, .attrs = &plain, .out = to, .n_out = 1, .compute = c->dtype, .add = add};
    return a && b && out ? ac_cuda_bmm(&product) : -1;
}

/* The dtype that products are summed in. */
static ac_dtype sum_dtype(const convolution *c) { return c->dtype == AC_float64 ? AC_float64 : AC_float32; }

/* to = sums + bias[group g], one a channel: with the add that everybody uses, rounded once. */
static int add_bias(const convolution *c, ac_tensor *to, ac_tensor *sums, int64_t g) {
    int64_t size[3] = {sums->shape[0], c->outer, c->positions}, stride[3] = {0, 1, 0};
    ac_tensor *wide = seen(c->bias, g * c->outer, size, stride);
    ac_tensor *in[2] = {sums, wide}, *out[1] = {to};
    ac_attrs_alpha one = {{AC_INT, {1}}};
    ac_run add = {.op = AC_OP_add, .in = in, .n_in = 2, .attrs = &one, .out = out, .n_out = 1, .compute = sums->dtype};
    int failed = wide ? ac_cuda_pointwise(&add) : -1;
    ac_tensor_clear(&wide);
    return failed;
}

/* y[n : n + images, group g] = weight[g] columns + bias[g] */
static int forward_round(const convolution *c, const ac_tensor *weight, int64_t n, int64_t images, int64_t g) {
    const ac_tensor *x = c->r->in[0];
    ac_tensor *y = c->r->out[0];
    int64_t size[3] = {images, c->outer, c->k}, stride[3] = {0, c->k, 1}, at = g * c->outer * c->k;
    int64_t out_size[3] = {images, c->outer, c->positions};
    int64_t out_stride[3] = {c->groups * c->outer * c->positions, c->positions, 1};
    ac_tensor *columns = fresh(c, c->dtype, images, c->k, c->positions),
              *w = columns ? seen(weight, at, size, stride) : NULL;
    ac_tensor *part = w ? seen(y, n * out_stride[0] + g * c->outer * c->positions, out_size, out_stride) : NULL;
    bool biased = c->bias != NULL, apart = biased || c->groups > 1;
    ac_dtype dtype = biased ? sum_dtype(c) : y->dtype;
    ac_tensor *own = part && apart ? fresh(c, dtype, images, c->outer, c->positions) : NULL;
    int failed = part && (own || !apart) ? 0 : -1;
    ac_gpu_columned args = columned(&c->w, x, n, images, g * c->inner, c->inner);
    if (!failed) with_columns(&args, columns, c->positions, c->k * c->positions);
    if (!failed) failed = launch_columned(c->d, im2col, opmath_of(x, columns), true, &args);
    if (!failed) failed = multiply(c, w, columns, own ? own : part, false);
    if (!failed && own) failed = biased ? add_bias(c, part, own, g) : ac_gpu_copy(part, own);
    ac_tensor_clear(&own);
    ac_tensor_clear(&part);
    ac_tensor_clear(&w);
    ac_tensor_clear(&columns);
    return failed;
}

/* y[n : n + images, group g] = columns weight[g]^T x, folded, + bias */
static int backward_round(const convolution *c, const ac_tensor *weight, int64_t n, int64_t images, int64_t g) {
    ac_tensor *y = c->r->out[0];
    int64_t size[3] = {images, c->k, c->outer}, stride[3] = {0, 1, c->k}, at = g * c->outer * c->k;
    ac_tensor *w = seen(weight, at, size, stride), *x = w ? dense_images(c, c->r->in[0], n, images, g) : NULL;
    ac_tensor *columns = x ? fresh(c, sum_dtype(c), images, c->k, c->positions) : NULL;
    int failed = columns ? multiply(c, w, x, columns, false) : -1;
    ac_gpu_columned args = columned(&c->w, y, n, images, g * c->inner, c->inner);
    if (!failed) with_columns(&args, columns, c->positions, c->k * c->positions);
    if (!failed && c->bias) {
        ac_tensor bias = *c->bias;
        bias.offset += g * c->inner;
        args.bias = ac_gpu_ref_of(&bias);
    }
    if (!failed) failed = launch_columned(c->d, col2im, opmath_of(columns, y), false, &args);
    ac_tensor_clear(&columns);
    ac_tensor_clear(&x);
    ac_tensor_clear(&w);
    return failed;
}

static ac_dims spatial_of(const ac_tensor *t) {
    ac_dims s = {.n = t->ndim - 2};
    for (int64_t d = 0; d < s.n; d++) s.v[d] = t->shape[d + 2];
    return s;
}

static void open_convolution(convolution *c, const ac_run *r, int64_t groups) {
    c->r = r, c->d = ac_run_device(r), c->groups = groups, c->images = r->in[0]->shape[0];
    c->positions = ac_product3(c->w.out), c->k = c->inner * ac_product3(c->w.kernel);
    bool wide = r->in[0]->dtype == AC_float64 || r->out[0]->dtype == AC_float64;
    c->dtype = wide ? AC_float64 : r->compute;
    plan_chunks(c);
}

int ac_cuda_convolution(const ac_run *r) {
    ATTRS(convolution);
    const ac_tensor *w = r->in[1];
    convolution c = {.inner = w->shape[1], .outer = w->shape[0] / a->groups};
    ac_dims kernel = spatial_of(w);
    AC_TRY(ac_convolution_windows(&c.w, r->in[0], &kernel, a));
    open_convolution(&c, r, a->groups);
    if (r->out[0]->numel == 0) return 0;
    int done = ac_gpu_cudnn_convolution(r, &c.w, c.dtype);
    if (!done) done = ac_gpu_implicit_convolution(r, &c.w, c.dtype);
    if (done) return done < 0 ? -1 : 0;
    ac_tensor *weight = ac_gpu_dense_as(r->in[1], c.dtype);
    int failed = weight ? 0 : -1;
    if (!failed && r->in[2]) failed = (c.bias = ac_gpu_contiguous(r->in[2])) ? 0 : -1;
    for (int64_t n = 0; n < c.images && !failed; n += c.chunk)
        for (int64_t g = 0; g < c.groups && !failed; g++) {
            int64_t images = c.images - n < c.chunk ? c.images - n : c.chunk;
            failed = a->transposed ? backward_round(&c, weight, n, images, g) : forward_round(&c, weight, n, images, g);
        }
    ac_tensor_clear(&c.bias);
    ac_tensor_clear(&weight);
    return failed;
}

/* sums[g] += g columns^T: over images and positions at once, [outer, images * positions] [images * positions, k] */
static int weight_round(const convolution *c, ac_tensor *sums, int64_t n, int64_t images, int64_t g) {
    const ac_tensor *x = c->r->in[0];
    int64_t width = images * c->positions, one[3] = {1, c->outer, width}, two[3] = {1, width, c->k},
            three[3] = {1, c->outer, c->k};
    int64_t one_stride[3] = {0, width, 1}, two_stride[3] = {0, 1, width}, three_stride[3] = {0, c->k, 1};
    int64_t by_channel[3] = {images, c->outer, c->positions}, spread[3] = {c->positions, width, 1};
    ac_tensor *columns = fresh(c, c->dtype, 1, c->k, width),
              *grad = columns ? dense_images(c, c->r->in[1], n, images, g) : NULL;
    ac_tensor *moved = grad ? fresh(c, c->dtype, 1, c->outer, width) : NULL,
              *position = moved ? seen(moved, 0, by_channel, spread) : NULL;
    int failed = position ? ac_gpu_copy(position, grad) : -1;
    ac_gpu_columned args = columned(&c->w, x, n, images, g * c->inner, c->inner);
    if (!failed) with_columns(&args, columns, width, c->positions);
    if (!failed) failed = launch_columned(c->d, im2col, opmath_of(x, columns), true, &args);
    ac_tensor *left = failed ? NULL : seen(moved, 0, one, one_stride),
              *right = left ? seen(columns, 0, two, two_stride) : NULL;
    ac_tensor *total = right ? seen(sums, g * c->outer * c->k, three, three_stride) : NULL;
    if (!failed) failed = multiply(c, left, right, total, true);
    ac_tensor_clear(&total);
    ac_tensor_clear(&right);
    ac_tensor_clear(&left);
    ac_tensor_clear(&position);
    ac_tensor_clear(&moved);
    ac_tensor_clear(&grad);
    ac_tensor_clear(&columns);
    return failed;
}

int ac_cuda_convolution_weight(const ac_run *r) {
    ATTRS(convolution_weight);
    const ac_tensor *x = r->in[0], *g = r->in[1];
    ac_tensor *out = r->out[0];
    ac_window_lists l = {"convolution", &a->kernel, &a->stride, &a->padding, &a->dilation, false};
    convolution c = {.inner = x->shape[1] / a->groups, .outer = g->shape[1] / a->groups};
    AC_TRY(ac_windows_of(&c.w, &l, x->shape + 2, a->kernel.n));
    open_convolution(&c, r, a->groups);
    int done = ac_gpu_implicit_weight(r, &c.w, c.dtype);
    if (done) return done < 0 ? -1 : 0;
    ac_dtype sum = sum_dtype(&c);
    ac_dims shape = ac_shape_of(out);
    ac_tensor *sums = sum == out->dtype ? ac_tensor_retain(out) : ac_tensor_new_on(c.d, sum, &shape);
    int failed = sums ? ac_gpu_clear(sums) : -1;
    for (int64_t n = 0; n < c.images && out->numel && !failed; n += c.chunk)
        for (int64_t group = 0; group < c.groups && !failed; group++)
            failed = weight_round(&c, sums, n, c.images - n < c.chunk ? c.images - n : c.chunk, group);
    if (!failed && sums != out) failed = ac_gpu_copy(out, sums);
    ac_tensor_clear(&sums);
    return failed;
}

/* -- pooling, resampling ------------------------------------------------------------------------------- */

static ac_gpu_divisor divisor_of(int64_t d) {
    ac_gpu_divisor by = {.shift = 0};
    while ((INT64_C(1) << by.shift) < d) by.shift++;
    by.multiplier = (uint32_t)(((INT64_C(1) << 32) * ((INT64_C(1) << by.shift) - d)) / d + 1);
    return by;
}

/* Whether windows of bulk dtypes are two-dimensional, each with a value, and 32-bit numbers tell everything: then
 * `flat` has them, for jobs of `rows` x `columns` in each of so many planes. */
static bool flatten(const ac_windows *w, ac_dtype dtype, int64_t planes, int64_t rows, int64_t columns,
                    ac_gpu_flat_windows *flat) {
    bool is_flat = w->in[0] == 1 && w->kernel[0] == 1 && w->out[0] == 1 && w->padding[0] == 0;
    if (!is_flat || w->adaptive || !ac_gpu_is_bulk(dtype)) return false;
    const int64_t *in = w->in + 1, *out = w->out + 1, most = INT32_MAX / 4;
    for (int d = 0; d < 2; d++) {
        int64_t kernel = w->kernel[1 + d], dilation = w->dilation[1 + d], padding = w->padding[1 + d];
        if (in[d] >= most || kernel >= most || dilation >= most || w->stride[1 + d] >= most) return false;
        if (kernel * dilation >= most || out[d] * w->stride[1 + d] >= most || (dilation > 1 && padding)) return false;
        flat->in[d] = (int32_t)in[d], flat->out[d] = (int32_t)out[d], flat->kernel[d] = (int32_t)kernel;
        flat->stride[d] = (int32_t)w->stride[1 + d], flat->padding[d] = (int32_t)padding;
        flat->dilation[d] = (int32_t)dilation, flat->by_stride[d] = divisor_of(w->stride[1 + d]);
    }
    if (in[0] * in[1] >= most || out[0] * out[1] >= most || planes >= most / (rows * columns)) return false;
    flat->jobs = (uint32_t)(planes * rows * columns), flat->rows = (int32_t)rows, flat->columns = (int32_t)columns;
    flat->by_rows = divisor_of(rows), flat->by_columns = divisor_of(columns);
    return true;
}

int ac_cuda_max_pool(const ac_run *r) {
    ATTRS(max_pool);
    const ac_tensor *x = r->in[0], *values = r->out[0];
    int nd = (int)a->kernel.n, lead = x->ndim - nd;
    ac_gpu_pool args = {.x = ac_gpu_ref_of(x), .values = ac_gpu_ref_of(values), .indices = ac_data(r->out[1])};
    AC_TRY(ac_max_pool_windows(&args.w, x, a));
    args.planes = ac_space_of(x, (1u << lead) - 1);
    for (int d = 0; d < nd; d++) args.stride[3 - nd + d] = x->strides[lead + d];
    ac_device d = ac_run_device(r);
    if (values->numel == 0) return 0;
    const int64_t *in = args.w.in, *out = args.w.out, rows = (out[1] + AC_GPU_POOL_COLUMN - 1) / AC_GPU_POOL_COLUMN;
    bool near = (in[1] - 1) * args.stride[1] + (in[2] - 1) * args.stride[2] <= INT32_MAX;
    if (near && flatten(&args.w, x->dtype, args.planes.numel, rows, out[2], &args.flat))
        return ac_gpu_launch(d, &max_pool_flat, ac_gpu_blocks(d, args.flat.jobs, 1), 0, &args);
    return ac_gpu_launch(d, &max_pool[ac_gpu_opmath(x->dtype)], ac_gpu_blocks(d, values->numel, 1), 0, &args);
}

int ac_cuda_max_pool_backward(const ac_run *r) {
    ATTRS(max_pool_backward);
    ac_tensor *g = ac_gpu_contiguous(r->in[0]), *indices = g ? ac_gpu_contiguous(r->in[1]) : NULL;
    ac_tensor *x = r->out[0];
    ac_device d = ac_run_device(r);
    ac_gpu_unpool args = {.x = ac_gpu_ref_of(x)};
    int failed = indices ? ac_max_pool_backward_windows(&args.w, a) : -1;
    if (!failed && x->numel) {
        args.g = ac_gpu_ref_of(g), args.indices = ac_data(indices), args.planes = x->numel / ac_product3(args.w.in);
        const int64_t *in = args.w.in, columns = (in[2] + AC_GPU_POOL_RUN - 1) / AC_GPU_POOL_RUN;
        args.vector = in[2] % AC_GPU_POOL_RUN == 0 && ac_gpu_aligned(args.x.data);
        bool flat =
            g->dtype == x->dtype && flatten(&args.w, x->dtype, args.planes, (in[1] + 1) / 2, columns, &args.flat);
        failed = ac_gpu_launch(d, flat ? &max_pool_backward_flat : &max_pool_backward[ac_gpu_opmath(x->dtype)],
                               ac_gpu_blocks(d, flat ? args.flat.jobs : x->numel, 1), 0, &args);
    }
    ac_tensor_clear(&indices);
    ac_tensor_clear(&g);
    return failed;
}

enum { LARGE_WINDOW = 64, WARP = 32 }; /* values that are worth a warp */

static int run_means(const ac_run *r, ac_gpu_kernel *kernels, const ac_attrs_means *a, const int64_t *size, int group) {
    const ac_tensor *x = r->in[0], *y = r->out[0];
    int nd = (int)a->kernel.n, lead = x->ndim - nd;
    ac_gpu_means args = {.from = ac_gpu_ref_of(x),
                         .to = ac_gpu_ref_of(y),
                         .planes = ac_space_of(x, (1u << lead) - 1),
                         .results = y->numel,
                         .group = group,
                         .counts_padding = a->counts_padding != 0,
                         .divisor = a->divisor};
    AC_TRY(ac_avg_pool_windows(&args.w, size, a));
    for (int d = 0; d < nd; d++) args.stride[3 - nd + d] = x->strides[lead + d];
    ac_device d = ac_run_device(r);
    if (y->numel == 0) return 0;
    return ac_gpu_launch(d, &kernels[ac_gpu_opmath(x->dtype)], ac_gpu_blocks(d, y->numel * group, 1), 0, &args);
}

int ac_cuda_avg_pool(const ac_run *r) {
    ATTRS(means);
    const ac_tensor *x = r->in[0];
    const int64_t *size = x->shape + x->ndim - a->kernel.n;
    int64_t values = 1;
    for (int64_t d = 0; d < a->kernel.n; d++) {
        int64_t parts = a->kernel.v[d];
        values *= !a->adaptive ? parts : parts ? (size[d] + parts - 1) / parts : 0;
    }
    return run_means(r, avg_pool, a, size, values >= LARGE_WINDOW ? WARP : 1);
}

int ac_cuda_avg_pool_backward(const ac_run *r) {
    ATTRS(means_backward);
    ac_attrs_means forward = ac_means_forward(a);
    return run_means(r, avg_pool_backward, &forward, a->size.v + a->size.n - a->kernel.n, 1);
}

int ac_cuda_resample(const ac_run *r) {
    ATTRS(resample);
    const ac_tensor *x = r->in[0], *y = r->out[0];
    int64_t dim = a->dim;
    AC_TRY(ac_dim_wrap(&dim, x->ndim, "resample"));
    ac_gpu_resample args = {.x = ac_gpu_ref_of(x),
                            .y = ac_gpu_ref_of(y),
                            .rows = ac_space_of(x, ((1u << x->ndim) - 1) & ~(1u << dim)),
                            .stride = x->strides[dim],
                            .outer = 1,
                            .inner = 1,
                            .in = x->shape[dim],
                            .out = y->shape[dim]};
    for (int64_t d = 0; d < dim; d++) args.outer *= x->shape[d];
    for (int64_t d = dim + 1; d < x->ndim; d++) args.inner *= x->shape[d];
    args.taps = r->in[1]->shape[1], args.index = ac_data(r->in[1]), args.weight = ac_data(r->in[2]);
    ac_device d = ac_run_device(r);
    if (y->numel == 0) return 0;
    return ac_gpu_launch(d, &resample[ac_gpu_opmath(x->dtype)], ac_gpu_blocks(d, y->numel, 1), 0, &args);
}
