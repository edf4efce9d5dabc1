/* Pooling and resampling (interpolation) kernels. */
#include "cpu/kernels.h"

#include "ops/window_args.h"

/* -- max pooling -------------------------------------------------------------------------------------------- */

typedef struct {
    const ac_run *r;
    ac_windows w;
    ac_space planes;
    int64_t stride[3]; /* in elements */
    int64_t pixels, positions;
} pooling;

/* A plane in double or int64, contiguous; values compare the same there. */
static void load_plane(const pooling *p, int64_t plane, ac_opmath opmath, char *to) {
    const ac_tensor *x = p->r->in[0];
    int64_t item = ac_itemsize(x->dtype);
    const char *from = (const char *)ac_data(x) + ac_space_offset(&p->planes, plane) * item;
    for (int64_t i = 0; i < p->w.in[0]; i++)
        for (int64_t j = 0; j < p->w.in[1]; j++, to += p->w.in[2] * ac_opmath_bytes(opmath))
            ac_cpu_loops()->load[x->dtype][opmath](p->w.in[2], from + (i * p->stride[0] + j * p->stride[1]) * item,
                                                   p->stride[2], to);
}

/* The largest of a window; a nan, once met, stays, the first of equal values wins. */
#define BEST_OF(R, name)                                                                                               \
    static int64_t best_##name(const ac_windows *w, const R *plane, const int64_t o[3]) {                              \
        int64_t begin[3], end[3], dilation[3], best = -1;                                                              \
        for (int d = 0; d < 3; d++) ac_window_span(w, d, o[d], &begin[d], &end[d], &dilation[d]);                      \
        for (int64_t i = begin[0]; i < end[0]; i += dilation[0])                                                       \
            for (int64_t j = begin[1]; j < end[1]; j += dilation[1])                                                   \
                for (int64_t k = begin[2]; k < end[2]; k += dilation[2]) {                                             \
                    int64_t at = (i * w->in[1] + j) * w->in[2] + k;                                                    \
                    if (best < 0 || plane[at] > plane[best] || plane[at] != plane[at]) best = at;                      \
                }                                                                                                      \
        return best;                                                                                                   \
    }
BEST_OF(float, f32)
BEST_OF(double, f64)
BEST_OF(int64_t, i64)
#undef BEST_OF

static void pool_planes(void *context, int64_t begin, int64_t end, char *scratch) {
    const pooling *p = context;
    ac_tensor *values = p->r->out[0];
    int64_t *indices = ac_data(p->r->out[1]);
    ac_opmath opmath = ac_opmath_of(values->dtype);
    for (int64_t plane = begin; plane < end && !ac_poll(); plane++) {
        int64_t position = plane * p->positions, o[3];
        load_plane(p, plane, opmath, scratch);
        for (o[0] = 0; o[0] < p->w.out[0]; o[0]++)
            for (o[1] = 0; o[1] < p->w.out[1]; o[1]++)
                for (o[2] = 0; o[2] < p->w.out[2]; o[2]++, position++) {
                    const void *x = scratch;
                    int64_t at = opmath == AC_OPMATH_F32   ? best_f32(&p->w, x, o)
                                 : opmath == AC_OPMATH_F64 ? best_f64(&p->w, x, o)
                                                           : best_i64(&p->w, x, o);
                    indices[position] = at;
                    if (opmath == AC_OPMATH_I64)
                        ac_write_int(ac_data(values), values->dtype, position, ((const int64_t *)x)[at]);
                    else
                        ac_write_double(ac_data(values), values->dtype, position,
                                        opmath == AC_OPMATH_F32 ? (double)((const float *)x)[at]
                                                                : ((const double *)x)[at]);
                }
    }
}

int ac_cpu_max_pool(const ac_run *r) {
    ATTRS(max_pool);
    const ac_tensor *x = r->in[0];
    pooling p = {.r = r};
    AC_TRY(ac_max_pool_windows(&p.w, x, a));
    int nd = (int)a->kernel.n, lead = x->ndim - nd;
    p.planes = ac_space_of(x, (1u << lead) - 1);
    for (int d = 0; d < nd; d++) p.stride[3 - nd + d] = x->strides[lead + d];
    p.pixels = ac_product3(p.w.in), p.positions = ac_product3(p.w.out);
    int64_t planes = p.positions ? r->out[0]->numel / p.positions : 0;
    return ac_for_range_with(planes, AC_GRAIN / (p.pixels + 1), (size_t)p.pixels * 8, pool_planes, &p);
}

/* -- resampling --------------------------------------------------------------------------------------------- */

typedef struct {
    const ac_run *r;
    ac_opmath opmath;
    int64_t in, out, taps, inner; /* x as [outer, in, inner] */
    ac_space rows;                /* where rows of [outer, inner] begin, */
    int64_t stride;               /* and from a value of one to the next */
} resampling;

