/* Reductions on a GPU: selects the loop order and the number of parts, and joins the totals. The host side of
 * reduce.cu. */
#include "cuda/gpu.h"

#include "shared/tensor_iter.h"

#include <math.h>

#define FOLD_NAMES(kind, name) {"ac_" kind "_" name "_f32", "ac_" kind "_" name "_f64", "ac_" kind "_" name "_i64"}
#define FOLD(kind)                                                                                                     \
    {                                                                                                                  \
        [AC_FOLD_SUM] = FOLD_NAMES(kind, "sum"),         [AC_FOLD_SUM_SQUARES] = FOLD_NAMES(kind, "sum_squares"),      \
        [AC_FOLD_SUM_ABS] = FOLD_NAMES(kind, "sum_abs"), [AC_FOLD_SUM_POWERS] = FOLD_NAMES(kind, "sum_powers"),        \
        [AC_FOLD_COUNT] = FOLD_NAMES(kind, "count"),     [AC_FOLD_PROD] = FOLD_NAMES(kind, "prod"),                    \
        [AC_FOLD_MAX] = FOLD_NAMES(kind, "max"),         [AC_FOLD_MIN] = FOLD_NAMES(kind, "min"),                      \
        [AC_FOLD_MAX_ABS] = FOLD_NAMES(kind, "max_abs"), [AC_FOLD_MIN_ABS] = FOLD_NAMES(kind, "min_abs"),              \
    }
enum { ROWS, COLUMNS, JOIN };
static const char *const names[3][AC_N_FOLDS][AC_N_OPMATHS] = {FOLD("rows"), FOLD("columns"), FOLD("join")};
static ac_gpu_kernel kernels[3][AC_N_FOLDS][AC_N_OPMATHS];

static ac_gpu_kernel *kernel(int kind, ac_fold fold, int opmath) {
    ac_gpu_kernel *k = &kernels[kind][fold][opmath];
    k->image = AC_IMAGE_REDUCE, k->name = names[kind][fold][opmath];
    return k;
}

/* The opmath type of a reduction into `result`: integers are summed as integers only into integers. */
static int opmath_for(const ac_tensor *x, ac_dtype result) {
    int own = ac_gpu_opmath(x->dtype);
    if (result == AC_float64) return AC_OPMATH_F64;
    return own == AC_OPMATH_I64 && ac_is_floating(result) ? AC_OPMATH_F32 : own;
}

enum { WIDE = 32, PART = 4096, COLUMN_PART = 128, MOST_PARTS = 4096, MANY = 4096, RUN = 4, WHOLE = 16 };

/* Parts of so many reduced elements follow from sizes alone, so sums do not depend on the device they are made on. */
static int64_t parts_for(int64_t results, int64_t inner, int64_t part) {
    int64_t parts = (inner + part - 1) / part, most = MOST_PARTS / (results > 0 ? results : 1);
    return parts < 1 || most < 1 ? 1 : parts < most ? parts : most;
}

/* Whether a kept dimension is closest in memory. */
static bool by_columns(const ac_space *kept, const ac_space *inner) {
    return kept->size[kept->n - 1] >= 4 && kept->stride[kept->n - 1] < inner->stride[inner->n - 1];
}

/* Whether `along` goes through runs of four neighbours, on boundaries of 16 bytes, wherever `across` begins them. */
static bool in_runs(const ac_gpu_reduce *a, const ac_space *along, const ac_space *across) {
    int last = along->n - 1;
    bool runs = ac_gpu_aligned(a->x.data) && ac_gpu_is_bulk((ac_dtype)a->x.dtype) && along->stride[last] == 1;
    for (int k = 0; k < last; k++) runs = runs && along->stride[k] % RUN == 0;
    for (int k = 0; k < across->n; k++) runs = runs && across->stride[k] % RUN == 0;
    return runs && (last == 0 || along->size[last] % RUN == 0);
}

/* Of rows whose elements lie side by side, on boundaries of 16 bytes, how many of them a pack of so many bytes has;
 * else 0. */
static int32_t dense(const ac_gpu_ref *x, const ac_space *along, const ac_space *across) {
    enum { PACK = 16 };
    int64_t run = PACK / (int64_t)ac_itemsize((ac_dtype)x->dtype);
    bool packs = ac_gpu_aligned(x->data) && along->n == 1 && along->stride[0] == 1;
    for (int k = 0; k < across->n; k++) packs = packs && across->stride[k] % run == 0;
    return packs ? (int32_t)run : 0;
}

