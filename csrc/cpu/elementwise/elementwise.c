/* Elementwise operators, copies and casts: load into the opmath type, compute, store. */
#include "cpu/kernels.h"

#include "base/ways.h"

#include <string.h>

const void *ac_read_run(const ac_loops *loops, ac_opmath opmath, ac_dtype dtype, int64_t n, const void *from,
                        int64_t stride, void *buffer) {
    if (dtype == ac_opmath_dtype(opmath) && (stride == 1 || n == 1)) return from;
    loops->load[dtype][opmath](n, from, stride, buffer);
    return buffer;
}

/* -- elementwise ------------------------------------------------------------------------------ */

typedef struct {
    const ac_loops *loops;
    ac_opmath opmath;
    ac_op op;
    const void *attrs;
    int n_in;
    ac_dtype dtypes[AC_MAX_OPERANDS];          /* out, then inputs */
    ac_dtype wraps;                            /* whole operands do, into this dtype; int64: none */
    const ac_source *waiting[AC_MAX_OPERANDS]; /* of what is not in memory, else NULL */
} point_call;

typedef union {
    float f32[AC_TILE];
    double f64[AC_TILE];
    int64_t i64[AC_TILE];
} tile;

static const void *wrapped(const point_call *c, int64_t n, const void *from, tile *buffer) {
    tile narrow;
    c->loops->store[c->opmath][c->wraps](n, from, narrow.i64, 1);
    c->loops->load[c->wraps][c->opmath](n, narrow.i64, 1, buffer);
    return buffer;
}

/* Whether an operand's dtype has values beyond the dtype that the result has: that of a number, or of a 0-d tensor. */
static bool is_narrowed(ac_dtype from, ac_dtype to) {
    int64_t wide = ac_itemsize(from), narrow = ac_itemsize(to);
    return from != to && from != AC_bool && (wide > narrow || to == AC_uint8 || (from == AC_uint8 && wide == narrow));
}

static void point_run(void *context, int64_t n, char *const *data, const int64_t *strides, int64_t first) {
    const point_call *c = context;
    const ac_loops *loops = c->loops;
    tile buffers[AC_MAX_OPERANDS];
    bool direct = c->dtypes[0] == ac_opmath_dtype(c->opmath) && strides[0] == 1;
    for (int64_t at = 0; at < n; at += AC_TILE) {
        int64_t run = n - at < AC_TILE ? n - at : AC_TILE;
        const void *in[AC_MAX_OPERANDS];
        for (int k = 1; k <= c->n_in; k++) {
            const char *from = data[k] + at * strides[k] * ac_itemsize(c->dtypes[k]);
            bool filled = at > 0 && strides[k] == 0; /* a broadcast operand is read once */
            if (filled) in[k - 1] = buffers[k].f32;
            else if (c->waiting[k])
                in[k - 1] = ac_cpu_read_source(loops, c->waiting[k], first + at, run, buffers[k].f32);
            else in[k - 1] = ac_read_run(loops, c->opmath, c->dtypes[k], run, from, strides[k], buffers[k].f32);
            if (c->wraps != AC_int64 && !filled && is_narrowed(c->dtypes[k], c->wraps))
                in[k - 1] = wrapped(c, run, in[k - 1], &buffers[k]);
        }
        char *to = data[0] + at * strides[0] * ac_itemsize(c->dtypes[0]);
        void *result = direct ? (void *)to : buffers[0].f32;
        loops->point[c->op][c->opmath](run, in, result, c->attrs);
        if (!direct) loops->store[c->opmath][c->dtypes[0]](run, result, to, strides[0]);
    }
}

/* Integer division by zero has no value to give; nor by a number that wraps to zero in the dtype. */
static int refuse_zero(const ac_run *r, ac_opmath opmath) {
    bool divides = r->op == AC_OP_floor_divide || r->op == AC_OP_remainder || r->op == AC_OP_fmod;
    if (!divides || opmath != AC_OPMATH_I64) return 0;
    const ac_tensor *y = r->in[1];
    ac_space all = ac_space_of(y, UINT32_MAX);
    for (int64_t i = 0; i < all.numel; i++)
        if (ac_wraps_to_zero(ac_read_int(ac_data(y), y->dtype, ac_space_offset(&all, i)), r->compute))
            return ac_fail(AC_RUNTIME, "%s: integer division by zero", ac_ops[r->op].shown);
    return 0;
}

/* A small call on contiguous tensors of one shape and of opmath type is one call of the loop. */
static bool run_small(const ac_run *r, ac_opmath opmath) {
    const void *in[AC_MAX_OPERANDS];
    const ac_tensor *out = r->out[0];
    ac_dtype type = ac_opmath_dtype(opmath);
    if (out->numel > AC_TILE || out->dtype != type || !ac_is_contiguous(out)) return false;
    for (int k = 0; k < r->n_in; k++) {
        const ac_tensor *x = r->in[k];
        if (x->dtype != type || x->numel != out->numel || !ac_is_contiguous(x)) return false;
        in[k] = ac_data(x);
    }
    ac_cpu_loops()->point[r->op][opmath](out->numel, in, ac_data(out), r->attrs);
    return true;
}

