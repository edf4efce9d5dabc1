/* Convolution in groups of few channels, such as depthwise convolution, where matrix products would be too small. A
 * channel is copied to float32 with its padding around it, in phases where there is a stride. Every tap of the window
 * is then an address offset, and rows of positions are computed sixteen at a time. The transposed convolution spreads
 * its input, with zeros between, and reverses the window. Sums are float32, rounded once. */
#include "cpu/conv/conv_implicit.h"

#include "base/alloc.h"
#include "base/ways.h"
#include "shared/tensor_iter.h"

#include <string.h>

enum { FEW = 4 }; /* channels of a group, on both sides */

bool ac_depthwise_fits(const ac_windows *w, int64_t groups, int64_t inner, int64_t outer, ac_dtype compute) {
    return groups > 1 && inner <= FEW && outer <= FEW && compute != AC_float64 && ac_padding_fits(w);
}

typedef struct {
    ac_geometry q;
    const ac_tensor *from, *g;
    ac_tensor *to;
    ac_dtype dtype;                         /* that operands are rounded to */
    int64_t groups, channels, outs, images; /* channels and outs of a group */
    int64_t room, taps;                     /* values of a channel as it is laid out; taps of all channels of a group */
    int64_t *offset;                        /* [channels][taps of one] */
    float *weight, *bias;                   /* [groups][outs][taps]; bias may be NULL */
} depthwise;

static int64_t phases_of(const depthwise *c) { return ac_product3(c->q.stride); }

/* The channels of a group of an image, each in all phases. Behind `room` there is as much again. */
static void lay_out(const depthwise *c, int64_t image, int64_t group, float *room) {
    const ac_geometry *q = &c->q;
    int64_t plane = q->size[1] * q->size[2], all = plane * q->size[0];
    ac_tensor part = ac_part_of(c->from, image, group * c->channels, c->channels);
    int64_t values = c->channels * c->room, item = ac_itemsize(c->dtype);
    char *rounded = (char *)(c->dtype == AC_float32 ? room : room + values);
    memset(rounded, 0, (size_t)(values * item));
    for (int64_t p = 0; p < phases_of(c); p++) {
        int64_t phase[3] = {p / q->stride[2] / q->stride[1], p / q->stride[2] % q->stride[1], p % q->stride[2]};
        for (int64_t z = 0; z < q->size[0]; z++) {
            ac_span s[3];
            for (int d = 0; d < 3; d++)
                s[d] = ac_span_of(d ? 0 : z, d ? q->size[d] : 1, q->before[d] - phase[d], q->spread[d], q->stride[d],
                                  q->in[d]);
            ac_copy_padded(&part, s, c->dtype, c->room, q->size[2], rounded + (p * all + z * plane) * item);
        }
    }
    if (c->dtype != AC_float32) ac_cpu_loops()->load[c->dtype][AC_OPMATH_F32](values, rounded, 1, room);
}

static void find_offsets(depthwise *c) {
    const ac_geometry *q = &c->q;
    int64_t each = ac_product3(q->kernel), phase;
    for (int64_t i = 0; i < c->taps; i++) {
        int64_t at = ac_tap_at(q->kernel, q->stride, q->dilation, q->size, i % each, &phase);
        c->offset[i] = i / each * c->room + phase * ac_product3(q->size) + at;
    }
}

static int64_t row_values(const depthwise *c) { return ac_ceil_div(c->q.out[2], AC_LANES) * AC_LANES; }

/* -- forward and transposed ---------------------------------------------------------------------------------- */

static void sweep_group(const depthwise *c, int64_t image, int64_t group, const float *room, float *row) {
    const ac_geometry *q = &c->q;
    const ac_loops *loops = ac_cpu_loops();
    int64_t item = ac_itemsize(c->to->dtype), width = q->out[2], rows = q->out[0] * q->out[1];
    for (int64_t o = group * c->outs; o < (group + 1) * c->outs; o++)
        for (int64_t i = 0; i < rows; i++) {
            int64_t first = (i / q->out[1] * q->size[1] + i % q->out[1]) * q->size[2];
            int64_t to = ((image * c->groups * c->outs + o) * rows + i) * width;
            loops->sweep(width, c->taps, room + first, c->offset, c->weight + o * c->taps, row);
            for (int64_t j = 0; c->bias && j < width; j++) row[j] += c->bias[o];
            loops->store[AC_OPMATH_F32][c->to->dtype](width, row, (char *)ac_data(c->to) + to * item, 1);
        }
}

