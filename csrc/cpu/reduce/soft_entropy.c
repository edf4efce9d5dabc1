/* Cross entropy whose target is probabilities, one pass over memory. */
#include "cpu/reduce/loss_tiles.h"

/* The loss of a sample is the sum of -q log p, see soft_loops.inc for q. Samples go one by one, a row of classes each,
 * or in tiles. */
typedef struct {
    const ac_run *r;
    const ac_attrs_soft_entropy *a;
    class_rows rows;
    const ac_tensor *x, *target, *g;
    ac_space samples, target_samples, grads;
    int64_t n;
    double *lse;   /* three numbers a sample: those of log_shares, and the sum of q */
    double *each;  /* losses */
    void *weights; /* of the classes, or NULL */
} soft_call;

static int soft_init(soft_call *c, const ac_run *r, const ac_tensor *x, const ac_tensor *lse, ac_dtype result) {
    const ac_tensor *target = r->in[1], *weight = r->in[2];
    int channel = x->ndim > 1;
    *c = (soft_call){.r = r,
                     .a = r->attrs,
                     .rows = {ac_cpu_loops(), ac_opmath_of(result), x->shape[channel]},
                     .x = x,
                     .target = target,
                     .samples = ac_space_of(x, ~(1u << channel)),
                     .target_samples = ac_space_of(target, ~(1u << channel)),
                     .n = lse->numel / 3,
                     .lse = ac_data(lse)};
    if (!weight) return 0;
    c->weights = ac_alloc(row_room(&c->rows));
    if (!c->weights) return -1;
    c->rows.loops->load[weight->dtype][c->rows.opmath](c->rows.classes, ac_data(weight), weight->strides[0],
                                                       c->weights);
    return 0;
}

/* Over all samples, with scratch memory for three rows or tiles. */
static int each_sample(soft_call *c, ac_scratch_fn by_rows, ac_scratch_fn by_tiles) {
    const ac_space *spaces[] = {&c->samples, &c->target_samples};
    bool tiles = goes_in_tiles(&c->rows, c->x, spaces, 2);
    int failed = each_sample_of(&c->rows, c->n, tiles, 3, tiles ? by_tiles : by_rows, c);
    if (c->weights) ac_free(c->weights, row_room(&c->rows));
    return failed;
}

/* The gradient of sample i's loss. */
static double loss_grad(const soft_call *c, int64_t i) {
    double g = ac_read_double(ac_data(c->g), c->g->dtype,
                              c->a->reduction == AC_REDUCE_NONE ? ac_space_offset(&c->grads, i) : 0);
    return c->a->reduction == AC_REDUCE_MEAN ? g / (double)c->n : g;
}

#define R float
#define S(name) name##_f32
#include "cpu/reduce/soft_loops.inc"
#undef R
#undef S
#define R double
#define S(name) name##_f64
#include "cpu/reduce/soft_loops.inc"
#undef R
#undef S

#define OF_TYPE(...) BY_OPMATH(c->rows.opmath, __VA_ARGS__)

/* -- rows ------------------------------------------------------------------------------------------------- */

static void soft_rows(void *context, int64_t begin, int64_t end, char *buffer) {
    const soft_call *c = context;
    void *log_p = buffer + row_room(&c->rows), *q = buffer + 2 * row_room(&c->rows);
    for (int64_t i = begin; i < end && !ac_poll(); i++) {
        const void *t = read_row(&c->rows, c->target, &c->target_samples, i, buffer);
        OF_TYPE(shares, c->rows.classes, c->a->label_smoothing, t, c->weights, q);
        log_shares(&c->rows, read_row(&c->rows, c->x, &c->samples, i, buffer), log_p, &c->lse[3 * i]);
        c->lse[3 * i + 2] = fold_row(&c->rows, AC_FOLD_SUM, 0, q);
        OF_TYPE(row_losses, c->rows.classes, log_p, q);
        c->each[i] = -fold_row(&c->rows, AC_FOLD_SUM, 0, q);
    }
}

static void soft_row_slopes(void *context, int64_t begin, int64_t end, char *buffer) {
    const soft_call *c = context;
    ac_tensor *dx = c->r->out[0];
    ac_space to = ac_space_of(dx, ~(1u << (dx->ndim > 1)));
    for (int64_t i = begin; i < end && !ac_poll(); i++) {
        double g = loss_grad(c, i);
        void *p = row_to_write(&c->rows, dx, &to, i, buffer + row_room(&c->rows));
        c->rows.loops->softmax[c->rows.opmath](c->rows.classes, read_row(&c->rows, c->x, &c->samples, i, buffer), p);
        const void *t = read_row(&c->rows, c->target, &c->target_samples, i, buffer);
        OF_TYPE(row_slopes, c->rows.classes, c->a->label_smoothing, g * c->lse[3 * i + 2], g, t, c->weights, p);
        write_row(&c->rows, p, dx, &to, i);
    }
}

