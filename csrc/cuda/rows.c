/* Softmax and its relatives, cross entropy and layer norm on a GPU: the host side of rows.cu. */
#include "cuda/gpu.h"

#include "shared/tensor_iter.h"

enum { WARP = 32, LONG_ROW = 1024, ROOM_BYTES = AC_GPU_THREADS / 32 * 8, MANY_ROWS = 8192 };
enum { HELD = 2 }; /* the kernel of rows that registers hold, behind those of float32 and float64 */

#define KERNELS(rows)                                                                                                  \
    static ac_gpu_kernel rows[3] = {{.image = AC_IMAGE_ROWS, .name = "ac_" #rows "_f32"},                              \
                                    {.image = AC_IMAGE_ROWS, .name = "ac_" #rows "_f64"},                              \
                                    {.image = AC_IMAGE_ROWS, .name = "ac_" #rows "_held"}};
KERNELS(softmax)
KERNELS(log_softmax)
KERNELS(logsumexp)
KERNELS(softmax_backward)
KERNELS(log_softmax_backward)
KERNELS(layer_norm)
KERNELS(layer_norm_backward)
KERNELS(entropy)
KERNELS(soft_entropy)
#undef KERNELS

static ac_gpu_kernel entropy_backward[2] = {{.image = AC_IMAGE_ROWS, .name = "ac_entropy_backward_f32"},
                                            {.image = AC_IMAGE_ROWS, .name = "ac_entropy_backward_f64"}};
static ac_gpu_kernel soft_entropy_backward[2] = {{.image = AC_IMAGE_ROWS, .name = "ac_soft_entropy_backward_f32"},
                                                 {.image = AC_IMAGE_ROWS, .name = "ac_soft_entropy_backward_f64"}};
static ac_gpu_kernel entropy_parts = {.image = AC_IMAGE_ROWS, .name = "ac_entropy_parts"},
                     entropy_join = {.image = AC_IMAGE_ROWS, .name = "ac_entropy_join"};

static bool in_runs(const ac_gpu_rows_of *x, int64_t n) {
    bool runs = ac_gpu_is_bulk((ac_dtype)x->ref.dtype) && ac_gpu_aligned(x->ref.data) && n % 8 == 0;
    runs = runs && x->inner.n == 1 && x->inner.stride[0] == 1;
    for (int d = 0; d < x->kept.n; d++) runs = runs && x->kept.stride[d] % 8 == 0;
    return runs;
}

/* Rows of integers are read as float32 (float64 where the result is). */
static ac_tensor *as_real(ac_tensor *t, ac_dtype wide) {
    return ac_is_floating(t->dtype) ? ac_tensor_retain(t) : ac_gpu_copy_as(t, wide);
}

static ac_gpu_rows_of rows_of(const ac_tensor *t, uint32_t mask) {
    return (ac_gpu_rows_of){ac_gpu_ref_of(t), ac_space_of(t, ~mask), ac_space_of(t, mask)};
}

/* Rows whose elements lie apart while those of neighbouring rows lie side by side: a thread takes one, so that a warp
 * reads neighbours. Few long rows would leave threads without work. */
static bool lies_across(const ac_gpu_rows *a) {
    const ac_gpu_rows_of *x = &a->in[0];
    bool side_by_side = x->kept.stride[x->kept.n - 1] == 1 && x->kept.size[x->kept.n - 1] >= WARP;
    return side_by_side && x->inner.stride[x->inner.n - 1] != 1 && (a->n <= AC_GPU_THREADS || a->rows >= MANY_ROWS);
}

static bool column_runs(const ac_gpu_ref *x) {
    return !x->data || (ac_gpu_is_bulk((ac_dtype)x->dtype) && ac_gpu_aligned(x->data));
}

/* `inputs`: those that are read together, which have one dtype; another one may be read beside them. */
static bool in_whole_runs(const ac_gpu_rows *a, int inputs, bool writes_rows) {
    bool runs = in_runs(&a->in[0], a->n) && (!writes_rows || in_runs(&a->out, a->n));
    if (a->in[1].ref.data) runs = runs && in_runs(&a->in[1], a->n);
    if (inputs > 1) runs = runs && a->in[0].ref.dtype == a->in[1].ref.dtype;
    return runs && column_runs(&a->weight) && column_runs(&a->bias);
}

/* How the rows are worked on, and which kernel does it. `again`: they are read more than once. */
static int plan_launch(ac_gpu_rows *a, int opmath, int inputs, bool writes_rows, bool again) {
    a->vector = opmath == AC_OPMATH_F32 && in_whole_runs(a, inputs, writes_rows);
    a->group = lies_across(a) ? 1 : a->n > LONG_ROW ? AC_GPU_THREADS : WARP;
    if (!a->vector || !again || a->group == 1 || a->n > AC_GPU_THREADS * AC_GPU_HELD) return opmath;
    for (a->group = WARP; a->group * AC_GPU_HELD < a->n; a->group *= 2) {
    }
    return HELD;
}

static int64_t blocks_of(ac_device d, const ac_gpu_rows *a) {
    int64_t groups = AC_GPU_THREADS / a->group, blocks = (a->rows + groups - 1) / groups;
    int64_t most = (int64_t)ac_gpu_multiprocessors(d) * 64;
    return blocks < most ? blocks : most;
}

static int launch_rows(ac_device d, ac_gpu_kernel *kernels, int opmath, int inputs, bool writes_rows, ac_gpu_rows *a) {
    if (a->rows == 0) return 0;
    int kernel = plan_launch(a, opmath, inputs, writes_rows, true);
    return ac_gpu_launch(d, &kernels[kernel], blocks_of(d, a), ROOM_BYTES, a);
}

static int run_rows(const ac_run *r, ac_gpu_kernel *kernels, int64_t dim, int inputs) {
    const ac_tensor *x = r->in[0];
    AC_TRY(ac_dim_wrap(&dim, x->ndim, ac_ops[r->op].shown));
    bool wide = r->out[0]->dtype == AC_float64 || x->dtype == AC_float64;
    uint32_t mask = x->ndim ? 1u << dim : 0;
    ac_gpu_rows a = {.n = x->ndim ? x->shape[dim] : 1, .safe = r->op == AC_OP_safe_softmax};
    ac_tensor *real[2] = {NULL, NULL};
    int failed = 0;
    for (int k = 0; k < inputs && !failed; k++) {
        real[k] = as_real(r->in[k], wide ? AC_float64 : AC_float32);
        if (real[k]) a.in[k] = rows_of(real[k], mask);
        else failed = -1;
    }
    a.rows = a.n ? x->numel / a.n : 0, a.out = rows_of(r->out[0], mask);
    if (!failed)
        failed = launch_rows(ac_run_device(r), kernels, wide ? AC_OPMATH_F64 : AC_OPMATH_F32, inputs, true, &a);
    for (int k = 0; k < inputs; k++) ac_tensor_clear(&real[k]);
    return failed;
}

int ac_cuda_softmax(const ac_run *r) {
    ATTRS(softmax);
    return run_rows(r, softmax, a->dim, 1);
}
int ac_cuda_safe_softmax(const ac_run *r) { return ac_cuda_softmax(r); }
int ac_cuda_log_softmax(const ac_run *r) {
    ATTRS(softmax);
    return run_rows(r, log_softmax, a->dim, 1);
}
int ac_cuda_softmax_backward(const ac_run *r) {
    ATTRS(softmax_backward);
    return run_rows(r, softmax_backward, a->dim, 2);
}
int ac_cuda_log_softmax_backward(const ac_run *r) {
    ATTRS(softmax_backward);
    return run_rows(r, log_softmax_backward, a->dim, 2);
}

int ac_cuda_logsumexp(const ac_run *r) {
    ATTRS(reduce_dim);
    uint32_t mask;
    AC_TRY(ac_dims_mask(&a->dim, r->in[0]->ndim, "logsumexp", &mask));
    bool wide = r->out[0]->dtype == AC_float64 || r->in[0]->dtype == AC_float64;
    ac_tensor *x = as_real(r->in[0], wide ? AC_float64 : AC_float32);
    if (!x) return -1;
    ac_gpu_rows args = {.in = {rows_of(x, mask)}, .out.ref = ac_gpu_ref_of(r->out[0])};
    args.n = args.in[0].inner.numel, args.rows = args.in[0].kept.numel;
    int failed = launch_rows(ac_run_device(r), logsumexp, wide ? AC_OPMATH_F64 : AC_OPMATH_F32, 1, false, &args);
    ac_tensor_release(x);
    return failed;
}

/* -- layer norm: everything contiguous, copied where it is not ----------------------------------- */

enum { MOST_INPUTS = 5 };

/* in[] made contiguous; NULL stays NULL */
static int take_dense(const ac_run *r, ac_tensor **dense) {
    for (int k = 0; k < MOST_INPUTS; k++) dense[k] = NULL;
    for (int k = 0; k < r->n_in && k < MOST_INPUTS; k++) {
        if (!r->in[k]) continue;
        dense[k] = ac_gpu_contiguous(r->in[k]);
        if (!dense[k]) return -1;
    }
    return 0;
}
static void drop_dense(ac_tensor **dense) {
    for (int k = 0; k < MOST_INPUTS; k++) ac_tensor_clear(&dense[k]);
}

/* t as contiguous rows of n */
static ac_gpu_rows_of dense_rows(const ac_tensor *t, int64_t n) {
    ac_gpu_rows_of x = {.ref = ac_gpu_ref_of(t)};
    int64_t rows = n ? t->numel / n : 0;
    x.kept = (ac_space){1, rows, {rows}, {n}};
    x.inner = (ac_space){1, n, {n}, {1}};
    return x;
}

int ac_cuda_layer_norm(const ac_run *r) {
    ATTRS(layer_norm);
    ac_tensor *in[MOST_INPUTS], *y = r->out[0];
    ac_gpu_rows args = {.n = 1, .eps = a->eps};
    for (int64_t d = 0; d < a->normalized_shape.n; d++) args.n *= a->normalized_shape.v[d];
    args.rows = args.n ? y->numel / args.n : 0;
    int failed = take_dense(r, in);
    if (!failed) {
        args.in[0] = dense_rows(in[0], args.n), args.out = dense_rows(y, args.n);
        args.weight = ac_gpu_ref_of(in[1]), args.bias = ac_gpu_ref_of(in[2]);
        args.mean = ac_gpu_ref_of(r->out[1]), args.rstd = ac_gpu_ref_of(r->out[2]);
        failed = launch_rows(ac_run_device(r), layer_norm, ac_gpu_opmath(y->dtype), 1, true, &args);
    }
    drop_dense(in);
    return failed;
}

/* Parts of the columns' sums follow from sizes alone. */
static int column_sums(const ac_run *r, ac_tensor *const *in, int64_t rows, int64_t n) {
    enum { PART = 32, ENOUGH_BLOCKS = 512, SUM_BYTES = 2 * AC_GPU_THREADS * 8, RUN = 8 };
    static ac_gpu_kernel sums[2] = {{.image = AC_IMAGE_ROWS, .name = "ac_norm_columns_f32"},
                                    {.image = AC_IMAGE_ROWS, .name = "ac_norm_columns_f64"}};
    static ac_gpu_kernel joined = {.image = AC_IMAGE_ROWS, .name = "ac_norm_columns_join"};
    ac_device d = ac_run_device(r);
    ac_gpu_columns c = {.rows = rows,
                        .n = n,
                        .g = ac_gpu_ref_of(in[0]),
                        .x = ac_gpu_ref_of(in[1]),
                        .mean = ac_gpu_ref_of(in[2]),
                        .rstd = ac_gpu_ref_of(in[3]),
                        .dweight = ac_gpu_ref_of(r->out[1]),
                        .dbias = ac_gpu_ref_of(r->out[2])};
    if (n == 0) return 0;
    c.vector = n % RUN == 0 && in[0]->dtype == in[1]->dtype && ac_gpu_is_bulk(in[0]->dtype);
    for (int k = 0; k < 2; k++) c.vector = c.vector && ac_gpu_aligned(ac_data(in[k]));
    int64_t wide = WARP * (c.vector ? RUN : 1), blocks = (n + wide - 1) / wide;
    c.parts = rows / PART;
    if (c.parts * blocks > ENOUGH_BLOCKS) c.parts = ENOUGH_BLOCKS / blocks;
    if (c.parts < 1) c.parts = 1;
    ac_gpu_block *room = ac_gpu_alloc(d, c.parts * 2 * n * 8);
    if (!room) return -1;
    c.partial = ac_gpu_address(room);
    int failed = ac_gpu_launch(d, &sums[ac_gpu_opmath(in[1]->dtype)], blocks * c.parts, RUN * SUM_BYTES / 2, &c);
    if (!failed) failed = ac_gpu_launch(d, &joined, (n + WARP - 1) / WARP, SUM_BYTES, &c);
    ac_gpu_free(room);
    return failed;
}

int ac_cuda_layer_norm_backward(const ac_run *r) {
    ATTRS(rows_only);
    ac_tensor *in[MOST_INPUTS];
    ac_gpu_rows args = {.n = r->out[1]->numel, .rows = a->rows};
    int failed = take_dense(r, in);
    if (!failed) {
        args.in[0] = dense_rows(in[0], args.n), args.in[1] = dense_rows(in[1], args.n);
        args.out = dense_rows(r->out[0], args.n);
        args.mean = ac_gpu_ref_of(in[2]), args.rstd = ac_gpu_ref_of(in[3]), args.weight = ac_gpu_ref_of(in[4]);
        if (args.n == 0) args.rows = 0;
        failed = launch_rows(ac_run_device(r), layer_norm_backward, ac_gpu_opmath(in[1]->dtype), 2, true, &args);
    }
    if (!failed) failed = column_sums(r, in, a->rows, args.n);
    drop_dense(in);
    return failed;
}

/* -- cross entropy ---------------------------------------------------------------------------------- */

static ac_gpu_entropy entropy_of(const ac_tensor *x, int64_t samples, int64_t reduction, double smoothing) {
    int channel = x->ndim > 1;
    return (ac_gpu_entropy){.rows = {.n = x->shape[channel], .rows = samples, .in = {rows_of(x, 1u << channel)}},
                            .smoothing = smoothing,
                            .mean = reduction == AC_REDUCE_MEAN};
}

static int class_entropy_init(ac_gpu_entropy *p, const ac_run *r, const ac_tensor *x) {
    ATTRS(cross_entropy);
    *p = entropy_of(x, r->in[1]->numel, a->reduction, a->label_smoothing);
    return ac_gpu_classes_of(&p->of, r, p->rows.n, a->ignore_index);
}

static ac_gpu_entropy soft_entropy_of(const ac_run *r, const ac_tensor *x, int64_t samples) {
    ATTRS(soft_entropy);
    const ac_tensor *target = r->in[1], *weight = r->in[2];
    ac_gpu_entropy p = entropy_of(x, samples, a->reduction, a->label_smoothing);
    p.rows.in[1] = rows_of(target, 1u << (x->ndim > 1));
    p.of.classes = p.rows.n, p.of.weight = ac_gpu_ref_of(weight), p.of.weight_stride = weight ? weight->strides[0] : 0;
    return p;
}

/* Sums over samples: in parts where there are many, in the order of sizes alone. */
static int join_losses(ac_device d, ac_gpu_entropy *p, int64_t parts) {
    if (parts > 1) {
        AC_TRY(ac_gpu_launch(d, &entropy_parts, parts, ROOM_BYTES, p));
        p->each = p->parts, p->n = parts;
    }
    return ac_gpu_launch(d, &entropy_join, 1, ROOM_BYTES, p);
}

static int launch_entropy(const ac_run *r, ac_gpu_kernel *kernels, int opmath, ac_gpu_entropy *p, bool whole) {
    ac_device d = ac_run_device(r);
    int64_t rows = p->n = p->rows.rows,
            parts = rows > 2 * AC_GPU_LOSSES ? (rows + AC_GPU_LOSSES - 1) / AC_GPU_LOSSES : 1;
    ac_gpu_block *room = ac_gpu_alloc(d, (rows + parts) * 2 * 8);
    if (!room) return -1;
    p->lse = ac_data(r->out[1]), p->loss = ac_gpu_ref_of(r->out[0]);
    p->each = whole ? ac_gpu_address(room) : NULL, p->parts = (double *)ac_gpu_address(room) + 2 * rows;
    int failed = 0, kernel = plan_launch(&p->rows, opmath, 1, false, true);
    if (rows) failed = ac_gpu_launch(d, &kernels[kernel], blocks_of(d, &p->rows), ROOM_BYTES, p);
    if (!whole) p->loss = (ac_gpu_ref){.data = NULL}, p->n = 0; /* each loss is where it belongs */
    if (!failed && (whole || p->totals)) failed = join_losses(d, p, whole ? parts : 1);
    ac_gpu_free(room);
    return failed;
}

int ac_cuda_class_entropy(const ac_run *r) {
    ATTRS(cross_entropy);
    ac_gpu_entropy p;
    AC_TRY(class_entropy_init(&p, r, r->in[0]));
    p.totals = ac_data(r->out[2]);
    return launch_entropy(r, entropy, ac_gpu_opmath(r->in[0]->dtype), &p, a->reduction != AC_REDUCE_NONE);
}

int ac_cuda_soft_entropy(const ac_run *r) {
    ATTRS(soft_entropy);
    ac_gpu_entropy p = soft_entropy_of(r, r->in[0], r->out[1]->numel / 3);
    return launch_entropy(r, soft_entropy, ac_gpu_opmath(r->out[0]->dtype), &p, a->reduction != AC_REDUCE_NONE);
}

static int launch_entropy_backward(const ac_run *r, ac_gpu_kernel *kernels, int opmath, ac_gpu_entropy *p, bool whole) {
    enum { G, X = 3, LSE };
    const ac_tensor *x = r->in[X], *g = r->in[G];
    if (r->out[0]->numel == 0) return 0;
    p->rows.out = rows_of(r->out[0], 1u << (x->ndim > 1));
    p->g = ac_gpu_ref_of(g), p->g_at = ac_space_of(g, UINT32_MAX);
    if (whole) p->g_at = (ac_space){.n = 1, .numel = p->rows.rows, .size = {p->rows.rows}};
    p->lse = ac_data(r->in[LSE]);
    int kernel = plan_launch(&p->rows, opmath, 1, true, false);
    return ac_gpu_launch(ac_run_device(r), &kernels[kernel], blocks_of(ac_run_device(r), &p->rows), ROOM_BYTES, p);
}

int ac_cuda_class_entropy_backward(const ac_run *r) {
    ATTRS(cross_entropy);
    enum { X = 3, TOTALS = 5 };
    const ac_tensor *x = r->in[X];
    ac_gpu_entropy p;
    AC_TRY(class_entropy_init(&p, r, x));
    p.totals = ac_data(r->in[TOTALS]);
    bool whole = a->reduction != AC_REDUCE_NONE;
    return launch_entropy_backward(r, entropy_backward, ac_gpu_opmath(x->dtype), &p, whole);
}

int ac_cuda_soft_entropy_backward(const ac_run *r) {
    ATTRS(soft_entropy);
    enum { G, X = 3, LSE };
    const ac_tensor *x = r->in[X];
    ac_gpu_entropy p = soft_entropy_of(r, x, r->in[LSE]->numel / 3);
    int opmath = ac_gpu_opmath(ac_promote(x->dtype, r->in[G]->dtype));
    return launch_entropy_backward(r, soft_entropy_backward, opmath, &p, a->reduction != AC_REDUCE_NONE);
}

/* -- rows of the CPU: the GPU has its own; nobody calls these on a GPU but by hand -- */

static int of_the_cpu(void) {
    return ac_fail(AC_RUNTIME, "this row is the CPU's; what calls it takes other rows on a GPU");
}
int ac_cuda_fused_attention(const ac_run *r) {
    (void)r;
    return of_the_cpu();
}
int ac_cuda_fused_attention_backward(const ac_run *r) {
    (void)r;
    return of_the_cpu();
}
