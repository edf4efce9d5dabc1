/* Cross entropy whose target is classes, one pass over memory. Samples go one by one, a row of classes each, or in
 * tiles. */
#include "cpu/reduce/loss_tiles.h"

#include <string.h>

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

/* What a sample of this class and weight adds to its row: by p - even w[c] for every class c, less `hit` for its own.
 */
typedef struct {
    double by, even, hit;
} slopes;

#define R float
#define S(name) name##_f32
#include "cpu/reduce/class_loops.inc"
#undef R
#undef S
#define R double
#define S(name) name##_f64
#include "cpu/reduce/class_loops.inc"
#undef R
#undef S

#define OF_TYPE(...) BY_OPMATH(c->rows.opmath, __VA_ARGS__)

/* Over all samples, with scratch memory for two rows or tiles. */
static int each_sample(entropy_call *c, ac_scratch_fn by_rows, ac_scratch_fn by_tiles) {
    const ac_space *samples = &c->l.samples;
    bool tiles = goes_in_tiles(&c->rows, c->x, &samples, 1);
    return each_sample_of(&c->rows, c->target->numel, tiles, 2, tiles ? by_tiles : by_rows, c);
}

/* -- forward ---------------------------------------------------------------------------------------------- */

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

/* The sums over all classes of -w log p, of the samples of a tile. */
static void even_losses(const entropy_call *c, const tile *t, const char *x, const per_sample *rest, double *sums) {
    for (int64_t j = 0; j < t->n; j++) sums[j] = 0;
    for (int64_t k = 0; k < c->l.classes; k++)
        OF_TYPE(add_losses, t->n, class_weight(c->weight, k), (const void *)(x + k * t->bytes), (const void *)rest->v,
                sums);
}

