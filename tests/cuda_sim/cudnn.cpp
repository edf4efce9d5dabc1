/* A stand-in for libcudnn's convolutions: plain loops over the simulated device's memory, in the stream's order.
 * Results of float16 saturate, as those of some of the library's kernels do: there is no infinity among them. It
 * refuses what the real library may refuse: sizes that do not fit each other, workspace too small, and a result laid
 * out otherwise than the input where windows are dilated; and what tests tell it to (ampc_simulate_cudnn). Pointers
 * that vectors of 16 bytes cannot be read from are a fault. */
#include "sim.h"

#include "base/half.h"

#include <stdlib.h>

#include <initializer_list>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

enum { SUCCESS = 0, BAD_PARAM = 2000, NOT_SUPPORTED = 3000 };
enum { F32 = 0, F16 = 2, BF16 = 9 };
static const uint64_t MARK = 0x616D706364;

struct Tensor {
    int type, n, size[5], stride[5];
};
struct Filter {
    int type, n, size[5];
};
struct Windows {
    int n, pad[3], stride[3], dilation[3], groups, math;
};
struct Activation {
    int mode;
};
struct Handle {
    uint64_t mark;
    void *stream;
};

static long taken; /* calls, for tests */
API long ampc_simulated_convolutions(void) { return taken; }

/* Convolutions that it does not take: it says so when it is asked for the workspace, or at the call. */
enum Refusal { AT_THE_QUESTION = 1, AT_THE_CALL = 2, WITH_BIAS = 4, AT_THE_START = 8, AT_THE_FIRST_START = 16 };
enum { VECTOR = 16 };
static int refused;
API void ampc_simulate_cudnn(int refuse) { refused = refuse; }

/* How products of float32 are rounded. */
enum { DEFAULT_MATH = 0, TENSOR_OP_MATH = 1, CONVERTING_MATH = 2, FMA_MATH = 3 };

API size_t cudnnGetVersion(void) { return 91000; }
static int starts;
API int ampc_simulated_starts(void) { return starts; }
API int cudnnCreate(Handle **h) {
    bool fails = refused & AT_THE_START || (refused & AT_THE_FIRST_START && starts == 0);
    starts++;
    return fails ? NOT_SUPPORTED : (*h = new Handle{MARK, nullptr}, SUCCESS);
}
API int cudnnSetStream(Handle *h, void *s) { return h->mark == MARK ? (h->stream = s, SUCCESS) : BAD_PARAM; }
API int cudnnCreateTensorDescriptor(Tensor **t) { return *t = new Tensor(), SUCCESS; }
API int cudnnDestroyTensorDescriptor(Tensor *t) { return delete t, SUCCESS; }
API int cudnnCreateFilterDescriptor(Filter **f) { return *f = new Filter(), SUCCESS; }
API int cudnnDestroyFilterDescriptor(Filter *f) { return delete f, SUCCESS; }
API int cudnnCreateConvolutionDescriptor(Windows **w) { return *w = new Windows(), SUCCESS; }
API int cudnnDestroyConvolutionDescriptor(Windows *w) { return delete w, SUCCESS; }
API int cudnnCreateActivationDescriptor(Activation **a) { return *a = new Activation(), SUCCESS; }
API int cudnnDestroyActivationDescriptor(Activation *a) { return delete a, SUCCESS; }
API int cudnnSetActivationDescriptor(Activation *a, int mode, int, double) { return a->mode = mode, SUCCESS; }

static bool known(int type) { return type == F32 || type == F16 || type == BF16; }

API int cudnnSetTensorNdDescriptor(Tensor *t, int type, int n, const int *size, const int *stride) {
    if (!known(type) || n < 4 || n > 5) return BAD_PARAM;
    *t = Tensor{type, n, {}, {}};
    for (int d = 0; d < n; d++) {
        if (size[d] < 1 || stride[d] < 1) return BAD_PARAM;
        t->size[d] = size[d], t->stride[d] = stride[d];
    }
    return SUCCESS;
}
API int cudnnSetFilterNdDescriptor(Filter *f, int type, int format, int n, const int *size) {
    if (!known(type) || format != 0 || n < 4 || n > 5) return BAD_PARAM;
    *f = Filter{type, n, {}};
    for (int d = 0; d < n; d++) f->size[d] = size[d];
    return SUCCESS;
}
API int cudnnSetConvolutionNdDescriptor(Windows *w, int n, const int *pad, const int *stride, const int *dilation,
                                        int mode, int compute) {
    if (n < 2 || n > 3 || mode != 1 || compute != F32) return BAD_PARAM;
    *w = Windows{n, {}, {}, {}, 1, 0};
    for (int d = 0; d < n; d++) {
        if (pad[d] < 0 || stride[d] < 1 || dilation[d] < 1) return BAD_PARAM;
        w->pad[d] = pad[d], w->stride[d] = stride[d], w->dilation[d] = dilation[d];
    }
    return SUCCESS;
}
API int cudnnSetConvolutionGroupCount(Windows *w, int groups) { return w->groups = groups, SUCCESS; }
API int cudnnSetConvolutionMathType(Windows *w, int math) { return w->math = math, SUCCESS; }

