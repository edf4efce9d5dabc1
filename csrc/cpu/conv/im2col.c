/* im2col and col2im: windows copied to columns and added back, for convolutions that no faster kernel fits. */
#include "cpu/kernels.h"

#include "cpu/conv/im2col.h"

#include <string.h>

/* -- columns of one image -------------------------------------------------------------------------------- */

typedef struct {
    const ac_windows *w;
    const char *image; /* [channels, in...], of `item` bytes each */
    char *columns;     /* [channels * taps, positions] */
    int64_t item, taps, positions;
} unfolding;

/* n values `stride` apart. */
static void gather(char *to, const char *from, int64_t n, int64_t stride, int64_t item) {
    if (stride == 1) memcpy(to, from, (size_t)(n * item));
    else if (item == 2)
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)(void *)to)[i] = ((const uint16_t *)(const void *)from)[i * stride];
    else if (item == 4)
        for (int64_t i = 0; i < n; i++)
            ((uint32_t *)(void *)to)[i] = ((const uint32_t *)(const void *)from)[i * stride];
    else
        for (int64_t i = 0; i < n; i++)
            ((uint64_t *)(void *)to)[i] = ((const uint64_t *)(const void *)from)[i * stride];
}

/* One tap of one channel at every position. */
static void unfold_row(const unfolding *u, int64_t row) {
    const ac_windows *w = u->w;
    int64_t tap = row % u->taps, channel = row / u->taps, begin, end;
    int64_t k2 = tap % w->kernel[2], k1 = tap / w->kernel[2] % w->kernel[1], k0 = tap / (w->kernel[2] * w->kernel[1]);
    char *to = u->columns + row * u->positions * u->item;
    ac_window_inside(w, 2, k2, &begin, &end);
    for (int64_t o0 = 0; o0 < w->out[0]; o0++)
        for (int64_t o1 = 0; o1 < w->out[1]; o1++, to += w->out[2] * u->item) {
            int64_t i0 = ac_window_tap(w, 0, o0, k0), i1 = ac_window_tap(w, 1, o1, k1);
            if (i0 < 0 || i1 < 0 || begin == end) {
                memset(to, 0, (size_t)(w->out[2] * u->item));
                continue;
            }
            int64_t i2 = begin * w->stride[2] - w->padding[2] + k2 * w->dilation[2];
            const char *from = u->image + (((channel * w->in[0] + i0) * w->in[1] + i1) * w->in[2] + i2) * u->item;
            memset(to, 0, (size_t)(begin * u->item));
            gather(to + begin * u->item, from, end - begin, w->stride[2], u->item);
            memset(to + end * u->item, 0, (size_t)((w->out[2] - end) * u->item));
        }
}

static void unfold_rows(void *context, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) unfold_row(context, row);
}

void ac_cpu_unfold_image(const ac_windows *w, int64_t channels, int64_t item, const char *image, char *columns) {
    unfolding u = {w, image, columns, item, ac_product3(w->kernel), ac_product3(w->out)};
    ac_for_range(channels * u.taps, AC_GRAIN / (u.positions + 1), unfold_rows, &u);
}

typedef struct {
    const ac_windows *w;
    ac_opmath opmath;
    const char *columns;
    char *image;
    const double *bias;
} folding;

#define FOLD_CHANNEL(R, name)                                                                                          \
    static void fold_channel_##name(const folding *f, int64_t channel) {                                               \
        const ac_windows *w = f->w;                                                                                    \
        int64_t pixels = ac_product3(w->in), positions = ac_product3(w->out), begin, end;                              \
        R *image = (R *)(void *)f->image + channel * pixels;                                                           \
        const R *from = (const R *)(const void *)f->columns + channel * ac_product3(w->kernel) * positions;            \
        for (int64_t i = 0; i < pixels; i++) image[i] = f->bias ? (R)f->bias[channel] : 0;                             \
        for (int64_t k0 = 0; k0 < w->kernel[0]; k0++)                                                                  \
            for (int64_t k1 = 0; k1 < w->kernel[1]; k1++)                                                              \
                for (int64_t k2 = 0; k2 < w->kernel[2]; k2++) {                                                        \
                    ac_window_inside(w, 2, k2, &begin, &end);                                                          \
                    for (int64_t o0 = 0; o0 < w->out[0]; o0++)                                                         \
                        for (int64_t o1 = 0; o1 < w->out[1]; o1++, from += w->out[2]) {                                \
                            int64_t i0 = ac_window_tap(w, 0, o0, k0), i1 = ac_window_tap(w, 1, o1, k1);                \
                            if (i0 < 0 || i1 < 0) continue;                                                            \
                            R *to = image + (i0 * w->in[1] + i1) * w->in[2] + k2 * w->dilation[2] - w->padding[2];     \
                            for (int64_t o = begin; o < end; o++) to[o * w->stride[2]] += from[o];                     \
                        }                                                                                              \
                }                                                                                                      \
    }
FOLD_CHANNEL(float, f32)
FOLD_CHANNEL(double, f64)
#undef FOLD_CHANNEL

