/* Cross entropy whose target is probabilities, one pass over memory. */
#include "cpu/reduce/losses.h"

/* The loss of a sample is the sum of -q log p, see soft_loops.inc for q. Samples go one by one, a row of classes each.
 * Where classes are few, or lie apart while samples lie side by side, they go in tiles, all samples of one in step. */
enum { TILE = 64, FEW_CLASSES = 64, MOST_CLASSES = 512 };
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

static int64_t innermost(const ac_space *s) { return s->size[s->n - 1]; }

static bool goes_in_tiles(const soft_call *c) {
    const class_rows *rows = &c->rows;
    bool apart = c->x->strides[c->x->ndim > 1] != 1 && c->samples.stride[c->samples.n - 1] == 1;
    bool long_runs = innermost(&c->samples) >= TILE / 4 && innermost(&c->target_samples) >= TILE / 4;
    return rows->classes > 0 && long_runs && rows->classes <= (apart ? MOST_CLASSES : FEW_CLASSES);
}

/* Over all samples, with scratch memory for three rows or tiles. */
static int each_sample(soft_call *c, ac_scratch_fn by_rows, ac_scratch_fn by_tiles) {
    bool tiles = goes_in_tiles(c);
    int64_t grain = AC_GRAIN_SLOW / (c->rows.classes + 1);
    if (tiles && grain < TILE) grain = TILE;
    int failed =
        ac_for_range_with(c->n, grain, (tiles ? 3 * TILE : 3) * row_room(&c->rows), tiles ? by_tiles : by_rows, c);
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

/* Calls name_f32 or name_f64. */
#define OF_TYPE(name, ...)                                                                                             \
    do {                                                                                                               \
        if (c->rows.opmath == AC_OPMATH_F64) name##_f64(__VA_ARGS__);                                                  \
        else name##_f32(__VA_ARGS__);                                                                                  \
    } while (0)

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
    void *p = buffer + row_room(&c->rows);
    for (int64_t i = begin; i < end && !ac_poll(); i++) {
        double g = loss_grad(c, i);
        c->rows.loops->softmax[c->rows.opmath](c->rows.classes, read_row(&c->rows, c->x, &c->samples, i, buffer), p);
        const void *t = read_row(&c->rows, c->target, &c->target_samples, i, buffer);
        OF_TYPE(row_slopes, c->rows.classes, c->a->label_smoothing, g * c->lse[3 * i + 2], g, t, c->weights, p);
        write_row(&c->rows, p, dx, &to, i);
    }
}

/* -- tiles ------------------------------------------------------------------------------------------------ */

/* Samples [i, i + n), which lie at one distance from each other. */
typedef struct {
    int64_t i, n, bytes; /* bytes: of a class in the tile */
} tile;

/* The tile at i: no longer than what each space has at one distance. */
static tile tile_at(const soft_call *c, int64_t i, int64_t end, const ac_space *also) {
    const ac_space *spaces[] = {&c->samples, &c->target_samples, also};
    int64_t n = end - i < TILE ? end - i : TILE;
    for (int k = 0; k < (also ? 3 : 2); k++) {
        int64_t left = innermost(spaces[k]) - i % innermost(spaces[k]);
        if (left < n) n = left;
    }
    return (tile){i, n, n * (int64_t)ac_opmath_bytes(c->rows.opmath)};
}

static void read_tile(const class_rows *c, const tile *t, const ac_tensor *x, const ac_space *samples, char *to) {
    const char *from = (const char *)ac_data(x) + ac_space_offset(samples, t->i) * ac_itemsize(x->dtype);
    int64_t step = x->strides[x->ndim > 1] * ac_itemsize(x->dtype), stride = samples->stride[samples->n - 1];
    for (int64_t k = 0; k < c->classes; k++)
        c->loops->load[x->dtype][c->opmath](t->n, from + k * step, stride, to + k * t->bytes);
}
static void write_tile(const class_rows *c, const tile *t, const char *from, ac_tensor *x, const ac_space *samples) {
    char *to = (char *)ac_data(x) + ac_space_offset(samples, t->i) * ac_itemsize(x->dtype);
    int64_t step = x->strides[x->ndim > 1] * ac_itemsize(x->dtype), stride = samples->stride[samples->n - 1];
    for (int64_t k = 0; k < c->classes; k++)
        c->loops->store[c->opmath][x->dtype](t->n, from + k * t->bytes, to + k * step, stride);
}

/* For each sample of a tile, in the type that the call computes in. */
typedef struct {
    double v[TILE];
} per_sample;

static void fold_tile(const soft_call *c, const tile *t, ac_fold fold, double start, const void *x, per_sample *to) {
    per_sample from;
    for (int64_t j = 0; j < t->n; j++) from.v[j] = start;
    OF_TYPE(from_double, t->n, from.v, (void *)to->v);
    c->rows.loops->fold_columns[fold][c->rows.opmath](c->rows.classes, t->n, x, t->n, 0, to->v);
}

/* Reads a tile: what is left of x without the largest, of which `top` has each, and q. */
static void start_tile(const soft_call *c, const tile *t, char *x, char *q, per_sample *top) {
    read_tile(&c->rows, t, c->x, &c->samples, x);
    read_tile(&c->rows, t, c->target, &c->target_samples, q);
    OF_TYPE(tile_shares, c->rows.classes, t->n, c->a->label_smoothing, c->weights, (void *)q);
    fold_tile(c, t, AC_FOLD_MAX, -INFINITY, x, top);
    OF_TYPE(below, c->rows.classes, t->n, (void *)top->v, (void *)x);
}

static void exponentials(const soft_call *c, const tile *t, const void *x, void *e, per_sample *sum) {
    c->rows.loops->point[AC_OP_exp][c->rows.opmath](c->rows.classes * t->n, &x, e, NULL);
    fold_tile(c, t, AC_FOLD_SUM, 0, e, sum);
}

static void soft_tiles(void *context, int64_t begin, int64_t end, char *buffer) {
    const soft_call *c = context;
    size_t room = TILE * row_room(&c->rows);
    char *x = buffer, *q = x + room, *e = q + room;
    for (int64_t i = begin; i < end && !ac_poll();) {
        tile t = tile_at(c, i, end, NULL);
        per_sample top, sum, rest, all, loss;
        start_tile(c, &t, x, q, &top);
        fold_tile(c, &t, AC_FOLD_SUM, 0, q, &all);
        exponentials(c, &t, x, e, &sum);
        const void *of = sum.v;
        c->rows.loops->point[AC_OP_log][c->rows.opmath](t.n, &of, rest.v, NULL);
        OF_TYPE(tile_losses, c->rows.classes, t.n, (void *)x, (void *)rest.v, (void *)q);
        fold_tile(c, &t, AC_FOLD_SUM, 0, q, &loss);
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
    for (int64_t i = begin; i < end && !ac_poll();) {
        tile t = tile_at(c, i, end, &to);
        per_sample top, sum, by, g, wide;
        start_tile(c, &t, x, q, &top);
        exponentials(c, &t, x, x, &sum);
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
