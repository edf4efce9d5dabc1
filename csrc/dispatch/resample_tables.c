/* Makes the tables of resampling, and keeps those used last. */
#include "dispatch/resample_tables.h"

#include "autograd/node.h"
#include "dispatch/placement.h"

#include <math.h>
#include <string.h>

static int64_t largest(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* -- one result ------------------------------------------------------------------------------------------ */

static double cubic_weight(double x, double a) {
    x = fabs(x);
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

static double centre_of(const ac_table *t, int64_t o) { return t->scale * ((double)o + 0.5); }
static double support_of(const ac_table *t) { return (t->cubic ? 2 : 1) * fmax(t->scale, 1); }

/* The neighbours begin..end-1 that result o is made of, for kinds of any number of taps. */
static void span_of(const ac_table *t, int64_t o, int64_t *begin, int64_t *end) {
    int64_t start = o * t->step - t->around;
    switch (t->kind) {
    case AC_TABLE_WINDOWS: *begin = largest(start, 0), *end = least(start + t->window, t->size); break;
    case AC_TABLE_PARTS: *begin = o * t->size / t->out, *end = ((o + 1) * t->size + t->out - 1) / t->out; break;
    default:
        *begin = largest((int64_t)(centre_of(t, o) - support_of(t) + 0.5), 0);
        *end = least((int64_t)(centre_of(t, o) + support_of(t) + 0.5), t->size);
    }
}

static double share(const ac_table *t, int64_t o, int64_t begin, int64_t end) {
    int64_t start = o * t->step - t->around;
    if (t->kind == AC_TABLE_WINDOWS && t->counts_padding)
        return 1.0 / (double)(least(start + t->window, t->size + t->around) - start);
    return 1.0 / (double)(end - begin);
}

static void fill_smoothed(const ac_table *t, int64_t o, int64_t begin, int64_t end, double *weight) {
    double stretch = fmax(t->scale, 1), sum = 0;
    for (int64_t i = begin; i < end; i++) {
        double x = ((double)i - centre_of(t, o) + 0.5) / stretch;
        weight[i - begin] = t->cubic ? cubic_weight(x, -0.5) : fmax(1 - fabs(x), 0);
        sum += weight[i - begin];
    }
    for (int64_t i = 0; i < end - begin && sum != 0; i++) weight[i] /= sum;
}

static void fill_span(const ac_table *t, int64_t o, int64_t *index, double *weight) {
    int64_t begin, end;
    span_of(t, o, &begin, &end);
    for (int64_t i = begin; i < end; i++) index[i - begin] = i;
    if (t->kind == AC_TABLE_SMOOTHED) fill_smoothed(t, o, begin, end, weight);
    else
        for (int64_t i = 0; i < end - begin; i++) weight[i] = share(t, o, begin, end);
}

static void fill_linear(const ac_table *t, int64_t o, int64_t *index, double *weight) {
    double at = t->corners ? (double)o * t->scale : fmax(((double)o + 0.5) * t->scale - 0.5, 0);
    int64_t low = least((int64_t)at, t->size - 1);
    double part = low < t->size - 1 ? at - (double)low : 0;
    index[0] = low, index[1] = least(low + 1, t->size - 1);
    weight[0] = 1 - part, weight[1] = part;
}

static void fill_cubic(const ac_table *t, int64_t o, int64_t *index, double *weight) {
    double at = t->corners ? (double)o * t->scale : ((double)o + 0.5) * t->scale - 0.5;
    int64_t low = (int64_t)floor(at);
    for (int k = 0; k < 4; k++) {
        index[k] = largest(least(low + k - 1, t->size - 1), 0);
        weight[k] = cubic_weight(at - (double)(low + k - 1), -0.75);
    }
}

/* Beyond an edge the edge's value stands again: its weights go to one tap, and become whole numbers. */
static void merge(int64_t taps, const int64_t *index, double *weight) {
    for (int64_t k = 1; k < taps; k++)
        if (index[k] == index[k - 1]) weight[k] += weight[k - 1], weight[k - 1] = 0;
}
static void make_whole(const ac_table *t, int64_t taps, const int64_t *index, double *weight) {
    merge(taps, index, weight);
    for (int64_t k = 0; k < taps; k++) weight[k] = trunc(ldexp(weight[k], (int)t->bits) + (weight[k] < 0 ? -0.5 : 0.5));
}

static void fill_row(const ac_table *t, int64_t o, int64_t taps, int64_t *index, double *weight) {
    for (int64_t k = 0; k < taps; k++) index[k] = -1, weight[k] = 0;
    switch (t->kind) {
    case AC_TABLE_NEAREST: {
        float at = floorf(((float)o + (float)t->half) * (float)t->scale);
        index[0] = least((int64_t)at, t->size - 1), weight[0] = 1;
        break;
    }
    case AC_TABLE_LINEAR: fill_linear(t, o, index, weight); break;
    case AC_TABLE_CUBIC: fill_cubic(t, o, index, weight); break;
    default: fill_span(t, o, index, weight);
    }
    if (t->bits) make_whole(t, taps, index, weight);
}

/* At least as many as any result has. */
static int64_t taps_of(const ac_table *t) {
    switch (t->kind) {
    case AC_TABLE_NEAREST: return 1;
    case AC_TABLE_LINEAR: return 2;
    case AC_TABLE_CUBIC: return 4;
    case AC_TABLE_WINDOWS: return largest(least(t->window, t->size), 1);
    case AC_TABLE_PARTS: return t->size % t->out ? least(t->size / t->out + 2, t->size) : t->size / t->out;
    default: return largest((int64_t)fmin(2 * support_of(t) + 2, (double)t->size), 1);
    }
}

/* -- tables ---------------------------------------------------------------------------------------------- */

typedef struct {
    ac_tensor *part[4]; /* index, weight, and those of the adjoint */
} parts;

static void let_go(parts *p) {
    for (int i = 0; i < 4; i++) ac_tensor_clear(&p->part[i]);
}

static int make_pair(ac_tensor **pair, int64_t rows, int64_t taps) {
    ac_dims shape = {2, {rows, taps}};
    pair[0] = ac_tensor_new(AC_int64, &shape);
    pair[1] = pair[0] ? ac_tensor_new(AC_float64, &shape) : NULL;
    return pair[1] ? 0 : -1;
}

/* How many results each value goes into, in `counts`; the most of them. */
static int64_t count_uses(const ac_table *t, const parts *p, int64_t *counts) {
    const int64_t *index = ac_data(p->part[0]);
    const double *weight = ac_data(p->part[1]);
    int64_t most = 1;
    memset(counts, 0, (size_t)t->size * sizeof *counts);
    for (int64_t i = 0; i < p->part[0]->numel; i++)
        if (index[i] >= 0 && weight[i] != 0) most = largest(most, ++counts[index[i]]);
    return most;
}

/* For each value, the results that it goes into. */
static void fill_adjoint(const ac_table *t, const parts *p, int64_t taps, int64_t most, int64_t *used) {
    const int64_t *index = ac_data(p->part[0]);
    const double *weight = ac_data(p->part[1]);
    int64_t *back = ac_data(p->part[2]);
    double *back_weight = ac_data(p->part[3]);
    for (int64_t i = 0; i < t->size * most; i++) back[i] = -1, back_weight[i] = 0;
    memset(used, 0, (size_t)t->size * sizeof *used);
    for (int64_t i = 0; i < p->part[0]->numel; i++) {
        if (index[i] < 0 || weight[i] == 0) continue;
        int64_t at = index[i] * most + used[index[i]]++;
        back[at] = i / taps, back_weight[at] = weight[i];
    }
}

static int make_parts(const ac_table *t, parts *p) {
    int64_t taps = taps_of(t);
    AC_TRY(make_pair(p->part, t->out, taps));
    int64_t *index = ac_data(p->part[0]);
    double *weight = ac_data(p->part[1]);
    for (int64_t o = 0; o < t->out; o++) fill_row(t, o, taps, index + o * taps, weight + o * taps);
    ac_dims each = {1, {t->size}};
    ac_tensor *counts = ac_tensor_new(AC_int64, &each);
    if (!counts) return -1;
    int64_t most = count_uses(t, p, ac_data(counts));
    int failed = make_pair(p->part + 2, t->size, most);
    if (!failed) fill_adjoint(t, p, taps, most, ac_data(counts));
    ac_tensor_release(counts);
    return failed;
}

/* They serve calls that record, too, whoever makes them first. */
static int move_parts(parts *p, ac_device device) {
    ac_grad_mode mode = ac_mode;
    ac_attrs_to_device to = {device, 0};
    int failed = 0;
    ac_mode.inference = false;
    for (int i = 0; i < 4 && !failed && device != AC_CPU; i++) {
        ac_tensor *there[AC_MAX_OUT] = {NULL};
        failed = ac_call(AC_OP_to_device, &p->part[i], 1, &to, there);
        if (failed) break;
        ac_tensor_release(p->part[i]);
        p->part[i] = there[0];
    }
    ac_mode = mode;
    return failed ? failed : ac_wait_for_kept(device);
}

/* The tables used last, in slots that their numbers choose. */
enum { SLOTS = 64 };
static struct {
    ac_table table;
    ac_device device;
    parts parts;
} kept[SLOTS];

static int slot_of(const ac_table *t, ac_device device) {
    uint64_t words[sizeof *t / 8], mixed = (uint64_t)device;
    memcpy(words, t, sizeof *t);
    for (size_t i = 0; i < sizeof *t / 8; i++) mixed = (mixed ^ words[i]) * 0x9E3779B97F4A7C15u, mixed ^= mixed >> 29;
    return (int)(mixed % SLOTS);
}

/* borrowed until the next call */
static const parts *find_or_make(const ac_table *t, ac_device device) {
    int at = slot_of(t, device);
    parts made = {{NULL}};
    if (kept[at].parts.part[0] && kept[at].device == device && memcmp(&kept[at].table, t, sizeof *t) == 0)
        return &kept[at].parts;
    if (make_parts(t, &made) < 0 || move_parts(&made, device) < 0) {
        let_go(&made);
        return NULL;
    }
    let_go(&kept[at].parts);
    kept[at].table = *t, kept[at].device = device, kept[at].parts = made;
    return &kept[at].parts;
}

/* borrowed until the next call; NULL with an error */
static const parts *parts_of(const ac_table *t, ac_device device) {
    const parts *p = find_or_make(t, device);
    for (int i = 0; i < 4 && p; i++)
        if (ac_lend_kept(p->part[i]) < 0) return NULL;
    return p;
}

/* -- words ------------------------------------------------------------------------------------------------ */

T ac_c_resample(ac_scratch *s, T x, int64_t dim, const ac_table *table) {
    ac_attrs_resample along = {dim};
    T part[4];
    if (!x || s->failed) return NULL;
    const parts *p = parts_of(table, ac_device_of(x));
    for (int i = 0; i < 4; i++) part[i] = p ? ac_c_keep(s, ac_tensor_retain(ac_c_constant(p->part[i]))) : NULL;
    return ac_c_call(s, AC_OP_resample, &along, 5, x, part[0], part[1], part[2], part[3]);
}

T ac_c_table_index(ac_scratch *s, T x, const ac_table *table) {
    ac_dims line = {1, {table->out}};
    const parts *p = parts_of(table, ac_device_of(x));
    return p ? ac_c_reshape(s, ac_c_keep(s, ac_tensor_retain(p->part[0])), &line) : ac_c_refuse(s, -1);
}

int64_t ac_table_bits(const ac_table *table) {
    ac_table plain = *table;
    int64_t taps = taps_of(table), bits = 0;
    double most = 0;
    ac_tensor *pair[2] = {NULL, NULL};
    plain.bits = 0;
    int failed = make_pair(pair, table->out, taps);
    for (int64_t o = 0; o < table->out && !failed; o++) {
        int64_t *index = (int64_t *)ac_data(pair[0]) + o * taps;
        double *weight = (double *)ac_data(pair[1]) + o * taps;
        fill_row(&plain, o, taps, index, weight);
        merge(taps, index, weight);
        for (int64_t k = 0; k < taps; k++) most = fmax(most, weight[k]);
    }
    ac_tensor_clear(&pair[0]);
    ac_tensor_clear(&pair[1]);
    while (bits < 22 && (int64_t)(0.5 + ldexp(most, (int)bits + 1)) < 1 << 15) bits++;
    return failed ? -1 : bits;
}
