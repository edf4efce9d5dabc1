/* The gradient of a convolution's weight as an implicit matrix product, without im2col columns. For every tap of the
 * window it is one product over all output positions p of all images:
 *
 *     dW[out, channel, tap] = sum over p of g[out, p] x[channel, p + tap]
 *
 * Both operands are packed as rows of positions. x is packed with its padding, image after image; the padding before a
 * row is that after the row before it, too, and so it is with planes and images. g has the same distances, with zeros
 * where no window lies. A tap is then an address offset in the panels of x. A panel's tile has
 * one row of memory for each four-byte cell along k, so it can be read from any cell on. Where a cell holds two
 * 16-bit positions, x is packed a second time, shifted by one position, for the odd taps. With a stride of s, x is
 * packed in s phases, and the positions that a tap needs are neighbours within a phase. g is read in place where its
 * values are what the micro-kernel multiplies, and packed elsewhere. */
#include "cpu/conv/conv_implicit.h"

#include "base/alloc.h"
#include "shared/tensor_iter.h"

#include <stdatomic.h>
#include <string.h>

enum { CHUNKS = 8 };      /* of images: each has sums of its own, joined in order, so threads change nothing */
enum { SPAN = 1 << 14 };  /* positions or a few more, whose blocks are summed one after the other */
enum { ROUND = 1 << 20 }; /* bytes that are packed at a time: each panel is read again for every tap */
enum { BLOCK = 8 };       /* k steps for which two panels of each operand stay in the first-level cache */

/* Panels of x, each for a tap, that the micro-kernel takes at a time: `next` bytes from each other. */
typedef struct {
    int64_t first, at, next, n;
} run;

typedef struct {
    const ac_windows *w;
    const ac_tensor *x, *g;
    ac_dtype dtype;
    ac_conv_kernel k;
    int64_t shifts;                        /* packings of x */
    int64_t group, channels, outs, images; /* channels and outs of a group */
    int64_t x_panels, g_panels;
    int64_t chunks, chunk;          /* and images in one */
    int64_t size[3], plane, phases; /* positions of one phase of an image, and how many phases */
    int64_t together, rows;         /* images packed together, and rows of positions */
    int64_t span_images, span_rows; /* of a span, and of an image that is larger than one */
    int64_t g_k_steps, x_k_steps;
    int64_t g_stride;        /* values from a channel of g to the next, where it is not packed, else 0 */
    run *runs;               /* over the panels of all taps, */
    int64_t n_runs, columns; /* which are so many */
    float *sums;             /* [chunks] tiles [g_panels][columns]; those of the span at hand, then of spans before */
    _Atomic bool finite;
} weight_walk;

static int64_t k_steps_for(const weight_walk *w, int64_t positions) { return ac_ceil_div(positions, w->k.depth); }
static int64_t taps_of(const weight_walk *w) { return ac_product3(w->w->kernel); }
static int64_t sums_of(const weight_walk *w) { return w->g_panels * w->columns * AC_TILE_FLOATS; }

/* Where a chunk has several spans. Their sums follow those of the span at hand. */
static bool has_spans(const weight_walk *w) {
    return w->chunk > w->span_images || w->size[0] * w->size[1] > w->span_rows;
}
static int64_t chunk_sums(const weight_walk *w) { return (has_spans(w) ? 2 : 1) * sums_of(w); }

static int64_t tap_at(const weight_walk *w, int64_t tap, int64_t *phase) {
    return ac_tap_at(w->w->kernel, w->w->stride, w->w->dilation, w->size, tap, phase);
}

/* -- plan -------------------------------------------------------------------------------------------------- */

static void choose_kernel(weight_walk *w, bool finite) {
    w->k = ac_conv_kernel_for(w->dtype, finite);
    w->g_stride = 0;
    w->shifts = w->k.kind == AC_PANEL_F32 ? 1 : 2;
    atomic_store(&w->finite, true);
}

