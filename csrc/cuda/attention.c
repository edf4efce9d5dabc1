/* Attention on a GPU, in 16 bits: the host side of attention.cu and attention_backward.cu. */
#include "cuda/gpu.h"

#include "shared/tensor_iter.h"

enum { RUN = 8, MOST_WIDTH = 128, BF16_GENERATION = 8 };

/* Whether the kernels take rows of q and v: others go by parts (compose_product.c). */
bool ac_gpu_attends(const ac_tensor *q, const ac_tensor *v, ac_dtype dtype) {
    int64_t width = q->shape[q->ndim - 1], queries = q->shape[q->ndim - 2];
    bool fits = ac_is_half(dtype) && width == v->shape[v->ndim - 1] && width > 0 && width <= MOST_WIDTH;
    fits = fits && width % RUN == 0 && q->numel / (queries > 0 ? queries : 1) * (queries + 1) < INT32_MAX;
    return fits && (dtype != AC_bfloat16 || ac_gpu_generation(ac_device_of(q)) >= BF16_GENERATION);
}

/* t with rows in runs of eight neighbours, or a copy of it: new. */
static ac_tensor *in_runs(ac_tensor *t) {
    bool runs = ac_gpu_aligned(ac_data(t)) && t->strides[t->ndim - 1] == 1;
    for (int d = 0; d + 1 < t->ndim; d++) runs = runs && (t->strides[d] % RUN == 0 || t->shape[d] == 1);
    return runs ? ac_tensor_retain(t) : ac_gpu_copy_as(t, t->dtype);
}

static ac_space items_of(const ac_tensor *t) { return ac_space_of(t, (1u << (t->ndim - 2)) - 1); }
static ac_gpu_rows_2d rows_of(const ac_tensor *t) {
    return (ac_gpu_rows_2d){ac_data(t), items_of(t), t->strides[t->ndim - 2]};
}