/* Whether a kernel takes packs of these: of bulk dtypes in float32, and of bytes that are counted. */
static bool takes_packs(ac_dtype x, ac_fold fold, int opmath) {
    return opmath == AC_OPMATH_F32 ? ac_gpu_is_bulk(x) : fold == AC_FOLD_COUNT && ac_itemsize(x) == 1;
}

/* Threads that take so many values: what is short shares a warp, or a block. Of many rows a warp takes longer ones. */
static int32_t group_for(int64_t n, int64_t rows) {
    return n <= 8 ? 1 : n <= 64 ? 8 : n <= 1024 || (n <= 2 * PART && rows >= MANY) ? WIDE : AC_GPU_THREADS;
}

static int join_parts(ac_device d, ac_gpu_reduce *a, ac_gpu_kernel *kernel) {
    a->group = group_for(a->parts, a->kept.numel);
    int64_t blocks = (a->kept.numel + AC_GPU_THREADS / a->group - 1) / (AC_GPU_THREADS / a->group);
    return ac_gpu_launch(d, kernel, blocks, AC_GPU_THREADS / 32 * 8, a);
}

/* Memory for the parts of `jobs` results, or sets of them, whose totals are `words` numbers; NULL where there is one.
 */
static int cut(ac_device d, ac_gpu_reduce *a, int64_t jobs, int64_t part, int words, ac_gpu_block **room) {
    a->parts = parts_for(jobs, a->inner.numel, part);
    a->part = ((a->inner.numel + a->parts - 1) / a->parts + WHOLE - 1) / WHOLE * WHOLE;
    *room = NULL;
    if (a->parts == 1) return 0;
    *room = ac_gpu_alloc(d, a->parts * a->kept.numel * 8 * words);
    if (!*room) return -1;
    a->partial = ac_gpu_address(*room);
    return 0;
}

/* Both launches of a reduction by rows. */
static int reduce_rows(ac_device d, ac_gpu_reduce *a, ac_gpu_kernel *rows, ac_gpu_kernel *join) {
    a->group = a->parts > 1 ? AC_GPU_THREADS : group_for(a->inner.numel, a->kept.numel);
    int64_t together = AC_GPU_THREADS / a->group, blocks = (a->kept.numel * a->parts + together - 1) / together;
    int failed = ac_gpu_launch(d, rows, blocks, AC_GPU_THREADS / 32 * 8, a);
    return failed || a->parts == 1 ? failed : join_parts(d, a, join);
}

static int reduce(ac_device d, ac_gpu_reduce *a, ac_fold fold, int opmath) {
    bool columns = by_columns(&a->kept, &a->inner);
    if (a->kept.numel == 0) return 0;
    a->vector = columns ? in_runs(a, &a->kept, &a->inner) && a->kept.numel % RUN == 0 : in_runs(a, &a->inner, &a->kept);
    a->dense = takes_packs((ac_dtype)a->x.dtype, fold, opmath) ? dense(&a->x, &a->inner, &a->kept) : 0;
    int64_t wide = WIDE * (a->vector && opmath == AC_OPMATH_F32 ? RUN : 1);
    int64_t jobs = columns ? (a->kept.numel + wide - 1) / wide : a->kept.numel;
    ac_gpu_block *room;
    AC_TRY(cut(d, a, jobs, columns ? COLUMN_PART : PART, 1, &room));
    ac_gpu_kernel *join = kernel(JOIN, fold, opmath);
    int failed = 0;
    if (columns) {
        failed = ac_gpu_launch(d, kernel(COLUMNS, fold, opmath), jobs * a->parts, AC_GPU_THREADS * 8 * RUN, a);
        if (!failed && a->parts > 1) failed = join_parts(d, a, join);
    } else failed = reduce_rows(d, a, kernel(ROWS, fold, opmath), join);
    ac_gpu_free(room);
    return failed;
}

static int run(const ac_run *r, const ac_dims *dim, ac_fold fold, double p, ac_gpu_finish finish, int opmath) {
    uint32_t mask;
    const ac_tensor *x = r->in[0];
    AC_TRY(ac_dims_mask(dim, x->ndim, ac_ops[r->op].shown, &mask));
    if (dim->n == 0 && ac_same_shape(r->out[0], x)) mask = 0; /* nothing is reduced */
    ac_gpu_reduce a = {.x = ac_gpu_ref_of(x),
                       .out = ac_gpu_ref_of(r->out[0]),
                       .kept = ac_space_of(x, ~mask),
                       .inner = ac_space_of(x, mask),
                       .p = p,
                       .finish = (int32_t)finish};
    return reduce(ac_run_device(r), &a, fold, opmath);
}

