/* Composite operators of windows over the last one, two or three dimensions: convolution and pooling. Inputs are
 * [N, C, ...] or, for one sample, [C, ...]. A number stands for the same number in every dimension. */
#include "dispatch/compose_read.h"

#include <math.h>

/* One operator for each number of dimensions. */
#define COMPOSE_EACH(name)                                                                                             \
    COMPOSE(name##1d) { return name(s, in, attrs, 1, #name "1d"); }                                                    \
    COMPOSE(name##2d) { return name(s, in, attrs, 2, #name "2d"); }                                                    \
    COMPOSE(name##3d) { return name(s, in, attrs, 3, #name "3d"); }

static int need_channels(const char *what, const ac_tensor *x, int64_t nd) {
    char text[AC_SHAPE_TEXT];
    if (x->ndim == nd + 1 || x->ndim == nd + 2) return 0;
    return ac_fail(AC_RUNTIME, "%s: expected %" PRId64 " or %" PRId64 " dimensions ([N,] C, ...), got shape %s", what,
                   nd + 1, nd + 2, ac_shape_text(x, text));
}

/* One number for each dimension. */
static int spread(const char *what, const char *name, const ac_dims *given, int64_t nd, ac_dims *out) {
    char text[AC_SHAPE_TEXT];
    if (given->n != 1 && given->n != nd)
        return ac_fail(AC_RUNTIME, "%s: `%s` must be one number or %" PRId64 ", got %s", what, name, nd,
                       ac_dims_text(given, text));
    out->n = nd;
    for (int64_t d = 0; d < nd; d++) out->v[d] = given->v[given->n == 1 ? 0 : d];
    return 0;
}

/* The window itself where no stride is given. */
static int spread_stride(const char *what, const ac_dims *given, const ac_dims *window, int64_t nd, ac_dims *out) {
    if (given->n > 0) return spread(what, "stride", given, nd, out);
    *out = *window;
    return 0;
}

static T as_batch(ac_scratch *s, T x, int64_t nd) { return x->ndim == nd + 1 ? ac_c_unsqueeze(s, x, 0) : x; }
static T as_given(ac_scratch *s, T y, T x, int64_t nd) { return x->ndim == nd + 1 ? ac_c_squeeze(s, y, 0) : y; }

/* -- convolution ------------------------------------------------------------------------------------------ */

static int need_weight(const char *what, const ac_tensor *weight, int64_t nd) {
    char text[AC_SHAPE_TEXT];
    if (weight->ndim == nd + 2) return 0;
    return ac_fail(AC_RUNTIME, "%s: `weight` must have %" PRId64 " dimensions, got shape %s", what, nd + 2,
                   ac_shape_text(weight, text));
}

/* padding='same': as many results as values. Where the padding is uneven, the right side gets the rest first. */
static T pad_evenly(ac_scratch *s, T x, T weight, ac_attrs_convolution *a, const char *what) {
    int64_t nd = a->stride.n;
    ac_attrs_pad more = {{nd, {0}}, {nd, {0}}, 0, {AC_FLOAT, {0}}};
    bool uneven = false;
    char text[AC_SHAPE_TEXT];
    for (int64_t d = 0; d < nd; d++) {
        int64_t total = a->dilation.v[d] * (weight->shape[d + 2] - 1);
        if (a->stride.v[d] != 1)
            REFUSE(AC_RUNTIME, "%s: padding='same' needs stride 1, got %s", what, ac_dims_text(&a->stride, text));
        a->padding.v[d] = total / 2, more.after.v[nd - 1 - d] = total % 2;
        uneven = uneven || total % 2;
    }
    return uneven ? ac_c_call(s, AC_OP_pad, &more, 1, x) : x;
}

static T conv(ac_scratch *s, T const *in, const ac_attrs_conv *a, int64_t nd, const char *what) {
    enum { VALID = AC_WORD, SAME = AC_WORD - 1 };
    ac_attrs_convolution how = {.output_padding = {nd, {0}}, .groups = a->groups, .out_dtype = AC_NO_DTYPE};
    NEED(need_channels(what, in[0], nd));
    NEED(need_weight(what, in[1], nd));
    NEED(spread(what, "stride", &a->stride, nd, &how.stride));
    NEED(spread(what, "dilation", &a->dilation, nd, &how.dilation));
    T x = as_batch(s, in[0], nd);
    how.padding = (ac_dims){nd, {0}};
    if (a->padding.n == SAME) x = pad_evenly(s, x, in[1], &how, what);
    else if (a->padding.n != VALID) NEED(spread(what, "padding", &a->padding, nd, &how.padding));
    return as_given(s, ac_c_call(s, AC_OP_convolution, &how, 3, x, in[1], in[2] ? in[2] : ABSENT), in[0], nd);
}
COMPOSE_EACH(conv)

static T conv_transpose(ac_scratch *s, T const *in, const ac_attrs_conv_transpose *a, int64_t nd, const char *what) {
    ac_attrs_convolution how = {.transposed = 1, .groups = a->groups, .out_dtype = AC_NO_DTYPE};
    NEED(need_channels(what, in[0], nd));
    NEED(need_weight(what, in[1], nd));
    NEED(spread(what, "stride", &a->stride, nd, &how.stride));
    NEED(spread(what, "padding", &a->padding, nd, &how.padding));
    NEED(spread(what, "dilation", &a->dilation, nd, &how.dilation));
    NEED(spread(what, "output_padding", &a->output_padding, nd, &how.output_padding));
    T x = as_batch(s, in[0], nd);
    return as_given(s, ac_c_call(s, AC_OP_convolution, &how, 3, x, in[1], in[2] ? in[2] : ABSENT), in[0], nd);
}
COMPOSE_EACH(conv_transpose)

COMPOSE(conv_tbc) {
    ATTRS(conv_tbc);
    ac_attrs_conv how = {{1, {1}}, {1, {a->pad}}, {1, {1}}, 1};
    ac_dims inward = {3, {1, 2, 0}}, turned = {3, {2, 1, 0}}, outward = {3, {2, 0, 1}};
    if (in[0]->ndim != 3 || in[1]->ndim != 3)
        REFUSE(AC_RUNTIME, "conv_tbc: needs input [T, N, C] and weight [taps, C, out], got %d and %d dimensions",
               in[0]->ndim, in[1]->ndim);
    T x = ac_c_permute(s, in[0], &inward), weight = ac_c_permute(s, in[1], &turned);
    return UN(contiguous, ac_c_permute(s, ac_c_call(s, AC_OP_conv1d, &how, 3, x, weight, in[2]), &outward));
}

COMPOSE(unfold_columns) {
    ATTRS(im2col);
    ac_attrs_im2col how;
    NEED(need_channels("unfold", in[0], 2));
    NEED(spread("unfold", "kernel_size", &a->kernel, 2, &how.kernel));
    NEED(spread("unfold", "dilation", &a->dilation, 2, &how.dilation));
    NEED(spread("unfold", "padding", &a->padding, 2, &how.padding));
    NEED(spread("unfold", "stride", &a->stride, 2, &how.stride));
    bool truth = in[0]->dtype == AC_bool;
    T x = as_batch(s, truth ? ac_c_cast(s, in[0], AC_float32) : in[0], 2);
    T y = as_given(s, ac_c_call(s, AC_OP_im2col, &how, 1, x), in[0], 2);
    return truth ? ac_c_cast(s, y, AC_bool) : y;
}

COMPOSE(fold) {
    ATTRS(col2im);
    ac_attrs_col2im how;
    bool single = in[0]->ndim == 2;
    NEED(spread("fold", "output_size", &a->size, 2, &how.size));
    NEED(spread("fold", "kernel_size", &a->kernel, 2, &how.kernel));
    NEED(spread("fold", "dilation", &a->dilation, 2, &how.dilation));
    NEED(spread("fold", "padding", &a->padding, 2, &how.padding));
    NEED(spread("fold", "stride", &a->stride, 2, &how.stride));
    T y = ac_c_call(s, AC_OP_col2im, &how, 1, single ? ac_c_unsqueeze(s, in[0], 0) : in[0]);
    return single ? ac_c_squeeze(s, y, 0) : y;
}

/* -- the largest of each window --------------------------------------------------------------------------- */

/* The second result is where they are. */
static T largest_and_where(ac_scratch *s, T x, const ac_attrs_max_pool *how) {
    T out[AC_MAX_OUT];
    if (ac_c_call_many(s, AC_OP_max_pool, how, &x, 1, out) < 0) return NULL;
    s->also[1] = out[1];
    return out[0];
}

static T max_pool(ac_scratch *s, T const *in, const ac_attrs_max_pooling *a, int64_t nd, const char *what) {
    ac_attrs_max_pool how = {.ceil_mode = a->ceil_mode};
    NEED(need_channels(what, in[0], nd));
    NEED(spread(what, "kernel_size", &a->kernel, nd, &how.kernel));
    NEED(spread_stride(what, &a->stride, &how.kernel, nd, &how.stride));
    NEED(spread(what, "padding", &a->padding, nd, &how.padding));
    NEED(spread(what, "dilation", &a->dilation, nd, &how.dilation));
    return largest_and_where(s, in[0], &how);
}
COMPOSE_EACH(max_pool)

/* The sizes of a result that `windows` divide the input into: None keeps a dimension's. */
static int part_sizes(const char *what, const ac_tensor *x, const ac_dims *given, int64_t nd, ac_dims *out) {
    char text[AC_SHAPE_TEXT];
    if (nd > 1 && x->ndim <= nd && given->n != 1)
        return ac_fail(AC_VALUE, "%s: expected at least %" PRId64 " dimensions ([N,] C, ...), got shape %s", what,
                       nd + 1, ac_shape_text(x, text));
    AC_TRY(spread(what, "output_size", given, nd, out));
    AC_TRY(need_channels(what, x, nd));
    for (int64_t d = 0; d < nd; d++)
        if (out->v[d] == AC_ABSENT) out->v[d] = x->shape[x->ndim - nd + d];
    return 0;
}

static T adaptive_max_pool(ac_scratch *s, T const *in, const ac_attrs_adaptive_max *a, int64_t nd, const char *what) {
    ac_attrs_max_pool how = {.stride = {1, {1}}, .padding = {1, {0}}, .dilation = {1, {1}}, .adaptive = 1};
    NEED(part_sizes(what, in[0], &a->size, nd, &how.kernel));
    return largest_and_where(s, in[0], &how);
}
COMPOSE_EACH(adaptive_max_pool)

/* Values back where a pooling found them: index [N, C, values] into N x C planes of `plane` zeros. */
static T put_back(ac_scratch *s, T x, T index, int64_t plane, const char *what) {
    if (index->dtype != AC_int64)
        REFUSE(AC_RUNTIME, "%s: `indices` must be int64, got %s; convert it with .long()", what,
               ac_dtypes[index->dtype].name);
    ac_dims three = {3, {x->shape[0], x->shape[1], 1}}, room = {3, {x->shape[0], x->shape[1], plane}},
            samples = {3, {x->shape[0], 1, 1}}, channels = {2, {x->shape[1], 1}};
    for (int d = 2; d < x->ndim; d++) three.v[2] *= x->shape[d];
    if (x->numel && ac_device_of(index) == AC_CPU &&
        ac_c_any(s, BIN(logical_or, BIN(lt, index, NUM(0)), BIN(ge, index, NUM((double)plane)))))
        REFUSE(AC_RUNTIME, "%s: `indices` must lie between 0 and %" PRId64, what, plane - 1);
    ac_device device = ac_device_of(x);
    T all[5] = {ac_c_full(s, &room, 0, x->dtype, device),
                ac_c_reshape(s, ac_c_arange(s, x->shape[0], device), &samples),
                ac_c_reshape(s, ac_c_arange(s, x->shape[1], device), &channels), ac_c_reshape(s, index, &three),
                ac_c_reshape(s, x, &three)};
    ac_attrs_index_put over = {.from_start = 1};
    T out[AC_MAX_OUT];
    return ac_c_call_many(s, AC_OP_index_put, &over, all, 5, out) < 0 ? NULL : out[0];
}

static T max_unpool(ac_scratch *s, T const *in, const ac_attrs_max_unpool *a, int64_t nd, const char *what) {
    ac_dims window = {0}, step = {0}, around = {0}, shape = {.n = nd + 2};
    int64_t plane = 1, skip = a->size.n - nd; /* a whole shape may be given */
    NEED(need_channels(what, in[0], nd));
    if (!ac_same_shape(in[0], in[1])) {
        char x[AC_SHAPE_TEXT], at[AC_SHAPE_TEXT];
        REFUSE(AC_RUNTIME, "%s: input %s and indices %s must have one shape", what, ac_shape_text(in[0], x),
               ac_shape_text(in[1], at));
    }
    NEED(spread(what, "kernel_size", &a->kernel, nd, &window));
    NEED(spread_stride(what, &a->stride, &window, nd, &step));
    NEED(spread(what, "padding", &a->padding, nd, &around));
    if (a->size.n >= 0 && skip < 0)
        REFUSE(AC_VALUE, "%s: `output_size` must have %" PRId64 " numbers, got %" PRId64, what, nd, a->size.n);
    T x = as_batch(s, in[0], nd);
    if (!x) return NULL;
    for (int64_t d = 0; d < nd + 2; d++) shape.v[d] = x->shape[d];
    for (int64_t d = 0; d < nd; d++) {
        int64_t usual = (x->shape[d + 2] - 1) * step.v[d] - 2 * around.v[d] + window.v[d];
        shape.v[d + 2] = a->size.n < 0 ? usual : a->size.v[skip + d];
        if (shape.v[d + 2] < 0) REFUSE(AC_RUNTIME, "%s: sizes must be 0 or more, got %" PRId64, what, shape.v[d + 2]);
        int64_t more = shape.v[d + 2] - usual;
        if (more && (more >= step.v[d] || -more >= step.v[d]))
            REFUSE(AC_VALUE,
                   "%s: `output_size` must lie between %" PRId64 " and %" PRId64 " in dimension %" PRId64
                   ", which a pooling with this window and stride takes to %" PRId64 " values; got %" PRId64,
                   what, usual - step.v[d] + 1, usual + step.v[d] - 1, d, x->shape[d + 2], shape.v[d + 2]);
        plane *= shape.v[d + 2];
    }
    return as_given(s, ac_c_reshape(s, put_back(s, x, in[1], plane, what), &shape), in[0], nd);
}
COMPOSE_EACH(max_unpool)

/* -- means of windows -------------------------------------------------------------------------------------- */

static int check_means(const char *what, const ac_tensor *x, const ac_attrs_means *m, int64_t nd) {
    for (int64_t d = 0; d < nd; d++) {
        int64_t size = x->shape[x->ndim - nd + d], window = m->kernel.v[d], step = m->stride.v[d],
                around = m->padding.v[d];
        if (step < 1 || around < 0)
            return ac_fail(AC_RUNTIME, "%s: stride must be above 0 and padding 0 or more, got %" PRId64 " and %" PRId64,
                           what, step, around);
        if (window < 1) return ac_fail(AC_RUNTIME, "%s: `kernel_size` must be above 0, got %" PRId64, what, window);
        if (2 * around > window)
            return ac_fail(AC_RUNTIME, "%s: padding %" PRId64 " must be at most half of the window's %" PRId64, what,
                           around, window);
        if (size < 1) return ac_fail(AC_RUNTIME, "%s: a window of %" PRId64 " has no values to average", what, window);
    }
    return 0;
}

static T mean_of_windows(ac_scratch *s, T x, const ac_attrs_means *m, int64_t nd, const char *what) {
    if (!x) return NULL;
    NEED(check_means(what, x, m, nd));
    return ac_c_call(s, AC_OP_avg_pool, m, 1, x);
}

static T avg_pool(ac_scratch *s, T const *in, const ac_attrs_avg_pool *a, int64_t nd, const char *what) {
    ac_attrs_means m = {.ceil_mode = a->ceil_mode, .counts_padding = a->count_include_pad};
    NEED(need_channels(what, in[0], nd));
    NEED(spread(what, "kernel_size", &a->kernel, nd, &m.kernel));
    NEED(spread(what, "padding", &a->padding, nd, &m.padding));
    NEED(spread_stride(what, &a->stride, &m.kernel, nd, &m.stride));
    if (nd > 1 && a->divisor_override != AC_ABSENT) m.divisor = (double)a->divisor_override;
    if (nd > 1 && a->divisor_override == 0) REFUSE(AC_RUNTIME, "%s: `divisor_override` must not be 0", what);
    if (in[0]->dtype != AC_int64) return mean_of_windows(s, in[0], &m, nd, what);
    T mean = mean_of_windows(s, ac_c_cast(s, in[0], AC_float64), &m, nd, what); /* exact sums, divided once */
    return ac_c_cast(s, UN(trunc, mean), AC_int64);
}
COMPOSE(avg_pool1d) {
    ATTRS(avg_pool1d);
    ac_attrs_avg_pool how = {a->kernel, a->stride, a->padding, a->ceil_mode, a->count_include_pad, AC_ABSENT};
    return avg_pool(s, in, &how, 1, "avg_pool1d");
}
COMPOSE(avg_pool2d) { return avg_pool(s, in, attrs, 2, "avg_pool2d"); }
COMPOSE(avg_pool3d) { return avg_pool(s, in, attrs, 3, "avg_pool3d"); }

static T adaptive_avg_pool(ac_scratch *s, T const *in, const ac_attrs_parts *a, int64_t nd, const char *what) {
    ac_attrs_means m = {.stride = {1, {1}}, .padding = {1, {0}}, .adaptive = 1};
    ac_dims last = {.n = nd};
    NEED(part_sizes(what, in[0], &a->size, nd, &m.kernel));
    bool whole = ac_device_of(in[0]) == AC_CPU && ac_is_floating(in[0]->dtype) && in[0]->numel > 0; /* a reduction */
    for (int64_t d = 0; d < nd; d++) whole = whole && m.kernel.v[d] == 1, last.v[d] = in[0]->ndim - nd + d;
    if (whole) return ac_c_mean(s, in[0], &last, true);
    for (int64_t d = 0; d < nd; d++) {
        int64_t size = in[0]->shape[in[0]->ndim - nd + d];
        if (m.kernel.v[d] < 0 || size < 1)
            REFUSE(AC_RUNTIME, "%s: expected values to average, got %" PRId64 " and an `output_size` of %" PRId64, what,
                   size, m.kernel.v[d]);
    }
    return ac_c_call(s, AC_OP_avg_pool, &m, 1, in[0]);
}
COMPOSE_EACH(adaptive_avg_pool)

/* -- norms of windows --------------------------------------------------------------------------------------- */

static T lp_pool(ac_scratch *s, T const *in, const ac_attrs_lp_pool *a, int64_t nd, const char *what) {
    ac_attrs_means m = {.padding = {nd, {0}}, .ceil_mode = a->ceil_mode, .counts_padding = 1};
    int64_t taps = 1;
    NEED(need_channels(what, in[0], nd));
    NEED(spread(what, "kernel_size", &a->kernel, nd, &m.kernel));
    NEED(spread_stride(what, &a->stride, &m.kernel, nd, &m.stride));
    if (a->norm_type == 0) REFUSE(AC_ZERO_DIVISION, "%s: `norm_type` must not be 0, whose root there is none of", what);
    for (int64_t d = 0; d < nd; d++) taps *= m.kernel.v[d];
    if (isinf(a->norm_type)) {
        ac_attrs_max_pool how = {m.kernel, m.stride, {1, {0}}, {1, {1}}, a->ceil_mode, 0};
        T size = UN(abs, in[0]), least = a->norm_type > 0 ? size : UN(neg, size);
        T most = ac_c_call(s, AC_OP_max_pool, &how, 1, least);
        return a->norm_type > 0 ? most : UN(neg, most);
    }
    T powers = POW(ac_c_wide(s, in[0]), REAL(a->norm_type)); /* which 16 bits may not hold */
    if (!powers) return NULL;
    T total = TIMES(mean_of_windows(s, powers, &m, nd, what), (double)taps);
    T zero = BIN(eq, total, NUM(0)); /* a window of zeros has the gradient 0, not nan */
    return ac_c_cast(s, WHERE(zero, NUM(0), POW(WHERE(zero, NUM(1), total), REAL(1 / a->norm_type))), in[0]->dtype);
}
COMPOSE_EACH(lp_pool)