static bool last(const Tensor *t) { return t->size[1] > 1 && t->stride[1] == 1; }

static int check(const Tensor *x, const Filter *f, const Windows *w, const Tensor *y) {
    if (x->type != f->type || x->type != y->type || x->n != f->n || x->n != y->n || w->n != x->n - 2) return BAD_PARAM;
    if (x->size[0] != y->size[0] || f->size[0] != y->size[1] || f->size[1] * w->groups != x->size[1] ||
        f->size[0] % w->groups)
        return BAD_PARAM;
    bool dilated = false;
    for (int d = 0; d < w->n; d++) {
        int reach = w->dilation[d] * (f->size[d + 2] - 1) + 1;
        if (y->size[d + 2] != (x->size[d + 2] + 2 * w->pad[d] - reach) / w->stride[d] + 1) return BAD_PARAM;
        dilated = dilated || w->dilation[d] > 1;
    }
    return dilated && last(x) != last(y) ? NOT_SUPPORTED : SUCCESS;
}

static size_t room_for(const Tensor *x) { return x->size[1] % 2 ? 4096 : 0; } /* now and then some */

API int cudnnGetConvolutionForwardWorkspaceSize(Handle *, Tensor *x, Filter *f, Windows *w, Tensor *y, int algo,
                                                size_t *bytes) {
    return *bytes = room_for(x), algo != 1 || refused & AT_THE_QUESTION ? NOT_SUPPORTED : check(x, f, w, y);
}
API int cudnnGetConvolutionBackwardDataWorkspaceSize(Handle *, Filter *f, Tensor *y, Windows *w, Tensor *x, int algo,
                                                     size_t *bytes) {
    return *bytes = room_for(x), algo != 1 || refused & AT_THE_QUESTION ? NOT_SUPPORTED : check(x, f, w, y);
}

static float read(const void *p, int type, int64_t i) {
    return type == F32   ? ((const float *)p)[i]
           : type == F16 ? ac_f16_to_f32(((const uint16_t *)p)[i])
                         : ac_bf16_to_f32(((const uint16_t *)p)[i]);
}
static const float LARGEST = 65504;
static void write(void *p, int type, int64_t i, float x) {
    if (type == F32) ((float *)p)[i] = x;
    else if (type == F16) ((uint16_t *)p)[i] = ac_f32_to_f16(x > LARGEST ? LARGEST : x < -LARGEST ? -LARGEST : x);
    else ((uint16_t *)p)[i] = ac_f32_to_bf16(x);
}

struct Call {
    Tensor x, y;
    Filter f;
    Windows w;
    const void *from, *weight, *bias;
    void *to, *room;
    size_t room_bytes;
    bool back;
};

/* A tap of a window: where its value lies in a channel of x, and where the window's result lies in a channel of y. */
struct Tap {
    int64_t x, y, index;
};

/* Every tap of every window of a plane that is not in the padding. */
static std::vector<Tap> taps_of(const Call &c) {
    std::vector<Tap> found;
    int64_t positions = 1, taps = 1;
    for (int d = 0; d < c.w.n; d++) positions *= c.y.size[d + 2], taps *= c.f.size[d + 2];
    for (int64_t p = 0; p < positions; p++)
        for (int64_t t = 0; t < taps; t++) {
            int64_t left = p, right = t;
            Tap tap = {0, 0, t};
            bool inside = true;
            for (int d = c.w.n - 1; d >= 0; d--) {
                int64_t position = left % c.y.size[d + 2], k = right % c.f.size[d + 2];
                left /= c.y.size[d + 2], right /= c.f.size[d + 2];
                int64_t in = position * c.w.stride[d] - c.w.pad[d] + k * c.w.dilation[d];
                inside = inside && in >= 0 && in < c.x.size[d + 2];
                tap.x += in * c.x.stride[d + 2], tap.y += position * c.y.stride[d + 2];
            }
            if (inside) found.push_back(tap);
        }
    return found;
}

static int64_t extent_of(const Tensor &t) {
    int64_t extent = 1;
    for (int d = 0; d < t.n; d++) extent += (int64_t)(t.size[d] - 1) * t.stride[d];
    return extent;
}

static float tf32(float x) { return ac_from_bits((ac_bits(x) + 0x1000) & 0xFFFFE000u); }

static std::vector<double> as_double(const void *p, int type, int64_t n, bool round) {
    std::vector<double> values((size_t)n);
    for (int64_t i = 0; i < n; i++) values[(size_t)i] = round ? tf32(read(p, type, i)) : read(p, type, i);
    return values;
}

/* Adds what one channel of x and one of y have to do with each other. */
static void add_plane(const std::vector<Tap> &taps, bool back, const double *weight, const double *from, double *sums) {
    if (back)
        for (const Tap &t : taps) sums[t.x] += weight[t.index] * from[t.y];
    else
        for (const Tap &t : taps) sums[t.y] += weight[t.index] * from[t.x];
}

