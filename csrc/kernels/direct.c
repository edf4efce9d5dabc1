/* Convolution without columns, forward and transposed. For an image it is one product for every row of places:
 *
 *     y[out, place] = sum over taps and channels of weight[out, tap, channel] x[channel, place + tap]
 *
 * and as its panels want places side by side, so does the tensor: nothing is turned over, on the way in or out. Tiles
 * of x are packed once for every tap in a row (a tap moves the places along), and lie so that the taps of the rows
 * below follow each other in memory: a whole window, or as many of its rows as are neighbours, is one run of steps. A
 * stride of s takes every s-th place: x is laid out in s phases, and a tap reads one of them. The transposed
 * convolution spreads its input out, with zeros between, and has the window turned around. Where rows are short, all of
 * a plane is one. */
#include "direct.h"

#include "../base/alloc.h"
#include "../base/pool.h"
#include "isa.h"
#include "iterate.h"

#include <stdatomic.h>
#include <string.h>

enum { FEW_CHANNELS = 16 };
enum { BLOCK = 9 };             /* steps along k for which two panels of weights stay in the first-level cache */
enum { LINE_BYTES = 16 << 10 }; /* of lines, which stay in the first-level cache until they are packed */

bool ac_direct_fits(const ac_windows *w, int64_t inner, int64_t outer, ac_dtype compute) {
    return inner >= FEW_CHANNELS && outer >= FEW_CHANNELS && compute != AC_float64 && ac_lines_fit(w);
}

/* A run of steps: weights from step `a` of a panel on, tiles of x from step `b` on. */
typedef struct {
    int64_t a, b, steps;
} piece;

typedef struct {
    const ac_tensor *from, *weight, *bias;
    ac_tensor *to;
    ac_dtype dtype;
    ac_line_kernel k;
    ac_geometry q;
    int64_t channels, outs, groups, images; /* channels and outs of a group */
    bool flat;                              /* all rows of a plane are one */
    int64_t places, panels;                 /* in a row, and panels of so many */
    int64_t shifts, c_steps;                /* taps in a row; steps over the channels of one */
    int64_t rows, bands;                    /* rows of places that are packed together, and how many times in a plane */
    int64_t rows_in;                        /* and of a phase, that they read; */
    int64_t line_rows, line;  /* of which so many are laid out at a time, with so many values of a channel */
    int64_t a_steps, b_steps; /* steps of a panel of weights, and of a panel of places */
    int64_t a_part, b_part;   /* bytes of one part of a group's weights, and of a band's places */
    piece *pieces;
    int64_t n_pieces, most_pieces;
    char *packed; /* weights: [groups][parts][panels of outs][a_steps] tiles */
    float *add;   /* bias, or NULL */
    _Atomic bool finite;
} direct;

/* -- plan ---------------------------------------------------------------------------------------------------- */

static int64_t phases_of(const direct *c) { return c->q.stride[1] * c->q.stride[2]; }

/* Rows whose last panel would be emptier than the places between windows of a flat plane. */
static bool wants_flat(const direct *c) {
    int64_t lanes = ac_panels_of(c->q.out[2]) * AC_LANES * c->q.out[1],
            plane = (c->q.out[1] - 1) * c->q.size[2] + c->q.out[2];
    return 4 * ac_panels_of(plane) * AC_LANES < 3 * lanes;
}

static void plan_tiles(direct *c) {
    c->flat = wants_flat(c);
    c->places = c->flat ? (c->q.out[1] - 1) * c->q.size[2] + c->q.out[2] : c->q.out[2];
    c->panels = ac_panels_of(c->places);
    c->shifts = c->flat ? c->q.kernel[1] * c->q.kernel[2] : c->q.kernel[2];
    c->c_steps = ac_ceil_div(c->channels, c->k.depth);
    c->a_steps = ac_product3(c->q.kernel) * c->c_steps;
    c->a_part = ac_panels_of(c->outs) * c->a_steps * AC_TILE_BYTES;
}