static void fold_channels(void *context, int64_t begin, int64_t end) {
    const folding *f = context;
    for (int64_t c = begin; c < end; c++)
        if (f->opmath == AC_OPMATH_F64) fold_channel_f64(f, c);
        else fold_channel_f32(f, c);
}

void ac_cpu_fold_image(const ac_windows *w, int64_t channels, ac_opmath opmath, const char *columns, const double *bias,
                       char *image) {
    folding f = {w, opmath, columns, image, bias};
    int64_t each = ac_product3(w->kernel) * ac_product3(w->out) + ac_product3(w->in);
    ac_for_range(channels, AC_GRAIN / (each + 1), fold_channels, &f);
}

/* -- the rows ------------------------------------------------------------------------------------------------ */

ac_tensor ac_tensor_over(ac_storage *storage, void *data, ac_dtype dtype, const ac_dims *shape) {
    *storage = (ac_storage){.data = data};
    ac_tensor t = {.storage = storage, .dtype = dtype, .ndim = (int)shape->n, .numel = ac_dims_numel(shape)};
    ac_dims strides = ac_dims_contiguous(shape);
    memcpy(t.shape, shape->v, sizeof t.shape);
    memcpy(t.strides, strides.v, sizeof t.strides);
    return t;
}

ac_tensor ac_part_of(const ac_tensor *t, int64_t image, int64_t channel, int64_t channels) {
    ac_tensor part = *t;
    part.offset += image * t->strides[0] + channel * t->strides[1];
    part.ndim = t->ndim - 1;
    for (int d = 0; d < part.ndim; d++) part.shape[d] = t->shape[d + 1], part.strides[d] = t->strides[d + 1];
    part.shape[0] = channels, part.numel = channels;
    for (int d = 1; d < part.ndim; d++) part.numel *= part.shape[d];
    return part;
}

int ac_cpu_im2col(const ac_run *r) {
    ATTRS(im2col);
    const ac_tensor *x = r->in[0];
    ac_window_lists l = {"unfold", &a->kernel, &a->stride, &a->padding, &a->dilation, false};
    ac_windows w;
    AC_TRY(ac_windows_of(&w, &l, x->shape + 2, a->kernel.n));
    int64_t channels = x->shape[1], item = ac_itemsize(x->dtype), pixels = ac_product3(w.in);
    ac_dims shape = {x->ndim - 1, {channels}};
    for (int d = 2; d < x->ndim; d++) shape.v[d - 1] = x->shape[d];
    size_t bytes = (size_t)(channels * pixels * item) + 1;
    char *dense = ac_alloc(bytes);
    if (!dense) return -1;
    ac_storage memory;
    ac_tensor image = ac_tensor_over(&memory, dense, x->dtype, &shape);
    int64_t each = channels * ac_product3(w.kernel) * ac_product3(w.out) * item;
    for (int64_t n = 0; n < x->shape[0]; n++) {
        ac_tensor from = ac_part_of(x, n, 0, channels);
        ac_cpu_copy_into(&image, &from);
        ac_cpu_unfold_image(&w, channels, item, dense, (char *)ac_data(r->out[0]) + n * each);
    }
    ac_free(dense, bytes);
    return 0;
}

int ac_cpu_col2im(const ac_run *r) {
    ATTRS(col2im);
    const ac_tensor *x = r->in[0];
    ac_tensor *out = r->out[0];
    ac_window_lists l = {"fold", &a->kernel, &a->stride, &a->padding, &a->dilation, false};
    ac_windows w;
    AC_TRY(ac_windows_of(&w, &l, a->size.v, a->kernel.n));
    ac_opmath opmath = ac_opmath_of(x->dtype);
    int64_t channels = out->shape[1], columns = x->shape[1] * x->shape[2], pixels = channels * ac_product3(w.in);
    size_t bytes = (size_t)((columns + pixels) * ac_opmath_bytes(opmath)) + 1;
    char *room = ac_alloc(bytes), *image = room ? room + columns * ac_opmath_bytes(opmath) : NULL;
    if (!room) return -1;
    ac_dims flat = {2, {x->shape[1], x->shape[2]}}, dense = {x->ndim ? out->ndim - 1 : 0, {channels}};
    for (int d = 2; d < out->ndim; d++) dense.v[d - 1] = out->shape[d];
    ac_storage one, two;
    ac_tensor wide = ac_tensor_over(&one, room, ac_opmath_dtype(opmath), &flat),
              sums = ac_tensor_over(&two, image, ac_opmath_dtype(opmath), &dense);
    for (int64_t n = 0; n < x->shape[0]; n++) {
        ac_tensor from = ac_part_of(x, n, 0, x->shape[1]), to = ac_part_of(out, n, 0, channels);
        ac_cpu_copy_into(&wide, &from);
        ac_cpu_fold_image(&w, channels, opmath, room, NULL, image);
        ac_cpu_copy_into(&to, &sums);
    }
    ac_free(room, bytes);
    return 0;
}
