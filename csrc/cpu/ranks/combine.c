/* Combines arrays of several ranks into one. */
#include "cpu/kernels.h"
#include "cpu/ranks/ranks.h"

#include <string.h>

static const ac_op operators[AC_N_COMBINES] = {
    [AC_COMBINE_SUM] = AC_OP_add,         [AC_COMBINE_PRODUCT] = AC_OP_mul,     [AC_COMBINE_MIN] = AC_OP_minimum,
    [AC_COMBINE_MAX] = AC_OP_maximum,     [AC_COMBINE_AND] = AC_OP_bitwise_and, [AC_COMBINE_OR] = AC_OP_bitwise_or,
    [AC_COMBINE_XOR] = AC_OP_bitwise_xor,
};

typedef union {
    float f32[AC_TILE];
    double f64[AC_TILE];
    int64_t i64[AC_TILE];
} tile;

typedef struct {
    const ac_loops *loops;
    ac_opmath opmath;
    ac_dtype dtype;
    ac_op op;
    int count, divisor;
    const tile *divisors;
} combination;

/* `to` is where a result of opmath type may go at once. */
static const void *combined(const combination *c, int64_t n, const void *const *from, int64_t at, void *to, tile *sum) {
    static const ac_attrs_alpha plain = {{.kind = AC_INT, .i = 1}};
    tile next;
    const void *x = ac_read_run(c->loops, c->opmath, c->dtype, n, (const char *)from[0] + at, 1, sum);
    for (int k = 1; k < c->count; k++) {
        const void *in[2] = {x, ac_read_run(c->loops, c->opmath, c->dtype, n, (const char *)from[k] + at, 1, &next)};
        void *result = k == c->count - 1 ? to : sum;
        c->loops->point[c->op][c->opmath](n, in, result, &plain);
        x = result;
    }
    if (c->divisor == 1) return x;
    c->loops->point[AC_OP_div][c->opmath](n, (const void *[2]){x, c->divisors}, to, &plain);
    return to;
}

static void fill(tile *t, ac_opmath opmath, int64_t n, int divisor) {
    for (int64_t i = 0; i < n && i < AC_TILE; i++)
        if (opmath == AC_OPMATH_F32) t->f32[i] = (float)divisor;
        else t->f64[i] = divisor;
}

void ac_cpu_combine(ac_combine how, ac_dtype dtype, int64_t n, int count, const void *const *from, int divisor,
                    ac_dtype out_dtype, void *out) {
    tile sum, divisors; /* the latter is filled where there is a divisor */
    combination c = {.loops = ac_cpu_loops(),
                     .opmath = ac_opmath_of(dtype),
                     .dtype = dtype,
                     .count = count,
                     .divisor = divisor,
                     .divisors = &divisors,
                     .op = operators[how]};
    bool direct = out_dtype == ac_opmath_dtype(c.opmath);
    int64_t size = ac_itemsize(out_dtype);
    if (divisor != 1) fill(&divisors, c.opmath, n, divisor);
    for (int64_t i = 0; i < n; i += AC_TILE) {
        int64_t run = n - i < AC_TILE ? n - i : AC_TILE;
        char *to = (char *)out + i * size;
        const void *x = combined(&c, run, from, i * ac_itemsize(dtype), direct ? (void *)to : &sum, &sum);
        if (!direct) c.loops->store[c.opmath][out_dtype](run, x, to, 1);
        else if (x != to) memcpy(to, x, (size_t)(run * size));
    }
}
