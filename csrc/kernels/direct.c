/* Convolution without columns. An image is laid out with its channels last and its padding around it; then the
 * taps of a window's last row are one run of memory, as are the windows of neighbouring places, each a step further
 * on. So such a row of taps is a product of matrices that overlap in memory, read where they lie: [places, run]
 * times [run, out], summed over the rows of the window in float32. The transposed convolution is one too, of the
 * spread-out input with the window turned around. The weight's gradient goes its own way, direct_weight.c. */
#include "cpu.h"

#include "columns.h"
#include "gemm.h"

#include <stdatomic.h>
#include <string.h>

enum { FEW_CHANNELS = 16, MOST_SUMS = 1 << 20, MOST_RUNS = 64 };

bool ac_direct_fits(const ac_windows *w, int64_t inner, int64_t outer, ac_dtype compute) {
    bool fits = inner >= FEW_CHANNELS && outer >= FEW_CHANNELS && compute != AC_float64;
    for (int d = 0; d < 3; d++) fits = fits && w->padding[d] <= w->dilation[d] * (w->kernel[d] - 1);
    return fits;
}

/* Source values lie at left + i * spread of a room of zeros; windows slide over the room. */
typedef struct {
    const ac_run *r;
    const ac_tensor *from, *weight, *bias;
    ac_tensor *to;
    int64_t channels, outs, groups, images; /* channels and outs of a group */
    int64_t size[3], room[3], left[3], spread[3], kernel[3], stride[3], dilation[3], out[3];
    bool turned; /* the transposed way */
    ac_dtype dtype;
    int64_t runs, run; /* rows of taps, and values in one */
    bool whole;        /* one product takes all runs, which it reads where they lie; else one product each */
    int64_t starts[MOST_RUNS];
    int64_t line, lines; /* places that one product takes: in a line, and lines of a plane */
    bool planes;         /* a line is many rows of places, with the room's padding between them */
    char *packed;        /* weight[group][run] as panels, or NULL */
    char *dense;         /* weight[group] as [outs, taps, channels] */
    int64_t packed_step;
    float *add; /* bias, or NULL */
} direct;

static void plan_runs(direct *c) {
    bool merges = c->dilation[2] == 1;
    c->run = merges ? c->kernel[2] * c->channels : c->channels;
    c->runs = c->kernel[0] * c->kernel[1] * (merges ? 1 : c->kernel[2]);
    c->planes = c->stride[1] == 1 && c->stride[2] == 1;
    int64_t rows = MOST_SUMS / (c->room[2] * c->outs * 4) + 1;
    if (rows > c->out[1]) rows = c->out[1];
    c->lines = c->planes ? rows : 1;
    c->line = c->planes ? (rows - 1) * c->room[2] + c->out[2] : c->out[2];
}

static int64_t plain_values(const direct *c) { return ac_product3(c->size) * c->channels; }
static int64_t room_values(const direct *c) { /* products read whole tiles of places: a little more behind */
    return (ac_product3(c->room) + AC_LANES * c->stride[2] + c->kernel[2]) * c->channels;
}

static void open_direct(direct *c, const ac_windows *w) {
    for (int d = 0; d < 3; d++) {
        int64_t reach = w->dilation[d] * (w->kernel[d] - 1);
        c->kernel[d] = w->kernel[d], c->dilation[d] = w->dilation[d];
        c->stride[d] = c->turned ? 1 : w->stride[d], c->spread[d] = c->turned ? w->stride[d] : 1;
        c->size[d] = c->turned ? w->out[d] : w->in[d], c->out[d] = c->turned ? w->in[d] : w->out[d];
        c->left[d] = c->turned ? reach - w->padding[d] : w->padding[d];
        c->room[d] = c->turned ? w->in[d] + reach : w->in[d] + 2 * w->padding[d];
    }
    plan_runs(c);
}

/* Where run i of a window begins, from the window's first value. */
static int64_t run_offset(const direct *c, int64_t i) {
    bool merges = c->dilation[2] == 1;
    int64_t k2 = merges ? 0 : i % c->kernel[2], rest = merges ? i : i / c->kernel[2];
    int64_t k1 = rest % c->kernel[1], k0 = rest / c->kernel[1];
    return ((k0 * c->dilation[0] * c->room[1] + k1 * c->dilation[1]) * c->room[2] + k2 * c->dilation[2]) * c->channels;
}

