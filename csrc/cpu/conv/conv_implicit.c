/* Convolution as an implicit matrix product, without im2col columns, forward and transposed. For an image it is one
 * product for every row of output positions:
 *
 *     y[out, position] = sum over taps and channels of weight[out, tap, channel] x[channel, position + tap]
 *
 * The micro-kernels want neighbouring positions in neighbouring memory, and the tensor has them so; nothing is
 * transposed. A band of x is packed once with its padding, as padded channels: each holds one channel (or a pair of
 * 16-bit channels), and each of its four-byte cells is one position. The micro-kernel multiplies sixteen of them in a
 * k step, and a tap is only another address in them. With a stride of s, x is packed in s phases, and a tap reads one
 * of them. A transposed convolution of stride s is s plain ones: each has the taps that meet the same positions, with
 * the window reversed. Where rows are short, panels continue past their ends, and the results between rows
 * are discarded; or, where these are many, x is packed for each tap along a row, without anything between rows. */
#include "cpu/conv/conv_implicit.h"

#include "base/alloc.h"
#include "base/pool.h"
#include "shared/tensor_iter.h"

#include <stdatomic.h>
#include <string.h>

enum { FEW_CHANNELS = 16 };
enum { CELL = 4 };             /* bytes */
enum { BLOCK = 9 };            /* k steps for which a panel of weights stays in the first-level cache */
enum { CUT_BYTES = 16 << 10 }; /* and values on their way into cells */

bool ac_direct_fits(const ac_windows *w, int64_t inner, int64_t outer, ac_dtype compute) {
    return inner >= FEW_CHANNELS && outer >= FEW_CHANNELS && compute != AC_float64 && ac_padding_fits(w);
}

typedef struct {
    const ac_tensor *from, *bias;
    ac_tensor weight, to; /* taps and positions of a class */
    ac_dtype dtype;
    ac_conv_kernel k;
    ac_geometry q;
    int64_t channels, outs, groups, images; /* channels and outs of a group */
    int64_t out_stride[5];                  /* of `to`: image, channel, plane, row, position */
    bool flat;                              /* panels run over the ends of rows */
    bool dense;                             /* and nothing lies between rows: each tap along them has a phase */
    int64_t rows, bands;                    /* rows of positions made at a time, and how many times in a plane */
    int64_t rows_in, channel_stride;  /* rows of a phase that they read; cells from one padded channel to the next */
    int64_t panels, row_panels;       /* of positions: in a band at most, and in a row */
    int64_t channel_k_steps, k_steps; /* over the channels of a tap, and of all taps */
    int64_t *at;                      /* [k_steps] bytes from the first channel to where a k step reads */
    int64_t a_part, b_part;           /* bytes of one part of a group's weights, and of a band's positions */
    char *packed;                     /* weights: [groups][parts][panels of outs][k_steps] tiles */
    float *add;                       /* bias, or NULL */
    _Atomic bool finite;
} direct;

/* -- plan ---------------------------------------------------------------------------------------------------- */

static int64_t phases_along(const direct *c) { return c->dense ? c->q.kernel[2] : c->q.stride[2]; }
static int64_t phases_of(const direct *c) { return c->q.stride[1] * phases_along(c); }
static int64_t channels_of_plane(const direct *c) { return c->channel_k_steps * AC_CELLS; }

/* Whether a panel is one row of positions, so that the panels of a block lie below each other. */
static bool goes_down(const direct *c) { return !c->flat && c->row_panels == 1; }

/* Whether the values of a padded channel are its cells. */
static bool lies_as_cells(const direct *c) { return c->k.kind == AC_PANEL_F32 && ac_values_are_cells(&c->k, c->dtype); }

/* Whether two padded channels side by side are its cells. */
static bool lies_as_pairs(const direct *c) {
    return c->k.kind != AC_PANEL_F32 && ac_values_are_cells(&c->k, c->dtype) && c->from->dtype == c->dtype &&
           c->channels % 2 == 0;
}

/* Panels of so many rows of positions. */
static int64_t panels_for(const direct *c, int64_t rows) {
    return c->flat ? ac_panels_of((rows - 1) * c->q.size[2] + c->q.out[2]) : rows * c->row_panels;
}

/* Rows whose last panel would be emptier than the positions between windows of a flat plane. */
static bool wants_flat(const direct *c) {
    int64_t lanes = c->row_panels * AC_LANES * c->q.out[1], plane = (c->q.out[1] - 1) * c->q.size[2] + c->q.out[2];
    return 8 * ac_panels_of(plane) * AC_LANES < 7 * lanes;
}

