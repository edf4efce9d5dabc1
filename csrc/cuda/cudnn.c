/* Convolutions by cuDNN, where it is found: forward and transposed, whose results have the operands' dtype. They
 * always use cuDNN's implicit product: it gives the same numbers every time, adds a bias before its one rounding, and
 * runs on tensor cores. What it does not support goes by columns (windows.c). So does the weight's gradient: its sums
 * stay in float32 there, where cuDNN would round them to 16 bits. A result of float16 that is 65504 is infinite. */
#include "cuda/gpu.h"

#include <string.h>

bool ac_gpu_use_cudnn = true, ac_gpu_convolution_tf32;

enum { MOST_DIMS = 5 };

/* Everything that decides how a convolution is computed; compared byte by byte. `image` is the side that windows lie
 * over, `positions` the other. */
typedef struct {
    int32_t ndim, image[MOST_DIMS], image_stride[MOST_DIMS], positions[MOST_DIMS], positions_stride[MOST_DIMS];
    int32_t weight[MOST_DIMS], padding[3], stride[3], dilation[3];
    int32_t groups, type, device, transposed, biased, tf32;
} convolution_key;

typedef struct {
    convolution_key key;
    bool used, works;
    cudnnTensorDescriptor_t image, positions, bias;
    cudnnFilterDescriptor_t weight;
    cudnnConvolutionDescriptor_t windows;
    cudnnActivationDescriptor_t activation;
    size_t workspace; /* bytes */
} plan;

enum { PLANS = 256 };
static struct {
    plan plans[PLANS];
    cudnnHandle_t handles[AC_MAX_GPUS];
    bool fails[AC_MAX_GPUS]; /* does not start, as one for a newer driver does not */
} dnn;

/* -- the key ---------------------------------------------------------------------------------------- */

/* A dimension of height 1 is put in front of the only spatial one: the library knows two or three. */
static void sizes_of(const ac_tensor *t, int32_t *size, int32_t *stride) {
    int at = 0;
    for (int d = 0; d < t->ndim; d++) {
        if (t->ndim == 3 && d == 2) size[at] = 1, stride[at++] = (int32_t)(t->shape[2] * t->strides[2]);
        size[at] = (int32_t)t->shape[d], stride[at++] = (int32_t)t->strides[d];
    }
}

/* Values without gaps, row by row or with the channels last, few enough for the library's integers. */
static bool takes_layout(const ac_tensor *t) {
    if (t->numel > INT32_MAX) return false;
    if (ac_is_contiguous(t)) return true;
    int64_t expected = t->shape[1];
    if (t->strides[1] != 1) return false;
    for (int d = t->ndim - 1; d > 1; expected *= t->shape[d--])
        if (t->strides[d] != expected) return false;
    return t->strides[0] == expected;
}

static convolution_key key_of(const ac_run *r, const ac_windows *w, ac_dtype dtype, const ac_tensor *x,
                              const ac_tensor *weight) {
    const ac_attrs_convolution *a = r->attrs;
    const ac_tensor *image = a->transposed ? r->out[0] : x, *positions = a->transposed ? x : r->out[0];
    int32_t unused[MOST_DIMS];
    convolution_key k;
    memset(&k, 0, sizeof k);
    k.ndim = x->ndim < 4 ? 4 : x->ndim;
    sizes_of(image, k.image, k.image_stride);
    sizes_of(positions, k.positions, k.positions_stride);
    sizes_of(weight, k.weight, unused);
    for (int d = 0; d < k.ndim - 2; d++) {
        int from = 3 - (k.ndim - 2) + d;
        k.padding[d] = (int32_t)w->padding[from], k.stride[d] = (int32_t)w->stride[from];
        k.dilation[d] = (int32_t)w->dilation[from];
    }
    k.groups = (int32_t)a->groups, k.device = ac_gpu_index(ac_run_device(r));
    k.type = dtype == AC_float16 ? AC_DNN_F16 : dtype == AC_bfloat16 ? AC_DNN_BF16 : AC_DNN_F32;
    k.transposed = a->transposed != 0, k.biased = r->in[2] != NULL, k.tf32 = ac_gpu_convolution_tf32;
    return k;
}

/* -- plans: false where the library does not take it ------------------------------------------------- */

#define OK(call) (ac_dnn.call == AC_DNN_SUCCESS)

