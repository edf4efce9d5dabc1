/* The kernels of mse_loss, nll_loss and cross entropy, each one pass over memory. */
#include "cpu/reduce/losses.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* -- mse ------------------------------------------------------------------------------------------ */

typedef struct {
    const ac_loops *loops;
    ac_opmath opmath;
    ac_dtype dtypes[2];
    double *sums; /* one for each AC_LEAST_GRAIN elements */
} mse_call;

/* Chunks begin at multiples of AC_LEAST_GRAIN, so `first` tells whose sum a tile is part of. */
static void mse_run(void *context, int64_t n, char *const *data, const int64_t *strides, int64_t first) {
    const mse_call *c = context;
    double x[AC_TILE], y[AC_TILE], d[AC_TILE];
    const ac_attrs_alpha one = {{AC_INT, {1}}};
    for (int64_t at = 0; at < n; at += AC_TILE) {
        int64_t run = n - at < AC_TILE ? n - at : AC_TILE;
        const void *in[2];
        void *buffer[2] = {x, y};
        for (int k = 0; k < 2; k++)
            in[k] = ac_read_run(c->loops, c->opmath, c->dtypes[k], run,
                                data[k] + at * strides[k] * ac_itemsize(c->dtypes[k]), strides[k], buffer[k]);
        c->loops->point[AC_OP_sub][c->opmath](run, in, d, &one);
        ac_total total = {0, 0};
        c->loops->fold[AC_FOLD_SUM_SQUARES][c->opmath](run, d, 0, &total);
        c->sums[(first + at) / AC_LEAST_GRAIN] += total.f;
    }
}

static int mse_each(const ac_run *r) { /* reduction 'none': difference, then square */
    const ac_attrs_alpha one = {{AC_INT, {1}}};
    ac_run part = {
        .op = AC_OP_sub, .in = r->in, .n_in = 2, .attrs = &one, .out = r->out, .n_out = 1, .compute = r->compute};
    AC_TRY(ac_cpu_pointwise(&part));
    part = (ac_run){.op = AC_OP_square, .in = r->out, .n_in = 1, .out = r->out, .n_out = 1, .compute = r->compute};
    return ac_cpu_pointwise(&part);
}

int ac_cpu_mse_loss(const ac_run *r) {
    ATTRS(reduction);
    if (a->reduction == AC_REDUCE_NONE) return mse_each(r);
    ac_dims shape = ac_shape_of(r->in[0]), other = ac_shape_of(r->in[1]);
    AC_TRY(ac_dims_broadcast(&shape, &other, "mse_loss"));
    mse_call c = {
        .loops = ac_cpu_loops(), .opmath = ac_opmath_of(r->compute), .dtypes = {r->in[0]->dtype, r->in[1]->dtype}};
    ac_iter it;
    ac_iter_init(&it, &shape, r->in, 2);
    int64_t chunks = it.numel / AC_LEAST_GRAIN + 1;
    c.sums = ac_calloc((size_t)chunks * sizeof(double));
    if (!c.sums) return -1;
    ac_iter_run(&it, ac_iter_grain_now(&it, AC_GRAIN), mse_run, &c);
    double total = 0;
    for (int64_t i = 0; i < chunks; i++) total += c.sums[i];
    ac_free(c.sums, (size_t)chunks * sizeof(double));
    if (a->reduction == AC_REDUCE_MEAN) total /= (double)it.numel;
    ac_write_double(ac_data(r->out[0]), r->out[0]->dtype, 0, total);
    return 0;
}

/* -- nll -------------------------------------------------------------------------------------------- */

/* Class c of sample i of x [N, C, ...] lies at (sample's offset) + c * class_stride. */
typedef struct {
    ac_space samples, target;
    int64_t classes, class_stride;
} nll_layout;

static nll_layout nll_layout_of(const ac_tensor *x, const ac_tensor *target) {
    int channel = x->ndim > 1;
    return (nll_layout){ac_space_of(x, ~(1u << channel)), ac_space_of(target, UINT32_MAX), x->shape[channel],
                        x->strides[channel]};
}

/* The weight of sample i's class, 0 when it is ignored; its class through `class`; -1 when invalid. */
static double sample_weight(const nll_layout *l, const ac_tensor *target, const ac_tensor *weight, int64_t ignore,
                            int64_t i, int64_t *class) {
    int64_t at = ac_space_offset(&l->target, i);
    *class =
        target->dtype == AC_uint8 ? ((const uint8_t *)ac_data(target))[at] : ((const int64_t *)ac_data(target))[at];
    if (*class == ignore) return 0;
    if (*class < 0 || *class >= l->classes)
        return (double)ac_fail(AC_INDEX, "nll_loss: target %" PRId64 " is out of range for %" PRId64 " classes", *class,
                               l->classes);
    return weight ? ac_read_double(ac_data(weight), weight->dtype, *class * weight->strides[0]) : 1;
}