/* As many rows as half the second-level cache holds, but a band for every thread. */
static void plan_bands(direct *c) {
    int64_t reach = c->q.size[1] - c->q.out[1], row = c->panels * c->shifts * c->c_steps * AC_TILE_BYTES * c->k.parts;
    int64_t rows = ac_l2_bytes() / 2 / (row * c->q.kernel[0] * c->q.stride[1]) - reach, hands = ac_num_threads();
    int64_t planes = c->images * c->groups * c->q.out[0];
    if (planes < hands) rows = ac_least(rows, ac_ceil_div(c->q.out[1] * planes, hands));
    c->rows = c->flat ? 1 : rows < 1 ? 1 : ac_least(rows, c->q.out[1]);
    c->bands = c->flat ? 1 : ac_ceil_div(c->q.out[1], c->rows);
    c->rows_in = c->flat ? c->q.size[1] : c->rows + reach;
    c->b_steps = c->shifts * c->c_steps * c->q.kernel[0] * (c->flat ? 1 : c->q.stride[1] * c->rows_in);
    c->b_part = c->panels * c->b_steps * AC_TILE_BYTES;
    int64_t line = phases_of(c) * c->q.size[2], fit = LINE_BYTES / (line * c->k.depth * ac_itemsize(c->dtype)) + 1;
    c->line_rows = c->flat ? c->rows_in : ac_least(fit, c->rows_in);
    c->line = ac_ceil_div(line * c->line_rows + AC_LANES, AC_LANES) * AC_LANES;
}

/* Steps from a panel's beginning to where plane k0, phase and row lie. */
static int64_t row_steps(const direct *c, int64_t k0, int64_t phase, int64_t row) {
    if (c->flat) return k0 * c->shifts * c->c_steps;
    return ((k0 * c->q.stride[1] + phase) * c->rows_in + row) * c->shifts * c->c_steps;
}

/* The taps' rows in the order that they are packed in: by phase, then downwards. Row i is tap *k1 of its plane. */
static void row_tap(const direct *c, int64_t i, int64_t *k1, int64_t *phase, int64_t *row) {
    for (*phase = 0; *phase < c->q.stride[1]; ++*phase)
        for (*k1 = 0; *k1 < c->q.kernel[1]; ++*k1)
            if (*k1 * c->q.dilation[1] % c->q.stride[1] == *phase && i-- == 0) {
                *row = *k1 * c->q.dilation[1] / c->q.stride[1];
                return;
            }
}

static int64_t row_taps(const direct *c) { return c->flat ? 1 : c->q.kernel[1]; }

/* Rows of taps that follow each other in both operands make one run, which is cut where the cache is full. */
static int plan_pieces(direct *c) {
    int64_t each = c->shifts * c->c_steps, open = -1;
    c->most_pieces = c->q.kernel[0] * row_taps(c) * (each / BLOCK + 2);
    c->pieces = ac_alloc((size_t)c->most_pieces * sizeof *c->pieces);
    if (!c->pieces) return -1;
    for (int64_t k0 = 0, a = 0; k0 < c->q.kernel[0]; k0++)
        for (int64_t i = 0; i < row_taps(c); i++, a += each) {
            int64_t k1 = 0, phase = 0, row = 0, done = 0;
            if (!c->flat) row_tap(c, i, &k1, &phase, &row);
            int64_t b = row_steps(c, k0, phase, row);
            while (done < each) {
                piece *last = open < 0 ? NULL : &c->pieces[open];
                bool follows = last && last->b + last->steps == b + done && last->steps < BLOCK;
                if (!follows) last = &c->pieces[++open], *last = (piece){a + done, b + done, 0};
                int64_t steps = ac_least(each - done, BLOCK - last->steps);
                last->steps += steps, done += steps;
            }
        }
    c->n_pieces = open + 1;
    return 0;
}

/* -- weights --------------------------------------------------------------------------------------------------- */

/* Outs [o, o + lanes) of a group's weight as [lanes, taps, channels]; turned around for the transposed way. */
static void lay_out_weight(const direct *c, int64_t group, int64_t o, int64_t lanes, char *to) {
    int64_t taps = ac_product3(c->q.kernel), step[3], at = 0;
    step[2] = c->channels, step[1] = step[2] * c->q.kernel[2], step[0] = step[1] * c->q.kernel[1];
    for (int d = 0; c->q.turned && d < 3; d++) at += (c->q.kernel[d] - 1) * step[d], step[d] = -step[d];
    int outs = c->q.turned ? 1 : 0, channels = 1 - outs;
    ac_tensor from = *c->weight;
    from.shape[outs] = lanes, from.shape[channels] = c->channels, from.numel = lanes * taps * c->channels;
    from.offset += o * from.strides[outs] + group * c->weight->shape[0] / c->groups * from.strides[0];
    ac_storage s = {.data = to};
    ac_tensor x = from;
    x.storage = &s, x.offset = at, x.dtype = c->dtype;
    x.strides[outs] = taps * c->channels, x.strides[channels] = 1;
    for (int d = 2; d < x.ndim; d++) x.strides[d] = step[3 - x.ndim + d];
    ac_cpu_copy_into(&x, &from);
}