/* Of 16-bit values that are taken as they are, all in rows. */
typedef struct {
    const ac_run *r;
    ac_bits_fn bits;
} bits_call;

static void bits_range(void *context, int64_t begin, int64_t end) {
    const bits_call *c = context;
    const ac_run *r = c->r;
    uint16_t values[AC_TILE];
    for (int64_t at = begin; at < end; at += AC_TILE) {
        int64_t n = ac_least(end - at, AC_TILE);
        const void *in[AC_MAX_OPERANDS];
        for (int k = 0; k < r->n_in; k++) {
            const ac_source *waiting = ac_source_of(r, k);
            in[k] = waiting ? values : (const uint16_t *)ac_data(r->in[k]) + at;
            if (waiting) waiting->read(waiting, at, n, values);
        }
        c->bits(n, in, (uint16_t *)ac_data(r->out[0]) + at);
    }
}

static int run_bits(const ac_run *r, ac_bits_fn bits) {
    bits_call c = {r, bits};
    AC_WAY(bits_as_they_are);
    ac_cpu_note_loops(ac_cpu_loops());
    ac_for_range(r->out[0]->numel, ac_grain_now(AC_GRAIN), bits_range, &c);
    return 0;
}

int ac_cpu_pointwise(const ac_run *r) {
    if (r->rest && ac_opmath_of(r->compute) == ac_opmath_of(r->out[0]->dtype) && ac_cpu_in_rows(r))
        return ac_cpu_leave_point(r);
    if (r->waiting && ac_opmath_of(r->waiting->dtype) != ac_opmath_of(r->compute))
        ac_cpu_compute(r->waiting, r->in[r->waits]);
    if (r->op != AC_OP_floor_divide && r->op != AC_OP_remainder && r->op != AC_OP_fmod &&
        run_small(r, ac_opmath_of(r->compute)))
        return 0;
    ac_bits_fn bits = ac_cpu_bits_of(r);
    if (bits) return run_bits(r, bits);
    ac_tensor *operands[AC_MAX_OPERANDS] = {r->out[0]};
    point_call c = {.loops = ac_cpu_loops(),
                    .opmath = ac_opmath_of(r->compute),
                    .op = r->op,
                    .attrs = r->attrs,
                    .n_in = r->n_in,
                    .dtypes = {r->out[0]->dtype},
                    .wraps = ac_wraps_into(r)};
    AC_TRY(refuse_zero(r, c.opmath));
    ac_cpu_note_loops(c.loops);
    for (int k = 0; k < r->n_in; k++) {
        operands[k + 1] = r->in[k];
        c.dtypes[k + 1] = r->in[k]->dtype;
        c.waiting[k + 1] = ac_source_of(r, k);
    }
    ac_iter it;
    ac_dims shape = ac_shape_of(r->out[0]);
    if (r->waiting) ac_iter_init(&it, &shape, operands, r->n_in + 1); /* a source is read in row-major order */
    else ac_iter_init_by_memory(&it, operands, r->n_in + 1);
    bool slow = ac_ops[r->op].result == AC_RESULT_FLOAT;
    ac_iter_run(&it, ac_iter_grain_now(&it, slow ? AC_GRAIN_SLOW : AC_GRAIN), point_run, &c);
    return 0;
}

/* -- copies and casts ---------------------------------------------------------------------------- */

typedef struct {
    const ac_loops *loops;
    ac_opmath opmath;
    ac_dtype to, from;
} copy_call;

static void copy_run(void *context, int64_t n, char *const *data, const int64_t *strides, int64_t first) {
    const copy_call *c = context;
    (void)first;
    if (c->to == c->from && strides[0] == 1 && strides[1] == 1) {
        memcpy(data[0], data[1], (size_t)(n * ac_itemsize(c->to)));
        return;
    }
    tile buffer;
    for (int64_t at = 0; at < n; at += AC_TILE) {
        int64_t run = n - at < AC_TILE ? n - at : AC_TILE;
        const char *from = data[1] + at * strides[1] * ac_itemsize(c->from);
        char *to = data[0] + at * strides[0] * ac_itemsize(c->to);
        if (c->to == ac_opmath_dtype(c->opmath) && strides[0] == 1) {
            c->loops->load[c->from][c->opmath](run, from, strides[1], to);
            continue;
        }
        const void *in = ac_read_run(c->loops, c->opmath, c->from, run, from, strides[1], buffer.f32);
        c->loops->store[c->opmath][c->to](run, in, to, strides[0]);
    }
}

void ac_cpu_copy_into(ac_tensor *to, const ac_tensor *from) {
    ac_opmath opmath = ac_opmath_of(ac_copy_dtype(to->dtype, from->dtype));
    copy_call c = {ac_cpu_loops(), opmath, to->dtype, from->dtype};
    ac_tensor *operands[2] = {to, (ac_tensor *)(uintptr_t)from};
    ac_iter it;
    ac_iter_init_by_memory(&it, operands, 2);
    ac_iter_run(&it, ac_iter_grain_now(&it, AC_GRAIN), copy_run, &c);
}

int ac_cpu_copy(const ac_run *r) {
    ac_cpu_copy_into(r->out[0], r->in[0]);
    return 0;
}

int ac_cpu_to_device(const ac_run *r) { return ac_cpu_copy(r); }
