/* A backend: the functions that do the arithmetic of one device. Inputs have passed the shape
 * function; outputs are allocated and contiguous unless said otherwise. Kernels run outside the
 * core's lock: they take no references and call nothing above them. */
#ifndef AC_BACKEND_BACKEND_H
#define AC_BACKEND_BACKEND_H

#include "base/fork.h"
#include "shared/rounding.h"
#include "shared/optim_options.h"
#include "ops/op.h"
#include "tensor/packed_weights.h"

/* Values that are not in memory yet: those of a result that waits for the call that reads it (dispatch/waiting.h). Made
 * by the kernel, which copies what it needs to know of its operands; their storages are kept by whoever has the source.
 */
typedef struct ac_source {
    /* Computes the n values from row-major position `at` on, as they would be in memory; n is at most AC_SOURCE_RUN. */
    void (*read)(const struct ac_source *s, int64_t at, int64_t n, void *to);
    void (*release)(struct ac_source *s);
    ac_dtype dtype;
    bool computed; /* a kernel has written them to the result's memory meanwhile */
} ac_source;
enum { AC_SOURCE_RUN = 1024 };

/* One call of a kernel. */
typedef struct {
    ac_op op;
    ac_tensor *const *in; /* NULL for an absent optional tensor */
    int n_in;
    const void *attrs;
    ac_tensor **out; /* out[0] may share memory with an input of equal geometry (in place) */
    int n_out;
    ac_dtype compute;        /* elementwise operators: the dtype the inputs promote to; products: what operands
                              * are rounded to before they are multiplied */
    const ac_tensor *panels; /* products: the right operand as `pack` left it, or NULL */
    bool add;                /* products: add to what out[0] holds */
    ac_source *waiting;      /* gives the values of in[waits], which has out[0]'s shape; or NULL: all are in memory */
    int waits;
    ac_source **rest; /* where the kernel may leave what gives out[0]'s values, rather than compute them; or NULL */
} ac_run;

typedef int (*ac_kernel)(const ac_run *run);

/* Elementwise operators: the small integer dtype that whole operands wrap into before they are computed with, or int64
 * for none. A number and a 0-d tensor may have values beyond `compute`; comparisons see these as they are. */
static inline ac_dtype ac_wraps_into(const ac_run *r) {
    ac_result result = ac_ops[r->op].result;
    bool whole = ac_dtypes[r->compute].category == AC_INTEGER;
    return whole && (result == AC_RESULT_KEEP || result == AC_RESULT_INT) ? r->compute : AC_int64;
}
/* Whether an integer wraps to 0 in a dtype. */
static inline bool ac_wraps_to_zero(int64_t value, ac_dtype t) {
    return (uint64_t)value << (64 - 8 * ac_itemsize(t)) == 0;
}

enum { AC_MAX_STATE = 3 };

/* One parameter of an optimizer step: its gradient, itself, and the update rule's states (shared/optim_update.inc),
 * those in use first, then NULL. All of one shape. */
typedef struct {
    ac_tensor *grad, *param, *state[AC_MAX_STATE];
    ac_optim_scalars at;
    ac_rounding rounding; /* of a 16-bit parameter; `extra` is its compensation or its master, else NULL */
    ac_tensor *extra;
    uint64_t seed, offset; /* stochastic: of the generator, numel numbers from there on */
    ac_tensor *count;      /* on a GPU: `at.step` as a float32 there, advanced by the step; or NULL */
    ac_tensor *product;    /* the same of `at.product` */
    ac_kept kept[AC_KEPT]; /* packed copies of the parameter that the step packs again while it has the values */
} ac_update;

/* Statistics of a tensor: the sum of squares and the largest finite magnitude, infinities and nans, all of the
 * values as multiplied; how many of them as they are in memory lie below float16's normal numbers, 0 apart; and the
 * index of the first that is not finite, counted from 1 in row-major order, 0 where all are. */
typedef struct {
    double squares, amax, infs, nans, small, first;
} ac_found;

/* What an optimizer step is given, for all parameters alike. */
typedef struct {
    ac_optim_options options;
    const float *found_inf; /* on a GPU, or NULL: nonzero leaves the step out */
    bool zero;              /* gradients become 0 in the same pass, of a step left out, too */
} ac_step_args;

typedef struct ac_backend {
    const char *name;
    ac_kernel kernels[AC_N_OPS]; /* NULL for views and compositions */
    /* Weights that are multiplied again and again are kept as the product wants them: `w` [k, n], or
     * [n, k] when `out_first`, rounded to `round`. Bytes that takes, and the packing; false when a
     * value stands against it. */
    int64_t (*panels_bytes)(const ac_tensor *w, ac_dtype round, bool out_first);
    bool (*pack)(const ac_tensor *w, ac_dtype round, bool out_first, ac_tensor *panels);
    /* Writes a source's values to the memory of its result, which is contiguous; NULL: no kernel leaves a source. */
    void (*compute)(ac_source *s, const ac_tensor *result);
    /* The statistics of tensors[i] * factors[i], rounded to its dtype; writes nothing. What waits for a tensor is in
     * its factor, but for what lies on a GPU (storage.h), which the GPU reads. */
    int (*grad_stats)(ac_tensor *const *tensors, int n, const double *factors, ac_found *found);
    /* Multiplies every tensor by `factor`, and by `there`, a number in the device's memory (NULL: 1), in place. */
    int (*scale)(ac_tensor *const *tensors, int n, double factor, const double *there);
    /* One optimizer step over a list of parameters. */
    int (*step)(ac_update_rule rule, ac_update *updates, int n, const ac_step_args *constants);
    /* Whether the kernel of attention takes the widths of q and v in a dtype; NULL: there is none. */
    bool (*attends)(const ac_tensor *q, const ac_tensor *v, ac_dtype dtype);
} ac_backend;

extern const ac_backend ac_cpu, ac_cuda, ac_no_values;
static inline const ac_backend *ac_backend_of(ac_device d) {
    return d == AC_CPU ? &ac_cpu : d & AC_META ? &ac_no_values : &ac_cuda;
}
/* How many of n > 0 tensors, from the first on, lie on one device: lists go to a backend in such runs. */
static inline int ac_same_device(ac_tensor *const *tensors, int n) {
    int run = 1;
    while (run < n && ac_device_of(tensors[run]) == ac_device_of(tensors[0])) run++;
    return run;
}

/* The BLAS that float64 products run on. `path` of the library, before first use. */
void ac_blas_set_path(const char *path);
void *ac_lapack(const char *name); /* LAPACK's routine, as a pointer to data; NULL where there is none */
const char *ac_blas_name(void);    /* loads it; "own loops" when there is none */
/* Around every call of its routines: a fork waits for those that are under way, since it has locks of its own. */
void ac_blas_enter(void);
void ac_blas_leave(void);
void ac_blas_around_fork(ac_fork_moment moment);

typedef struct {
    int64_t m, n, k;
    const double *a; /* element (i, p) at a[i * a_row + p * a_col]; one of the two strides is 1 */
    int64_t a_row, a_col;
    const double *b; /* (p, j) at b[p * b_row + j * b_col] */
    int64_t b_row, b_col;
    double *c; /* (i, j) at c[i * c_row + j] */
    int64_t c_row;
    bool add; /* c += a b rather than c = a b */
} ac_dgemm;

/* One product on the calling thread. */
void ac_blas_dgemm(const ac_dgemm *g);

#endif