/* How much is packed at a time. It is the same on every CPU, and so are the blocks that are summed up. */
static void plan_rounds(weight_walk *w) {
    int64_t cell = w->k.parts * AC_TILE_BYTES, phase;
    int64_t position = (w->phases * w->shifts * w->x_panels + w->g_panels) * cell / w->k.depth;
    int64_t all_rows = w->size[0] * w->size[1], reach = tap_at(w, taps_of(w) - 1, &phase);
    w->together = ac_least(ROUND / (position * w->plane + 1), w->chunk);
    w->rows = w->together ? all_rows * w->together : ac_least(all_rows, ROUND / (position * w->size[2]) + 1);
    if (w->together < 1) w->together = 1;
    w->g_k_steps = k_steps_for(w, w->rows * w->size[2]),
    w->x_k_steps = k_steps_for(w, w->g_k_steps * w->k.depth + reach + 1);
    /* an odd number of cache lines, so that lanes do not meet in one set of the cache */
    if (ac_values_are_cells(&w->k, w->dtype)) w->g_stride = (w->g_k_steps + 1 - w->g_k_steps % 2) * w->k.depth;
}

/* Bytes from packed x to the panel that column `column` reads: a panel of channels for a tap. Columns go down the
 * window first, where the next tap is as far as the one before. */
static int64_t column_at(const weight_walk *w, int64_t column, int64_t *tap, int64_t *panel) {
    const int64_t *kernel = w->w->kernel, i = column % taps_of(w), down = i / kernel[1] % kernel[2];
    *panel = column / taps_of(w), *tap = (i / kernel[1] / kernel[2] * kernel[1] + i % kernel[1]) * kernel[2] + down;
    int64_t phase, at = tap_at(w, *tap, &phase);
    int64_t first = (phase * w->shifts + at % w->shifts) * w->x_panels + *panel;
    return first * w->x_k_steps * AC_TILE_BYTES + at / w->shifts * AC_LANES * 4;
}

static int plan_runs(weight_walk *w) {
    int64_t tap, panel;
    w->runs = ac_alloc((size_t)w->columns * sizeof *w->runs);
    if (!w->runs) return -1;
    w->n_runs = 0;
    for (int64_t i = 0; i < w->columns; i++) {
        run *r = w->n_runs ? &w->runs[w->n_runs - 1] : NULL;
        int64_t at = column_at(w, i, &tap, &panel);
        if (r && r->n == 1 && w->k.micro->b > 1) r->next = at - r->at, r->n = 2;
        else if (r && r->n > 1 && r->n < w->k.micro->b && at == r->at + r->n * r->next) r->n++;
        else w->runs[w->n_runs++] = (run){i, at, 0, 1};
    }
    return 0;
}

/* The ways that a plan takes, as base/ways.def names them. */
static void note_ways(const weight_walk *w) {
    if (w->together > 1) AC_WAY(direct_weight_together);
    else if (w->rows < w->size[0] * w->size[1]) AC_WAY(direct_weight_bands);
    else AC_WAY(direct_weight_alone);
    if (w->chunks > 1) AC_WAY(direct_weight_chunks);
    if (w->g_stride) AC_WAY(direct_weight_g_in_place);
    else AC_WAY(direct_weight_g_packed);
    if (w->shifts > 1) AC_WAY(direct_weight_two_shifts);
    else AC_WAY(direct_weight_one_shift);
    if (w->n_runs < w->columns) AC_WAY(direct_weight_runs);
    else AC_WAY(direct_weight_one_by_one);
    if (w->phases > 1) AC_WAY(direct_weight_phases);
    if (has_spans(w)) AC_WAY(direct_weight_spans);
}

static int open_walk(weight_walk *w) {
    w->phases = 1;
    for (int d = 0; d < 3; d++) {
        w->size[d] = ac_ceil_div(w->w->in[d] + w->w->padding[d], w->w->stride[d]); /* at least as many as out[d] */
        w->phases *= w->w->stride[d];
    }
    w->plane = ac_product3(w->size);
    w->x_panels = ac_panels_of(w->channels), w->g_panels = ac_panels_of(w->outs);
    w->chunk = w->images ? ac_ceil_div(w->images, CHUNKS) : 1;
    w->chunks = w->images ? ac_ceil_div(w->images, w->chunk) : 1;
    w->columns = taps_of(w) * w->x_panels;
    w->span_images = ac_ceil_div(SPAN, w->plane + 1), w->span_rows = ac_ceil_div(SPAN, w->size[2] + 1);
    plan_rounds(w);
    AC_TRY(plan_runs(w));
    note_ways(w);
    return 0;
}

/* Rows of x that its k steps reach into, shifted by one position too. Channels hold whole rows, as laid out. */
static int64_t x_rows(const weight_walk *w) { return ac_ceil_div(w->x_k_steps * w->k.depth + 1, w->size[2]); }

