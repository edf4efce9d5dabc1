/* Pooling and resampling (interpolation) kernels. */
#include "cpu/kernels.h"

#include "base/ways.h"
#include "ops/window_args.h"

#include <string.h>

/* -- max pooling -------------------------------------------------------------------------------------------- */

/* The last dimensions of a tensor, as many as windows have, for each index of the others. */
typedef struct {
    const ac_tensor *t;
    ac_space at;
    int64_t size[3], stride[3]; /* in elements */
} plane_list;

static plane_list planes_of(const ac_tensor *t, int nd) {
    plane_list p = {.t = t, .at = ac_space_of(t, (1u << (t->ndim - nd)) - 1), .size = {1, 1, 1}};
    for (int d = 0; d < nd; d++)
        p.size[3 - nd + d] = t->shape[t->ndim - nd + d], p.stride[3 - nd + d] = t->strides[t->ndim - nd + d];
    return p;
}

static bool is_dense(const plane_list *p) {
    int64_t next = 1;
    for (int d = 2; d >= 0; next *= p->size[d--])
        if (p->size[d] != 1 && p->stride[d] != next) return false;
    return true;
}

/* A plane in the opmath type, contiguous; values compare the same there. It lies where it is, or is loaded into `room`.
 */
static const void *plane_at(const plane_list *p, const ac_loops *loops, ac_opmath opmath, int64_t plane, char *room) {
    int64_t item = ac_itemsize(p->t->dtype);
    const char *from = (const char *)ac_data(p->t) + ac_space_offset(&p->at, plane) * item;
    if (is_dense(p)) return ac_read_run(loops, opmath, p->t->dtype, ac_product3(p->size), from, 1, room);
    char *to = room;
    for (int64_t i = 0; i < p->size[0]; i++)
        for (int64_t j = 0; j < p->size[1]; j++, to += p->size[2] * ac_opmath_bytes(opmath))
            loops->load[p->t->dtype][opmath](p->size[2], from + (i * p->stride[0] + j * p->stride[1]) * item,
                                             p->stride[2], to);
    return room;
}

typedef struct {
    const ac_run *r;
    ac_windows w;
    plane_list planes;
    int64_t pixels, positions;
    const ac_loops *loops;
    ac_opmath opmath;
    bool by_rows; /* else window by window */
    bool by_fours;
} pooling;

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

/* Every window of a plane by itself. */
static void pool_windows(const pooling *p, const void *x, int64_t position) {
    ac_tensor *values = p->r->out[0];
    int64_t *indices = ac_data(p->r->out[1]), o[3];
    for (o[0] = 0; o[0] < p->w.out[0]; o[0]++)
        for (o[1] = 0; o[1] < p->w.out[1]; o[1]++)
            for (o[2] = 0; o[2] < p->w.out[2]; o[2]++, position++) {
                int64_t at = p->opmath == AC_OPMATH_F32   ? best_f32(&p->w, x, o)
                             : p->opmath == AC_OPMATH_F64 ? best_f64(&p->w, x, o)
                                                          : best_i64(&p->w, x, o);
                indices[position] = at;
                if (p->opmath == AC_OPMATH_I64)
                    ac_write_int(ac_data(values), values->dtype, position, ((const int64_t *)x)[at]);
                else
                    ac_write_double(ac_data(values), values->dtype, position,
                                    p->opmath == AC_OPMATH_F32 ? (double)((const float *)x)[at]
                                                               : ((const double *)x)[at]);
            }
}

/* A tap of the windows: how far it is from the first one, and the positions of a row where it is not in the padding. */
typedef struct {
    int64_t place, begin, end;
} pool_tap;