/* Windows from `window` on, as rows of all their runs, or of run i alone. */
static ac_operand windows_at(const direct *c, const char *window, int64_t places, int64_t i) {
    int64_t item = ac_itemsize(c->dtype);
    return (ac_operand){.data = window + (c->whole ? 0 : run_offset(c, i) * item),
                        .dtype = c->dtype,
                        .lanes = (places + AC_LANES - 1) / AC_LANES * AC_LANES,
                        .k = c->whole ? c->runs * c->run : c->run,
                        .lane_stride = c->stride[2] * c->channels,
                        .k_stride = 1,
                        .round = c->dtype,
                        .run = c->whole ? c->run : 0,
                        .starts = c->whole ? c->starts : NULL};
}

static void plan_products(direct *c) {
    c->whole = c->runs > 1 && c->runs <= MOST_RUNS;
    for (int64_t i = 0; i < c->runs && c->whole; i++) c->starts[i] = run_offset(c, i);
    ac_operand a = windows_at(c, NULL, AC_LANES, 0);
    c->whole = c->whole && ac_gemm_reads(&a);
}
static int64_t products_of(const direct *c) { return c->whole ? 1 : c->runs; }

/* -- layouts --------------------------------------------------------------------------------------------- */

enum { TILE = 32 }; /* places and channels that are turned together: they stay in the first-level cache */

/* to[p][j] = from[j][p]: whole blocks of halves by vectors, the rest one by one. */
static void turn(const direct *c, int64_t places, int64_t channels, const void *const *from, char *to, int64_t step) {
    if (ac_itemsize(c->dtype) == 4) {
        for (int64_t p = 0; p < places; p++)
            for (int64_t j = 0; j < channels; j++)
                ((uint32_t *)(void *)to)[p * step + j] = ((const uint32_t *)from[j])[p];
        return;
    }
    uint16_t *halves = (uint16_t *)(void *)to;
    int64_t p = 0;
    for (; channels == TILE && p + AC_LANES <= places; p += AC_LANES)
        ac_cpu_loops()->turn_halves(from, p, halves + p * step, step);
    for (; p < places; p++)
        for (int64_t j = 0; j < channels; j++) halves[p * step + j] = ((const uint16_t *)from[j])[p];
}

/* One row of places of t [channels, ...], from element `at`, to [place][channel] with `step` values between places. */
static void turn_row(const direct *c, const ac_tensor *t, int64_t at, char *to, int64_t step) {
    int64_t item = ac_itemsize(c->dtype), n = t->shape[t->ndim - 1];
    for (int64_t p = 0; p < n; p += TILE)
        for (int64_t first = 0; first < t->shape[0]; first += TILE) {
            const void *lines[TILE];
            int64_t places = n - p < TILE ? n - p : TILE,
                    some = t->shape[0] - first < TILE ? t->shape[0] - first : TILE;
            for (int64_t j = 0; j < some; j++)
                lines[j] = (const char *)ac_data(t) + (at + (first + j) * t->strides[0] + p) * item;
            turn(c, places, some, lines, to + (p * step + first) * item, step);
        }
}

/* t [channels, ...] with its channels last: place (i, j, k) at to + i step[0] + j step[1] + k step[2] values. Where t
 * has another dtype or its rows are no runs of memory it goes by way of `plain`, room for all of it. */
static void turn_image(const direct *c, const ac_tensor *t, char *to, const int64_t step[3], char *plain) {
    int64_t size[2] = {1, 1}, stride[2] = {0, 0};
    ac_storage place;
    ac_dims shape = ac_shape_of(t);
    ac_tensor dense = ac_place(&place, plain, c->dtype, &shape);
    if (t->dtype != c->dtype || t->strides[t->ndim - 1] != 1) {
        ac_cpu_copy_into(&dense, t);
        t = &dense;
    }
    for (int d = 1; d + 1 < t->ndim; d++) size[3 - t->ndim + d] = t->shape[d], stride[3 - t->ndim + d] = t->strides[d];
    for (int64_t i = 0; i < size[0]; i++)
        for (int64_t j = 0; j < size[1]; j++)
            turn_row(c, t, i * stride[0] + j * stride[1], to + (i * step[0] + j * step[1]) * ac_itemsize(c->dtype),
                     step[2]);
}

static void fill_room(const direct *c, int64_t image, int64_t group, char *room, char *plain) {
    int64_t item = ac_itemsize(c->dtype), step[3], at = 0;
    step[2] = c->channels, step[1] = step[2] * c->room[2], step[0] = step[1] * c->room[1];
    for (int d = 0; d < 3; d++) at += c->left[d] * step[d], step[d] *= c->spread[d];
    ac_tensor from = ac_part_of(c->from, image, group * c->channels, c->channels);
    turn_image(c, &from, room + at * item, step, plain);
}