#define SIMPLE(name, attrs, fold, finish)                                                                              \
    int ac_cuda_##name(const ac_run *r) {                                                                              \
        ATTRS(attrs);                                                                                                  \
        return run(r, &a->dim, fold, 0, finish, opmath_for(r->in[0], r->out[0]->dtype));                               \
    }
#define TRUTH(name, finish)                                                                                            \
    int ac_cuda_##name(const ac_run *r) {                                                                              \
        ATTRS(reduce_dim);                                                                                             \
        return run(r, &a->dim, AC_FOLD_COUNT, 0, finish, ac_gpu_opmath(r->in[0]->dtype));                              \
    }
SIMPLE(sum, reduce, AC_FOLD_SUM, AC_GPU_TOTAL)
SIMPLE(mean, reduce, AC_FOLD_SUM, AC_GPU_MEAN)
SIMPLE(prod, reduce, AC_FOLD_PROD, AC_GPU_TOTAL)
SIMPLE(amax, reduce_dim, AC_FOLD_MAX, AC_GPU_TOTAL)
SIMPLE(amin, reduce_dim, AC_FOLD_MIN, AC_GPU_TOTAL)
TRUTH(any, AC_GPU_ANY)
TRUTH(all, AC_GPU_ALL)

/* Squares are summed in float64, so that values of 1e20 do not overflow the sum. The norm of a single value is its
 * size, whose square could overflow float64. */
int ac_cuda_norm(const ac_run *r) {
    ATTRS(norm);
    double p = ac_scalar_double(a->p);
    int opmath = opmath_for(r->in[0], r->out[0]->dtype);
    bool alone = r->out[0]->numel == r->in[0]->numel;
    if (alone && p != 0) return run(r, &a->dim, AC_FOLD_MAX_ABS, 0, AC_GPU_TOTAL, opmath);
    if (p == 2) return run(r, &a->dim, AC_FOLD_SUM_SQUARES, 0, AC_GPU_ROOT, AC_OPMATH_F64);
    if (p == 1) return run(r, &a->dim, AC_FOLD_SUM_ABS, 0, AC_GPU_TOTAL, opmath);
    if (p == 0) return run(r, &a->dim, AC_FOLD_COUNT, 0, AC_GPU_TOTAL, opmath);
    if (p == INFINITY) return run(r, &a->dim, AC_FOLD_MAX_ABS, 0, AC_GPU_TOTAL, opmath);
    if (p == -INFINITY) return run(r, &a->dim, AC_FOLD_MIN_ABS, 0, AC_GPU_TOTAL, opmath);
    return run(r, &a->dim, AC_FOLD_SUM_POWERS, p, AC_GPU_POWER_ROOT, AC_OPMATH_F64);
}

/* Of rows, in float32 and what is narrower: one pass. */
static int var_of_rows(ac_device d, ac_gpu_reduce *a) {
    static ac_gpu_kernel rows = {.image = AC_IMAGE_REDUCE, .name = "ac_rows_moments"},
                         join = {.image = AC_IMAGE_REDUCE, .name = "ac_join_moments"};
    ac_gpu_block *room;
    if (a->kept.numel == 0) return 0;
    a->dense = ac_gpu_is_bulk((ac_dtype)a->x.dtype) ? dense(&a->x, &a->inner, &a->kept) : 0;
    AC_TRY(cut(d, a, a->kept.numel, PART, 2, &room));
    int failed = reduce_rows(d, a, &rows, &join);
    ac_gpu_free(room);
    return failed;
}

/* Two passes: the means, then the squares around them; in float64, because float32 does not hold squares of all values.
 */
static int var_in_two(ac_device d, ac_gpu_reduce *a) {
    ac_gpu_block *means = ac_gpu_alloc(d, a->kept.numel * 8);
    if (!means) return -1;
    ac_gpu_reduce first = *a;
    first.out = (ac_gpu_ref){.data = ac_gpu_address(means), .dtype = AC_float64}, first.finish = AC_GPU_MEAN;
    int failed = reduce(d, &first, AC_FOLD_SUM, AC_OPMATH_F64);
    a->each = ac_gpu_address(means);
    if (!failed) failed = reduce(d, a, AC_FOLD_SUM_SQUARES, AC_OPMATH_F64);
    ac_gpu_free(means);
    return failed;
}

int ac_cuda_var(const ac_run *r) {
    ATTRS(var);
    uint32_t mask;
    const ac_tensor *x = r->in[0];
    ac_device d = ac_run_device(r);
    AC_TRY(ac_dims_mask(&a->dim, x->ndim, ac_ops[r->op].shown, &mask));
    ac_gpu_reduce c = {.x = ac_gpu_ref_of(x),
                       .out = ac_gpu_ref_of(r->out[0]),
                       .kept = ac_space_of(x, ~mask),
                       .inner = ac_space_of(x, mask),
                       .correction = ac_correction(a),
                       .finish = r->op == AC_OP_std ? AC_GPU_DEVIATION : AC_GPU_VARIANCE};
    bool narrow = ac_gpu_opmath(x->dtype) == AC_OPMATH_F32;
    return narrow && !by_columns(&c.kept, &c.inner) ? var_of_rows(d, &c) : var_in_two(d, &c);
}