/* -- tiles ------------------------------------------------------------------------------------------------ */

/* Reads a tile: what is left of x without the largest, of which `top` has each, and q. */
static void start_tile(const soft_call *c, const tile *t, char *x, char *q, per_sample *top) {
    read_below(&c->rows, t, c->x, &c->samples, x, top);
    read_tile(&c->rows, t, c->target, &c->target_samples, q);
    OF_TYPE(tile_shares, c->rows.classes, t->n, c->a->label_smoothing, c->weights, (void *)q);
}

static void soft_tiles(void *context, int64_t begin, int64_t end, char *buffer) {
    const soft_call *c = context;
    size_t room = TILE * row_room(&c->rows);
    char *x = buffer, *q = x + room, *e = q + room;
    const ac_space *spaces[] = {&c->samples, &c->target_samples};
    for (int64_t i = begin; i < end && !ac_poll();) {
        tile t = tile_at(&c->rows, i, end, spaces, 2);
        per_sample top, rest, all, loss;
        start_tile(c, &t, x, q, &top);
        fold_tile(&c->rows, &t, AC_FOLD_SUM, 0, q, &all);
        log_of_sum(&c->rows, &t, x, e, &rest);
        OF_TYPE(tile_losses, c->rows.classes, t.n, (void *)x, (void *)rest.v, (void *)q);
        fold_tile(&c->rows, &t, AC_FOLD_SUM, 0, q, &loss);
        const per_sample *kept[] = {&top, &rest, &all};
        for (int k = 0; k < 3; k++) OF_TYPE(to_double, t.n, (const void *)kept[k]->v, &c->lse[3 * i + k], 3);
        OF_TYPE(to_double, t.n, (const void *)loss.v, &c->each[i], 1);
        i += t.n;
    }
}

static void soft_tile_slopes(void *context, int64_t begin, int64_t end, char *buffer) {
    const soft_call *c = context;
    ac_tensor *dx = c->r->out[0];
    ac_space to = ac_space_of(dx, ~(1u << (dx->ndim > 1)));
    size_t room = TILE * row_room(&c->rows);
    char *x = buffer, *q = x + room;
    const ac_space *spaces[] = {&c->samples, &c->target_samples, &to};
    for (int64_t i = begin; i < end && !ac_poll();) {
        tile t = tile_at(&c->rows, i, end, spaces, 3);
        per_sample top, sum, by, g, wide;
        start_tile(c, &t, x, q, &top);
        exponentials(&c->rows, &t, x, x, &sum);
        OF_TYPE(to_double, t.n, (const void *)sum.v, wide.v, 1);
        for (int64_t j = 0; j < t.n; j++) {
            double slope = loss_grad(c, i + j);
            by.v[j] = slope, wide.v[j] = slope * c->lse[3 * (i + j) + 2] / wide.v[j];
        }
        OF_TYPE(from_double, t.n, by.v, (void *)g.v);
        OF_TYPE(from_double, t.n, wide.v, (void *)by.v);
        OF_TYPE(tile_slopes, c->rows.classes, t.n, (void *)by.v, (void *)g.v, (void *)q, (void *)x);
        write_tile(&c->rows, &t, x, dx, &to);
        i += t.n;
    }
}

/* -- the operators -------------------------------------------------------------------------------------- */

static void soft_join(const soft_call *c) {
    ac_tensor *out = c->r->out[0];
    blocked losses = {0};
    for (int64_t i = 0; i < c->n; i++) {
        if (c->a->reduction == AC_REDUCE_NONE) ac_write_double(ac_data(out), out->dtype, i, c->each[i]);
        add_number(&losses, c->each[i]);
    }
    double loss = sum_of(&losses);
    if (c->a->reduction == AC_REDUCE_NONE) return;
    if (c->a->reduction == AC_REDUCE_MEAN) loss /= c->rows.classes ? (double)c->n : 0; /* without classes: nan */
    ac_write_double(ac_data(out), out->dtype, 0, loss);
}

int ac_cpu_soft_entropy(const ac_run *r) {
    soft_call c;
    size_t bytes = (size_t)(r->out[1]->numel / 3 + 1) * sizeof(double);
    double *each = ac_calloc(bytes);
    if (!each) return -1;
    int failed = soft_init(&c, r, r->in[0], r->out[1], r->out[0]->dtype);
    c.each = each;
    if (!failed) failed = each_sample(&c, soft_rows, soft_tiles);
    if (!failed) soft_join(&c);
    ac_free(each, bytes);
    return failed;
}

int ac_cpu_soft_entropy_backward(const ac_run *r) {
    enum { G, X = 3, LSE };
    soft_call c;
    AC_TRY(soft_init(&c, r, r->in[X], r->in[LSE], ac_promote(r->in[X]->dtype, r->in[G]->dtype)));
    c.g = r->in[G], c.grads = ac_space_of(c.g, UINT32_MAX);
    return each_sample(&c, soft_row_slopes, soft_tile_slopes);
}