static void find_taps(const ac_windows *w, pool_tap *taps) {
    for (int64_t k0 = 0; k0 < w->kernel[0]; k0++)
        for (int64_t k1 = 0; k1 < w->kernel[1]; k1++)
            for (int64_t k2 = 0; k2 < w->kernel[2]; k2++, taps++) {
                int64_t row = k0 * w->dilation[0] * w->in[1] + k1 * w->dilation[1];
                taps->place = row * w->in[2] + k2 * w->dilation[2];
                ac_window_inside(w, 2, k2, &taps->begin, &taps->end);
            }
}

/* Whether windows are of two by two values and lie side by side, none of them over an edge. */
static bool are_fours(const ac_windows *w) {
    bool good = w->kernel[0] == 1 && w->padding[0] == 0;
    for (int d = 1; d < 3; d++)
        good &= w->kernel[d] == 2 && w->stride[d] == 2 && w->dilation[d] == 1 && w->padding[d] == 0 &&
                2 * w->out[d] <= w->in[d];
    return good;
}

/* The best values of a row of windows, tap by tap, and which taps they are; `first` is where the first window begins.
 */
static void pool_row(const pooling *p, const char *x, int64_t o0, int64_t o1, int64_t first, const pool_tap *taps,
                     char *best, int32_t *which) {
    const ac_windows *w = &p->w;
    int64_t item = ac_opmath_bytes(p->opmath);
    int32_t tap = 0;
    if (p->by_fours) {
        x += first * item;
        p->loops->pool_fours[p->opmath](w->out[2], x, x + w->in[2] * item, best, which);
        return;
    }
    memset(which, -1, (size_t)w->out[2] * sizeof *which);
    for (int64_t k0 = 0; k0 < w->kernel[0]; k0++)
        for (int64_t k1 = 0; k1 < w->kernel[1]; k1++) {
            bool inside = ac_window_tap(w, 0, o0, k0) >= 0 && ac_window_tap(w, 1, o1, k1) >= 0;
            for (int64_t k2 = 0; k2 < w->kernel[2]; k2++, tap++) {
                const pool_tap *t = &taps[tap];
                if (!inside || t->begin == t->end) continue;
                const char *from = x + (first + t->place + t->begin * w->stride[2]) * item;
                p->loops->pool_tap[p->opmath](t->end - t->begin, from, w->stride[2], tap, best + t->begin * item,
                                              which + t->begin);
            }
        }
}

static void pool_rows(const pooling *p, const void *x, int64_t position, char *room) {
    const ac_windows *w = &p->w;
    ac_tensor *values = p->r->out[0];
    int64_t *indices = ac_data(p->r->out[1]);
    pool_tap *taps = (pool_tap *)(void *)room;
    char *best = room + ac_product3(w->kernel) * (int64_t)sizeof *taps;
    int32_t *which = (int32_t *)(void *)(best + w->out[2] * 8);
    find_taps(w, taps);
    memset(best, 0, (size_t)w->out[2] * 8);
    for (int64_t o0 = 0; o0 < w->out[0]; o0++)
        for (int64_t o1 = 0; o1 < w->out[1]; o1++, position += w->out[2]) {
            int64_t row = (o0 * w->stride[0] - w->padding[0]) * w->in[1] + o1 * w->stride[1] - w->padding[1];
            int64_t first = row * w->in[2] - w->padding[2];
            pool_row(p, x, o0, o1, first, taps, best, which);
            for (int64_t o2 = 0; o2 < w->out[2]; o2++)
                indices[position + o2] = first + o2 * w->stride[2] + taps[which[o2]].place;
            p->loops->store[p->opmath][values->dtype](
                w->out[2], best, (char *)ac_data(values) + position * ac_itemsize(values->dtype), 1);
        }
}

static void pool_planes(void *context, int64_t begin, int64_t end, char *scratch) {
    const pooling *p = context;
    for (int64_t plane = begin; plane < end && !ac_poll(); plane++) {
        const void *x = plane_at(&p->planes, p->loops, p->opmath, plane, scratch);
        if (p->by_rows) pool_rows(p, x, plane * p->positions, scratch + p->pixels * 8);
        else pool_windows(p, x, plane * p->positions);
    }
}