/* One panel of outs, from [lanes, taps, channels]. */
static void pack_weight(direct *c, const char *dense, int64_t lanes, char *to) {
    int64_t taps = ac_product3(c->q.kernel), item = ac_itemsize(c->dtype), k1 = 0, phase, row;
    for (int64_t k0 = 0; k0 < c->q.kernel[0]; k0++)
        for (int64_t i = 0; i < row_taps(c); i++)
            for (int64_t s = 0; s < c->shifts; s++, to += c->c_steps * AC_TILE_BYTES) {
                if (!c->flat) row_tap(c, i, &k1, &phase, &row);
                int64_t tap = (k0 * c->q.kernel[1] + k1) * c->q.kernel[2] + s;
                ac_operand a = {.data = dense + tap * c->channels * item,
                                .dtype = c->dtype,
                                .lanes = lanes,
                                .k = c->channels,
                                .lane_stride = taps * c->channels,
                                .k_stride = 1,
                                .round = c->dtype};
                if (!ac_pack_lines(&c->k, &a, false, c->c_steps, c->a_part, to)) atomic_store(&c->finite, false);
            }
}

static void some_weights(void *context, int64_t begin, int64_t end, char *scratch) {
    direct *c = context;
    int64_t panels = ac_panels_of(c->outs);
    for (int64_t i = begin; i < end; i++) {
        int64_t group = i / panels, panel = i % panels, lanes = ac_least(AC_LANES, c->outs - panel * AC_LANES);
        lay_out_weight(c, group, panel * AC_LANES, lanes, scratch);
        pack_weight(c, scratch, lanes, c->packed + group * c->a_part * c->k.parts + panel * c->a_steps * AC_TILE_BYTES);
    }
}

static int pack_weights(direct *c) {
    int64_t values = AC_LANES * ac_product3(c->q.kernel) * c->channels, grain = AC_GRAIN / 4 / values;
    return ac_for_range_with(c->groups * ac_panels_of(c->outs), grain > 1 ? grain : 1,
                             (size_t)(values * ac_itemsize(c->dtype)), some_weights, c);
}

/* -- places ---------------------------------------------------------------------------------------------------- */

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

/* Channels [channel, channel + lanes) of the plane that tap k0 reads, rows from `row` on:
 * [lanes][phases][line_rows][size 2]. */
static void lay_out(const direct *c, const band *b, int64_t k0, int64_t channel, int64_t lanes, int64_t row,
                    char *lines) {
    int64_t item = ac_itemsize(c->dtype), plane = b->o0 * c->q.stride[0] + k0 * c->q.dilation[0];
    ac_tensor part = ac_part_of(c->from, b->image, b->group * c->channels + channel, lanes);
    memset(lines, 0, (size_t)(c->line * lanes * item));
    for (int64_t p = 0; p < phases_of(c); p++) {
        int64_t p1 = p / c->q.stride[2], p2 = p % c->q.stride[2];
        ac_span s[3] = {
            ac_span_of(plane, 1, c->q.before[0], c->q.spread[0], 1, c->q.in[0]),
            ac_span_of(b->row + row, c->line_rows, c->q.before[1] - p1, c->q.spread[1], c->q.stride[1], c->q.in[1]),
            ac_span_of(0, c->q.size[2], c->q.before[2] - p2, c->q.spread[2], c->q.stride[2], c->q.in[2])};
        ac_fill_lines(&part, s, c->dtype, c->line, c->q.size[2], lines + p * c->line_rows * c->q.size[2] * item);
    }
}

