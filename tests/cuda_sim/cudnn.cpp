/* A stand-in for libcudnn's convolutions: plain loops over the simulated device's memory, in the stream's order. It
 * refuses what the real library may refuse: sizes that do not fit each other, workspace too small, and a result laid
 * out otherwise than the input where windows are dilated. */
#include "sim.h"

#include "base/half.h"

#include <stdlib.h>

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

API size_t cudnnGetVersion(void) { return 91000; }
API int cudnnCreate(Handle **h) { return *h = new Handle{MARK, nullptr}, SUCCESS; }
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
    return *bytes = room_for(x), algo != 1 ? NOT_SUPPORTED : check(x, f, w, y);
}
API int cudnnGetConvolutionBackwardDataWorkspaceSize(Handle *, Filter *f, Tensor *y, Windows *w, Tensor *x, int algo,
                                                     size_t *bytes) {
    return *bytes = room_for(x), algo != 1 ? NOT_SUPPORTED : check(x, f, w, y);
}

static float read(const void *p, int type, int64_t i) {
    return type == F32   ? ((const float *)p)[i]
           : type == F16 ? ac_f16_to_f32(((const uint16_t *)p)[i])
                         : ac_bf16_to_f32(((const uint16_t *)p)[i]);
}
static void write(void *p, int type, int64_t i, float x) {
    if (type == F32) ((float *)p)[i] = x;
    else if (type == F16) ((uint16_t *)p)[i] = ac_f32_to_f16(x);
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

static int64_t at(const Tensor &t, int n, int c, const int64_t *position) {
    int64_t where = (int64_t)n * t.stride[0] + (int64_t)c * t.stride[1];
    for (int d = 2; d < t.n; d++) where += position[d - 2] * t.stride[d];
    return where;
}

/* Every (position, tap) of a plane of windows: calls each(position, tap, where the tap lies). */
template <class F> static void each_tap(const Call &c, F each) {
    int64_t positions = 1, taps = 1, position[3], in[3];
    for (int d = 0; d < c.w.n; d++) positions *= c.y.size[d + 2], taps *= c.f.size[d + 2];
    for (int64_t p = 0; p < positions; p++)
        for (int64_t t = 0; t < taps; t++) {
            int64_t left = p, right = t;
            bool inside = true;
            for (int d = c.w.n - 1; d >= 0; d--) {
                position[d] = left % c.y.size[d + 2], left /= c.y.size[d + 2];
                int64_t k = right % c.f.size[d + 2];
                right /= c.f.size[d + 2];
                in[d] = position[d] * c.w.stride[d] - c.w.pad[d] + k * c.w.dilation[d];
                inside = inside && in[d] >= 0 && in[d] < c.x.size[d + 2];
            }
            if (inside) each(position, t, in);
        }
}

static void convolve(void *context) {
    const Call &c = *(const Call *)context;
    const Tensor &out = c.back ? c.x : c.y;
    int64_t taps = 1, cells = out.size[0];
    for (int d = 0; d < c.w.n; d++) taps *= c.f.size[d + 2];
    for (int d = 1; d < out.n; d++) cells *= out.size[d];
    if (c.room_bytes) memset(c.room, 0xA5, c.room_bytes);
    int inner = c.f.size[1], outer = c.f.size[0] / c.w.groups;
    int64_t extent = 1;
    for (int d = 0; d < out.n; d++) extent += (int64_t)(out.size[d] - 1) * out.stride[d];
    double *sums = (double *)calloc((size_t)extent, sizeof *sums);
    for (int n = 0; n < c.x.size[0]; n++)
        for (int o = 0; o < c.f.size[0]; o++)
            for (int i = 0; i < inner; i++) {
                int channel = o / outer * inner + i;
                each_tap(c, [&](const int64_t *position, int64_t t, const int64_t *in) {
                    int64_t px = at(c.x, n, channel, in), py = at(c.y, n, o, position);
                    double w = read(c.weight, c.f.type, ((int64_t)o * inner + i) * taps + t);
                    sums[c.back ? px : py] += w * read(c.from, c.x.type, c.back ? py : px);
                });
            }
    for (int64_t cell = 0; cell < cells; cell++) {
        int64_t left = cell, where = 0, channel = 0;
        for (int d = out.n - 1; d >= 0; d--) {
            int64_t i = left % out.size[d];
            left /= out.size[d], where += i * out.stride[d];
            if (d == 1) channel = i;
        }
        write(c.to, out.type, where, (float)(sums[where] + (c.bias ? read(c.bias, out.type, channel) : 0)));
    }
    free(sums);
}

static int queue(Handle *h, const Call &call) {
    int wrong = check(&call.x, &call.f, &call.w, &call.y);
    if (wrong) return wrong;
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