int ac_cpu_nll_loss(const ac_run *r) {
    ATTRS(nll);
    const ac_tensor *x = r->in[0], *target = r->in[1], *weight = r->in[2];
    nll_layout l = nll_layout_of(x, target);
    blocked losses = {0}, weights = {0};
    for (int64_t i = 0; i < target->numel; i++) {
        int64_t class;
        double w = sample_weight(&l, target, weight, a->ignore_index, i, &class), one = 0;
        if (w < 0 && (class < 0 || class >= l.classes)) return -1;
        if (class != a->ignore_index)
            one = -w * ac_read_double(ac_data(x), x->dtype, ac_space_offset(&l.samples, i) + class * l.class_stride);
        if (a->reduction == AC_REDUCE_NONE) ac_write_double(ac_data(r->out[0]), r->out[0]->dtype, i, one);
        add_number(&losses, one);
        add_number(&weights, w);
    }
    if (a->reduction == AC_REDUCE_NONE) return 0;
    double loss = sum_of(&losses), total = sum_of(&weights);
    ac_write_double(ac_data(r->out[0]), r->out[0]->dtype, 0, a->reduction == AC_REDUCE_MEAN ? loss / total : loss);
    return 0;
}

int ac_cpu_nll_loss_backward(const ac_run *r) {
    ATTRS(nll_backward);
    const ac_tensor *g = r->in[0], *target = r->in[1], *weight = r->in[2];
    ac_tensor *dx = r->out[0];
    nll_layout l = nll_layout_of(dx, target);
    ac_space grads = ac_space_of(g, UINT32_MAX);
    blocked weights = {0};
    double scale = 1;
    ac_attrs_full zero = {.value = {AC_INT, {0}}};
    ac_run clear = {.out = r->out, .n_out = 1, .attrs = &zero};
    AC_TRY(ac_cpu_fill(&clear));
    for (int64_t i = 0; a->reduction == AC_REDUCE_MEAN && i < target->numel; i++) {
        int64_t class;
        add_number(&weights, sample_weight(&l, target, weight, a->ignore_index, i, &class));
    }
    if (a->reduction == AC_REDUCE_MEAN) scale = 1 / sum_of(&weights);
    for (int64_t i = 0; i < target->numel; i++) {
        int64_t class;
        double w = sample_weight(&l, target, weight, a->ignore_index, i, &class);
        if (class == a->ignore_index) continue;
        if (class < 0 || class >= l.classes) return -1;
        int64_t from = a->reduction == AC_REDUCE_NONE ? ac_space_offset(&grads, i) : 0;
        ac_write_double(ac_data(dx), dx->dtype, ac_space_offset(&l.samples, i) + class * l.class_stride,
                        -w * scale * ac_read_double(ac_data(g), g->dtype, from));
    }
    return 0;
}

/* -- cross entropy ------------------------------------------------------------------------------------ */

/* The loss of a sample is -w log p[target]. Label smoothing takes 1 - mix of that, and of -w[c] log p[c] of every class
 * c, mix / classes. */
typedef struct {
    const ac_run *r;
    const ac_attrs_cross_entropy *a;
    class_rows rows;
    nll_layout l;
    const ac_tensor *x, *target, *weight, *g;
    const double *totals;
    ac_space grads;
    double *each; /* loss and weight of each sample */
} entropy_call;

static entropy_call entropy_of(const ac_run *r, const ac_tensor *x) {
    return (entropy_call){.r = r,
                          .a = r->attrs,
                          .rows = {ac_cpu_loops(), ac_opmath_of(x->dtype), x->shape[x->ndim > 1]},
                          .l = nll_layout_of(x, r->in[1]),
                          .x = x,
                          .target = r->in[1],
                          .weight = r->in[2]};
}

static double class_weight(const ac_tensor *weight, int64_t class) {
    return weight ? ac_read_double(ac_data(weight), weight->dtype, class * weight->strides[0]) : 1;
}

/* The sum over all classes of -w log p. */
static double even_loss(const entropy_call *c, const void *log_p) {
    if (!c->weight) return -fold_row(&c->rows, AC_FOLD_SUM, 0, log_p);
    double sum = 0;
    for (int64_t j = 0; j < c->l.classes; j++)
        sum -= class_weight(c->weight, j) * ac_read_double(log_p, ac_opmath_dtype(c->rows.opmath), j);
    return sum;
}

static void entropy_rows(void *context, int64_t begin, int64_t end, char *buffer) {
    const entropy_call *c = context;
    double mix = c->a->label_smoothing, *lse = ac_data(c->r->out[1]);
    char *log_p = buffer + row_room(&c->rows);
    for (int64_t i = begin; i < end && !ac_poll(); i++) {
        int64_t class;
        double w = sample_weight(&c->l, c->target, c->weight, c->a->ignore_index, i, &class);
        double *each = &c->each[2 * i];
        each[0] = lse[2 * i] = lse[2 * i + 1] = 0, each[1] = w;
        if (class == c->a->ignore_index) continue;
        log_shares(&c->rows, read_row(&c->rows, c->x, &c->l.samples, i, buffer), log_p, &lse[2 * i]);
        each[0] = -w * ac_read_double(log_p, ac_opmath_dtype(c->rows.opmath), class);
        if (mix != 0) each[0] = (1 - mix) * each[0] + mix / (double)c->l.classes * even_loss(c, log_p);
    }
}

