/* Fills, ranges and random numbers. Number i of a random tensor comes from counter i / 4, or i / 2 if it needs two
 * words. So it does not depend on the number of threads. */
#include "cpu/kernels.h"

#include "base/rng.h"

#include <math.h>
#include <string.h>

typedef struct {
    const ac_run *r;
    uint64_t seed, offset;
} filling;

static void fill_some(void *context, int64_t begin, int64_t end) {
    const filling *c = context;
    const ac_attrs_full *a = c->r->attrs;
    ac_tensor *out = c->r->out[0];
    int64_t item = ac_itemsize(out->dtype);
    char *data = (char *)ac_data(out) + begin * item;
    if (a->value.kind == AC_FLOAT) ac_write_double(data, out->dtype, 0, a->value.f);
    else ac_write_int(data, out->dtype, 0, a->value.i);
    for (int64_t done = 1, n = end - begin; done < n;) { /* doubling copies of what is there */
        int64_t more = done < n - done ? done : n - done;
        memcpy(data + done * item, data, (size_t)(more * item));
        done += more;
    }
}

int ac_cpu_fill(const ac_run *r) {
    filling c = {.r = r};
    ac_for_range(r->out[0]->numel, AC_GRAIN, fill_some, &c);
    return 0;
}

int ac_cpu_arange(const ac_run *r) {
    ATTRS(arange);
    ac_tensor *out = r->out[0];
    bool real = ac_is_floating(out->dtype) && (a->start.kind == AC_FLOAT || a->step.kind == AC_FLOAT);
    double start = ac_scalar_double(a->start), step = ac_scalar_double(a->step);
    for (int64_t i = 0; i < out->numel; i++) {
        if (real) ac_write_double(ac_data(out), out->dtype, i, start + (double)i * step);
        else /* as unsigned numbers, as i * step alone may not fit */
            ac_write_int(ac_data(out), out->dtype, i,
                         (int64_t)((uint64_t)ac_scalar_int(a->start) + (uint64_t)i * (uint64_t)ac_scalar_int(a->step)));
    }
    return 0;
}

/* Two 32-bit words for number i. */
static void words(const filling *c, int64_t i, uint32_t *hi, uint32_t *lo) {
    ac_philox_block b = ac_philox(c->seed, c->offset + (uint64_t)i / 2);
    *hi = b.v[i % 2 * 2], *lo = b.v[i % 2 * 2 + 1];
}

static void uniform_some(void *context, int64_t begin, int64_t end) {
    const filling *c = context;
    const ac_attrs_random *a = c->r->attrs;
    ac_tensor *out = c->r->out[0];
    for (int64_t i = begin; i < end; i++) {
        uint32_t hi, lo;
        words(c, i, &hi, &lo);
        bool wide = out->dtype == AC_float64;
        double u = wide ? ac_uniform53(hi, lo) : (double)ac_uniform24(hi);
        /* a half type may round up to the bound, which is excluded */
        ac_write_double(ac_data(out), out->dtype, i, a->a + u * (a->b - a->a));
        if (ac_is_half(out->dtype) && ac_read_double(ac_data(out), out->dtype, i) >= a->b)
            ac_write_double(ac_data(out), out->dtype, i, a->a);
    }
}

/* Box and Muller 1958. */
static void normal_some(void *context, int64_t begin, int64_t end) {
    const filling *c = context;
    const ac_attrs_random *a = c->r->attrs;
    ac_tensor *out = c->r->out[0];
    for (int64_t i = begin; i < end; i++) {
        uint32_t hi, lo;
        words(c, i, &hi, &lo);
        double radius, angle;
        if (out->dtype == AC_float64) {
            ac_philox_block b = ac_philox(c->seed ^ 0x9E3779B97F4A7C15u, c->offset + (uint64_t)i);
            radius = sqrt(-2 * log(1 - ac_uniform53(b.v[0], b.v[1])));
            angle = ac_uniform53(b.v[2], b.v[3]);
        } else {
            radius = (double)sqrtf(-2 * logf(1 - ac_uniform24(hi)));
            angle = (double)ac_uniform24(lo);
        }
        double z = out->dtype == AC_float64 ? cos(6.283185307179586 * angle) : (double)cosf(6.2831853f * (float)angle);
        ac_write_double(ac_data(out), out->dtype, i, a->a + a->b * radius * z);
    }
}