/* Whether the results between rows are an eighth of all, and laying x out for each tap costs little beside them. */
static bool wants_dense(const direct *c) {
    int64_t panels = c->flat ? panels_for(c, c->q.out[1]) : c->q.out[1] * c->row_panels;
    int64_t least = ac_panels_of(c->q.out[1] * c->q.out[2]);
    return 8 * least <= 7 * panels && c->outs > AC_LANES && (lies_as_cells(c) || lies_as_pairs(c));
}

/* As many rows as half the second-level cache holds, but a band for every thread. */
static void plan_bands(direct *c) {
    int64_t reach = c->q.size[1] - c->q.out[1], threads = ac_num_threads(),
            planes = c->images * c->groups * c->q.out[0];
    int64_t row = c->q.kernel[0] * channels_of_plane(c) * phases_of(c) * c->q.size[2] * CELL * c->k.parts;
    int64_t fit = ac_l2_bytes() / 2 / row - reach, rows = fit;
    if (planes < threads) rows = ac_least(rows, ac_ceil_div(c->q.out[1] * planes, threads));
    c->rows = rows < 1 ? 1 : ac_least(rows, c->q.out[1]), c->bands = ac_ceil_div(c->q.out[1], c->rows);
    c->rows_in = c->rows + reach, c->panels = panels_for(c, c->rows);
    if (c->bands == 1) AC_WAY(direct_whole_planes);
    else if (rows < fit) AC_WAY(direct_bands_by_threads);
    else AC_WAY(direct_bands_by_cache);
}

/* Channels are an odd number of cache lines apart, so that sixteen of them do not meet in one set of the cache. */
static void plan_channel_stride(direct *c) {
    int64_t panels = ac_panels_of(phases_of(c) * c->rows_in * c->q.size[2]) + 1;
    c->channel_stride = (panels + 1 - panels % 2) * AC_LANES;
    c->b_part = c->q.kernel[0] * channels_of_plane(c) * c->channel_stride * CELL;
}

/* Where tap (k1, k2) of a window lies from its first position on, in cells of a padded channel. */
static int64_t tap_cell(const direct *c, int64_t k1, int64_t k2) {
    const int64_t *stride = c->q.stride, down = k1 * c->q.dilation[1], along = k2 * c->q.dilation[2];
    int64_t phase = down % stride[1] * phases_along(c) + (c->dense ? k2 : along % stride[2]);
    return (phase * c->rows_in + down / stride[1]) * c->q.size[2] + (c->dense ? 0 : along / stride[2]);
}

/* The k steps go over planes, channels, and taps last: these read channels that the first-level cache has already. */
static int plan_k_steps(direct *c) {
    int64_t n = 0, *at = c->at = ac_alloc((size_t)c->k_steps * sizeof *c->at);
    if (!at) return -1;
    for (int64_t plane = 0; plane < c->q.kernel[0] * c->channel_k_steps; plane++)
        for (int64_t k1 = 0; k1 < c->q.kernel[1]; k1++)
            for (int64_t k2 = 0; k2 < c->q.kernel[2]; k2++)
                at[n++] = (plane * AC_CELLS * c->channel_stride + tap_cell(c, k1, k2)) * CELL;
    return 0;
}

/* The ways that a plan takes, as base/ways.def names them. */
static void note_ways(const direct *c) {
    if (c->dense) AC_WAY(direct_dense);
    else if (c->flat) AC_WAY(direct_flat);
    else if (goes_down(c)) AC_WAY(direct_down);
    else AC_WAY(direct_along);
    if (lies_as_cells(c)) AC_WAY(direct_cells_in_place);
    else if (lies_as_pairs(c)) AC_WAY(direct_cells_paired);
    else AC_WAY(direct_cells_packed);
    if (phases_of(c) > 1) AC_WAY(direct_phases);
    if (c->out_stride[4] > 1) AC_WAY(direct_positions_apart);
}

