// clang-format off
/* The language that formulas (autograd/formula.h) and compositions (dispatch/compose.h) are written in: expressions of
 * operators. A scratch owns every temporary, and each function passes NULL on. So an expression needs no cleanup and
 * reads as mathematics; a failure shows at its end.
 *
 * In an expression `s` is the scratch; tensors are borrowed from it. Words are in capitals, helpers begin with ac_c_. */
#ifndef AC_AUTOGRAD_EXPRESSION_H
#define AC_AUTOGRAD_EXPRESSION_H

#include "ops/op.h"
#include "tensor/list.h"

#include <inttypes.h>

typedef ac_tensor *T;
typedef struct ac_scratch ac_scratch;

struct ac_scratch {
    ac_list owned;
    bool failed;
    T also[AC_MAX_OUT]; /* of a composition: its results after the first, borrowed */
};

static inline void ac_scratch_start(ac_scratch *s) {
    s->failed = false;
    ac_list_init(&s->owned);
}
static inline void ac_scratch_release(ac_scratch *s) { ac_list_release(&s->owned); }

#define AC_UNUSED __attribute__((unused))
/* Ends an expression with an error. */
#define REFUSE(...) return ac_c_refuse(s, s->failed ? -1 : ac_fail(__VA_ARGS__)) /* the first failure is told */
#define NEED(call)                                                                                 \
    do {                                                                                           \
        if ((call) < 0) return ac_c_refuse(s, -1);                                                 \
    } while (0)

/* -- what an expression does -- */
T ac_c_keep(ac_scratch *s, T t);                                       /* the scratch takes over t */
T ac_c_call(ac_scratch *s, ac_op op, const void *attrs, int n, ...);   /* result 0 of a call; absent inputs are ABSENT */
/* all results, in out[AC_MAX_OUT]; NULL after a failure */
int ac_c_call_many(ac_scratch *s, ac_op op, const void *attrs, T const *in, int n, T *out);
T ac_c_number(ac_scratch *s, double x); /* a Python-like number: an int if it is whole */
T ac_c_real(ac_scratch *s, double x);   /* a Python-like float, which makes integers floating point */
/* A factor in the dtype of what it multiplies: integers take its whole part, and bool whether it is 0, as in torch. */
double ac_c_factor(ac_scalar value, ac_dtype dtype);
T ac_c_zeros_of(ac_scratch *s, T x); /* zeros whose gradient by x is zeros, and not absent */
/* x, a table made of attributes alone: backward may run a second time without it being retained */
static inline T ac_c_constant(T x) {
    if (x) x->is_constant = true;
    return x;
}
T ac_c_refuse(ac_scratch *s, int failed);
#define ABSENT ((T)-1)
static inline bool ac_c_has(T x) { return x && x != ABSENT; }

/* -- words -- */
static const ac_attrs_alpha ac_c_one = {{AC_INT, {1}}};
#define UN(op, x) ac_c_call(s, AC_OP_##op, NULL, 1, x)
#define BIN(op, x, y) ac_c_call(s, AC_OP_##op, NULL, 2, x, y)
#define ADD(x, y) ac_c_call(s, AC_OP_add, &ac_c_one, 2, x, y)
#define SUB(x, y) ac_c_call(s, AC_OP_sub, &ac_c_one, 2, x, y)
#define MUL(x, y) BIN(mul, x, y)
#define DIV(x, y) BIN(div, x, y)
#define POW(x, y) BIN(pow, x, y)
#define WHERE(cond, x, y) ac_c_call(s, AC_OP_where, NULL, 3, cond, x, y)
#define NUM(x) ac_c_number(s, x)
#define REAL(x) ac_c_real(s, x)
#define TIMES(x, k) MUL(x, NUM(k))
#define PLUS(x, k) ADD(x, NUM(k))
#define TR(x) ac_c_transpose(s, x, -2, -1)

T ac_c_reshape(ac_scratch *s, T x, const ac_dims *shape);
T ac_c_expand(ac_scratch *s, T x, const ac_dims *shape);
T ac_c_permute(ac_scratch *s, T x, const ac_dims *order);
T ac_c_transpose(ac_scratch *s, T x, int64_t dim0, int64_t dim1);
T ac_c_unsqueeze(ac_scratch *s, T x, int64_t dim);
T ac_c_squeeze(ac_scratch *s, T x, int64_t dim);
T ac_c_select(ac_scratch *s, T x, int64_t dim, int64_t index);
T ac_c_slice(ac_scratch *s, T x, int64_t dim, int64_t start, int64_t end);
T ac_c_cat(ac_scratch *s, T const *parts, int n, int64_t dim);
T ac_c_cast(ac_scratch *s, T x, ac_dtype dtype);
/* float32 for the 16-bit types: what takes several operators is rounded once, by ac_c_cast at the end */
T ac_c_wide(ac_scratch *s, T x);
T ac_c_clamp_min(ac_scratch *s, T x, double low);
T ac_c_clamp(ac_scratch *s, T x, double low, double high);
T ac_c_sum(ac_scratch *s, T x, int64_t dim);          /* over one dimension, which goes */
T ac_c_sum_over(ac_scratch *s, T x, const ac_dims *dim, bool keepdim);
T ac_c_sum_all(ac_scratch *s, T x);
T ac_c_mean(ac_scratch *s, T x, const ac_dims *dim, bool keepdim);
T ac_c_reduced(ac_scratch *s, T x, int64_t reduction); /* none, mean or sum */
T ac_c_arange(ac_scratch *s, int64_t n, ac_device device);
T ac_c_full(ac_scratch *s, const ac_dims *shape, double value, ac_dtype dtype, ac_device device);
T ac_c_zeros(ac_scratch *s, const ac_spec *like);
T ac_c_product(ac_scratch *s, T x, T y); /* matmul */
/* x in the 16-bit dtype that autocast gives a LOW operator with these inputs; x itself outside autocast */
T ac_c_low(ac_scratch *s, T const *in, int n_in, T x);

#endif