/* -- the position of the largest or smallest -------------------------------------------------------- */

static int pick(const ac_run *r, const ac_dims *dim, bool smallest, ac_tensor *values, ac_tensor *indices) {
    static ac_gpu_kernel best[AC_N_OPMATHS] = AC_GPU_BY_OPMATH(AC_IMAGE_REDUCE, "ac_best");
    uint32_t mask;
    const ac_tensor *x = r->in[0];
    AC_TRY(ac_dims_mask(dim, x->ndim, ac_ops[r->op].shown, &mask));
    ac_gpu_best a = {.x = ac_gpu_ref_of(x),
                     .values = ac_gpu_ref_of(values),
                     .indices = ac_data(indices),
                     .kept = ac_space_of(x, ~mask),
                     .along = ac_space_of(x, mask),
                     .smallest = smallest};
    if (a.kept.numel == 0) return 0;
    int opmath = ac_gpu_opmath(x->dtype);
    bool side_by_side = by_columns(&a.kept, &a.along) && a.kept.numel >= MANY;
    a.dense = takes_packs(x->dtype, AC_FOLD_MAX, opmath) ? dense(&a.x, &a.along, &a.kept) : 0;
    a.group = side_by_side ? 1 : group_for(a.along.numel, a.kept.numel);
    int64_t together = AC_GPU_THREADS / a.group, blocks = (a.kept.numel + together - 1) / together;
    return ac_gpu_launch(ac_run_device(r), &best[opmath], blocks, AC_GPU_THREADS / 32 * 16, &a);
}

static int arg(const ac_run *r, bool smallest) {
    ATTRS(maybe_dim);
    ac_dims dim = {a->dim == AC_ABSENT ? -1 : 1, {a->dim}};
    return pick(r, &dim, smallest, NULL, r->out[0]);
}
static int pair(const ac_run *r, bool smallest) {
    ATTRS(dim);
    ac_dims dim = {1, {a->dim}};
    return pick(r, &dim, smallest, r->out[0], r->out[1]);
}

int ac_cuda_argmax(const ac_run *r) { return arg(r, false); }
int ac_cuda_argmin(const ac_run *r) { return arg(r, true); }
int ac_cuda_max_dim(const ac_run *r) { return pair(r, false); }
int ac_cuda_min_dim(const ac_run *r) { return pair(r, true); }

/* -- mse -------------------------------------------------------------------------------------------- */

/* The difference, in the compute dtype and of the broadcast shape, then its squares: summed, or one by one. */
int ac_cuda_mse_loss(const ac_run *r) {
    ATTRS(reduction);
    const ac_attrs_alpha one = {{AC_INT, {1}}};
    ac_dims shape = ac_shape_of(r->in[0]), other = ac_shape_of(r->in[1]);
    AC_TRY(ac_dims_broadcast(&shape, &other, "mse_loss"));
    bool each = a->reduction == AC_REDUCE_NONE;
    ac_dtype wide =
        r->compute == AC_float64 ? AC_float64 : AC_float32; /* squares of a rounded difference would differ */
    ac_tensor *d = ac_tensor_new_on(ac_run_device(r), wide, &shape);
    if (!d) return -1;
    ac_run part = {
        .op = AC_OP_sub, .in = r->in, .n_in = 2, .attrs = &one, .out = &d, .n_out = 1, .compute = r->compute};
    int failed = ac_cuda_pointwise(&part);
    const ac_dims all = {.n = -1};
    if (!failed && each) {
        part = (ac_run){.op = AC_OP_square, .in = &d, .n_in = 1, .out = r->out, .n_out = 1, .compute = r->compute};
        failed = ac_cuda_pointwise(&part);
    } else if (!failed) {
        part = (ac_run){.op = AC_OP_sum, .in = &d, .n_in = 1, .out = r->out, .n_out = 1, .compute = r->compute};
        ac_gpu_finish finish = a->reduction == AC_REDUCE_MEAN ? AC_GPU_MEAN : AC_GPU_TOTAL;
        failed = run(&part, &all, AC_FOLD_SUM_SQUARES, 0, finish, ac_gpu_opmath(wide));
    }
    ac_tensor_release(d);
    return failed;
}
