/* Convolutions in 16 bits by our own implicit product (conv.cu), without im2col columns and without a copy. It
 * computes the forward, the transposed and the weight's gradient, for images in any layout. What it does not support
 * goes by columns (windows.c). */
#include "cuda/gpu.h"

#define KERNELS(rows)                                                                                                  \
    static ac_gpu_kernel rows[2] = {{.image = AC_IMAGE_CONV, .name = "ac_" #rows "_f16"},                              \
                                    {.image = AC_IMAGE_CONV, .name = "ac_" #rows "_bf16"}};
KERNELS(convolve)
KERNELS(convolve_weight)
KERNELS(convolve_channels)
#undef KERNELS
static ac_gpu_kernel join = {.image = AC_IMAGE_CONV, .name = "ac_convolve_join"},
                     weight_join = {.image = AC_IMAGE_CONV, .name = "ac_convolve_weight_join"};

/* -- operands --------------------------------------------------------------------------------------- */

/* An operand [n, channels, positions...] or a weight, always with three spatial dimensions. */
typedef struct {
    int64_t size[5], stride[5];
} layout;

static layout layout_of(const ac_tensor *t) {
    layout l = {{1, 1, 1, 1, 1}, {0}};
    for (int d = 0; d < t->ndim; d++) {
        int at = d < 2 ? d : 5 - t->ndim + d;
        l.size[at] = t->shape[d], l.stride[at] = t->strides[d];
    }
    return l;
}

/* Every position of it has a number that a kernel's integers hold. */
static bool fits(const ac_tensor *t) {
    int64_t last = 0;
    for (int d = 0; d < t->ndim; d++) last += (t->shape[d] - 1) * t->strides[d];
    return t->numel > 0 && t->numel < INT32_MAX / 2 && last < INT32_MAX / 2;
}

static ac_tensor *in_dtype(ac_tensor *t, ac_dtype dtype) { /* new */
    return t->dtype == dtype ? ac_tensor_retain(t) : ac_gpu_copy_as(t, dtype);
}

static bool starts_run(const ac_tensor *t) { return ac_gpu_aligned(ac_data(t)); }
static bool all_in_runs(const int64_t *v, int n) {
    for (int i = 0; i < n; i++)
        if (v[i] % 8) return false;
    return true;
}

static void set_image(ac_gpu_implicit *a, const ac_tensor *image, const ac_windows *w, bool positions) {
    layout l = layout_of(image);
    a->image = ac_gpu_ref_of(image);
    for (int d = 0; d < 5; d++) a->image_stride[d] = (int32_t)l.stride[d];
    for (int d = 0; d < 3; d++) a->in[d] = (int32_t)(positions ? w->out[d] : w->in[d]);
    a->images = (int32_t)l.size[0], a->channels = (int32_t)(l.size[1] / a->groups);
    a->image_group = (int32_t)(a->channels * l.stride[1]);
    a->channels_last = l.stride[1] == 1 && a->channels > 1;
}

/* Where the image has eight channels of a tap side by side. */
static bool has_channel_runs(const ac_gpu_implicit *a, const ac_tensor *image) {
    layout l = layout_of(image);
    int64_t strides[] = {l.stride[0], l.stride[2], l.stride[3], l.stride[4]};
    return a->channels_last && a->channels % 8 == 0 && all_in_runs(strides, 4) && starts_run(image);
}

/* Where eight positions of a tap are neighbours in a line of the image, and lines begin and end on boundaries. */
static bool has_lines(const ac_tensor *image, const ac_windows *w) {
    layout l = layout_of(image);
    bool whole = w->out[2] % 8 == 0 && w->in[2] % 8 == 0 && w->stride[2] == 1;
    return whole && l.stride[4] == 1 && all_in_runs(l.stride, 4) && starts_run(image);
}

/* The weight with its rows [group, m] of ks, channels and taps in the order of the image: new, a copy where it has
 * another. Channels of k are its second dimension, or (transposed) its first. */
static ac_tensor *weight_rows(const ac_gpu_implicit *a, ac_tensor *weight, bool transposed, ac_dtype dtype) {
    layout l = layout_of(weight);
    ac_dims shape = {6, {a->groups, a->m}}, strides = {6, {0}};
    int64_t outer = l.size[0] / a->groups;
    strides.v[0] = outer * l.stride[0], strides.v[1] = l.stride[transposed];
    int channel = a->channels_last ? 5 : 2, tap = a->channels_last ? 2 : 3;
    shape.v[channel] = a->channels, strides.v[channel] = l.stride[!transposed];
    for (int d = 0; d < 3; d++) shape.v[tap + d] = l.size[2 + d], strides.v[tap + d] = l.stride[2 + d];
    ac_tensor *seen = ac_tensor_view(weight, &shape, &strides, weight->offset);
    ac_tensor *rows = seen ? ac_gpu_dense_as(seen, dtype) : NULL;
    ac_tensor_clear(&seen);
    return rows;
}

/* -- launches ---------------------------------------------------------------------------------------- */

/* So many tiles fill a large GPU, two a multiprocessor; where there are fewer, k is cut, into parts of eight tiles of
 * ks or more. The sizes alone decide, so that every GPU adds in the same order. */
enum { TILES_WANTED = 264, LEAST_KEYS = 8 * AC_GPU_KEYS };

static int64_t tiles_of(const ac_gpu_implicit *a) {
    return a->groups * ac_ceil_div(a->m, AC_GPU_TILE) * ac_ceil_div(a->j, AC_GPU_TILE);
}

static void cut(ac_gpu_implicit *a) {
    int64_t parts = ac_least(TILES_WANTED / tiles_of(a), a->k / LEAST_KEYS);
    if (parts < 1) parts = 1;
    a->part = (int32_t)(ac_ceil_div(ac_ceil_div(a->k, parts), AC_GPU_KEYS) * AC_GPU_KEYS);
    if (a->part < 1) a->part = AC_GPU_KEYS;
    a->parts = a->k ? (int32_t)ac_ceil_div(a->k, a->part) : 1;
}

static int launch(ac_device d, ac_gpu_implicit *a, ac_gpu_kernel *product, ac_gpu_kernel *joined) {
    cut(a);
    int64_t results = (int64_t)a->groups * a->m * a->j;
    ac_gpu_block *partial = a->parts > 1 ? ac_gpu_alloc(d, results * a->parts * (int64_t)sizeof(float)) : NULL;
    if (a->parts > 1 && !partial) return -1;
    a->partial = partial ? ac_gpu_address(partial) : NULL;
    int failed = ac_gpu_launch(d, product, tiles_of(a) * a->parts, AC_GPU_CONVOLVE_ROOM, a);
    if (!failed && partial) failed = ac_gpu_launch(d, joined, ac_gpu_blocks(d, results, 1), 0, a);
    ac_gpu_free(partial);
    return failed;
}

/* -- forward and transposed: taps along k, positions along j -------------------------------------------- */

static void set_out(ac_gpu_implicit *a, const ac_tensor *y) {
    layout l = layout_of(y);
    a->out = ac_gpu_ref_of(y);
    a->out_row = (int32_t)l.stride[1], a->out_group = (int32_t)(a->m * l.stride[1]);
    a->position_stride[0] = (int32_t)l.stride[0];
    for (int d = 0; d < 3; d++) a->position_stride[1 + d] = (int32_t)l.stride[2 + d];
}

/* Steps from a k to the next in rows that weight_rows made. */
static void set_rows(ac_gpu_implicit *a, const ac_tensor *rows) {
    int channel = a->channels_last ? 5 : 2, tap = a->channels_last ? 2 : 3;
    a->rows = ac_gpu_ref_of(rows);
    a->rows_group = (int32_t)rows->strides[0], a->rows_row = (int32_t)rows->strides[1];
    a->tap_stride[0] = (int32_t)rows->strides[channel];
    for (int d = 0; d < 3; d++) a->tap_stride[1 + d] = (int32_t)rows->strides[tap + d];
}

static int32_t product_of(const int32_t *v) { return v[0] * v[1] * v[2]; }

static int run_forward(ac_device d, ac_gpu_implicit *a, const ac_windows *w, ac_gpu_kernel *kernel) {
    for (int i = 0; i < 3; i++) {
        a->lattice[i] = (int32_t)w->out[i], a->pace[i] = (int32_t)w->stride[i], a->taps[i] = (int32_t)w->kernel[i];
        a->first[i] = -(int32_t)w->padding[i], a->shift[i] = (int32_t)w->dilation[i];
    }
    a->j = a->images * product_of(a->lattice), a->k = a->channels * product_of(a->taps);
    a->rows_runs = a->k % 8 == 0 && ac_gpu_aligned(a->rows.data);
    return launch(d, a, kernel, &join);
}

static int32_t common_divisor(int64_t a, int64_t b) {
    while (b) {
        int64_t rest = a % b;
        a = b, b = rest;
    }
    return (int32_t)a;
}

/* Results i = at + stride u of dimension d meet tap q if at + padding - q dilation is a multiple of the stride. That
 * holds for tap `from` and for taps at equal distances after it. */
static int32_t set_phase(ac_gpu_implicit *a, const ac_windows *w, int d, int64_t at) {
    int64_t stride = w->stride[d], dilation = w->dilation[d], taps = w->kernel[d];
    int64_t every = stride / common_divisor(stride, dilation), from = 0;
    while (from < every && (at + w->padding[d] - from * dilation) % stride) from++;
    a->lattice[d] = (int32_t)ac_ceil_div(w->in[d] - at, stride), a->pace[d] = 1;
    a->taps[d] = from < taps && from < every ? (int32_t)ac_ceil_div(taps - from, every) : 0;
    a->first[d] = (int32_t)((at + w->padding[d] - from * dilation) / stride);
    a->shift[d] = -(int32_t)(every * dilation / stride);
    return (int32_t)from;
}

/* A stride makes phases: every result of one sees the same taps. */
static int run_phase(ac_device d, ac_gpu_implicit a, const ac_windows *w, const int64_t at[3], ac_gpu_kernel *kernel) {
    int64_t rows = 0, out = 0;
    bool whole = true;
    for (int i = 0; i < 3; i++) {
        int64_t every = w->stride[i] / common_divisor(w->stride[i], w->dilation[i]);
        rows += set_phase(&a, w, i, at[i]) * (int64_t)a.tap_stride[1 + i];
        out += at[i] * a.position_stride[1 + i];
        a.tap_stride[1 + i] *= (int32_t)every, a.position_stride[1 + i] *= (int32_t)w->stride[i];
        whole = whole && a.taps[i] == w->kernel[i];
    }
    a.rows.data = (uint16_t *)a.rows.data + rows;
    a.out.data = (char *)a.out.data + out * ac_itemsize((ac_dtype)a.out.dtype);
    a.j = a.images * product_of(a.lattice), a.k = a.channels * product_of(a.taps);
    if (a.channels_last) { /* a tap's channels are one run whatever taps there are */
        a.rows_runs = a.channels % 8 == 0 && ac_gpu_aligned(a.rows.data);
    } else a.rows_runs = whole && a.k % 8 == 0 && ac_gpu_aligned(a.rows.data);
    return a.j ? launch(d, &a, kernel, &join) : 0;
}

static int run_transposed(ac_device d, const ac_gpu_implicit *a, const ac_windows *w, ac_gpu_kernel *kernel) {
    int64_t at[3], phases[3];
    int failed = 0;
    for (int i = 0; i < 3; i++) phases[i] = ac_least(w->stride[i], w->in[i]);
    for (at[0] = 0; at[0] < phases[0] && !failed; at[0]++)
        for (at[1] = 0; at[1] < phases[1] && !failed; at[1]++)
            for (at[2] = 0; at[2] < phases[2] && !failed; at[2]++) failed = run_phase(d, *a, w, at, kernel);
    return failed;
}

static bool takes(ac_device d, ac_dtype dtype, const ac_tensor *x, const ac_tensor *w, const ac_tensor *y) {
    bool half = dtype == AC_float16 || (dtype == AC_bfloat16 && ac_gpu_generation(d) >= 8);
    return half && y->dtype != AC_float64 && fits(x) && fits(w) && fits(y);
}

int ac_gpu_implicit_convolution(const ac_run *r, const ac_windows *w, ac_dtype dtype) {
    const ac_attrs_convolution *how = r->attrs;
    ac_device d = ac_run_device(r);
    ac_tensor *y = r->out[0];
    if (!takes(d, dtype, r->in[0], r->in[1], y)) return 0;
    ac_gpu_implicit a = {.groups = (int32_t)how->groups, .m = (int32_t)(y->shape[1] / how->groups)};
    ac_tensor *x = in_dtype(r->in[0], dtype), *rows = NULL, *bias = NULL;
    int failed = x ? 0 : -1;
    if (!failed) {
        set_image(&a, x, w, how->transposed);
        failed = (rows = weight_rows(&a, r->in[1], how->transposed, dtype)) ? 0 : -1;
    }
    if (!failed && r->in[2]) failed = (bias = ac_gpu_contiguous(r->in[2])) ? 0 : -1;
    if (!failed) {
        ac_gpu_kernel *kernel = &convolve[dtype == AC_bfloat16];
        set_rows(&a, rows);
        set_out(&a, y);
        if (bias) a.bias = ac_gpu_ref_of(bias);
        a.image_runs = has_channel_runs(&a, x), a.image_across = !a.image_runs;
        failed = how->transposed ? run_transposed(d, &a, w, kernel) : run_forward(d, &a, w, kernel);
    }
    ac_tensor_clear(&bias);
    ac_tensor_clear(&rows);
    ac_tensor_clear(&x);
    return failed ? -1 : 1;
}

/* -- the weight's gradient: positions along k, taps along j ---------------------------------------------- */

/* rows are the gradient's channels: eight positions of one lie side by side where it is row-major. */
static void set_grad(ac_gpu_implicit *a, const ac_tensor *g) {
    layout l = layout_of(g);
    int64_t positions = l.size[2] * l.size[3] * l.size[4];
    bool lined = l.stride[4] == 1 && l.stride[3] == l.size[4] && l.stride[2] == l.size[3] * l.size[4];
    a->rows = ac_gpu_ref_of(g);
    a->rows_row = (int32_t)l.stride[1], a->rows_group = (int32_t)(a->m * l.stride[1]);
    a->position_stride[0] = (int32_t)l.stride[0];
    for (int d = 0; d < 3; d++)
        a->position_stride[1 + d] = (int32_t)l.stride[2 + d], a->lattice[d] = (int32_t)l.size[2 + d];
    a->rows_runs = lined && positions % 8 == 0 && all_in_runs(l.stride, 2) && starts_run(g);
    a->rows_across = l.stride[1] == 1;
    a->k = (int32_t)(l.size[0] * positions);
}

static void set_weight(ac_gpu_implicit *a, const ac_tensor *out) {
    layout l = layout_of(out);
    a->out = ac_gpu_ref_of(out);
    a->out_row = (int32_t)l.stride[0], a->out_group = (int32_t)(a->m * l.stride[0]);
    a->tap_stride[0] = (int32_t)l.stride[1];
    for (int d = 0; d < 3; d++) a->tap_stride[1 + d] = (int32_t)l.stride[2 + d], a->taps[d] = (int32_t)l.size[2 + d];
    a->j = a->channels * product_of(a->taps);
}

/* new: t with its channels side by side and on boundaries of runs; a copy where it lies otherwise */
static ac_tensor *in_channel_runs(ac_tensor *t, ac_dtype dtype) {
    ac_dims shape = ac_shape_of(t), strides = shape;
    layout l = layout_of(t);
    int64_t others[] = {l.stride[0], l.stride[2], l.stride[3], l.stride[4]}, step = t->shape[1];
    if (t->dtype == dtype && l.stride[1] == 1 && all_in_runs(others, 4) && starts_run(t)) return ac_tensor_retain(t);
    strides.v[1] = 1;
    for (int d = t->ndim - 1; d > 1; step *= t->shape[d--]) strides.v[d] = step;
    strides.v[0] = step;
    ac_tensor *room = ac_tensor_new_on(ac_device_of(t), dtype, &shape);
    ac_tensor *copy = room ? ac_tensor_view(room, &shape, &strides, 0) : NULL;
    ac_tensor_clear(&room);
    if (copy && ac_gpu_copy(copy, t) < 0) ac_tensor_clear(&copy);
    return copy;
}

int ac_gpu_implicit_weight(const ac_run *r, const ac_windows *w, ac_dtype dtype) {
    const ac_attrs_convolution_weight *how = r->attrs;
    ac_device d = ac_run_device(r);
    ac_tensor *out = r->out[0];
    if (!takes(d, dtype, r->in[0], r->in[1], out)) return 0;
    ac_gpu_implicit a = {.groups = (int32_t)how->groups, .m = (int32_t)(out->shape[0] / how->groups)};
    int64_t channels[] = {r->in[0]->shape[1] / how->groups, a.m};
    bool lines = has_lines(r->in[0], w) && ac_is_contiguous(r->in[1]) && starts_run(r->in[1]); /* need no copies */
    bool channel_runs = !lines && all_in_runs(channels, 2);
    ac_tensor *(*operand)(ac_tensor *, ac_dtype) = channel_runs ? in_channel_runs : in_dtype;
    ac_tensor *x = operand(r->in[0], dtype), *g = x ? operand(r->in[1], dtype) : NULL;
    int failed = g ? 0 : -1;
    if (!failed) {
        set_image(&a, x, w, false);
        set_grad(&a, g);
        set_weight(&a, out);
        a.image_lines = has_lines(x, w), a.image_across = a.channels_last;
        for (int i = 0; i < 3; i++) {
            a.pace[i] = (int32_t)w->stride[i];
            a.first[i] = -(int32_t)w->padding[i], a.shift[i] = (int32_t)w->dilation[i];
        }
        failed =
            launch(d, &a, &(channel_runs ? convolve_channels : convolve_weight)[dtype == AC_bfloat16], &weight_join);
    }
    ac_tensor_clear(&g);
    ac_tensor_clear(&x);
    return failed ? -1 : 1;
}