/* One row: all of it at once. */
#define SAMPLE(R, name)                                                                                                \
    static void sample_row_##name(const resampling *c, const R *x, R *y) {                                             \
        const int64_t *index = ac_data(c->r->in[1]);                                                                   \
        const double *weight = ac_data(c->r->in[2]);                                                                   \
        for (int64_t o = 0; o < c->out; o++) {                                                                         \
            R sum = 0;                                                                                                 \
            for (int64_t t = o * c->taps; t < (o + 1) * c->taps; t++)                                                  \
                if (index[t] >= 0 && index[t] < c->in) sum += (R)weight[t] * x[index[t]];                              \
            y[o] = sum;                                                                                                \
        }                                                                                                              \
    }                                                                                                                  \
    static void add_scaled_##name(int64_t n, R by, const R *x, R *y) {                                                 \
        for (int64_t i = 0; i < n; i++) y[i] += by * x[i];                                                             \
    }
SAMPLE(float, f32)
SAMPLE(double, f64)
#undef SAMPLE

static void sample_along(void *context, int64_t begin, int64_t end, char *scratch) {
    const resampling *c = context;
    const ac_tensor *x = c->r->in[0];
    ac_tensor *y = c->r->out[0];
    const ac_loops *loops = ac_cpu_loops();
    int64_t item = ac_itemsize(x->dtype);
    char *result = scratch + c->in * ac_opmath_bytes(c->opmath);
    for (int64_t row = begin; row < end; row++) {
        int64_t to = row / c->inner * c->inner * c->out + row % c->inner;
        const void *from = ac_read_run(loops, c->opmath, x->dtype, c->in,
                                       (char *)ac_data(x) + ac_space_offset(&c->rows, row) * item, c->stride, scratch);
        if (c->opmath == AC_OPMATH_F64) sample_row_f64(c, from, (double *)(void *)result);
        else sample_row_f32(c, from, (float *)(void *)result);
        loops->store[c->opmath][y->dtype](c->out, result, (char *)ac_data(y) + to * item, c->inner);
    }
}

/* One row of the result: rows of x, weighted; x is contiguous. */
static void sample_rows(void *context, int64_t begin, int64_t end, char *scratch) {
    const resampling *c = context;
    const ac_tensor *x = c->r->in[0];
    ac_tensor *y = c->r->out[0];
    const ac_loops *loops = ac_cpu_loops();
    const int64_t *index = ac_data(c->r->in[1]);
    const double *weight = ac_data(c->r->in[2]);
    int64_t item = ac_itemsize(x->dtype), bytes = c->inner * ac_opmath_bytes(c->opmath);
    char *sum = scratch + bytes;
    for (int64_t row = begin; row < end; row++) {
        int64_t outer = row / c->out, o = row % c->out;
        for (int64_t i = 0; i < bytes; i++) sum[i] = 0;
        for (int64_t t = o * c->taps; t < (o + 1) * c->taps; t++) {
            if (index[t] < 0 || index[t] >= c->in || weight[t] == 0) continue;
            const void *from =
                ac_read_run(loops, c->opmath, x->dtype, c->inner,
                            (char *)ac_data(x) + (outer * c->in + index[t]) * c->inner * item, 1, scratch);
            if (c->opmath == AC_OPMATH_F64) add_scaled_f64(c->inner, weight[t], from, (double *)(void *)sum);
            else add_scaled_f32(c->inner, (float)weight[t], from, (float *)(void *)sum);
        }
        loops->store[c->opmath][y->dtype](c->inner, sum, (char *)ac_data(y) + row * c->inner * item, 1);
    }
}

int ac_cpu_resample(const ac_run *r) {
    ATTRS(resample);
    const ac_tensor *x = r->in[0];
    int64_t dim = a->dim, outer = 1;
    AC_TRY(ac_dim_wrap(&dim, x->ndim, "resample"));
    resampling c = {.r = r,
                    .opmath = ac_opmath_of(x->dtype),
                    .in = x->shape[dim],
                    .out = r->out[0]->shape[dim],
                    .taps = r->in[1]->shape[1],
                    .inner = 1,
                    .rows = ac_space_of(x, ((1u << x->ndim) - 1) & ~(1u << dim)),
                    .stride = x->strides[dim]};
    for (int64_t d = 0; d < dim; d++) outer *= x->shape[d];
    for (int64_t d = dim + 1; d < x->ndim; d++) c.inner *= x->shape[d];
    if (c.inner == 1 || !ac_is_contiguous(x))
        return ac_for_range_with(outer * c.inner, AC_GRAIN / (c.out * c.taps + 1), (size_t)((c.in + c.out) * 8),
                                 sample_along, &c);
    return ac_for_range_with(outer * c.out, AC_GRAIN / (c.inner * c.taps + 1), (size_t)(2 * c.inner * 8), sample_rows,
                             &c);
}