enum { LONG_ROW = 8 }; /* positions that are worth a loop for each tap */

int ac_cpu_max_pool(const ac_run *r) {
    ATTRS(max_pool);
    const ac_tensor *x = r->in[0];
    pooling p = {.r = r, .loops = ac_cpu_loops(), .opmath = ac_opmath_of(x->dtype)};
    AC_TRY(ac_max_pool_windows(&p.w, x, a));
    p.planes = planes_of(x, (int)a->kernel.n);
    p.pixels = ac_product3(p.w.in), p.positions = ac_product3(p.w.out);
    p.by_rows = !p.w.adaptive && p.w.out[2] >= LONG_ROW && ac_product3(p.w.kernel) <= INT32_MAX;
    p.by_fours = p.by_rows && are_fours(&p.w);
    if (p.by_fours) AC_WAY(pool_fours);
    else if (p.by_rows) AC_WAY(pool_rows);
    else AC_WAY(pool_windows);
    int64_t planes = p.positions ? r->out[0]->numel / p.positions : 0;
    int64_t cells = p.pixels + (p.by_rows ? 3 * ac_product3(p.w.kernel) + 2 * p.w.out[2] : 0);
    return ac_for_range_with(planes, AC_GRAIN / (p.pixels + 1), (size_t)cells * 8, pool_planes, &p);
}

/* The gradient: what windows took from a value comes back to it, in the order of the windows. */
typedef struct {
    const ac_run *r;
    plane_list g, indices;
    int64_t pixels, positions;
} unpooling;

#define SPREAD(R, name)                                                                                                \
    static void spread_##name(const unpooling *p, const R *g, const int64_t *index, R *plane) {                        \
        memset(plane, 0, (size_t)p->pixels * sizeof *plane);                                                           \
        for (int64_t i = 0; i < p->positions; i++)                                                                     \
            if (index[i] >= 0 && index[i] < p->pixels) plane[index[i]] += g[i];                                        \
    }
SPREAD(float, f32)
SPREAD(double, f64)
#undef SPREAD

static void unpool_planes(void *context, int64_t begin, int64_t end, char *scratch) {
    const unpooling *p = context;
    ac_tensor *x = p->r->out[0];
    const ac_loops *loops = ac_cpu_loops();
    ac_opmath opmath = ac_opmath_of(x->dtype);
    bool in_place = x->dtype == ac_opmath_dtype(opmath);
    char *room = scratch + p->positions * 8, *values = room + p->positions * 8;
    for (int64_t i = begin; i < end && !ac_poll(); i++) {
        const void *g = plane_at(&p->g, loops, opmath, i, scratch),
                   *index = plane_at(&p->indices, loops, AC_OPMATH_I64, i, room);
        char *to = (char *)ac_data(x) + i * p->pixels * ac_itemsize(x->dtype), *plane = in_place ? to : values;
        if (opmath == AC_OPMATH_F64) spread_f64(p, g, index, (double *)(void *)plane);
        else spread_f32(p, g, index, (float *)(void *)plane);
        if (!in_place) loops->store[opmath][x->dtype](p->pixels, plane, to, 1);
    }
}

int ac_cpu_max_pool_backward(const ac_run *r) {
    ATTRS(max_pool_backward);
    ac_windows w;
    int nd = (int)a->kernel.n;
    AC_TRY(ac_max_pool_backward_windows(&w, a));
    unpooling p = {r, planes_of(r->in[0], nd), planes_of(r->in[1], nd), ac_product3(w.in), ac_product3(w.out)};
    int64_t planes = p.pixels ? r->out[0]->numel / p.pixels : 0;
    size_t room = (size_t)(p.pixels + 2 * p.positions) * 8;
    return ac_for_range_with(planes, AC_GRAIN / (p.pixels + 1), room, unpool_planes, &p);
}

/* -- average pooling ----------------------------------------------------------------------------------------- */