static void some_groups(void *context, int64_t begin, int64_t end, char *scratch) {
    const depthwise *c = context;
    float *row = (float *)(void *)scratch, *room = row + row_values(c);
    for (int64_t i = begin; i < end && !ac_poll(); i++) {
        lay_out(c, i / c->groups, i % c->groups, room);
        sweep_group(c, i / c->groups, i % c->groups, room, row);
    }
}

/* The weight as [groups][outs][taps]; turned around for the transposed way, where it comes with channels first. */
static int take_weight(depthwise *c, const ac_tensor *w, const ac_tensor *bias) {
    int64_t each = ac_product3(c->q.kernel);
    size_t bytes = (size_t)w->numel * 2 * sizeof(float);
    float *dense = ac_alloc(bytes);
    if (!dense) return -1;
    ac_storage s;
    ac_dims shape = ac_shape_of(w);
    ac_tensor rounded = ac_tensor_over(&s, dense + w->numel, c->dtype, &shape);
    ac_cpu_copy_into(&rounded, w);
    ac_cpu_loops()->load[c->dtype][AC_OPMATH_F32](w->numel, dense + w->numel, 1, dense);
    for (int64_t i = 0; i < w->numel; i++) {
        int64_t tap = i % each, channel = i / each % c->channels, o = i / each / c->channels;
        int64_t group = o / c->outs, out = (group * c->channels + channel) * c->outs + o % c->outs;
        c->weight[i] = c->q.turned ? dense[out * each + each - 1 - tap] : dense[i];
    }
    ac_free(dense, bytes);
    if (bias) ac_cpu_loops()->load[bias->dtype][AC_OPMATH_F32](bias->numel, ac_data(bias), bias->strides[0], c->bias);
    return 0;
}

static void open_depthwise(depthwise *c, const ac_windows *w, bool turned) {
    c->q = ac_geometry_of(w, turned), c->images = c->from->shape[0];
    c->room = (phases_of(c) * ac_product3(c->q.size) / AC_LANES + 2) * AC_LANES; /* the last sixteen of a row */
    c->taps = c->channels * ac_product3(c->q.kernel);
}

int ac_depthwise_convolution(const ac_run *r, const ac_windows *w) {
    const ac_attrs_convolution *a = r->attrs;
    const ac_tensor *weight = r->in[1], *bias = r->in[2];
    depthwise c = {.from = r->in[0], .to = r->out[0], .dtype = r->compute, .groups = a->groups};
    int64_t first = weight->shape[0] / a->groups, second = weight->shape[1];
    c.channels = a->transposed ? first : second, c.outs = a->transposed ? second : first;
    if (c.to->numel == 0) return 0;
    if (a->transposed) AC_WAY(depthwise_transposed);
    else AC_WAY(depthwise_forward);
    open_depthwise(&c, w, a->transposed != 0);
    size_t offsets = (size_t)c.taps * sizeof *c.offset, weights = (size_t)weight->numel * sizeof *c.weight;
    size_t bytes = offsets + weights + (size_t)(c.groups * c.outs) * sizeof *c.bias;
    char *memory = ac_alloc(bytes);
    if (!memory) return -1;
    c.offset = (int64_t *)(void *)memory, c.weight = (float *)(void *)(memory + offsets);
    c.bias = bias ? c.weight + weight->numel : NULL;
    find_offsets(&c);
    int failed = take_weight(&c, weight, bias);
    int64_t values = row_values(&c) + 2 * c.channels * c.room;
    if (!failed)
        failed = ac_for_range_with(c.images * c.groups, AC_GRAIN / (c.room * c.taps) + 1,
                                   (size_t)values * sizeof(float), some_groups, &c);
    ac_free(memory, bytes);
    return failed;
}