static int plan(direct *c) {
    c->channel_k_steps = ac_ceil_div(c->channels, c->k.depth),
    c->k_steps = ac_product3(c->q.kernel) * c->channel_k_steps;
    c->row_panels = ac_panels_of(c->q.out[2]), c->flat = wants_flat(c);
    c->dense = wants_dense(c);
    if (c->dense) c->flat = true, c->q.size[2] = c->q.out[2];
    plan_bands(c);
    plan_channel_stride(c);
    c->a_part = ac_panels_of(c->outs) * c->k_steps * AC_TILE_BYTES;
    c->out_stride[0] = c->to.strides[0], c->out_stride[1] = c->to.strides[1];
    for (int d = 0; d < 3; d++) {
        int i = c->to.ndim - 3 + d;
        c->out_stride[2 + d] = i < 2 ? 0 : c->to.strides[i];
    }
    note_ways(c);
    return plan_k_steps(c);
}

/* -- weights --------------------------------------------------------------------------------------------------- */

/* Outs [o, o + lanes) of a group's weight as [lanes, taps, channels]; turned around for the transposed way. */
static void lay_out_weight(const direct *c, int64_t group, int64_t o, int64_t lanes, char *to) {
    int outs = c->q.turned ? 1 : 0, channels = 1 - outs;
    ac_tensor from = c->weight;
    from.shape[outs] = lanes, from.shape[channels] = c->channels;
    from.numel = lanes * ac_product3(c->q.kernel) * c->channels;
    from.offset += o * from.strides[outs] + group * c->weight.shape[0] / c->groups * from.strides[0];
    for (int d = 2; c->q.turned && d < from.ndim; d++)
        from.offset += (from.shape[d] - 1) * from.strides[d], from.strides[d] = -from.strides[d];
    ac_storage s = {.data = to};
    ac_tensor x = from;
    int64_t stride = c->channels;
    x.storage = &s, x.offset = 0, x.dtype = c->dtype, x.strides[channels] = 1;
    for (int d = x.ndim - 1; d >= 2; d--) x.strides[d] = stride, stride *= x.shape[d];
    x.strides[outs] = stride;
    ac_cpu_copy_into(&x, &from);
}

/* One panel of outs, from [lanes, taps, channels]. */
static void pack_weight(direct *c, const char *dense, int64_t lanes, char *to) {
    int64_t taps = ac_product3(c->q.kernel), in_plane = c->q.kernel[1] * c->q.kernel[2];
    for (int64_t i = 0; i < c->k_steps; i++, to += AC_TILE_BYTES) {
        int64_t plane = i / in_plane, channel = plane % c->channel_k_steps * c->k.depth;
        int64_t tap = plane / c->channel_k_steps * in_plane + i % in_plane;
        ac_operand a = {.data = dense + (tap * c->channels + channel) * ac_itemsize(c->dtype),
                        .dtype = c->dtype,
                        .lanes = lanes,
                        .k = c->channels - channel,
                        .lane_stride = taps * c->channels,
                        .k_stride = 1,
                        .round = c->dtype};
        if (!ac_pack_channels(&c->k, &a, false, 1, c->a_part, to)) atomic_store(&c->finite, false);
    }
}

static void some_weights(void *context, int64_t begin, int64_t end, char *scratch) {
    direct *c = context;
    int64_t panels = ac_panels_of(c->outs);
    for (int64_t i = begin; i < end; i++) {
        int64_t group = i / panels, panel = i % panels, lanes = ac_least(AC_LANES, c->outs - panel * AC_LANES);
        lay_out_weight(c, group, panel * AC_LANES, lanes, scratch);
        pack_weight(c, scratch, lanes, c->packed + group * c->a_part * c->k.parts + panel * c->k_steps * AC_TILE_BYTES);
    }
}

static int pack_weights(direct *c) {
    int64_t values = AC_LANES * ac_product3(c->q.kernel) * c->channels, grain = AC_GRAIN / 4 / values;
    return ac_for_range_with(c->groups * ac_panels_of(c->outs), grain > 1 ? grain : 1,
                             (size_t)(values * ac_itemsize(c->dtype)), some_weights, c);
}

/* -- positions ---------------------------------------------------------------------------------------------------- */

/* What is made at a time: rows [row, row + rows) of plane o0 of a group of an image. */
typedef struct {
    int64_t image, group, o0, row, rows;
} band;

static band band_at(const direct *c, int64_t i) {
    band b = {.row = i % c->bands * c->rows, .o0 = i / c->bands % c->q.out[0]};
    i /= c->bands * c->q.out[0];
    b.group = i % c->groups, b.image = i / c->groups, b.rows = ac_least(c->rows, c->q.out[1] - b.row);
    return b;
}