static void randint_some(void *context, int64_t begin, int64_t end) {
    const filling *c = context;
    const ac_attrs_randint *a = c->r->attrs;
    ac_tensor *out = c->r->out[0];
    uint64_t range = (uint64_t)a->high - (uint64_t)a->low;
    for (int64_t i = begin; i < end; i++) {
        uint32_t hi, lo;
        words(c, i, &hi, &lo);
        uint64_t u = ((uint64_t)hi << 32) | lo;
        ac_write_int(ac_data(out), out->dtype, i, (int64_t)((uint64_t)a->low + u % range));
    }
}

static int run_random(const ac_run *r, ac_range_fn fn) {
    ac_generator *g = ac_default_generator();
    int64_t n = r->out[0]->numel;
    filling c = {r, g->seed, ac_generator_take(g, 4 * n)};
    ac_for_range(n, AC_GRAIN_SLOW, fn, &c);
    return 0;
}

int ac_cpu_uniform(const ac_run *r) { return run_random(r, uniform_some); }
int ac_cpu_normal(const ac_run *r) { return run_random(r, normal_some); }
int ac_cpu_randint(const ac_run *r) { return run_random(r, randint_some); }

/* Fisher and Yates. */
int ac_cpu_randperm(const ac_run *r) {
    ac_generator *g = ac_default_generator();
    int64_t n = r->out[0]->numel, *p = ac_data(r->out[0]);
    filling c = {r, g->seed, ac_generator_take(g, 2 * n)};
    for (int64_t i = 0; i < n; i++) p[i] = i;
    for (int64_t i = n - 1; i > 0 && !ac_stop_at(i); i--) {
        uint32_t hi, lo;
        words(&c, i, &hi, &lo);
        int64_t j = (int64_t)((((uint64_t)hi << 32) | lo) % (uint64_t)(i + 1)), keep = p[i];
        p[i] = p[j], p[j] = keep;
    }
    return 0;
}

/* -- dropout ---------------------------------------------------------------------------------------- */

typedef struct {
    const ac_loops *loops;
    const ac_attrs_dropout_mask *a;
    ac_dtype dtype;
    ac_opmath opmath;
    const ac_source *waiting; /* of the input, or NULL */
} dropping;

static void dropout_run(void *context, int64_t n, char *const *data, const int64_t *strides, int64_t first) {
    const dropping *c = context;
    double in[AC_TILE], out[AC_TILE];
    int64_t item = ac_itemsize(c->dtype);
    for (int64_t at = 0; at < n; at += AC_TILE) {
        int64_t run = n - at < AC_TILE ? n - at : AC_TILE;
        const char *from = data[1] + at * strides[1] * item;
        const void *x = c->waiting ? ac_cpu_read_source(c->loops, c->waiting, first + at, run, in)
                                   : ac_read_run(c->loops, c->opmath, c->dtype, run, from, strides[1], in);
        c->loops->dropout[c->opmath](run, x, c->a->p, (uint64_t)c->a->seed, (uint64_t)c->a->offset, first + at, out);
        c->loops->store[c->opmath][c->dtype](run, out, data[0] + at * strides[0] * item, strides[0]);
    }
}

int ac_cpu_dropout_mask(const ac_run *r) {
    ATTRS(dropout_mask);
    if (!ac_is_floating(r->in[0]->dtype))
        return ac_fail(AC_NOT_IMPLEMENTED, "dropout: needs floating point, got %s", ac_dtypes[r->in[0]->dtype].name);
    dropping c = {ac_cpu_loops(), a, r->in[0]->dtype, ac_opmath_of(r->in[0]->dtype), ac_source_of(r, 0)};
    ac_tensor *operands[2] = {r->out[0], r->in[0]};
    ac_dims shape = ac_shape_of(r->out[0]);
    ac_iter it;
    ac_iter_init(&it, &shape, operands, 2);
    ac_iter_run(&it, AC_GRAIN_SLOW, dropout_run, &c);
    return 0;
}