/* The tiles of one row of positions: those from `line` on, for every tap of a row, one step over channels. */
static void pack_row(direct *c, const char *line, int64_t lanes, int64_t phase, char *to) {
    for (int64_t s = 0; s < c->shifts; s++, to += c->c_steps * AC_TILE_BYTES) {
        int64_t down = c->flat ? s / c->q.kernel[2] * c->q.dilation[1] : 0,
                along = s % c->q.kernel[2] * c->q.dilation[2];
        int64_t p1 = c->flat ? down % c->q.stride[1] : phase, p = p1 * c->q.stride[2] + along % c->q.stride[2];
        int64_t at = (p * c->line_rows + down / c->q.stride[1]) * c->q.size[2] + along / c->q.stride[2];
        for (int64_t j = 0; j < c->panels; j++) {
            ac_operand b = {.data = line + (at + j * AC_LANES) * ac_itemsize(c->dtype),
                            .dtype = c->dtype,
                            .lanes = AC_LANES,
                            .k = lanes,
                            .lane_stride = 1,
                            .k_stride = c->line,
                            .round = c->dtype};
            if (!ac_pack_lines(&c->k, &b, true, 1, c->b_part, to + j * c->b_steps * AC_TILE_BYTES))
                atomic_store(&c->finite, false);
        }
    }
}

/* One step over channels of the plane that tap k0 reads. */
static void pack_step(direct *c, const band *b, int64_t k0, int64_t step, char *lines, char *to) {
    int64_t channel = step * c->k.depth, lanes = ac_least(c->k.depth, c->channels - channel);
    int64_t rows = c->flat ? 1 : b->rows + c->rows_in - c->rows, row_bytes = c->q.size[2] * ac_itemsize(c->dtype);
    for (int64_t first = 0; first < rows; first += c->line_rows) {
        lay_out(c, b, k0, channel, lanes, first, lines);
        for (int64_t p1 = 0; p1 < (c->flat ? 1 : c->q.stride[1]); p1++)
            for (int64_t row = 0; row < c->line_rows && first + row < rows; row++)
                pack_row(c, lines + row * row_bytes, lanes, p1,
                         to + (row_steps(c, k0, p1, first + row) + step) * AC_TILE_BYTES);
    }
}

static void pack_places(direct *c, const band *b, char *lines, char *to) {
    for (int64_t k0 = 0; k0 < c->q.kernel[0]; k0++)
        for (int64_t step = 0; step < c->c_steps; step++) pack_step(c, b, k0, step, lines, to);
}

/* -- products ---------------------------------------------------------------------------------------------------- */

/* Up to micro->a panels of outs by up to micro->b of places; those of places are in one row, or, where a row has but
 * one, in rows that follow each other. */
typedef struct {
    int64_t o, na, row, panel, nb;
} block;

static char *result_at(const direct *c, const band *b, int64_t o, int64_t row, int64_t place) {
    int64_t lane = (b->image * c->groups + b->group) * c->outs + o;
    return (char *)ac_data(c->to) +
           (((lane * c->q.out[0] + b->o0) * c->q.out[1] + b->row + row) * c->q.out[2] + place) *
               ac_itemsize(c->to->dtype);
}

/* n places of up to 16 outs. */
static void store(const direct *c, const band *b, int64_t o, int64_t row, int64_t place, int64_t n,
                  const float *tiles) {
    ac_finish f = {.alpha = 1, .row_bias = c->add ? c->add + b->group * c->outs + o : NULL};
    int which = c->to->dtype == AC_float32 ? 0 : c->to->dtype == AC_float16 ? 1 : 2;
    int64_t outs = ac_least(AC_LANES, c->outs - o), whole = n / AC_LANES * AC_LANES, step = ac_product3(c->q.out);
    if (outs <= 0) return;
    if (whole) ac_cpu_loops()->finish[which](outs, whole, tiles, &f, result_at(c, b, o, row, place), step);
    tiles += whole / AC_LANES * AC_TILE_FLOATS;
    if (n > whole)
        ac_cpu_loops()->finish[which](outs, n - whole, tiles, &f, result_at(c, b, o, row, place + whole), step);
}