static bool describe(plan *p) {
    const convolution_key *k = &p->key;
    const int32_t bias_size[MOST_DIMS] = {1, k->positions[1], 1, 1, 1},
                  stride[MOST_DIMS] = {k->positions[1], 1, 1, 1, 1};
    cudnnDataType_t type = (cudnnDataType_t)k->type;
    /* float32 is rounded to TF32 by the default alone: with TENSOR_CORES nothing is converted for them */
    cudnnMathType_t math = k->type != AC_DNN_F32 ? AC_DNN_TENSOR_CORES
                           : k->tf32             ? AC_DNN_DEFAULT_MATH
                                                 : AC_DNN_PLAIN_MATH;
    bool good = OK(cudnnCreateTensorDescriptor(&p->image)) && OK(cudnnCreateTensorDescriptor(&p->positions)) &&
                OK(cudnnCreateFilterDescriptor(&p->weight)) && OK(cudnnCreateConvolutionDescriptor(&p->windows));
    good = good && OK(cudnnSetTensorNdDescriptor(p->image, type, k->ndim, k->image, k->image_stride)) &&
           OK(cudnnSetTensorNdDescriptor(p->positions, type, k->ndim, k->positions, k->positions_stride)) &&
           OK(cudnnSetFilterNdDescriptor(p->weight, type, AC_DNN_ROW_MAJOR, k->ndim, k->weight)) &&
           OK(cudnnSetConvolutionNdDescriptor(p->windows, k->ndim - 2, k->padding, k->stride, k->dilation,
                                              AC_DNN_CORRELATION, AC_DNN_F32)) &&
           OK(cudnnSetConvolutionGroupCount(p->windows, k->groups)) &&
           OK(cudnnSetConvolutionMathType(p->windows, math));
    if (!good || !k->biased) return good;
    return OK(cudnnCreateTensorDescriptor(&p->bias)) && OK(cudnnCreateActivationDescriptor(&p->activation)) &&
           OK(cudnnSetTensorNdDescriptor(p->bias, type, k->ndim, bias_size, stride)) &&
           OK(cudnnSetActivationDescriptor(p->activation, AC_DNN_IDENTITY, AC_DNN_PROPAGATE_NAN, 0));
}

static bool measure(plan *p, cudnnHandle_t handle) {
    if (p->key.transposed)
        return OK(cudnnGetConvolutionBackwardDataWorkspaceSize(handle, p->weight, p->positions, p->windows, p->image,
                                                               AC_DNN_BACKWARD, &p->workspace));
    return OK(cudnnGetConvolutionForwardWorkspaceSize(handle, p->image, p->weight, p->windows, p->positions,
                                                      AC_DNN_FORWARD, &p->workspace));
}

static void forget(plan *p) {
    if (p->image) (void)ac_dnn.cudnnDestroyTensorDescriptor(p->image);
    if (p->positions) (void)ac_dnn.cudnnDestroyTensorDescriptor(p->positions);
    if (p->bias) (void)ac_dnn.cudnnDestroyTensorDescriptor(p->bias);
    if (p->weight) (void)ac_dnn.cudnnDestroyFilterDescriptor(p->weight);
    if (p->windows) (void)ac_dnn.cudnnDestroyConvolutionDescriptor(p->windows);
    if (p->activation) (void)ac_dnn.cudnnDestroyActivationDescriptor(p->activation);
    memset(p, 0, sizeof *p);
}

/* The plan for a key, made at first use, in place of another where both want the same. One that the library does
 * not take is kept too, so that it is asked once. */
static plan *plan_for(const convolution_key *key, cudnnHandle_t handle) {
    plan *p = &dnn.plans[ac_gpu_hash(key, sizeof *key) % PLANS];
    if (p->used && memcmp(&p->key, key, sizeof *key) == 0) return p;
    forget(p);
    p->key = *key, p->used = true;
    p->works = describe(p) && measure(p, handle);
    return p;
}

/* -- the call --------------------------------------------------------------------------------------- */

typedef struct {
    const void *x, *weight, *bias;
    void *y;
} addresses;

static bool queue(const plan *p, cudnnHandle_t handle, const addresses *at, void *room) {
    const float one = 1, zero = 0;
    if (p->key.transposed)
        return OK(cudnnConvolutionBackwardData(handle, &one, p->weight, at->weight, p->positions, at->x, p->windows,
                                               AC_DNN_BACKWARD, room, p->workspace, &zero, p->image, at->y));
    if (!p->key.biased)
        return OK(cudnnConvolutionForward(handle, &one, p->image, at->x, p->weight, at->weight, p->windows,
                                          AC_DNN_FORWARD, room, p->workspace, &zero, p->positions, at->y));
    return OK(cudnnConvolutionBiasActivationForward(handle, &one, p->image, at->x, p->weight, at->weight, p->windows,
                                                    AC_DNN_FORWARD, room, p->workspace, &zero, p->positions, at->y,
                                                    p->bias, at->bias, p->activation, p->positions, at->y));
}