/* The group's weight as [outs, taps, channels]; turned around for the transposed way. */
static void lay_out_weight(const direct *c, int64_t group, char *to) {
    int64_t first = c->weight->shape[0] / c->groups, taps = ac_product3(c->kernel), step[3], at = 0;
    step[2] = c->channels, step[1] = step[2] * c->kernel[2], step[0] = step[1] * c->kernel[1];
    for (int d = 0; c->turned && d < 3; d++) at += (c->kernel[d] - 1) * step[d], step[d] = -step[d];
    ac_tensor from = *c->weight;
    from.offset += group * first * from.strides[0], from.shape[0] = first,
                                                    from.numel = first * (from.numel / c->weight->shape[0]);
    ac_storage s = {.data = to};
    ac_tensor x = from;
    x.storage = &s, x.offset = at, x.dtype = c->dtype;
    x.strides[0] = c->turned ? 1 : taps * c->channels, x.strides[1] = c->turned ? taps * c->channels : 1;
    for (int d = 2; d < x.ndim; d++) x.strides[d] = step[3 - x.ndim + d];
    ac_cpu_copy_into(&x, &from);
}

/* -- forward ----------------------------------------------------------------------------------------------- */

static ac_operand weight_run(const direct *c, int64_t group, int64_t run) {
    int64_t taps = ac_product3(c->kernel), each = c->outs * taps * c->channels * ac_itemsize(c->dtype);
    return (ac_operand){.data = c->dense + group * each + run * c->run * ac_itemsize(c->dtype),
                        .dtype = c->dtype,
                        .lanes = c->outs,
                        .k = c->whole ? c->runs * c->run : c->run,
                        .lane_stride = taps * c->channels,
                        .k_stride = 1,
                        .round = c->dtype,
                        .run = c->whole ? c->run : 0};
}

static void pack_weight(direct *c) {
    bool fits = c->packed != NULL;
    for (int64_t g = 0; g < c->groups; g++) {
        int64_t each = c->outs * ac_product3(c->kernel) * c->channels * ac_itemsize(c->dtype);
        lay_out_weight(c, g, c->dense + g * each);
        for (int64_t i = 0; i < products_of(c) && fits; i++) {
            ac_operand b = weight_run(c, g, i);
            fits = ac_gemm_pack(&b, c->packed + (g * products_of(c) + i) * c->packed_step);
        }
    }
    if (!fits) c->packed = NULL; /* inf or nan where they cannot be split: packed for each product instead */
}

/* One line of places: sums [lanes, outs] over all runs. */
static int sum_line(const direct *c, int64_t group, const char *window, int64_t places, float *sums) {
    for (int64_t i = 0; i < products_of(c); i++) {
        ac_gemm_call g = {.a = windows_at(c, window, places, i),
                          .b = weight_run(c, group, i),
                          .panels = c->packed ? c->packed + (group * products_of(c) + i) * c->packed_step : NULL,
                          .c = (char *)sums,
                          .c_dtype = AC_float32,
                          .c_row = c->outs,
                          .alpha = 1,
                          .beta = i ? 1 : 0,
                          .alone = true,
                          .batch = 1};
        AC_TRY(ac_gemm_run(&g));
    }
    return 0;
}

enum { BLOCK = 16, TURNED = 256 }; /* results turned together: they stay in the first-level cache */

/* Rows of sums [places, outs], `line` places apart, to results [outs, ...] whose rows follow each other. */
static void store_rows(const direct *c, const float *sums, int64_t rows, char *to, int64_t channel_step, float *turn) {
    const ac_loops *loops = ac_cpu_loops();
    int64_t n = c->out[2], item = ac_itemsize(c->to->dtype), all = rows * n;
    for (int64_t o = 0; o < c->outs; o += BLOCK) {
        int64_t some = c->outs - o < BLOCK ? c->outs - o : BLOCK;
        for (int64_t row = 0; row < rows; row++)
            for (int64_t p = 0, whole; p < n; p += whole ? BLOCK : 1) {
                const float *from = sums + (row * c->room[2] + p) * c->outs + o;
                whole = some == BLOCK && p + BLOCK <= n;
                if (whole) loops->turn_words(from, c->outs, turn + row * n + p, all);
                for (int64_t j = 0; !whole && j < some; j++) turn[j * all + row * n + p] = from[j];
            }
        for (int64_t j = 0; j < some; j++) {
            float *line = turn + j * all;
            for (int64_t p = 0; c->add && p < all; p++) line[p] += c->add[o + j];
            loops->store[AC_LANE_F32][c->to->dtype](all, line, to + (o + j) * channel_step * item, 1);
        }
    }
}

static int64_t rows_turned(const direct *c) { return TURNED / c->out[2] > 1 ? TURNED / c->out[2] : 1; }
static int64_t turn_values(const direct *c) { return BLOCK * rows_turned(c) * c->out[2]; }

