/* Shape functions of windows: convolution, pooling, resampling. */
#include "ops/infer.h"
#include "ops/window_args.h"

#include <inttypes.h>

#define ATTRS(name) const ac_attrs_##name *a = i->attrs

/* -- windows ----------------------------------------------------------------------------------------- */

static int64_t nth(const ac_dims *list, int64_t d, int64_t otherwise) {
    return !list || list->n == 0 ? otherwise : list->v[list->n == 1 ? 0 : d];
}

static int check_list(const char *what, const char *name, const ac_dims *list, int64_t nd, int64_t least) {
    char text[AC_SHAPE_TEXT];
    if (!list || list->n == 0) return 0;
    bool good = list->n == 1 || list->n == nd;
    for (int64_t d = 0; d < list->n; d++) good = good && list->v[d] >= least && list->v[d] <= INT32_MAX;
    if (good) return 0;
    return ac_fail(AC_RUNTIME, "%s: `%s` must be one number or %" PRId64 ", each %" PRId64 " or more, got %s", what,
                   name, nd, least, ac_dims_text(list, text));
}

static int read_lists(ac_windows *w, const ac_window_lists *l, int64_t nd) {
    if (nd < 1 || nd > 3) return ac_fail(AC_RUNTIME, "%s: windows have 1 to 3 dimensions, got %" PRId64, l->what, nd);
    AC_TRY(check_list(l->what, "kernel_size", l->kernel, nd, 1));
    AC_TRY(check_list(l->what, "stride", l->stride, nd, 1));
    AC_TRY(check_list(l->what, "padding", l->padding, nd, 0));
    AC_TRY(check_list(l->what, "dilation", l->dilation, nd, 1));
    *w = (ac_windows){{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, 0};
    for (int64_t d = 0, at = 3 - nd; d < nd; d++, at++) {
        w->kernel[at] = nth(l->kernel, d, 1), w->stride[at] = nth(l->stride, d, w->kernel[at]);
        w->padding[at] = nth(l->padding, d, 0), w->dilation[at] = nth(l->dilation, d, 1);
    }
    return 0;
}

int ac_windows_of(ac_windows *w, const ac_window_lists *l, const int64_t *in, int64_t nd) {
    AC_TRY(read_lists(w, l, nd));
    for (int64_t d = 3 - nd; d < 3; d++) {
        w->in[d] = in[d - (3 - nd)];
        int64_t reach = w->in[d] + 2 * w->padding[d] - w->dilation[d] * (w->kernel[d] - 1) - 1;
        bool begins = l->ceil_mode && w->in[d] > 0 && reach + w->stride[d] > 0; /* and ends beyond */
        if (reach < 0 && !begins)
            return ac_fail(AC_RUNTIME,
                           "%s: a window of %" PRId64 " (dilation %" PRId64 ") is larger than the %" PRId64
                           " values of dimension %" PRId64 " with padding %" PRId64 " on both sides",
                           l->what, w->kernel[d], w->dilation[d], w->in[d], d - 3, w->padding[d]);
        w->out[d] = (reach + (l->ceil_mode ? w->stride[d] - 1 : 0)) / w->stride[d] + 1;
        if (l->ceil_mode && (w->out[d] - 1) * w->stride[d] >= w->in[d] + w->padding[d]) w->out[d]--;
    }
    return 0;
}

/* Whether the columns of so many channels, a value for each tap of each position, can be counted. */
static int need_countable(const ac_windows *w, int64_t channels) {
    ac_dims all = {7, {channels}};
    for (int d = 0; d < 3; d++) all.v[1 + d] = w->kernel[d], all.v[4 + d] = w->out[d];
    return ac_dims_numel(&all) < 0 ? -1 : 0;
}

int ac_windows_onto(ac_windows *w, const ac_window_lists *l, const int64_t *out, const ac_dims *output_padding,
                    int64_t nd) {
    AC_TRY(read_lists(w, l, nd));
    AC_TRY(check_list(l->what, "output_padding", output_padding, nd, 0));
    for (int64_t d = 3 - nd; d < 3; d++) {
        int64_t more = nth(output_padding, d - (3 - nd), 0);
        w->out[d] = out[d - (3 - nd)];
        if (more >= w->stride[d] && more >= w->dilation[d])
            return ac_fail(AC_RUNTIME,
                           "%s: `output_padding` %" PRId64 " must be below stride %" PRId64 " or dilation %" PRId64,
                           l->what, more, w->stride[d], w->dilation[d]);
        w->in[d] = (w->out[d] - 1) * w->stride[d] - 2 * w->padding[d] + w->dilation[d] * (w->kernel[d] - 1) + 1 + more;
        if (w->in[d] < 1)
            return ac_fail(AC_RUNTIME, "%s: padding %" PRId64 " leaves nothing of dimension %" PRId64, l->what,
                           w->padding[d], d - (3 - nd));
    }
    return 0;
}

int ac_convolution_windows(ac_windows *w, const ac_tensor *x, const ac_dims *kernel, const ac_attrs_convolution *a) {
    ac_window_lists l = {"convolution", kernel, &a->stride, &a->padding, &a->dilation, false};
    if (a->transposed) return ac_windows_onto(w, &l, x->shape + 2, &a->output_padding, kernel->n);
    return ac_windows_of(w, &l, x->shape + 2, kernel->n);
}

/* Windows of pooling; adaptive ones divide the input into as many as the list of kernels says. */
static int pool_windows(ac_windows *w, const ac_window_lists *l, bool adaptive, const int64_t *size) {
    const ac_dims *kernel = l->kernel;
    if (!adaptive) return ac_windows_of(w, l, size, kernel->n);
    *w = (ac_windows){{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, 1};
    for (int64_t d = 0; d < kernel->n; d++)
        w->in[3 - kernel->n + d] = size[d], w->out[3 - kernel->n + d] = kernel->v[d];
    return 0;
}

int ac_max_pool_windows(ac_windows *w, const ac_tensor *x, const ac_attrs_max_pool *a) {
    ac_window_lists l = {"max_pool", &a->kernel, &a->stride, &a->padding, &a->dilation, a->ceil_mode != 0};
    return pool_windows(w, &l, a->adaptive, x->shape + x->ndim - a->kernel.n);
}

int ac_avg_pool_windows(ac_windows *w, const int64_t *size, const ac_attrs_means *a) {
    ac_window_lists l = {"avg_pool", &a->kernel, &a->stride, &a->padding, NULL, a->ceil_mode != 0};
    return pool_windows(w, &l, a->adaptive, size);
}

/* -- convolution ---------------------------------------------------------------------------------------- */

static ac_dims kernel_of(const ac_tensor *weight) {
    ac_dims kernel = {.n = weight->ndim - 2};
    for (int64_t d = 0; d < kernel.n; d++) kernel.v[d] = weight->shape[d + 2];
    return kernel;
}

static int low_dtype(ac_infer *i, int64_t out_dtype) {
    AC_TRY(ac_need_floating(i, 0));
    AC_TRY(ac_need_floating(i, 1));
    if (i->low == AC_NO_DTYPE) AC_TRY(ac_need_same_dtype(i, 0, 1));
    i->compute = i->low == AC_NO_DTYPE ? i->in[0]->dtype : (ac_dtype)i->low;
    i->out[0].dtype = out_dtype != AC_NO_DTYPE ? (ac_dtype)out_dtype : i->compute;
    if (!ac_is_floating(i->out[0].dtype))
        return ac_fail(AC_RUNTIME, "%s: `out_dtype` must be floating point, got %s", i->info->shown,
                       ac_dtypes[i->out[0].dtype].name);
    return 0;
}

static int need_channels(const ac_infer *i, const ac_attrs_convolution *a) {
    const ac_tensor *x = i->in[0], *w = i->in[1];
    char xt[AC_SHAPE_TEXT], wt[AC_SHAPE_TEXT];
    int64_t groups = a->groups, channels = x->shape[1];
    bool good = groups >= 1 && channels % groups == 0 && w->shape[0] % groups == 0 && w->shape[0] > 0;
    good = good && (a->transposed ? w->shape[0] == channels : w->shape[1] * groups == channels);
    if (good) return 0;
    ac_shape_text(w, wt), ac_shape_text(x, xt);
    if (groups < 1) return ac_fail(AC_RUNTIME, "convolution: `groups` must be 1 or more, got %" PRId64, groups);
    int64_t takes = a->transposed ? w->shape[0] : w->shape[1] * groups;
    if (channels != takes)
        return ac_fail(AC_RUNTIME,
                       "convolution: the input %s has %" PRId64 " channels, and the weight %s with groups=%" PRId64
                       " takes %" PRId64 "; they are [N, C, ...] and [%s, ...]%s",
                       xt, channels, wt, groups, takes, a->transposed ? "C, out / groups" : "out, C / groups",
                       x->shape[x->ndim - 1] == takes ? ". Channels that come last must be permuted" : "");
    return ac_fail(AC_RUNTIME,
                   "convolution: groups=%" PRId64 " divides not both the %" PRId64
                   " channels of the input %s and the first dimension of the weight %s",
                   groups, channels, xt, wt);
}

int ac_infer_convolution(ac_infer *i) {
    ATTRS(convolution);
    const ac_tensor *x = i->in[0], *w = i->in[1], *bias = i->in[2];
    ac_windows windows;
    if (w->ndim < 3 || w->ndim > 5)
        return ac_fail(AC_RUNTIME, "convolution: `weight` must have 3 to 5 dimensions, got %d", w->ndim);
    AC_TRY(ac_need_ndim(i, 0, w->ndim));
    AC_TRY(need_channels(i, a));
    AC_TRY(low_dtype(i, a->out_dtype));
    ac_dims kernel = kernel_of(w),
            shape = {w->ndim, {x->shape[0], a->transposed ? w->shape[1] * a->groups : w->shape[0]}};
    AC_TRY(ac_convolution_windows(&windows, x, &kernel, a));
    AC_TRY(need_countable(&windows, w->shape[1]));
    const int64_t *size = (a->transposed ? windows.in : windows.out) + 3 - kernel.n;
    for (int64_t d = 0; d < kernel.n; d++) shape.v[d + 2] = size[d];
    ac_dims each = {1, {shape.v[1]}};
    if (bias) AC_TRY(ac_need_shape(i, 2, &each));
    if (bias && i->low == AC_NO_DTYPE) AC_TRY(ac_need_same_dtype(i, 1, 2));
    i->out[0].shape = shape;
    return 0;
}

int ac_infer_convolution_weight(ac_infer *i) {
    ATTRS(convolution_weight);
    const ac_tensor *x = i->in[0], *g = i->in[1];
    ac_windows w;
    ac_window_lists l = {"convolution", &a->kernel, &a->stride, &a->padding, &a->dilation, false};
    AC_TRY(ac_need_ndim(i, 1, x->ndim));
    if (x->ndim != a->kernel.n + 2 || a->groups < 1 || x->shape[1] % a->groups || g->shape[1] % a->groups)
        return ac_fail(AC_RUNTIME,
                       "convolution: the gradient of its weight needs [N, C, ...] for %" PRId64
                       " dimensions of the kernel",
                       a->kernel.n);
    AC_TRY(ac_windows_of(&w, &l, x->shape + 2, a->kernel.n));
    AC_TRY(need_countable(&w, x->shape[1]));
    ac_dims positions = {x->ndim, {x->shape[0], g->shape[1]}};
    for (int64_t d = 0; d < a->kernel.n; d++) positions.v[d + 2] = w.out[3 - a->kernel.n + d];
    AC_TRY(ac_need_shape(i, 1, &positions));
    AC_TRY(low_dtype(i, a->out_dtype));
    ac_dims shape = {x->ndim, {g->shape[1], x->shape[1] / a->groups}};
    for (int64_t d = 0; d < a->kernel.n; d++) shape.v[d + 2] = a->kernel.v[d];
    i->out[0].shape = shape;
    return 0;
}

/* -- columns -------------------------------------------------------------------------------------------- */

/* Windows need values and channels; samples there may be none of. Adaptive pools take the first dimension for samples
 * always. */
static int refuse_empty_input(const char *what, const ac_dims *x, int64_t nd, bool adaptive) {
    for (int64_t d = x->n == nd ? 0 : adaptive ? 1 : x->n - nd - 1; d < x->n; d++)
        if (x->v[d] == 0)
            return ac_fail(AC_RUNTIME,
                           "%s: dimension %" PRId64 " of the input is empty; only that of the samples may be", what, d);
    return 0;
}

int ac_infer_im2col(ac_infer *i) {
    ATTRS(im2col);
    ac_windows w;
    ac_window_lists l = {"unfold", &a->kernel, &a->stride, &a->padding, &a->dilation, false};
    AC_TRY(ac_need_floating(i, 0));
    AC_TRY(ac_need_ndim(i, 0, (int)a->kernel.n + 2));
    ac_dims given = ac_shape_of(i->in[0]);
    AC_TRY(refuse_empty_input("unfold", &given, a->kernel.n, false));
    AC_TRY(ac_windows_of(&w, &l, i->in[0]->shape + 2, a->kernel.n));
    AC_TRY(need_countable(&w, i->in[0]->shape[1]));
    ac_dims shape = {3, {i->in[0]->shape[0], i->in[0]->shape[1] * ac_product3(w.kernel), ac_product3(w.out)}};
    i->out[0] = (ac_spec){i->in[0]->dtype, shape, AC_CPU};
    return 0;
}

int ac_infer_col2im(ac_infer *i) {
    ATTRS(col2im);
    ac_windows w;
    ac_window_lists l = {"fold", &a->kernel, &a->stride, &a->padding, &a->dilation, false};
    AC_TRY(ac_need_floating(i, 0));
    AC_TRY(ac_need_ndim(i, 0, 3));
    AC_TRY(check_list("fold", "output_size", &a->size, a->kernel.n, 1));
    if (a->size.n != a->kernel.n)
        return ac_fail(AC_RUNTIME,
                       "fold: `output_size` and `kernel_size` must have as many numbers, got %" PRId64 " and %" PRId64,
                       a->size.n, a->kernel.n);
    AC_TRY(ac_windows_of(&w, &l, a->size.v, a->kernel.n));
    AC_TRY(need_countable(&w, 1));
    const ac_tensor *x = i->in[0];
    int64_t taps = ac_product3(w.kernel), positions = ac_product3(w.out);
    if (x->shape[1] == 0 || x->shape[1] % taps || x->shape[2] != positions)
        return ac_fail(AC_RUNTIME,
                       "fold: needs columns [N, C * %" PRId64 ", %" PRId64
                       "] (taps of a window, positions), got %" PRId64 " and %" PRId64,
                       taps, positions, x->shape[1], x->shape[2]);
    ac_dims shape = {.n = a->size.n + 2, .v = {x->shape[0], x->shape[1] / taps}};
    for (int64_t d = 0; d < a->size.n; d++) shape.v[d + 2] = a->size.v[d];
    i->out[0] = (ac_spec){x->dtype, shape, AC_CPU};
    return 0;
}

/* -- pooling, resampling ------------------------------------------------------------------------------- */

/* Whether position o of dimension d has a tap that is not in the padding. */
static bool sees_input(const ac_windows *w, int d, int64_t o) {
    int64_t begin, end, dilation;
    ac_window_span(w, d, o, &begin, &end, &dilation);
    return begin < end;
}

/* Every window has something to choose from; taps may pass over the whole input where they are further apart. */
static int refuse_empty_windows(const ac_windows *w, int64_t nd) {
    for (int d = (int)(3 - nd); d < 3; d++)
        for (int64_t o = 0; w->dilation[d] > w->in[d] && o < w->out[d]; o++)
            if (!sees_input(w, d, o))
                return ac_fail(AC_RUNTIME,
                               "max_pool: window %" PRId64 " of dimension %" PRId64
                               " lies wholly in the padding (kernel_size %" PRId64 ", padding %" PRId64
                               ", dilation %" PRId64 " over %" PRId64 " values); give less padding or dilation",
                               o, d - (3 - nd), w->kernel[d], w->padding[d], w->dilation[d], w->in[d]);
    return 0;
}

int ac_infer_max_pool(ac_infer *i) {
    ATTRS(max_pool);
    const ac_tensor *x = i->in[0];
    int64_t nd = a->kernel.n;
    ac_windows w;
    if (nd < 1 || nd > 3 || x->ndim < nd)
        return ac_fail(AC_RUNTIME, "max_pool: windows of %" PRId64 " dimensions do not fit a tensor of %d", nd,
                       x->ndim);
    ac_dims shape = ac_shape_of(x);
    if (a->adaptive) AC_TRY(check_list("adaptive_max_pool", "output_size", &a->kernel, nd, 0));
    AC_TRY(refuse_empty_input("max_pool", &shape, nd, a->adaptive));
    if (!a->adaptive) {
        ac_window_lists l = {"max_pool", &a->kernel, &a->stride, &a->padding, &a->dilation, a->ceil_mode != 0};
        AC_TRY(ac_windows_of(&w, &l, x->shape + x->ndim - nd, nd));
        for (int64_t d = 3 - nd; d < 3; d++)
            if (2 * w.padding[d] > (w.kernel[d] - 1) * w.dilation[d] + 1)
                return ac_fail(AC_RUNTIME,
                               "max_pool: padding %" PRId64 " must be at most half of the window's %" PRId64,
                               w.padding[d], w.kernel[d]);
        AC_TRY(refuse_empty_windows(&w, nd));
    }
    for (int64_t d = 0; d < nd; d++) shape.v[x->ndim - nd + d] = a->adaptive ? a->kernel.v[d] : w.out[3 - nd + d];
    i->out[0] = (ac_spec){x->dtype, shape, AC_CPU};
    i->out[1] = (ac_spec){AC_int64, shape, AC_CPU};
    return 0;
}

/* The windows of a tensor of shape a->size. */
int ac_max_pool_backward_windows(ac_windows *w, const ac_attrs_max_pool_backward *a) {
    ac_tensor x = {.ndim = (int)a->size.n};
    for (int64_t d = 0; d < a->size.n; d++) x.shape[d] = a->size.v[d];
    ac_attrs_max_pool forward = {a->kernel, a->stride, a->padding, a->dilation, a->ceil_mode, a->adaptive};
    return ac_max_pool_windows(w, &x, &forward);
}

int ac_infer_max_pool_backward(ac_infer *i) {
    ATTRS(max_pool_backward);
    const ac_tensor *g = i->in[0];
    int64_t nd = a->kernel.n, lead = a->size.n - nd;
    ac_dims want = a->size;
    ac_windows w;
    AC_TRY(ac_need_floating(i, 0));
    if (nd < 1 || nd > 3 || lead < 0)
        return ac_fail(AC_RUNTIME, "max_pool: windows of %" PRId64 " dimensions do not fit a tensor of %" PRId64, nd,
                       a->size.n);
    AC_TRY(ac_max_pool_backward_windows(&w, a));
    for (int64_t d = 0; d < nd; d++) want.v[lead + d] = w.out[3 - nd + d];
    AC_TRY(ac_need_shape(i, 0, &want));
    AC_TRY(ac_need_shape(i, 1, &want));
    if (i->in[1]->dtype != AC_int64)
        return ac_fail(AC_RUNTIME, "max_pool: `indices` must be int64, got %s", ac_dtypes[i->in[1]->dtype].name);
    i->out[0] = (ac_spec){g->dtype, a->size, AC_CPU};
    return 0;
}

/* The shape of the means of windows over a tensor of shape `x`. */
static int means_of(const ac_infer *i, const ac_dims *x, const ac_attrs_means *a, ac_dims *shape) {
    int64_t nd = a->kernel.n;
    ac_windows w;
    if (nd < 1 || nd > 3 || x->n < nd)
        return ac_fail(AC_RUNTIME, "%s: windows of %" PRId64 " dimensions do not fit a tensor of %" PRId64,
                       i->info->shown, nd, x->n);
    if (a->adaptive) AC_TRY(check_list(i->info->shown, "output_size", &a->kernel, nd, 0));
    else AC_TRY(refuse_empty_input(i->info->shown, x, nd, false));
    AC_TRY(ac_avg_pool_windows(&w, x->v + x->n - nd, a));
    *shape = *x;
    for (int64_t d = 0; d < nd; d++) shape->v[x->n - nd + d] = w.out[3 - nd + d];
    return 0;
}

int ac_infer_avg_pool(ac_infer *i) {
    ATTRS(means);
    ac_dims x = ac_shape_of(i->in[0]);
    AC_TRY(ac_need_floating(i, 0));
    i->out[0] = (ac_spec){.dtype = i->in[0]->dtype, .device = AC_CPU};
    return means_of(i, &x, a, &i->out[0].shape);
}

int ac_infer_avg_pool_backward(ac_infer *i) {
    ATTRS(means_backward);
    ac_attrs_means forward = ac_means_forward(a);
    ac_dims want;
    AC_TRY(ac_need_floating(i, 0));
    if (ac_dims_numel(&a->size) < 0) return -1;
    AC_TRY(means_of(i, &a->size, &forward, &want));
    AC_TRY(ac_need_shape(i, 0, &want));
    i->out[0] = (ac_spec){i->in[0]->dtype, a->size, AC_CPU};
    return 0;
}

int ac_infer_resample(ac_infer *i) {
    ATTRS(resample);
    int64_t dim = a->dim;
    AC_TRY(ac_need_floating(i, 0));
    AC_TRY(ac_dim_wrap(&dim, i->in[0]->ndim, i->info->shown));
    if (i->in[0]->ndim == 0) return ac_fail(AC_RUNTIME, "%s: needs at least 1 dimension", i->info->shown);
    for (int k = 1; k < 5; k++) {
        AC_TRY(ac_need_ndim(i, k, 2));
        ac_dtype want = k % 2 ? AC_int64 : AC_float64;
        ac_dims shape = ac_shape_of(i->in[k % 2 ? k : k - 1]);
        AC_TRY(ac_need_shape(i, k, &shape));
        if (i->in[k]->dtype != want || !ac_is_contiguous(i->in[k]))
            return ac_fail(AC_RUNTIME, "%s: `%s` must be contiguous %s", i->info->shown, ac_input_name(i, k),
                           ac_dtypes[want].name);
    }
    if (i->in[3]->shape[0] != i->in[0]->shape[dim])
        return ac_fail(AC_RUNTIME, "%s: the adjoint's table has %" PRId64 " rows for %" PRId64 " values",
                       i->info->shown, i->in[3]->shape[0], i->in[0]->shape[dim]);
    i->out[0] = (ac_spec){i->in[0]->dtype, ac_shape_of(i->in[0]), AC_CPU};
    i->out[0].shape.v[dim] = i->in[1]->shape[0];
    return 0;
}