/* Some rows of a phase of the plane that tap k0 reads, of one k step's channels. */
typedef struct {
    int64_t k0, channel, lanes, phase, row, rows;
} cut;

/* Those as padded channels, `channel_stride` values apart, of c->dtype; or pairs of them as cells. */
static void fill(const direct *c, const band *b, const cut *p, bool pairs, int64_t channel_stride, char *to) {
    const ac_geometry *q = &c->q;
    int64_t p1 = p->phase / phases_along(c), p2 = p->phase % phases_along(c) * (c->dense ? q->dilation[2] : 1);
    int64_t plane = b->o0 * q->stride[0] + p->k0 * q->dilation[0];
    ac_tensor part = ac_part_of(c->from, b->image, b->group * c->channels + p->channel, p->lanes);
    ac_span s[3] = {ac_span_of(plane, 1, q->before[0], 1, 1, q->in[0]),
                    ac_span_of(b->row + p->row, p->rows, q->before[1] - p1, 1, q->stride[1], q->in[1]),
                    ac_span_of(0, q->size[2], q->before[2] - p2, 1, q->stride[2], q->in[2])};
    if (pairs) ac_pair_channels(&part, s, channel_stride, q->size[2], to);
    else ac_copy_padded(&part, s, c->dtype, channel_stride, q->size[2], to);
}

/* The same as cells, by way of tiles: what the last one has too many is written again, or past the end of a channel. */
static void fill_cells(direct *c, const band *b, const cut *p, char *values, char *to) {
    int64_t n = ac_panels_of(p->rows * c->q.size[2]) * AC_LANES, item = ac_itemsize(c->dtype);
    _Alignas(AC_ALIGNMENT) char tiles[2 * AC_TILE_BYTES];
    memset(values, 0, (size_t)(p->lanes * n * item));
    fill(c, b, p, false, n, values);
    for (int64_t i = 0; i < n; i += AC_LANES) {
        ac_operand x = {.data = values + i * item,
                        .dtype = c->dtype,
                        .lanes = AC_LANES,
                        .k = p->lanes,
                        .lane_stride = 1,
                        .k_stride = n,
                        .round = c->dtype};
        if (!ac_pack_channels(&c->k, &x, true, 1, AC_TILE_BYTES, tiles)) atomic_store(&c->finite, false);
        for (int64_t part = 0; part < c->k.parts; part++)
            for (int64_t cell = 0; cell < AC_CELLS; cell++)
                memcpy(to + part * c->b_part + (cell * c->channel_stride + i) * CELL,
                       tiles + part * AC_TILE_BYTES + cell * AC_LANES * CELL, AC_LANES * CELL);
    }
}

/* Rows of a phase that are made to cells at a time. */
static int64_t rows_of_cut(const direct *c) {
    int64_t rows = CUT_BYTES / (c->k.depth * c->q.size[2] * ac_itemsize(c->dtype)) + 1;
    return ac_least(rows, c->rows_in);
}

static void lay_out_k_step(direct *c, const band *b, int64_t k0, int64_t k_step, char *values, char *to) {
    bool pairs = lies_as_pairs(c), at_once = pairs || lies_as_cells(c);
    int64_t rows = at_once ? c->rows_in : rows_of_cut(c);
    cut p = {.k0 = k0, .channel = k_step * c->k.depth};
    p.lanes = ac_least(c->k.depth, c->channels - p.channel);
    for (; p.phase < phases_of(c); p.phase++)
        for (p.row = 0; p.row < c->rows_in; p.row += rows) {
            char *at = to + (p.phase * c->rows_in + p.row) * c->q.size[2] * CELL;
            p.rows = ac_least(rows, c->rows_in - p.row);
            if (at_once) fill(c, b, &p, pairs, c->channel_stride, at);
            else fill_cells(c, b, &p, values, at);
        }
}

/* To memory that is zero where no pixel lies. */
static void lay_out(direct *c, const band *b, char *values, char *to) {
    for (int64_t k0 = 0; k0 < c->q.kernel[0]; k0++)
        for (int64_t k_step = 0; k_step < c->channel_k_steps; k_step++, to += AC_CELLS * c->channel_stride * CELL)
            lay_out_k_step(c, b, k0, k_step, values, to);
}

/* -- products ---------------------------------------------------------------------------------------------------- */

/* Up to micro->a panels of outs by up to micro->b of positions; those of positions are in one row, or, where a row has
 * but one, in rows that follow each other. */