/* Places of a flat plane: what lies between rows is left out. */
static void store_flat(const direct *c, const band *b, int64_t o, int64_t panel, const float *tile) {
    int64_t outs = ac_least(AC_LANES, c->outs - o), first = panel * AC_LANES;
    for (int64_t i = 0; i < outs; i++)
        for (int64_t l = 0, n; l < AC_LANES; l += n) {
            float line[AC_LANES], bias = c->add ? c->add[b->group * c->outs + o + i] : 0;
            int64_t row = (first + l) / c->q.size[2], place = (first + l) % c->q.size[2];
            n = ac_least(AC_LANES - l, c->q.size[2] - place);
            int64_t real = ac_least(n, c->q.out[2] - place);
            for (int64_t j = 0; j < real; j++) line[j] = tile[i * AC_LANES + l + j] + bias;
            if (row < c->q.out[1] && real > 0)
                ac_cpu_loops()->store[AC_LANE_F32][c->to->dtype](real, line, result_at(c, b, o + i, row, place), 1);
        }
}

static void store_block(const direct *c, const band *b, const block *k, const float *tiles, int64_t step) {
    for (int64_t i = 0; i < k->na; i++, tiles += step) {
        int64_t o = (k->o + i) * AC_LANES;
        if (c->flat)
            for (int64_t j = 0; j < k->nb; j++) store_flat(c, b, o, k->panel + j, tiles + j * AC_TILE_FLOATS);
        else if (c->panels == 1)
            for (int64_t j = 0; j < k->nb; j++) store(c, b, o, k->row + j, 0, c->places, tiles + j * AC_TILE_FLOATS);
        else {
            int64_t place = k->panel * AC_LANES;
            store(c, b, o, k->row, place, ac_least(k->nb * AC_LANES, c->places - place), tiles);
        }
    }
}

typedef struct {
    direct *c;
    band b;
    const char *weights, *places;
    float *tiles;
    ac_ahead next, results; /* what is packed and what is written next */
} work;

static void add_piece(work *w, const block *k, const piece *p, bool add, float *tiles, int64_t step) {
    const direct *c = w->c;
    int64_t row = c->flat ? 0 : k->row * c->shifts * c->c_steps;
    ac_micro_job job = {.steps = p->steps,
                        .a_next = c->a_steps * AC_TILE_BYTES,
                        .b_next = (c->panels == 1 ? c->shifts * c->c_steps : c->b_steps) * AC_TILE_BYTES,
                        .a_step = AC_TILE_BYTES,
                        .a_lane = AC_CELLS * 4,
                        .na = (int)k->na,
                        .nb = (int)k->nb,
                        .c = tiles,
                        .c_a = step,
                        .c_b = AC_TILE_FLOATS,
                        .add = add};
    const char *a = w->weights + (k->o * c->a_steps + p->a) * AC_TILE_BYTES;
    const char *b = w->places + (k->panel * c->b_steps + row + p->b) * AC_TILE_BYTES;
    for (int64_t i = 0; i < c->k.parts; i++)
        for (int64_t j = 0; j < c->k.parts; j++, job.add = true) {
            job.a = a + i * c->a_part, job.b = b + j * c->b_part;
            job.soon_a = ac_ahead_take(&w->next, p->steps * AC_FETCH_A, job.a);
            job.soon_b = ac_ahead_take(&w->results, p->steps * AC_FETCH_B, job.b);
            c->k.micro->run(&job);
        }
}

/* Every block of places, by one piece of k: so long, its two panels of weights stay where they are fast. */
static void multiply_piece(work *w, block *k, int64_t q) {
    const direct *c = w->c;
    int64_t rows = w->b.rows, step = rows * c->panels * AC_TILE_FLOATS, most = c->k.micro->b;
    float *tiles = w->tiles;
    for (k->row = 0; k->row < rows; k->row += c->panels == 1 ? k->nb : 1)
        for (k->panel = 0; k->panel < c->panels; k->panel += k->nb, tiles += k->nb * AC_TILE_FLOATS) {
            k->nb = ac_least(most, c->panels == 1 ? rows - k->row : c->panels - k->panel);
            add_piece(w, k, &c->pieces[q], q > 0, tiles, step);
            if (q + 1 == c->n_pieces) store_block(c, &w->b, k, tiles, step);
        }
}

/* The results of so many outs, which are one run of memory where a band is a whole image. */
static ac_ahead results_of(const direct *c, const band *b, int64_t o, int64_t outs) {
    bool run = c->bands == 1 && c->q.out[0] == 1 && o < c->outs;
    const char *at = result_at(c, b, o, 0, 0);
    return (ac_ahead){at, run ? result_at(c, b, ac_least(o + outs, c->outs), 0, 0) : at};
}