typedef struct {
    int64_t padded, x_part, x, g_part, all; /* bytes: a panel's channels, packed x and g, one part and all */
} rooms;

static rooms rooms_of(const weight_walk *w) {
    int64_t values = ac_most(x_rows(w) * w->size[2], w->g_k_steps * w->k.depth);
    rooms r = {.padded = values * AC_LANES * ac_itemsize(w->dtype)};
    r.padded = (r.padded + AC_ALIGNMENT - 1) / AC_ALIGNMENT * AC_ALIGNMENT;
    r.x_part = w->phases * w->shifts * w->x_panels * w->x_k_steps * AC_TILE_BYTES;
    r.g_part = w->g_panels * w->g_k_steps * AC_TILE_BYTES;
    if (w->g_stride) r.g_part = w->g_panels * AC_LANES * w->g_stride * ac_itemsize(w->dtype);
    r.x = r.x_part * w->k.parts, r.all = r.padded + r.x + r.g_part * w->k.parts;
    return r;
}

/* -- packing ----------------------------------------------------------------------------------------------- */

/* Rows of positions as they are packed: of images from `image` on, from row `row` of the first. */
typedef struct {
    int64_t image, images, row, rows;
} band;

/* How pixels of an operand lie in its tensor: position i holds pixel i every - before. */
typedef struct {
    int64_t every[3], before[3], size[3];
} lens;

/* Lanes [lane, lane + lanes) of a band of t, to channels `channel_stride` values apart; what no pixel of t falls on is
 * zero. */
static void lay_out(const weight_walk *w, const ac_tensor *t, const lens *l, const band *b, int64_t lane, int64_t lanes,
                    int64_t channel_stride, char *to) {
    int64_t item = ac_itemsize(w->dtype), all = w->size[0] * w->size[1], width = w->size[2];
    memset(to, 0, (size_t)(channel_stride * lanes * item));
    for (int64_t at = b->row - b->row % w->size[1]; at < b->row + b->rows && at < all * b->images; at += w->size[1]) {
        int64_t begin[3] = {at % all / w->size[1], b->row > at ? b->row - at : 0, 0}, count[3] = {1, 0, width};
        ac_span s[3];
        count[1] = ac_least(b->row + b->rows - at, w->size[1]) - begin[1];
        for (int d = 0; d < 3; d++) s[d] = ac_span_of(begin[d], count[d], l->before[d], 1, l->every[d], l->size[d]);
        ac_tensor part = ac_part_of(t, b->image + at / all, lane, lanes);
        ac_copy_padded(&part, s, w->dtype, channel_stride, width, to + (at + begin[1] - b->row) * width * item);
    }
}

static ac_operand padded_operand(const weight_walk *w, const char *data, int64_t lanes, int64_t channel_stride,
                                 int64_t k_steps) {
    return (ac_operand){.data = data,
                        .dtype = w->dtype,
                        .lanes = lanes,
                        .k = k_steps * w->k.depth,
                        .lane_stride = channel_stride,
                        .k_stride = 1,
                        .round = w->dtype};
}

static void pack_g(weight_walk *w, const band *b, const rooms *r, char *padded, char *to) {
    lens l = {{1, 1, 1}, {0, 0, 0}, {w->w->out[0], w->w->out[1], w->w->out[2]}};
    int64_t values = w->g_k_steps * w->k.depth;
    if (w->g_stride) {
        int64_t none = w->g_panels * AC_LANES - w->outs, each = w->g_stride * ac_itemsize(w->dtype);
        lay_out(w, w->g, &l, b, w->group * w->outs, w->outs, w->g_stride, to);
        memset(to + w->outs * each, 0, (size_t)(none * each));
        return;
    }
    for (int64_t o = 0; o < w->outs; o += AC_LANES, to += w->g_k_steps * AC_TILE_BYTES) {
        int64_t lanes = ac_least(AC_LANES, w->outs - o);
        lay_out(w, w->g, &l, b, w->group * w->outs + o, lanes, values, padded);
        ac_operand operand = padded_operand(w, padded, lanes, values, w->g_k_steps);
        if (!ac_pack_channels(&w->k, &operand, false, w->g_k_steps, r->g_part, to)) atomic_store(&w->finite, false);
    }
}