typedef struct {
    int64_t o, na, row, panel, nb;
} block;

static char *result_at(const direct *c, const band *b, int64_t o, int64_t row, int64_t position) {
    int64_t at = b->image * c->out_stride[0] + (b->group * c->outs + o) * c->out_stride[1] + b->o0 * c->out_stride[2] +
                 (b->row + row) * c->out_stride[3] + position * c->out_stride[4];
    return (char *)ac_data(&c->to) + at * ac_itemsize(c->to.dtype);
}

static float bias_of(const direct *c, const band *b, int64_t o) { return c->add ? c->add[b->group * c->outs + o] : 0; }

/* n positions of a row of one out, of which there are few: 16-bit values as they are, float32 sums plus bias. */
static void store_halves(const uint16_t *from, int64_t n, uint16_t *to, int64_t stride) {
    int64_t j = 0;
    if (stride == 1) {
        for (; j + 4 <= n; j += 4) memcpy(to + j, from + j, 8);
        for (; j < n; j++) to[j] = from[j];
    } else
        for (; j < n; j++) to[j * stride] = from[j];
}
static void store_floats(const float *from, float bias, int64_t n, float *to, int64_t stride) {
    int64_t j = 0;
    if (stride == 1) {
        for (; j + 4 <= n; j += 4)
            for (int64_t l = 0; l < 4; l++) to[j + l] = from[j + l] + bias;
        for (; j < n; j++) to[j] = from[j] + bias;
    } else
        for (; j < n; j++) to[j * stride] = from[j] + bias;
}

/* What ac_loops.finish calls the result's dtype. */
static int finish_of(const direct *c) { return c->to.dtype == AC_float32 ? 0 : c->to.dtype == AC_float16 ? 1 : 2; }

/* A tile whose lanes are positions from (row, position) on, as far as the output has them. */
static void store_tile(const direct *c, const band *b, int64_t o, int64_t row, int64_t position, const float *tile) {
    int64_t outs = ac_least(AC_LANES, c->outs - o), lane = c->out_stride[1] * ac_itemsize(c->to.dtype);
    bool wide = c->to.dtype == AC_float32;
    uint16_t halves[AC_TILE_FLOATS];
    ac_finish f = {.alpha = 1, .row_bias = c->add ? c->add + b->group * c->outs + o : NULL};
    if (!wide) ac_cpu_loops()->finish[finish_of(c)](outs, AC_LANES, tile, &f, halves, AC_LANES);
    for (int64_t l = 0; l < AC_LANES && row < b->rows; row++, position = 0) {
        int64_t n = ac_least(AC_LANES - l, c->q.out[2] - position), at = l;
        char *to = result_at(c, b, o, row, position);
        for (int64_t i = 0; i < outs && n > 0; i++, to += lane, at += AC_LANES) {
            if (wide) store_floats(tile + at, bias_of(c, b, o + i), n, (float *)(void *)to, c->out_stride[4]);
            else store_halves(halves + at, n, (uint16_t *)(void *)to, c->out_stride[4]);
        }
        l += c->q.size[2] - position;
    }
}

/* n positions of a row, of up to 16 outs: whole rows of tiles. */
static void store_row(const direct *c, const band *b, int64_t o, int64_t row, int64_t position, int64_t n,
                      const float *tiles) {
    ac_finish f = {.alpha = 1, .row_bias = c->add ? c->add + b->group * c->outs + o : NULL};
    int which = finish_of(c);
    int64_t outs = ac_least(AC_LANES, c->outs - o), whole = n / AC_LANES * AC_LANES;
    if (whole)
        ac_cpu_loops()->finish[which](outs, whole, tiles, &f, result_at(c, b, o, row, position), c->out_stride[1]);
    tiles += whole / AC_LANES * AC_TILE_FLOATS;
    if (n > whole)
        ac_cpu_loops()->finish[which](outs, n - whole, tiles, &f, result_at(c, b, o, row, position + whole),
                                      c->out_stride[1]);
}