/* A kernel for each multiple of 32 values, in both dtypes. */
enum { WIDTHS = MOST_WIDTH / 32 };
#define OF_DTYPE(in_image, stem, in_block, dtype)                                                                      \
    {                                                                                                                  \
        {.image = AC_IMAGE_##in_image, .name = stem "_32_" dtype, .threads = in_block},                                \
        {.image = AC_IMAGE_##in_image, .name = stem "_64_" dtype, .threads = in_block},                                \
        {.image = AC_IMAGE_##in_image, .name = stem "_96_" dtype, .threads = in_block},                                \
        {.image = AC_IMAGE_##in_image, .name = stem "_128_" dtype, .threads = in_block},                               \
    }
#define KERNELS(image, stem, threads) {OF_DTYPE(image, stem, threads, "f16"), OF_DTYPE(image, stem, threads, "bf16")}
static ac_gpu_kernel forward_kernels[2][WIDTHS] = KERNELS(ATTENTION, "ac_attention", AC_GPU_ATTENTION_THREADS);
static ac_gpu_kernel query_kernels[2][WIDTHS] =
    KERNELS(ATTENTION_BACKWARD, "ac_attention_queries", AC_GPU_ATTENTION_THREADS);
static ac_gpu_kernel key_kernels[2][WIDTHS] =
    KERNELS(ATTENTION_BACKWARD, "ac_attention_keys", AC_GPU_ATTENTION_THREADS);
#undef KERNELS
#undef OF_DTYPE

/* Queues a block for every `each` of the rows, of each item. */
static int launch(ac_gpu_kernel (*kernels)[WIDTHS], const ac_tensor *q, int64_t rows, int64_t each, size_t room,
                  const ac_gpu_attention *forward, const void *args) {
    ac_gpu_kernel *kernel = &kernels[q->dtype == AC_bfloat16][(forward->width - 1) / 32];
    int64_t blocks = forward->q.items.numel * ((rows + each - 1) / each);
    return blocks ? ac_gpu_launch(ac_device_of(q), kernel, blocks, room, args) : 0;
}

/* The first of these tensors are query, key, value and mask. */
static int describe(ac_tensor *const *in, const ac_attrs_flash_attention *a, const ac_tensor *out,
                    const ac_tensor *log_sums, ac_gpu_attention *args) {
    const ac_tensor *q = in[0], *k = in[1], *mask = in[3];
    int last = q->ndim - 1;
    *args = (ac_gpu_attention){.q = rows_of(q),
                               .k = rows_of(k),
                               .v = rows_of(in[2]),
                               .out = ac_data(out),
                               .log_sums = ac_data(log_sums),
                               .mask = ac_gpu_ref_of(mask),
                               .queries = q->shape[last - 1],
                               .keys = k->shape[last - 1],
                               .width = (int32_t)q->shape[last],
                               .causal = a->is_causal != 0,
                               .scale = (float)a->scale,
                               .dropped = a->drop.p};
    if (mask) args->mask_items = items_of(mask);
    if (mask) args->mask_row = mask->strides[last - 1], args->mask_column = mask->strides[last];
    return ac_gpu_random_of(ac_device_of(q), (uint64_t)a->drop.seed, (uint64_t)a->drop.offset, &args->random);
}

static int check(ac_tensor *const *in) {
    if (ac_gpu_attends(in[0], in[2], in[0]->dtype)) return 0;
    return ac_fail(AC_RUNTIME,
                   "on a GPU this operator takes float16 or bfloat16 in rows of 8 to %d values, a multiple of 8; "
                   "scaled_dot_product_attention takes others, too",
                   MOST_WIDTH);
}

/* The first n of these tensors in runs; `in` owns them, also after a failure. */
static int take_runs(ac_tensor *const *given, int n, ac_tensor **in) {
    for (int i = 0; i < n; i++)
        if (!(in[i] = in_runs(given[i]))) return -1;
    return 0;
}

int ac_cuda_flash_attention(const ac_run *r) {
    ac_tensor *in[4] = {NULL, NULL, NULL, r->in[3]};
    ac_gpu_attention args;
    AC_TRY(check(r->in));
    int failed = take_runs(r->in, 3, in);
    if (!failed) failed = describe(in, r->attrs, r->out[0], r->out[1], &args);
    int64_t each = args.width > 64 ? AC_GPU_ATTENTION_WIDE_QUERIES : AC_GPU_ATTENTION_QUERIES;
    if (!failed) failed = launch(forward_kernels, in[0], args.queries, each, AC_GPU_ATTENTION_ROOM, &args, &args);
    for (int i = 0; i < 3; i++) ac_tensor_clear(&in[i]);
    return failed;
}

static int launch_backward(const ac_run *r, ac_tensor *const *in, const ac_tensor *means) {
    const ac_attrs_flash_attention_backward *a = r->attrs;
    ac_gpu_attention_backward args;
    AC_TRY(describe(in + 1, &a->forward, in[5], in[6], &args.forward));
    args.g = rows_of(in[0]), args.means = ac_data(means);
    args.dq = ac_data(r->out[0]), args.dk = ac_data(r->out[1]), args.dv = ac_data(r->out[2]);
    args.dmask = a->mask_gradient ? ac_data(r->out[3]) : NULL;
    const ac_gpu_attention *f = &args.forward;
    AC_TRY(launch(query_kernels, in[1], f->queries, AC_GPU_ATTENTION_ROWS, AC_GPU_ATTENTION_ROOM, f, &args));
    return launch(key_kernels, in[1], f->keys, AC_GPU_ATTENTION_ROWS, AC_GPU_ATTENTION_ROOM, f, &args);
}

/* Its inputs are g, query, key, value, mask, and the results of forward. */
int ac_cuda_flash_attention_backward(const ac_run *r) {
    ac_tensor *in[7] = {[4] = r->in[4]}, *means = NULL;
    AC_TRY(check(r->in + 1));
    int failed = take_runs(r->in, 4, in);
    for (int i = 5; i < 7 && !failed; i++) failed = (in[i] = ac_gpu_contiguous(r->in[i])) ? 0 : -1;
    ac_dims shape = ac_shape_of(r->in[6]);
    shape.n--;
    if (!failed) failed = (means = ac_tensor_new_on(ac_run_device(r), AC_float32, &shape)) ? 0 : -1;
    if (!failed) failed = launch_backward(r, in, means);
    in[4] = NULL;
    for (int i = 0; i < 7; i++) ac_tensor_clear(&in[i]);
    ac_tensor_clear(&means);
    return failed;
}