static void entropy_tiles(void *context, int64_t begin, int64_t end, char *buffer) {
    const entropy_call *c = context;
    const ac_space *samples = &c->l.samples;
    double mix = c->a->label_smoothing, *lse = ac_data(c->r->out[1]), rests[TILE], even[TILE] = {0};
    char *x = buffer, *e = x + TILE * row_room(&c->rows);
    for (int64_t i = begin; i < end && !ac_poll();) {
        tile t = tile_at(&c->rows, i, end, &samples, 1);
        per_sample top, rest;
        read_below(&c->rows, &t, c->x, samples, x, &top);
        log_of_sum(&c->rows, &t, x, e, &rest);
        OF_TYPE(to_double, t.n, (const void *)top.v, &lse[2 * i], 2);
        OF_TYPE(to_double, t.n, (const void *)rest.v, rests, 1);
        if (mix != 0) even_losses(c, &t, x, &rest, even);
        for (int64_t j = 0; j < t.n; j++) {
            int64_t class;
            double w = sample_weight(&c->l, c->target, c->weight, c->a->ignore_index, i + j, &class);
            double *each = &c->each[2 * (i + j)], *parts = &lse[2 * (i + j)];
            each[0] = 0, each[1] = w, parts[1] = rests[j];
            if (class == c->a->ignore_index) parts[0] = parts[1] = 0;
            else
                each[0] =
                    w * (rests[j] - ac_read_double(x, ac_opmath_dtype(c->rows.opmath), class * t.n + j)) * (1 - mix) +
                    (mix == 0 ? 0 : mix / (double)c->l.classes * even[j]);
        }
        i += t.n;
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
    int failed = each_sample(&c, entropy_rows, entropy_tiles);
    if (!failed) join_losses(&c, n);
    ac_free(c.each, bytes);
    return failed;
}

/* -- backward --------------------------------------------------------------------------------------------- */

/* Of a loss of sample i that has the gradient g; 0 where its class is ignored. */
static slopes slopes_of(const entropy_call *c, int64_t i, int64_t *class) {
    double w = sample_weight(&c->l, c->target, c->weight, c->a->ignore_index, i, class);
    if (*class == c->a->ignore_index) return (slopes){0, 0, 0};
    double g = ac_read_double(ac_data(c->g), c->g->dtype,
                              c->a->reduction == AC_REDUCE_NONE ? ac_space_offset(&c->grads, i) : 0);
    if (c->a->reduction == AC_REDUCE_MEAN) g /= c->totals[0];
    double mix = c->a->label_smoothing, even = g * (mix / (double)c->l.classes), hit = g * (1 - mix) * w;
    return (slopes){hit + even * c->totals[1], even, hit};
}

static void entropy_slopes(void *context, int64_t begin, int64_t end, char *buffer) {
    const entropy_call *c = context;
    ac_tensor *dx = c->r->out[0];
    nll_layout to = nll_layout_of(dx, c->target);
    for (int64_t i = begin; i < end && !ac_poll(); i++) {
        int64_t class;
        slopes s = slopes_of(c, i, &class);
        void *p = row_to_write(&c->rows, dx, &to.samples, i, buffer + row_room(&c->rows));
        if (class == c->a->ignore_index) memset(p, 0, row_bytes(&c->rows));
        else {
            const void *x = read_row(&c->rows, c->x, &c->l.samples, i, buffer);
            c->rows.loops->softmax[c->rows.opmath](c->l.classes, x, p);
            OF_TYPE(row_slopes, c->l.classes, &s, s.even == 0 ? NULL : c->weight, p);
            OF_TYPE(add_at, p, class, -s.hit);
        }
        write_row(&c->rows, p, dx, &to.samples, i);
    }
}

static void entropy_tile_slopes(void *context, int64_t begin, int64_t end, char *buffer) {
    const entropy_call *c = context;
    ac_tensor *dx = c->r->out[0];
    nll_layout layout = nll_layout_of(dx, c->target);
    const ac_space *samples[] = {&c->l.samples, &layout.samples};
    bool smooth = c->a->label_smoothing != 0;
    for (int64_t i = begin; i < end && !ac_poll();) {
        tile t = tile_at(&c->rows, i, end, samples, 2);
        per_sample top, sum, by, even;
        double sums[TILE], bys[TILE], evens[TILE], hits[TILE];
        int64_t classes[TILE];
        read_below(&c->rows, &t, c->x, samples[0], buffer, &top);
        exponentials(&c->rows, &t, buffer, buffer, &sum);
        OF_TYPE(to_double, t.n, (const void *)sum.v, sums, 1);
        for (int64_t j = 0; j < t.n; j++) {
            slopes s = slopes_of(c, i + j, &classes[j]);
            bys[j] = s.by / sums[j], evens[j] = s.even, hits[j] = s.hit;
        }
        OF_TYPE(from_double, t.n, bys, (void *)by.v);
        OF_TYPE(from_double, t.n, evens, (void *)even.v);
        for (int64_t k = 0; k < c->l.classes; k++)
            OF_TYPE(class_slopes, t.n, (const void *)by.v, (const void *)even.v,
                    smooth ? class_weight(c->weight, k) : 0, (void *)(buffer + k * t.bytes));
        for (int64_t j = 0; j < t.n; j++) {
            if (classes[j] != c->a->ignore_index) OF_TYPE(add_at, (void *)buffer, classes[j] * t.n + j, -hits[j]);
            else OF_TYPE(clear_sample, c->l.classes, t.n, j, (void *)buffer);
        }
        write_tile(&c->rows, &t, buffer, dx, samples[1]);
        i += t.n;
    }
}

int ac_cpu_class_entropy_backward(const ac_run *r) {
    enum { G, X = 3, LSE, TOTALS };
    entropy_call c = entropy_of(r, r->in[X]);
    c.g = r->in[G], c.grads = ac_space_of(c.g, UINT32_MAX), c.totals = ac_data(r->in[TOTALS]);
    AC_TRY(check_targets(&c));
    return each_sample(&c, entropy_slopes, entropy_tile_slopes);
}