static void store_block(const direct *c, const band *b, const block *k, const float *tiles, int64_t tile_stride) {
    int64_t panels = ac_least(k->na, ac_ceil_div(c->outs, AC_LANES) - k->o), position = k->panel * AC_LANES;
    int64_t width = c->q.size[2], row = c->dense ? b->rows * width : c->q.out[2]; /* positions side by side */
    bool down = goes_down(c), gaps = c->dense ? c->out_stride[3] != width : c->flat;
    for (int64_t i = 0; i < panels; i++, tiles += tile_stride) {
        int64_t o = (k->o + i) * AC_LANES, n = ac_least(k->nb * AC_LANES, row - position);
        if (!down && !gaps && c->out_stride[4] == 1) store_row(c, b, o, k->row, position, n, tiles);
        else
            for (int64_t j = 0; j < k->nb; j++) {
                const float *tile = tiles + j * AC_TILE_FLOATS;
                int64_t at = position + j * AC_LANES;
                if (c->flat) store_tile(c, b, o, at / width, at % width, tile);
                else if (c->out_stride[4] == 1) store_row(c, b, o, k->row + j, 0, c->q.out[2], tile);
                else if (down) store_tile(c, b, o, k->row + j, 0, tile);
                else store_tile(c, b, o, k->row, at, tile);
            }
    }
}

typedef struct {
    direct *c;
    band b;
    const char *weights, *positions;
    float *tiles;
    ac_ahead next, results; /* what is laid out and what is written next */
} work;

/* Cells that are empty in all of k steps [from, from + k_steps): those past the channels of a tap, where that has one
 * k step, or where all are its last. */
static int empty_cells(const direct *c, int64_t from, int64_t k_steps) {
    int64_t in_plane = c->q.kernel[1] * c->q.kernel[2], last = c->channel_k_steps - 1, values = c->k.depth / AC_CELLS;
    for (int64_t plane = from / in_plane; plane * in_plane < from + k_steps; plane++)
        if (plane % c->channel_k_steps != last) return 0;
    return (int)(AC_CELLS - ac_ceil_div(c->channels - last * c->k.depth, values));
}

/* k steps [from, from + k_steps) of a block. */
static void add_k_steps(work *w, const block *k, int64_t from, int64_t k_steps, float *tiles, int64_t tile_stride) {
    const direct *c = w->c;
    bool down = goes_down(c);
    ac_micro_job job = {.k_steps = k_steps,
                        .a_next = c->k_steps * AC_TILE_BYTES,
                        .b_next = (down ? c->q.size[2] : AC_LANES) * CELL,
                        .a_k_stride = AC_TILE_BYTES,
                        .a_lane_stride = AC_CELLS * CELL,
                        .a_cell_stride = CELL,
                        .b_cell_stride = c->channel_stride * CELL,
                        .b_at = c->at + from,
                        .na = (int)k->na,
                        .nb = (int)k->nb,
                        .empty = empty_cells(c, from, k_steps),
                        .c = tiles,
                        .c_a = tile_stride,
                        .c_b = AC_TILE_FLOATS,
                        .add = from > 0};
    const char *a = w->weights + (k->o * c->k_steps + from) * AC_TILE_BYTES;
    const char *b = w->positions + (k->row * c->q.size[2] + k->panel * AC_LANES) * CELL;
    for (int64_t i = 0; i < c->k.parts; i++)
        for (int64_t j = 0; j < c->k.parts; j++, job.add = true) {
            job.a = a + i * c->a_part, job.b = b + j * c->b_part;
            job.soon_a = ac_ahead_take(&w->next, k_steps * AC_FETCH_A, job.a);
            job.soon_b = ac_ahead_take(&w->results, k_steps * AC_FETCH_B, job.b);
            c->k.micro->run(&job);
        }
}

/* Every block of positions, by so few k steps that their weights stay where they are fast. */
static void multiply_k_steps(work *w, block *k, int64_t from) {
    const direct *c = w->c;
    bool down = goes_down(c);
    int64_t rows = c->flat ? 1 : w->b.rows, panels = c->flat ? panels_for(c, w->b.rows) : c->row_panels;
    int64_t tile_stride = rows * panels * AC_TILE_FLOATS, most = c->k.micro->b,
            k_steps = ac_least(BLOCK, c->k_steps - from);
    float *tiles = w->tiles;
    for (k->row = 0; k->row < rows; k->row += down ? k->nb : 1)
        for (k->panel = 0; k->panel < panels; k->panel += k->nb, tiles += k->nb * AC_TILE_FLOATS) {
            int64_t left = down ? rows - k->row : panels - k->panel;
            k->nb = left == 4 ? ac_least(most, 2) : ac_least(most, left); /* 2 + 2 is faster than 3 + 1 */
            add_k_steps(w, k, from, k_steps, tiles, tile_stride);
            if (from + k_steps == c->k_steps) store_block(c, &w->b, k, tiles, tile_stride);
        }
}