/* Whether all targets are classes, or ignored. */
static int check_targets(const entropy_call *c) {
    for (int64_t i = 0; i < c->target->numel; i++) {
        int64_t class;
        double w = sample_weight(&c->l, c->target, c->weight, c->a->ignore_index, i, &class);
        if (w < 0 && (class < 0 || class >= c->l.classes)) return -1;
    }
    return 0;
}

/* Of samples without weight the mean is nan, also where label smoothing leaves a loss. */
static void join_losses(const entropy_call *c, int64_t n) {
    ac_tensor *out = c->r->out[0];
    double *totals = ac_data(c->r->out[2]);
    blocked losses = {0}, weights = {0};
    totals[1] = 0;
    for (int64_t i = 0; i < n; i++) {
        if (c->a->reduction == AC_REDUCE_NONE) ac_write_double(ac_data(out), out->dtype, i, c->each[2 * i]);
        add_number(&losses, c->each[2 * i]);
        add_number(&weights, c->each[2 * i + 1]);
    }
    for (int64_t j = 0; j < c->l.classes; j++) totals[1] += class_weight(c->weight, j);
    double loss = sum_of(&losses);
    totals[0] = sum_of(&weights);
    if (c->a->reduction == AC_REDUCE_NONE) return;
    if (c->a->reduction == AC_REDUCE_MEAN) loss = (totals[0] == 0 ? 0 : loss) / totals[0];
    ac_write_double(ac_data(out), out->dtype, 0, loss);
}

int ac_cpu_class_entropy(const ac_run *r) {
    entropy_call c = entropy_of(r, r->in[0]);
    int64_t n = c.target->numel;
    AC_TRY(check_targets(&c));
    size_t bytes = (size_t)(2 * n + 1) * sizeof(double);
    c.each = ac_alloc(bytes);
    if (!c.each) return -1;
    int failed = ac_for_range_with(n, AC_GRAIN_SLOW / (c.l.classes + 1), 2 * row_room(&c.rows), entropy_rows, &c);
    if (!failed) join_losses(&c, n);
    ac_free(c.each, bytes);
    return failed;
}

/* p = by p - even w */
#define SLOPE(R, name)                                                                                                 \
    static void slope_##name(int64_t n, R by, R even, const ac_tensor *weight, R *p) {                                 \
        if (!weight || even == 0)                                                                                      \
            for (int64_t j = 0; j < n; j++) p[j] = by * p[j] - even;                                                   \
        else                                                                                                           \
            for (int64_t j = 0; j < n; j++) p[j] = by * p[j] - even * (R)class_weight(weight, j);                      \
    }
SLOPE(float, f32)
SLOPE(double, f64)
#undef SLOPE

/* g times the slope of the loss of a sample of this class and weight, of which softmax has made p already. */
static void slope(const entropy_call *c, double g, int64_t class, double w, void *p) {
    double mix = c->a->label_smoothing, even = mix / (double)c->l.classes, hit = g * (1 - mix) * w;
    double by = hit + g * even * c->totals[1];
    int64_t n = c->l.classes;
    if (c->rows.opmath == AC_OPMATH_F64) slope_f64(n, by, g * even, c->weight, p), ((double *)p)[class] -= hit;
    else slope_f32(n, (float)by, (float)(g * even), c->weight, p), ((float *)p)[class] -= (float)hit;
}

static void entropy_slopes(void *context, int64_t begin, int64_t end, char *buffer) {
    const entropy_call *c = context;
    ac_tensor *dx = c->r->out[0];
    nll_layout to = nll_layout_of(dx, c->target);
    char *p = buffer + row_room(&c->rows);
    for (int64_t i = begin; i < end && !ac_poll(); i++) {
        int64_t class, from = c->a->reduction == AC_REDUCE_NONE ? ac_space_offset(&c->grads, i) : 0;
        double w = sample_weight(&c->l, c->target, c->weight, c->a->ignore_index, i, &class);
        double g = ac_read_double(ac_data(c->g), c->g->dtype, from);
        if (c->a->reduction == AC_REDUCE_MEAN) g /= c->totals[0];
        if (class == c->a->ignore_index) memset(p, 0, row_room(&c->rows));
        else {
            const void *x = read_row(&c->rows, c->x, &c->l.samples, i, buffer);
            c->rows.loops->softmax[c->rows.opmath](c->l.classes, x, p);
            slope(c, g, class, w, p);
        }
        write_row(&c->rows, p, dx, &to.samples, i);
    }
}

int ac_cpu_class_entropy_backward(const ac_run *r) {
    enum { G, X = 3, LSE, TOTALS };
    entropy_call c = entropy_of(r, r->in[X]);
    c.g = r->in[G], c.grads = ac_space_of(c.g, UINT32_MAX), c.totals = ac_data(r->in[TOTALS]);
    AC_TRY(check_targets(&c));
    return ac_for_range_with(c.target->numel, AC_GRAIN_SLOW / (c.l.classes + 1), 2 * row_room(&c.rows), entropy_slopes,
                             &c);
}
