/* Attention on a GPU, in 16 bits: the host side of attention.cu. Its gradient is made of products (grad_windows.c). */
#include "cuda/gpu.h"

#include "shared/tensor_iter.h"

enum { RUN = 8, MOST_WIDTH = 128, BF16_GENERATION = 8 };

/* Whether the kernel takes rows of q and v: others go by parts (compose_product.c). */
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
    if (runs) return ac_tensor_retain(t);
    ac_dims shape = ac_shape_of(t);
    ac_tensor *dense = ac_tensor_new_on(ac_device_of(t), t->dtype, &shape);
    if (dense && ac_gpu_copy(dense, t) < 0) ac_tensor_clear(&dense);
    return dense;
}

static ac_space items_of(const ac_tensor *t) { return ac_space_of(t, (1u << (t->ndim - 2)) - 1); }
static ac_gpu_rows_2d rows_of(const ac_tensor *t) {
    return (ac_gpu_rows_2d){ac_data(t), items_of(t), t->strides[t->ndim - 2]};
}

static int launch_attention(const ac_run *r, ac_tensor *const *in, const ac_tensor *mask) {
#define WIDTHS(dtype)                                                                                                  \
    {                                                                                                                  \
        {.image = AC_IMAGE_ATTENTION, .name = "ac_attention_32_" dtype},                                               \
            {.image = AC_IMAGE_ATTENTION, .name = "ac_attention_64_" dtype},                                           \
            {.image = AC_IMAGE_ATTENTION, .name = "ac_attention_96_" dtype},                                           \
            {.image = AC_IMAGE_ATTENTION, .name = "ac_attention_128_" dtype},                                          \
    }
    static ac_gpu_kernel kernels[2][MOST_WIDTH / 32] = {WIDTHS("f16"), WIDTHS("bf16")};
#undef WIDTHS
    ATTRS(fused_attention);
    const ac_tensor *q = in[0], *k = in[1];
    int last = q->ndim - 1;
    ac_gpu_attention args = {.q = rows_of(q),
                             .k = rows_of(k),
                             .v = rows_of(in[2]),
                             .mask = ac_gpu_ref_of(mask),
                             .out = ac_gpu_ref_of(r->out[0]),
                             .queries = q->shape[last - 1],
                             .keys = k->shape[last - 1],
                             .width = (int32_t)q->shape[last],
                             .causal = a->is_causal != 0,
                             .scale = (float)a->scale};
    if (mask) args.mask_items = items_of(mask);
    if (mask) args.mask_row = mask->strides[last - 1], args.mask_column = mask->strides[last];
    int64_t tiles = (args.queries + AC_GPU_ATTENTION_QUERIES - 1) / AC_GPU_ATTENTION_QUERIES;
    ac_gpu_kernel *kernel = &kernels[q->dtype == AC_bfloat16][(args.width - 1) / 32];
    return ac_gpu_launch(ac_run_device(r), kernel, args.q.items.numel * tiles, AC_GPU_ATTENTION_ROOM, &args);
}

int ac_cuda_fused_attention(const ac_run *r) {
    ac_tensor *in[3] = {NULL, NULL, NULL};
    if (!ac_gpu_attends(r->in[0], r->in[2], r->in[0]->dtype) || r->in[1]->dtype != r->in[0]->dtype ||
        r->in[2]->dtype != r->in[0]->dtype)
        return ac_fail(AC_RUNTIME,
                       "on a GPU this operator takes float16 or bfloat16 in rows of 8 to %d values, a multiple of 8; "
                       "scaled_dot_product_attention takes others, too",
                       MOST_WIDTH);
    if (r->out[0]->numel == 0) return 0;
    int failed = 0;
    for (int i = 0; i < 3 && !failed; i++) failed = (in[i] = in_runs(r->in[i])) ? 0 : -1;
    if (!failed) failed = launch_attention(r, in, r->in[3]);
    for (int i = 0; i < 3; i++) ac_tensor_clear(&in[i]);
    return failed;
}