/* The results of so many outs, which are one run of memory where a band is a whole image. */
static ac_ahead results_of(const direct *c, const band *b, int64_t o, int64_t outs) {
    bool run = c->bands == 1 && c->q.out[0] == 1 && c->out_stride[4] == 1 && o < c->outs;
    const char *at = result_at(c, b, o, 0, 0);
    return (ac_ahead){at, run ? result_at(c, b, ac_least(o + outs, c->outs), 0, 0) : at};
}

static void multiply(work *w) {
    const direct *c = w->c;
    int64_t panels = ac_panels_of(c->outs), most = c->k.micro->a;
    for (block k = {0}; k.o < panels; k.o += k.na) {
        k.na = ac_least(most, panels - k.o);
        w->results = results_of(c, &w->b, k.o * AC_LANES, k.na * AC_LANES);
        for (int64_t from = 0; from < c->k_steps; from += BLOCK) multiply_k_steps(w, &k, from);
    }
}

/* -- running it -------------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t tiles, positions, values; /* bytes */
} rooms;

static rooms rooms_of(const direct *c) {
    int64_t values = ac_panels_of(rows_of_cut(c) * c->q.size[2]) * AC_LANES;
    return (rooms){c->k.micro->a * c->panels * AC_TILE_BYTES, c->b_part * c->k.parts,
                   values * c->k.depth * ac_itemsize(c->dtype)};
}

/* What the band after i is laid out from, where that is one run of memory. */
static ac_ahead next_of(const direct *c, int64_t i) {
    band next = band_at(c, i + 1);
    if (c->bands > 1 || c->q.out[0] > 1 || next.image >= c->images) return (ac_ahead){NULL, NULL};
    return ac_ahead_of(c->from, next.image, 1, next.group * c->channels, c->channels);
}

static void some_bands(void *context, int64_t begin, int64_t end, char *scratch) {
    direct *c = context;
    rooms r = rooms_of(c);
    char *positions = scratch + r.tiles, *values = positions + r.positions;
    for (int64_t i = begin; i < end && !ac_poll(); i++) {
        work w = {.c = c, .b = band_at(c, i), .positions = positions, .tiles = (float *)(void *)scratch};
        w.weights = c->packed + w.b.group * c->a_part * c->k.parts;
        bool padded = i > begin && c->bands == 1 && c->q.out[0] == 1; /* as the band before was */
        if (!padded) memset(positions, 0, (size_t)r.positions);
        lay_out(c, &w.b, values, positions);
        w.next = next_of(c, i);
        if (c->k.micro->begin) c->k.micro->begin();
        multiply(&w);
        if (c->k.micro->end) c->k.micro->end();
    }
}

static int run_direct(direct *c, bool finite) {
    c->k = ac_conv_kernel_for(c->dtype, finite);
    atomic_store(&c->finite, true);
    AC_TRY(plan(c));
    size_t packed = (size_t)(c->groups * c->a_part * c->k.parts), bias = (size_t)(c->outs * c->groups) * sizeof *c->add;
    c->packed = ac_alloc(packed);
    c->add = c->packed && c->bias ? ac_alloc(bias) : NULL;
    int failed = !c->packed || (c->bias && !c->add) ? -1 : pack_weights(c);
    if (!failed && c->add)
        ac_cpu_loops()->load[c->bias->dtype][AC_OPMATH_F32](c->bias->numel, ac_data(c->bias), c->bias->strides[0],
                                                            c->add);
    if (!failed) {
        rooms r = rooms_of(c);
        int64_t bands = c->images * c->groups * c->q.out[0] * c->bands;
        failed = ac_for_range_with(bands, 1, (size_t)(r.tiles + r.positions + r.values), some_bands, c);
    }
    if (c->add) ac_free(c->add, bias);
    if (c->packed) ac_free(c->packed, packed);
    ac_free(c->at, (size_t)c->k_steps * sizeof *c->at);
    return failed;
}

/* -- classes of positions ----------------------------------------------------------------------------------------- */

/* Every stride-th position of `to` in dimension i, from `first` on. */
static void take_every(ac_tensor *t, int i, int64_t first, int64_t every, int64_t n) {
    t->numel = t->shape[i] ? t->numel / t->shape[i] * n : 0;
    t->offset += first * t->strides[i], t->strides[i] *= every, t->shape[i] = n;
}