typedef struct {
    const direct *c;
    _Atomic int failed;
} walk;

static int64_t sums_values(const direct *c) { return (c->line + AC_LANES) * c->outs; }

static int one_image(const direct *c, int64_t image, int64_t group, char *scratch) {
    int64_t item = ac_itemsize(c->dtype), out_item = ac_itemsize(c->to->dtype), pixels = ac_product3(c->out);
    float *sums = (float *)(void *)scratch, *turn = sums + sums_values(c);
    char *room = (char *)(turn + turn_values(c));
    char *to = (char *)ac_data(c->to) + (image * c->groups + group) * c->outs * pixels * out_item;
    direct own = *c;
    if (c->add) own.add = c->add + group * c->outs;
    fill_room(c, image, group, room, room + room_values(c) * item);
    for (int64_t o0 = 0; o0 < c->out[0]; o0++)
        for (int64_t o1 = 0; o1 < c->out[1]; o1 += c->lines) {
            int64_t rows = c->out[1] - o1 < c->lines ? c->out[1] - o1 : c->lines;
            int64_t places = c->planes ? (rows - 1) * c->room[2] + c->out[2] : c->out[2];
            const char *window =
                room + ((o0 * c->stride[0] * c->room[1] + o1 * c->stride[1]) * c->room[2]) * c->channels * item;
            AC_TRY(sum_line(c, group, window, places, sums));
            for (int64_t row = 0, step = rows_turned(c); row < rows; row += step)
                store_rows(&own, sums + row * c->room[2] * c->outs, rows - row < step ? rows - row : step,
                           to + ((o0 * c->out[1] + o1 + row) * c->out[2]) * out_item, pixels, turn);
        }
    return 0;
}

static void some_images(void *context, int64_t begin, int64_t end, char *scratch) {
    walk *w = context;
    const direct *c = w->c;
    char *room = scratch + (sums_values(c) + turn_values(c)) * 4;
    memset(room, 0, (size_t)(room_values(c) * ac_itemsize(c->dtype)));
    for (int64_t i = begin; i < end; i++)
        if (one_image(c, i / c->groups, i % c->groups, scratch) < 0) atomic_store(&w->failed, 1);
}

static int run_forward(direct *c) {
    size_t dense = (size_t)(c->groups * c->outs * ac_product3(c->kernel) * c->channels * ac_itemsize(c->dtype)) + 1;
    c->dense = ac_alloc(dense);
    if (!c->dense) return -1;
    plan_products(c);
    ac_operand b = weight_run(c, 0, 0);
    c->packed_step = (ac_gemm_panels_bytes(&b) + AC_ALIGNMENT - 1) / AC_ALIGNMENT * AC_ALIGNMENT;
    size_t packed = (size_t)(c->groups * products_of(c) * c->packed_step), bias = (size_t)(c->outs * c->groups + 1) * 4;
    char *panels = ac_alloc(packed);
    c->packed = panels;
    c->add = c->bias ? ac_alloc(bias) : NULL;
    int failed = !panels || (c->bias && !c->add) ? -1 : 0;
    if (!failed) {
        walk w = {.c = c};
        pack_weight(c);
        if (c->bias)
            ac_cpu_loops()->load[c->bias->dtype][AC_LANE_F32](c->bias->numel, ac_data(c->bias), c->bias->strides[0],
                                                              c->add);
        size_t bytes = (size_t)((sums_values(c) + turn_values(c)) * 4 +
                                (room_values(c) + plain_values(c)) * ac_itemsize(c->dtype));
        failed = ac_for_range_with(c->images * c->groups, 1, bytes, some_images, &w);
        if (atomic_load(&w.failed)) failed = ac_fail(AC_MEMORY, "convolution: not enough memory to pack the operands");
    }
    if (c->add) ac_free(c->add, bias);
    if (panels) ac_free(panels, packed);
    ac_free(c->dense, dense);
    return failed;
}

int ac_direct_convolution(const ac_run *r, const ac_windows *w) {
    const ac_attrs_convolution *a = r->attrs;
    const ac_tensor *weight = r->in[1];
    direct c = {.r = r, .from = r->in[0], .weight = weight, .bias = r->in[2], .to = r->out[0], .groups = a->groups};
    c.turned = a->transposed != 0, c.images = c.from->shape[0], c.dtype = r->compute;
    int64_t first = weight->shape[0] / a->groups;
    c.outs = c.turned ? weight->shape[1] : first, c.channels = c.turned ? first : weight->shape[1];
    if (c.to->numel == 0) return 0;
    open_direct(&c, w);
    return run_forward(&c);
}