/* Rows of windows: rows of x are added up, then what lies side by side in the sum. Backward, each row of x adds up the
 * rows of gradients whose windows cover it. */
typedef struct {
    const ac_run *r;
    ac_windows w;
    plane_list from; /* x; backward, the gradient of the means */
    const ac_loops *loops;
    ac_opmath opmath;
    bool counts_padding;
    double divisor;
} averaging;

#define ADD_SCALED(R, name)                                                                                            \
    static void add_scaled_##name(int64_t n, R by, const R *x, R *y) {                                                 \
        for (int64_t i = 0; i < n; i++) y[i] += by * x[i];                                                             \
    }
ADD_SCALED(float, f32)
ADD_SCALED(double, f64)
#undef ADD_SCALED

/* y = the means of row o of windows, of which `sums` has what is above each other. */
#define AVERAGE(R, name)                                                                                               \
    static void average_##name(const averaging *c, int64_t rows, const R *sums, R *y) {                                \
        for (int64_t o = 0; o < c->w.out[2]; o++) {                                                                    \
            int64_t begin, end, dilation, values = rows * ac_window_count(&c->w, 2, o, c->counts_padding);             \
            R sum = 0;                                                                                                 \
            ac_window_span(&c->w, 2, o, &begin, &end, &dilation);                                                      \
            for (int64_t i = begin; i < end; i++) sum += sums[i];                                                      \
            y[o] = c->divisor != 0 ? sum / (R)c->divisor : values > 0 ? sum / (R)values : 0;                           \
        }                                                                                                              \
    }
AVERAGE(float, f32)
AVERAGE(double, f64)
#undef AVERAGE

/* y[i] = what the windows that cover i give. */
#define SPREAD_MEANS(R, name)                                                                                          \
    static void spread_means_##name(const averaging *c, const R *sums, R *y) {                                         \
        for (int64_t i = 0; i < c->w.in[2]; i++) {                                                                     \
            int64_t first, last;                                                                                       \
            y[i] = 0;                                                                                                  \
            ac_windows_over(&c->w, 2, i, &first, &last);                                                               \
            for (int64_t o = first; o <= last; o++)                                                                    \
                y[i] += c->divisor != 0 ? sums[o] : sums[o] / (R)ac_window_count(&c->w, 2, o, c->counts_padding);      \
        }                                                                                                              \
    }
SPREAD_MEANS(float, f32)
SPREAD_MEANS(double, f64)
#undef SPREAD_MEANS

/* sums += by row (i, j) of the plane that begins at `plane` */
static void add_row(const averaging *c, int64_t plane, int64_t i, int64_t j, double by, char *row, void *sums) {
    const plane_list *p = &c->from;
    int64_t at = plane + i * p->stride[0] + j * p->stride[1];
    const void *x = ac_read_run(c->loops, c->opmath, p->t->dtype, p->size[2],
                                (char *)ac_data(p->t) + at * ac_itemsize(p->t->dtype), p->stride[2], row);
    if (c->opmath == AC_OPMATH_F64) add_scaled_f64(p->size[2], by, x, sums);
    else add_scaled_f32(p->size[2], (float)by, x, sums);
}

static void put_row(const averaging *c, int64_t row, const void *values) {
    ac_tensor *y = c->r->out[0];
    int64_t n = y->shape[y->ndim - 1];
    c->loops->store[c->opmath][y->dtype](n, values, (char *)ac_data(y) + row * n * ac_itemsize(y->dtype), 1);
}