/* -- the weight's gradient ------------------------------------------------------------------------------------ */

static void round_row(ac_dtype dtype, int64_t n, float *row) {
    uint16_t some[AC_LANES];
    for (int64_t i = 0; i < n && dtype != AC_float32; i += AC_LANES) {
        int64_t m = ac_least(AC_LANES, n - i);
        ac_cpu_loops()->store[AC_OPMATH_F32][dtype](m, row + i, some, 1);
        ac_cpu_loops()->load[dtype][AC_OPMATH_F32](m, some, 1, row + i);
    }
}

/* sums [outs][taps][16] of one image; `row` stays zero behind its positions. */
static void sweep_back_group(const depthwise *c, int64_t image, int64_t group, const float *room, float *row,
                             float *sums) {
    const ac_geometry *q = &c->q;
    const ac_loops *loops = ac_cpu_loops();
    int64_t item = ac_itemsize(c->g->dtype), rows = q->out[0] * q->out[1];
    for (int64_t o = 0; o < c->outs; o++) {
        ac_tensor part = ac_part_of(c->g, image, group * c->outs + o, 1);
        int last = part.ndim - 1;
        int64_t down = last > 1 ? part.strides[last - 1] : 0, deep = last > 2 ? part.strides[1] : 0;
        for (int64_t i = 0; i < rows; i++) {
            int64_t i0 = i / q->out[1], i1 = i % q->out[1];
            const char *g = (const char *)ac_data(&part) + (i0 * deep + i1 * down) * item;
            loops->load[part.dtype][AC_OPMATH_F32](q->out[2], g, part.strides[last], row);
            if (part.dtype != c->dtype) round_row(c->dtype, q->out[2], row);
            loops->sweep_back(q->out[2], c->taps, room + (i0 * q->size[1] + i1) * q->size[2], c->offset, row,
                              sums + o * c->taps * AC_LANES);
        }
    }
}

/* A group's gradient: all images in order, so threads change nothing. */
static void some_weights(void *context, int64_t begin, int64_t end, char *scratch) {
    const depthwise *c = context;
    int64_t n = c->outs * c->taps;
    float *row = (float *)(void *)scratch, *sums = row + row_values(c), *room = sums + n * AC_LANES;
    memset(row, 0, (size_t)row_values(c) * sizeof *row);
    for (int64_t group = begin; group < end && !ac_poll(); group++) {
        memset(sums, 0, (size_t)(n * AC_LANES) * sizeof *sums);
        for (int64_t image = 0; image < c->images; image++) {
            lay_out(c, image, group, room);
            sweep_back_group(c, image, group, room, row, sums);
        }
        for (int64_t i = 0; i < n; i++) {
            double total = 0;
            for (int64_t l = 0; l < AC_LANES; l++) total += (double)sums[i * AC_LANES + l];
            ac_write_double(ac_data(c->to), c->to->dtype, group * n + i, total);
        }
    }
}

int ac_depthwise_convolution_weight(const ac_run *r, const ac_windows *w) {
    const ac_attrs_convolution_weight *a = r->attrs;
    depthwise c = {.from = r->in[0], .g = r->in[1], .to = r->out[0], .dtype = r->compute, .groups = a->groups};
    c.channels = c.from->shape[1] / a->groups, c.outs = c.g->shape[1] / a->groups;
    if (c.to->numel == 0) return 0;
    AC_WAY(depthwise_weight);
    open_depthwise(&c, w, false);
    size_t offsets = (size_t)c.taps * sizeof *c.offset;
    c.offset = ac_alloc(offsets);
    if (!c.offset) return -1;
    find_offsets(&c);
    int64_t values = row_values(&c) + c.outs * c.taps * AC_LANES + 2 * c.channels * c.room;
    int failed = ac_for_range_with(c.groups, 1, (size_t)values * sizeof(float), some_weights, &c);
    ac_free(c.offset, offsets);
    return failed;
}