static void pack_x(weight_walk *w, const band *b, const rooms *r, char *padded, char *to) {
    const ac_windows *win = w->w;
    band with_reach = *b;
    with_reach.rows = x_rows(w);
    int64_t values = with_reach.rows * w->size[2], shift = w->x_panels * w->x_k_steps * AC_TILE_BYTES;
    for (int64_t p = 0; p < w->phases; p++, to += w->shifts * shift) {
        int64_t phase[3] = {p / win->stride[2] / win->stride[1], p / win->stride[2] % win->stride[1],
                            p % win->stride[2]};
        lens l;
        for (int d = 0; d < 3; d++)
            l.every[d] = win->stride[d], l.before[d] = win->padding[d] - phase[d], l.size[d] = ac_values_read(win, d);
        for (int64_t c = 0; c < w->channels; c += AC_LANES)
            for (int64_t i = 0; i < w->shifts; i++) {
                int64_t lanes = ac_least(AC_LANES, w->channels - c);
                if (i == 0) lay_out(w, w->x, &l, &with_reach, w->group * w->channels + c, lanes, values, padded);
                ac_operand operand = padded_operand(w, padded + i * ac_itemsize(w->dtype), lanes, values, w->x_k_steps);
                char *panel = to + i * shift + c / AC_LANES * w->x_k_steps * AC_TILE_BYTES;
                if (!ac_pack_channels(&w->k, &operand, true, w->x_k_steps, r->x_part, panel))
                    atomic_store(&w->finite, false);
            }
    }
}

/* -- products ---------------------------------------------------------------------------------------------- */

/* One k block, for up to micro->a panels of g from panel i on: every tap of every channel. */
static void add_panels(const weight_walk *w, ac_micro_job *job, const char *x, int64_t i, ac_ahead next[2],
                       float *sums) {
    job->na = (int)ac_least(w->k.micro->a, w->g_panels - i);
    for (const run *r = w->runs; r < w->runs + w->n_runs; r++) {
        job->nb = (int)r->n, job->b_next = r->next;
        job->b = x + r->at, job->c = sums + (i * w->columns + r->first) * AC_TILE_FLOATS;
        job->soon_a = ac_ahead_take(&next[0], job->k_steps * AC_FETCH_A, job->a);
        job->soon_b = ac_ahead_take(&next[1], job->k_steps * AC_FETCH_B, job->b);
        w->k.micro->run(job);
    }
}

/* sums[tap] += g[positions] x[positions + tap], for every tap */
static void add_taps(const weight_walk *w, const char *g, const char *x, int64_t k_steps, ac_ahead next[2],
                     float *sums) {
    ac_micro_job job = {.a_next = w->g_k_steps * AC_TILE_BYTES,
                        .a_k_stride = AC_TILE_BYTES,
                        .a_lane_stride = AC_CELLS * 4,
                        .a_cell_stride = 4,
                        .b_cell_stride = AC_LANES * 4,
                        .c_a = w->columns * AC_TILE_FLOATS,
                        .c_b = AC_TILE_FLOATS,
                        .add = true};
    if (w->g_stride) {
        job.a_lane_stride = w->g_stride * ac_itemsize(w->dtype);
        job.a_next = AC_LANES * job.a_lane_stride, job.a_k_stride = AC_CELLS * 4;
    }
    for (int64_t k = 0; k < k_steps; k += BLOCK)
        for (int64_t i = 0; i < w->g_panels; i += w->k.micro->a) {
            job.k_steps = ac_least(BLOCK, k_steps - k), job.a = g + i * job.a_next + k * job.a_k_stride;
            add_panels(w, &job, x + k * AC_TILE_BYTES, i, next, sums);
        }
}

/* The end of a span: its sums are added to those before it, which follow them, and begin again. */
static void end_span(const weight_walk *w, float *sums) {
    float *spans = sums + sums_of(w);
    for (int64_t i = 0; i < sums_of(w); i++) spans[i] += sums[i], sums[i] = 0;
}

static void add_images(weight_walk *w, int64_t n, int64_t images, char *scratch, float *sums) {
    rooms r = rooms_of(w);
    char *x = scratch + r.padded, *g = x + r.x;
    int64_t all = w->size[0] * w->size[1] * images, rows;
    for (int64_t row = 0; row < all; row += rows) {
        rows = ac_least(w->rows, all - row);
        if (images == 1) rows = ac_least(rows, w->span_rows - row % w->span_rows);
        band b = {n, images, row, rows};
        pack_g(w, &b, &r, scratch, g);
        pack_x(w, &b, &r, scratch, x);
        int64_t k_steps = k_steps_for(w, b.rows * w->size[2]), later = ac_least(n + images, w->images - images);
        ac_ahead next[2] = {ac_ahead_of(w->g, later, images, w->group * w->outs, w->outs),
                            ac_ahead_of(w->x, later, images, w->group * w->channels, w->channels)};
        if (w->k.micro->begin) w->k.micro->begin();
        for (int64_t p = 0; p < w->k.parts * w->k.parts; p++)
            add_taps(w, g + p / w->k.parts * r.g_part, x + p % w->k.parts * r.x_part, k_steps, next, sums);
        if (w->k.micro->end) w->k.micro->end();
        if (images == 1 && row + rows < all && (row + rows) % w->span_rows == 0) end_span(w, sums);
    }
}