static bool start(ac_device d, cudnnHandle_t *handle) {
    CUstreamCaptureMode before = ac_gpu_relax();
    bool good = OK(cudnnCreate(handle)) || (ac_gpu_make_room(d) && OK(cudnnCreate(handle)));
    ac_gpu_relax_end(before);
    return good;
}

/* One call at a time talks to the library: a handle has one stream. 1 done, 0 not taken, -1 failed. */
static int run_locked(ac_device d, const convolution_key *key, const addresses *at) {
    cudnnHandle_t *handle = &dnn.handles[ac_gpu_index(d)];
    bool *fails = &dnn.fails[ac_gpu_index(d)];
    if (!*handle && !*fails) *fails = !start(d, handle);
    if (*fails || !OK(cudnnSetStream(*handle, ac_gpu_stream(d)))) return 0;
    plan *p = plan_for(key, *handle);
    if (!p->works) return 0;
    ac_gpu_block *room = p->workspace ? ac_gpu_alloc(d, (int64_t)p->workspace) : NULL;
    if (p->workspace && !room) return -1;
    p->works = queue(p, *handle, at, room ? ac_gpu_address(room) : NULL);
    ac_gpu_free(room);
    return p->works;
}

static int run_on(ac_device d, const convolution_key *key, const addresses *at) {
    ac_gpu_scope scope;
    AC_TRY(ac_gpu_enter(d, &scope));
    (void)pthread_mutex_lock(&ac_gpu_locks.convolutions);
    int done = run_locked(d, key, at);
    (void)pthread_mutex_unlock(&ac_gpu_locks.convolutions);
    ac_gpu_leave(&scope);
    return done;
}

/* new: t itself where it has the dtype, the layout, and an address for vectors, else a row-major copy that has */
static ac_tensor *as_operand(ac_tensor *t, ac_dtype dtype, bool good_layout) {
    bool good = t->dtype == dtype && good_layout && ac_gpu_aligned(ac_data(t));
    return good ? ac_tensor_retain(t) : ac_gpu_copy_as(t, dtype);
}

/* Some of the library's float16 kernels give 65504 for a result that is larger, or infinite, so that a scaler would not
 * see an overflow. No setting of its says which do. So all that is 65504 is made infinite. */
static int show_infinities(ac_device d, ac_tensor *y) {
    static ac_gpu_kernel k = {.image = AC_IMAGE_CONV, .name = "ac_show_infinities"};
    enum { EACH = 32 };
    ac_gpu_halves a = {.values = ac_data(y), .n = y->numel};
    return ac_gpu_launch(d, &k, ac_gpu_blocks(d, a.n, EACH), 0, &a);
}

int ac_gpu_cudnn_convolution(const ac_run *r, const ac_windows *w, ac_dtype dtype) {
    const ac_attrs_convolution *a = r->attrs;
    ac_tensor *y = r->out[0], *x = NULL, *weight = NULL, *bias = NULL;
    bool fits = dtype != AC_float64 && y->dtype == dtype && y->numel > 0 && y->numel <= INT32_MAX &&
                r->in[0]->numel > 0 && r->in[0]->numel <= INT32_MAX && r->in[1]->numel <= INT32_MAX &&
                !(a->transposed && r->in[2]) && ac_gpu_aligned(ac_data(y));
    if (!ac_gpu_use_cudnn || !fits || !ac_dnn_open()) return 0;
    x = as_operand(r->in[0], dtype, takes_layout(r->in[0]));
    weight = x ? as_operand(r->in[1], dtype, ac_is_contiguous(r->in[1])) : NULL;
    int done = weight ? 0 : -1;
    if (!done && r->in[2]) done = (bias = as_operand(r->in[2], dtype, ac_is_contiguous(r->in[2]))) ? 0 : -1;
    if (!done) {
        convolution_key key = key_of(r, w, dtype, x, weight);
        addresses at = {ac_data(x), ac_data(weight), bias ? ac_data(bias) : NULL, ac_data(y)};
        done = run_on(ac_run_device(r), &key, &at);
        if (done > 0 && dtype == AC_float16 && show_infinities(ac_run_device(r), y) < 0) done = -1;
    }
    ac_tensor_clear(&bias);
    ac_tensor_clear(&weight);
    ac_tensor_clear(&x);
    return done;
}
