/* The kernels of mse_loss and nll_loss, each one pass over memory. */
#include "cpu/reduce/losses.h"

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