static void some_chunks(void *context, int64_t begin, int64_t end, char *scratch) {
    weight_walk *w = context;
    for (int64_t i = begin; i < end && !ac_poll(); i++) {
        float *sums = w->sums + i * chunk_sums(w);
        int64_t first = i * w->chunk, last = ac_least(first + w->chunk, w->images), images;
        memset(sums, 0, (size_t)chunk_sums(w) * sizeof *sums);
        for (int64_t n = first; n < last; n += images) {
            images = ac_least(ac_least(w->together, last - n), w->span_images - (n - first) % w->span_images);
            add_images(w, n, images, scratch, sums);
            if (has_spans(w) && (n + images - first) % w->span_images == 0) end_span(w, sums);
        }
        if (has_spans(w)) end_span(w, sums);
    }
}

/* The chunks' sums, added up, to the group's [outs, channels, taps]. */
static void store_weight(const weight_walk *w, ac_tensor *out) {
    int64_t each = chunk_sums(w), taps = taps_of(w), tap, panel;
    float *total = w->sums + each - sums_of(w), *dense = w->sums + w->chunks * each;
    for (int64_t i = 1; i < w->chunks; i++)
        for (int64_t j = 0; j < sums_of(w); j++) total[j] += total[i * each + j];
    for (int64_t column = 0; column < w->columns; column++) {
        column_at(w, column, &tap, &panel);
        int64_t first = panel * AC_LANES, lanes = ac_least(AC_LANES, w->channels - first);
        for (int64_t o = 0; o < w->outs; o++) {
            int64_t tile = o / AC_LANES * w->columns + column;
            const float *from = total + tile * AC_TILE_FLOATS + o % AC_LANES * AC_LANES;
            for (int64_t c = 0; c < lanes; c++) dense[(o * w->channels + first + c) * taps + tap] = from[c];
        }
    }
    ac_storage memory;
    ac_tensor to = *out;
    to.offset += w->group * w->outs * to.strides[0], to.shape[0] = w->outs;
    to.numel = w->outs * w->channels * taps;
    ac_dims shape = ac_shape_of(&to);
    ac_tensor from = ac_tensor_over(&memory, dense, AC_float32, &shape);
    ac_cpu_copy_into(&to, &from);
}

static int run_groups(weight_walk *w, int64_t groups, bool finite, ac_tensor *out) {
    choose_kernel(w, finite);
    AC_TRY(open_walk(w));
    size_t bytes = (size_t)(w->chunks * chunk_sums(w) + sums_of(w)) * sizeof *w->sums;
    w->sums = ac_alloc(bytes);
    int failed = w->sums ? 0 : -1;
    for (w->group = 0; w->group < groups && !failed; w->group++) {
        failed = ac_for_range_with(w->chunks, 1, (size_t)rooms_of(w).all, some_chunks, w);
        if (!failed) store_weight(w, out);
    }
    if (w->sums) ac_free(w->sums, bytes);
    ac_free(w->runs, (size_t)w->columns * sizeof *w->runs);
    return failed;
}

int ac_direct_convolution_weight(const ac_run *r, const ac_windows *windows) {
    const ac_attrs_convolution_weight *a = r->attrs;
    weight_walk w = {.w = windows, .x = r->in[0], .g = r->in[1], .dtype = r->compute};
    w.images = w.x->shape[0], w.channels = w.x->shape[1] / a->groups, w.outs = w.g->shape[1] / a->groups;
    if (r->out[0]->numel == 0) return 0;
    AC_TRY(run_groups(&w, a->groups, true, r->out[0]));
    if (atomic_load(&w.finite)) return 0;
    AC_WAY(direct_weight_again); /* what cannot be split */
    return run_groups(&w, a->groups, false, r->out[0]);
}