static bool is_misaligned(const Call &c) {
    for (const void *p : {c.from, c.weight, c.bias, (const void *)c.to, (const void *)c.room})
        if ((uintptr_t)p % VECTOR) return true;
    return false;
}

static const char *convolve(void *context) {
    const Call &c = *(const Call *)context;
    if (is_misaligned(c)) return "a convolution of cuDNN: misaligned address";
    /* tensor cores take float32 as TF32 where they may, but nothing is converted for them unless that is asked for */
    bool round = c.f.type == F32 && (c.w.math == DEFAULT_MATH || c.w.math == CONVERTING_MATH);
    const Tensor &out = c.back ? c.x : c.y;
    int64_t taps = 1, cells = out.size[0];
    for (int d = 0; d < c.w.n; d++) taps *= c.f.size[d + 2];
    for (int d = 1; d < out.n; d++) cells *= out.size[d];
    if (c.room_bytes) memset(c.room, 0xA5, c.room_bytes);
    int inner = c.f.size[1], outer = c.f.size[0] / c.w.groups;
    std::vector<Tap> windows = taps_of(c);
    std::vector<double> weight = as_double(c.weight, c.f.type, (int64_t)c.f.size[0] * inner * taps, round);
    std::vector<double> from = as_double(c.from, c.x.type, extent_of(c.back ? c.y : c.x), round),
                        sums((size_t)extent_of(out));
    for (int n = 0; n < c.x.size[0]; n++)
        for (int o = 0; o < c.f.size[0]; o++)
            for (int i = 0; i < inner; i++) {
                int64_t channel = o / outer * inner + i;
                int64_t px = n * (int64_t)c.x.stride[0] + channel * c.x.stride[1];
                int64_t py = n * (int64_t)c.y.stride[0] + o * (int64_t)c.y.stride[1];
                add_plane(windows, c.back, &weight[(size_t)(((int64_t)o * inner + i) * taps)],
                          &from[(size_t)(c.back ? py : px)], &sums[(size_t)(c.back ? px : py)]);
            }
    for (int64_t cell = 0; cell < cells; cell++) {
        int64_t left = cell, where = 0, channel = 0;
        for (int d = out.n - 1; d >= 0; d--) {
            int64_t i = left % out.size[d];
            left /= out.size[d], where += i * out.stride[d];
            if (d == 1) channel = i;
        }
        write(c.to, out.type, where, (float)(sums[(size_t)where] + (c.bias ? read(c.bias, out.type, channel) : 0)));
    }
    return nullptr;
}

static int queue(Handle *h, const Call &call) {
    int wrong = check(&call.x, &call.f, &call.w, &call.y);
    if (wrong) return wrong;
    if (refused & AT_THE_CALL || (refused & WITH_BIAS && call.bias)) return NOT_SUPPORTED;
    if (h->mark != MARK || call.room_bytes < room_for(&call.x) || (room_for(&call.x) && !call.room)) return BAD_PARAM;
    taken++;
    return sim_enqueue(h->stream, convolve, [](void *c) { delete (Call *)c; }, new Call(call)) ? BAD_PARAM : SUCCESS;
}

static bool plain(const void *alpha, const void *beta) {
    return *(const float *)alpha == 1 && *(const float *)beta == 0;
}

API int cudnnConvolutionForward(Handle *h, const void *alpha, Tensor *x, const void *from, Filter *f,
                                const void *weight, Windows *w, int algo, void *room, size_t bytes, const void *beta,
                                Tensor *y, void *to) {
    if (!plain(alpha, beta) || algo != 1) return NOT_SUPPORTED;
    return queue(h, Call{*x, *y, *f, *w, from, weight, nullptr, to, room, bytes, false});
}
API int cudnnConvolutionBiasActivationForward(Handle *h, const void *alpha, Tensor *x, const void *from, Filter *f,
                                              const void *weight, Windows *w, int algo, void *room, size_t bytes,
                                              const void *beta, Tensor *, const void *, Tensor *bias_shape,
                                              const void *bias, Activation *a, Tensor *y, void *to) {
    if (!plain(alpha, beta) || algo != 1 || a->mode != 5) return NOT_SUPPORTED;
    if (bias_shape->type != x->type || bias_shape->size[1] != y->size[1] || bias_shape->n != y->n) return BAD_PARAM;
    return queue(h, Call{*x, *y, *f, *w, from, weight, bias, to, room, bytes, false});
}
API int cudnnConvolutionBackwardData(Handle *h, const void *alpha, Filter *f, const void *weight, Tensor *y,
                                     const void *from, Windows *w, int algo, void *room, size_t bytes, const void *beta,
                                     Tensor *x, void *to) {
    if (!plain(alpha, beta) || algo != 1) return NOT_SUPPORTED;
    return queue(h, Call{*x, *y, *f, *w, from, weight, nullptr, to, room, bytes, true});
}