static void average_rows(void *context, int64_t begin, int64_t end, char *row) {
    const averaging *c = context;
    const ac_windows *w = &c->w;
    char *sums = row + w->in[2] * 8, *y = sums + w->in[2] * 8;
    for (int64_t at = begin; at < end && !ac_poll(); at++) {
        int64_t o[2] = {at / w->out[1] % w->out[0], at % w->out[1]}, from[2], to[2], dilation, rows = 1;
        int64_t plane = ac_space_offset(&c->from.at, at / (w->out[0] * w->out[1]));
        memset(sums, 0, (size_t)w->in[2] * 8);
        for (int d = 0; d < 2; d++) {
            ac_window_span(w, d, o[d], &from[d], &to[d], &dilation);
            rows *= ac_window_count(w, d, o[d], c->counts_padding);
        }
        for (int64_t i = from[0]; i < to[0]; i++)
            for (int64_t j = from[1]; j < to[1]; j++) add_row(c, plane, i, j, 1, row, sums);
        if (c->opmath == AC_OPMATH_F64) average_f64(c, rows, (double *)(void *)sums, (double *)(void *)y);
        else average_f32(c, rows, (float *)(void *)sums, (float *)(void *)y);
        put_row(c, at, y);
    }
}

static void spread_rows(void *context, int64_t begin, int64_t end, char *row) {
    const averaging *c = context;
    const ac_windows *w = &c->w;
    char *sums = row + w->out[2] * 8, *y = sums + w->out[2] * 8;
    for (int64_t at = begin; at < end && !ac_poll(); at++) {
        int64_t first[2], last[2], plane = ac_space_offset(&c->from.at, at / (w->in[0] * w->in[1]));
        memset(sums, 0, (size_t)w->out[2] * 8);
        ac_windows_over(w, 0, at / w->in[1] % w->in[0], &first[0], &last[0]);
        ac_windows_over(w, 1, at % w->in[1], &first[1], &last[1]);
        for (int64_t i = first[0]; i <= last[0]; i++)
            for (int64_t j = first[1]; j <= last[1]; j++) {
                int64_t rows =
                    ac_window_count(w, 0, i, c->counts_padding) * ac_window_count(w, 1, j, c->counts_padding);
                add_row(c, plane, i, j, 1 / (c->divisor != 0 ? c->divisor : (double)rows), row, sums);
            }
        if (c->opmath == AC_OPMATH_F64) spread_means_f64(c, (double *)(void *)sums, (double *)(void *)y);
        else spread_means_f32(c, (float *)(void *)sums, (float *)(void *)y);
        put_row(c, at, y);
    }
}

static averaging averaging_of(const ac_run *r, const ac_attrs_means *a) {
    return (averaging){.r = r,
                       .from = planes_of(r->in[0], (int)a->kernel.n),
                       .loops = ac_cpu_loops(),
                       .opmath = ac_opmath_of(r->in[0]->dtype),
                       .counts_padding = a->counts_padding != 0,
                       .divisor = a->divisor};
}

static int run_averaging(averaging *c, ac_scratch_fn rows) {
    const ac_tensor *y = c->r->out[0];
    if (y->numel == 0) return 0;
    int64_t width = y->shape[y->ndim - 1], taps = ac_product3(c->w.in) / ac_product3(c->w.out) + 1;
    return ac_for_range_with(y->numel / width, AC_GRAIN / (width * taps + 1), (size_t)(2 * c->from.size[2] + width) * 8,
                             rows, c);
}

int ac_cpu_avg_pool(const ac_run *r) {
    ATTRS(means);
    averaging c = averaging_of(r, a);
    AC_TRY(ac_avg_pool_windows(&c.w, r->in[0]->shape + r->in[0]->ndim - a->kernel.n, a));
    return run_averaging(&c, average_rows);
}

int ac_cpu_avg_pool_backward(const ac_run *r) {
    ATTRS(means_backward);
    ac_attrs_means forward = ac_means_forward(a);
    averaging c = averaging_of(r, &forward);
    AC_TRY(ac_avg_pool_windows(&c.w, a->size.v + a->size.n - a->kernel.n, &forward));
    if (ac_product3(c.w.out) > 0) return run_averaging(&c, spread_rows);
    memset(ac_data(r->out[0]), 0, (size_t)(r->out[0]->numel * ac_itemsize(r->out[0]->dtype)));
    return 0;
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