static void multiply(work *w) {
    const direct *c = w->c;
    int64_t panels = ac_panels_of(c->outs), most = c->k.micro->a;
    for (block k = {0}; k.o < panels; k.o += k.na) {
        k.na = ac_least(most, panels - k.o);
        w->results = results_of(c, &w->b, k.o * AC_LANES, k.na * AC_LANES);
        for (int64_t q = 0; q < c->n_pieces; q++) multiply_piece(w, &k, q);
    }
}

/* -- running it -------------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t lines, places, tiles; /* bytes */
} rooms;

static rooms rooms_of(const direct *c) {
    int64_t tiles = c->k.micro->a * c->rows * c->panels;
    return (rooms){c->line * c->k.depth * ac_itemsize(c->dtype), c->b_part * c->k.parts, tiles * AC_TILE_BYTES};
}

/* What the band after i is packed from, where that is one run of memory. */
static ac_ahead next_of(const direct *c, int64_t i) {
    band next = band_at(c, i + 1);
    if (c->bands > 1 || c->q.out[0] > 1 || next.image >= c->images) return (ac_ahead){NULL, NULL};
    return ac_ahead_of(c->from, next.image, 1, next.group * c->channels, c->channels);
}

static void some_bands(void *context, int64_t begin, int64_t end, char *scratch) {
    direct *c = context;
    rooms r = rooms_of(c);
    char *places = scratch + r.tiles, *lines = places + r.places;
    for (int64_t i = begin; i < end && !ac_poll(); i++) {
        work w = {.c = c, .b = band_at(c, i), .places = places, .tiles = (float *)(void *)scratch};
        w.weights = c->packed + w.b.group * c->a_part * c->k.parts;
        pack_places(c, &w.b, lines, places);
        w.next = next_of(c, i);
        if (c->k.micro->begin) c->k.micro->begin();
        multiply(&w);
        if (c->k.micro->end) c->k.micro->end();
    }
}

static int run_direct(direct *c, bool finite) {
    c->k = ac_line_kernel_for(c->dtype, finite);
    atomic_store(&c->finite, true);
    plan_tiles(c);
    plan_bands(c);
    AC_TRY(plan_pieces(c));
    size_t packed = (size_t)(c->groups * c->a_part * c->k.parts), bias = (size_t)(c->outs * c->groups) * sizeof *c->add;
    c->packed = ac_alloc(packed);
    c->add = c->packed && c->bias ? ac_alloc(bias) : NULL;
    int failed = !c->packed || (c->bias && !c->add) ? -1 : pack_weights(c);
    if (!failed && c->add)
        ac_cpu_loops()->load[c->bias->dtype][AC_LANE_F32](c->bias->numel, ac_data(c->bias), c->bias->strides[0],
                                                          c->add);
    if (!failed) {
        rooms r = rooms_of(c);
        int64_t bands = c->images * c->groups * c->q.out[0] * c->bands;
        failed = ac_for_range_with(bands, 1, (size_t)(r.tiles + r.places + r.lines), some_bands, c);
    }
    if (c->add) ac_free(c->add, bias);
    if (c->packed) ac_free(c->packed, packed);
    ac_free(c->pieces, (size_t)c->most_pieces * sizeof *c->pieces);
    return failed;
}

int ac_direct_convolution(const ac_run *r, const ac_windows *w) {
    const ac_attrs_convolution *a = r->attrs;
    const ac_tensor *weight = r->in[1];
    direct c = {.from = r->in[0], .weight = weight, .bias = r->in[2], .to = r->out[0], .groups = a->groups};
    c.q = ac_geometry_of(w, a->transposed != 0), c.images = c.from->shape[0], c.dtype = r->compute;
    int64_t first = weight->shape[0] / a->groups;
    c.outs = c.q.turned ? weight->shape[1] : first, c.channels = c.q.turned ? first : weight->shape[1];
    if (c.to->numel == 0) return 0;
    AC_TRY(run_direct(&c, true));
    return atomic_load(&c.finite) ? 0 : run_direct(&c, false); /* what cannot be split */
}