/* In dimension d, input z adds to output z stride - padding + k dilation by tap k. Outputs with the same remainder
 * modulo the stride meet the same taps, and are a plain convolution with these. */
static void take_class(direct *c, const ac_windows *w, int d, int64_t rest) {
    int64_t s = w->stride[d], tap = 0, every = 1, position = 0, i = c->to.ndim - 3 + d;
    while (every * w->dilation[d] % s) every++; /* taps of a class are so many apart */
    while (tap < every && tap * w->dilation[d] % s != rest) tap++;
    while ((position + w->padding[d]) % s != rest) position++;
    int64_t taps = tap < every && tap < w->kernel[d] ? ac_ceil_div(w->kernel[d] - tap, every) : 0;
    int64_t positions = position < w->in[d] ? ac_ceil_div(w->in[d] - position, s) : 0;
    int64_t apart = every * w->dilation[d] / s, reach = (taps - 1) * apart;
    c->q.kernel[d] = taps, c->q.stride[d] = c->q.spread[d] = 1, c->q.dilation[d] = apart;
    c->q.in[d] = w->out[d], c->q.out[d] = positions, c->q.size[d] = positions + reach;
    c->q.before[d] = reach - (position + w->padding[d] - tap * w->dilation[d]) / s;
    if (i < 2) return;
    take_every(&c->weight, (int)i, tap, every, taps);
    take_every(&c->to, (int)i, position, s, positions);
}

/* The bias, which positions hold that no tap meets. */
static void store_bias(const direct *c) {
    AC_WAY(direct_no_taps);
    double zero = 0;
    ac_storage memory;
    ac_dims none = {.n = 0}, shape = ac_shape_of(&c->to);
    ac_tensor value = c->bias ? *c->bias : ac_tensor_over(&memory, &zero, AC_float64, &none), to = c->to;
    int64_t bias_stride = c->bias ? value.strides[0] : 0;
    value.ndim = to.ndim, value.numel = to.numel;
    for (int d = 0; d < to.ndim; d++) value.shape[d] = shape.v[d], value.strides[d] = d == 1 ? bias_stride : 0;
    ac_cpu_copy_into(&to, &value);
}

/* Class `class` of positions; all of them, unless the convolution is a transposed one. */
static direct class_of(const direct *whole, const ac_windows *w, int64_t class) {
    direct c = *whole;
    for (int d = 2; c.q.turned && d >= 0; class /= w->stride[d--]) take_class(&c, w, d, class % w->stride[d]);
    return c;
}

static int run_classes(const direct *whole, const ac_windows *w, bool finite, bool *fits) {
    int64_t classes = whole->q.turned ? ac_product3(w->stride) : 1;
    bool without_taps = false;
    if (classes > 1) AC_WAY(direct_classes);
    for (int64_t i = 0; i < classes; i++) {
        direct c = class_of(whole, w, i);
        without_taps |= c.to.numel > 0 && c.weight.numel == 0;
    }
    if (without_taps) store_bias(whole); /* all at once: positions with taps are written again */
    *fits = true;
    for (int64_t i = 0; i < classes; i++) {
        direct c = class_of(whole, w, i);
        if (c.to.numel == 0 || c.weight.numel == 0) continue;
        AC_TRY(run_direct(&c, finite));
        *fits = *fits && atomic_load(&c.finite);
    }
    return 0;
}

int ac_direct_convolution(const ac_run *r, const ac_windows *w) {
    const ac_attrs_convolution *a = r->attrs;
    const ac_tensor *weight = r->in[1];
    bool fits;
    direct c = {.from = r->in[0], .weight = *weight, .bias = r->in[2], .to = *r->out[0], .groups = a->groups};
    c.q = ac_geometry_of(w, a->transposed != 0), c.images = c.from->shape[0], c.dtype = r->compute;
    atomic_init(&c.finite, true);
    int64_t first = weight->shape[0] / a->groups;
    c.outs = c.q.turned ? weight->shape[1] : first, c.channels = c.q.turned ? first : weight->shape[1];
    if (c.to.numel == 0) return 0;
    AC_TRY(run_classes(&c, w, true, &fits));
    if (fits) return 0;
    AC_WAY(direct_again); /* what cannot be split */
    return run_classes(&c, w, false, &fits);
}
