/* Batch norm, group norm and their gradients: sets of planes of x [N, C, ...] share statistics. A first pass leaves
 * two moments for each piece of a plane, which are joined in order in float64. A second pass computes the result. */
#include "cpu/kernels.h"

#include "base/alloc.h"
#include "base/ways.h"

#include <math.h>

enum { BLOCK = 16 }; /* channels whose pieces are read one after another: channels-last, they share cache lines */

/* Where the values of a plane lie, in one of the operands. */
typedef struct {
    const ac_tensor *t;
    ac_space positions;
    int64_t image_stride, channel_stride;
} planes;

typedef struct {
    const ac_loops *loops;
    ac_opmath opmath;
    int64_t images, channels, positions; /* planes are [images, channels] */
    int64_t groups, depth; /* 0: the planes of a channel are a set; else `depth` channels of an image are */
    int64_t pieces;        /* of a plane */
    bool fixed;            /* backward: the statistics do not depend on x */
    planes x, g, y;
    double *part;        /* two of each piece, [images][channels][pieces][2] */
    double *mean, *rstd; /* of each set */
    double *one, *two;   /* forward: scale and shift of a channel; backward: of each set, see below */
    double *weight;      /* of each channel */
    size_t bytes;
    char *room; /* all of these numbers */
} norm;

/* -- geometry ------------------------------------------------------------------------------------------------ */

/* A batch of planes of few positions is one image, whose positions are the batch's too. */
static bool is_flat(const ac_tensor *x, int64_t groups) {
    int64_t positions = 1;
    for (int d = 2; d < x->ndim; d++) positions *= x->shape[d];
    return groups == 0 && positions < 8;
}

static planes planes_of(const ac_tensor *t, bool flat) {
    uint32_t others = ((1u << t->ndim) - 1) & ~2u;
    return (planes){t, ac_space_of(t, flat ? others : others & ~1u), flat ? 0 : t->strides[0], t->strides[1]};
}

static int64_t sets_of(const norm *c) { return c->groups ? c->images * c->groups : c->channels; }
static int64_t set_of(const norm *c, int64_t image, int64_t channel) {
    return c->groups ? image * c->groups + channel / c->depth : channel;
}

static bool is_one_run(const planes *p) {
    return p->positions.n < 1 || (p->positions.n == 1 && p->positions.stride[0] == 1);
}

/* The ways that a norm takes, as base/ways.def names them. */
static void note_ways(const norm *c, bool flat) {
    if (flat) AC_WAY(channels_flat);
    if (c->pieces > 1) AC_WAY(channels_pieces);
    else AC_WAY(channels_planes);
    if (is_one_run(&c->x)) AC_WAY(channels_in_place);
    else AC_WAY(channels_gathered);
}

static int open_norm(norm *c, const ac_tensor *x, const ac_tensor *g, const ac_tensor *y, int64_t groups) {
    bool flat = is_flat(x, groups);
    *c = (norm){.loops = ac_cpu_loops(), .opmath = ac_opmath_of(x->dtype), .groups = groups, .channels = x->shape[1]};
    c->images = flat ? 1 : x->shape[0], c->positions = flat ? x->shape[0] : 1;
    for (int d = 2; d < x->ndim; d++) c->positions *= x->shape[d];
    c->depth = groups ? c->channels / groups : 1;
    c->pieces = (c->positions + AC_TILE - 1) / AC_TILE;
    c->x = planes_of(x, flat), c->y = planes_of(y, flat);
    if (g) c->g = planes_of(g, flat);
    note_ways(c, flat);
    int64_t sets = sets_of(c), parts = 2 * c->images * c->channels * c->pieces;
    c->bytes = (size_t)(parts + 4 * sets + 3 * c->channels + 1) * sizeof(double);
    c->room = ac_alloc(c->bytes);
    if (!c->room) return -1;
    c->part = (double *)(void *)c->room, c->mean = c->part + parts, c->rstd = c->mean + sets;
    c->one = c->rstd + sets, c->two = c->one + (sets > c->channels ? sets : c->channels);
    c->weight = c->two + (sets > c->channels ? sets : c->channels);
    return 0;
}

static void close_norm(norm *c) { ac_free(c->room, c->bytes); }

/* Number i of a small tensor, or `missing` where there is none. */
static double number(const ac_tensor *t, int64_t i, double missing) {
    if (!t) return missing;
    ac_space all = ac_space_of(t, UINT32_MAX);
    return ac_read_double(ac_data(t), t->dtype, ac_space_offset(&all, i));
}

/* -- pieces -------------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t image, channel, at, n; /* positions [at, at + n) of that plane */
    double *part;
} piece;

/* Calls act(address, stride, done, n) for the runs of neighbours in a piece: n positions from the done-th on. */
#define EACH_RUN(p, q, act)                                                                                            \
    do {                                                                                                               \
        const planes *p_ = (p);                                                                                        \
        int last_ = p_->positions.n - 1;                                                                               \
        int64_t item_ = ac_itemsize(p_->t->dtype), inner_ = last_ < 0 ? 1 : p_->positions.size[last_];                 \
        int64_t stride_ = last_ < 0 ? 1 : p_->positions.stride[last_];                                                 \
        char *plane_ =                                                                                                 \
            (char *)ac_data(p_->t) + ((q)->image * p_->image_stride + (q)->channel * p_->channel_stride) * item_;      \
        for (int64_t done_ = 0, n_; done_ < (q)->n; done_ += n_) {                                                     \
            int64_t in_ = ((q)->at + done_) % inner_;                                                                  \
            n_ = inner_ - in_ < (q)->n - done_ ? inner_ - in_ : (q)->n - done_;                                        \
            act(plane_ + ac_space_offset(&p_->positions, (q)->at + done_) * item_, stride_, done_, n_);                \
        }                                                                                                              \
    } while (0)

static char *address_in(const planes *p, const piece *q) {
    return (char *)ac_data(p->t) +
           (q->image * p->image_stride + q->channel * p->channel_stride + q->at) * ac_itemsize(p->t->dtype);
}

/* A piece in opmath type: the tensor's own memory, or a copy in `room`. */
static const void *read_piece(const norm *c, const planes *p, const piece *q, char *room) {
    if (is_one_run(p)) return ac_read_run(c->loops, c->opmath, p->t->dtype, q->n, address_in(p, q), 1, room);
#define LOAD(from, stride, done, n)                                                                                    \
    c->loops->load[p->t->dtype][c->opmath](n, from, stride, room + (done) * ac_opmath_bytes(c->opmath))
    EACH_RUN(p, q, LOAD);
#undef LOAD
    return room;
}

static bool is_direct(const norm *c) { return is_one_run(&c->y) && c->y.t->dtype == ac_opmath_dtype(c->opmath); }

static void write_piece(const norm *c, const piece *q, const char *values) {
    const planes *p = &c->y;
#define STORE(to, stride, done, n)                                                                                     \
    c->loops->store[c->opmath][p->t->dtype](n, values + (done) * ac_opmath_bytes(c->opmath), to, stride)
    EACH_RUN(p, q, STORE);
#undef STORE
}

typedef void (*piece_fn)(const norm *c, const piece *q, char *room);
typedef struct {
    const norm *c;
    piece_fn act;
} pass;

static void some_pieces(void *context, int64_t begin, int64_t end, char *room) {
    const pass *s = context;
    const norm *c = s->c;
    int64_t blocks = (c->channels + BLOCK - 1) / BLOCK;
    for (int64_t i = begin; i < end; i++) {
        int64_t at = i % c->pieces, first = i / c->pieces % blocks * BLOCK;
        piece q = {.image = i / c->pieces / blocks, .at = at * AC_TILE};
        q.n = c->positions - q.at < AC_TILE ? c->positions - q.at : AC_TILE;
        for (q.channel = first; q.channel < first + BLOCK && q.channel < c->channels; q.channel++) {
            q.part = c->part + 2 * ((q.image * c->channels + q.channel) * c->pieces + at);
            s->act(c, &q, room);
        }
    }
}

enum { ROOM = 3 * AC_TILE * 8 };

static int each_piece(const norm *c, piece_fn act) {
    pass s = {c, act};
    int64_t work = BLOCK * (c->positions < AC_TILE ? c->positions : AC_TILE);
    return ac_for_range_with(c->images * c->pieces * ((c->channels + BLOCK - 1) / BLOCK),
                             AC_GRAIN_SLOW / (work + 1) + 1, ROOM, some_pieces, &s);
}

/* -- forward ------------------------------------------------------------------------------------------------- */

/* Mean, and the sum of squares around it. */
static void measure(const norm *c, const piece *q, char *room) {
    const void *x = read_piece(c, &c->x, q, room);
    ac_total sum = {0, 0}, squares = {0, 0};
    c->loops->fold[AC_FOLD_SUM][c->opmath](q->n, x, 0, &sum);
    q->part[0] = sum.f / (double)q->n;
    c->loops->fold[AC_FOLD_SUM_SQUARES][c->opmath](q->n, x, q->part[0], &squares);
    q->part[1] = squares.f;
}

/* Joins the pieces' moments, in order (Chan, Golub and LeVeque 1979); rstd holds the variance for now. */
static void join_moments(const norm *c) {
    for (int64_t s = 0; s < sets_of(c); s++) c->mean[s] = c->rstd[s] = 0;
    for (int64_t image = 0; image < c->images; image++)
        for (int64_t channel = 0; channel < c->channels; channel++) {
            int64_t s = set_of(c, image, channel), before = c->groups ? channel % c->depth : image;
            for (int64_t p = 0; p < c->pieces; p++) {
                const double *part = c->part + 2 * ((image * c->channels + channel) * c->pieces + p);
                double had = (double)(before * c->positions + p * AC_TILE);
                double has = (double)(c->positions - p * AC_TILE < AC_TILE ? c->positions - p * AC_TILE : AC_TILE);
                double apart = part[0] - c->mean[s];
                c->mean[s] += apart * has / (had + has);
                c->rstd[s] += part[1] + apart * apart * had * has / (had + has);
            }
        }
    double count = (double)(c->positions * (c->groups ? c->depth : c->images));
    for (int64_t s = 0; s < sets_of(c); s++) c->rstd[s] /= count;
}

static void normalize(const norm *c, const piece *q, char *room) {
    bool direct = is_direct(c);
    int64_t s = set_of(c, q->image, q->channel);
    const void *x = read_piece(c, &c->x, q, room);
    void *y = direct ? (void *)address_in(&c->y, q) : room + AC_TILE * 8;
    c->loops->scale_shift[c->opmath](q->n, x, c->mean[s], c->rstd[s] * c->one[q->channel], c->two[q->channel], y);
    if (!direct) write_piece(c, q, y);
}

/* Statistics are there; results and what backward needs of them. */
static int finish_forward(norm *c, const ac_run *r, const ac_tensor *weight, const ac_tensor *bias, double eps) {
    for (int64_t s = 0; s < sets_of(c); s++) {
        c->rstd[s] = 1 / sqrt(c->rstd[s] + eps);
        ac_write_double(ac_data(r->out[1]), r->out[1]->dtype, s, c->mean[s]);
        ac_write_double(ac_data(r->out[2]), r->out[2]->dtype, s, c->rstd[s]);
    }
    for (int64_t k = 0; k < c->channels; k++) c->one[k] = number(weight, k, 1), c->two[k] = number(bias, k, 0);
    return each_piece(c, normalize);
}

static void keep_running(const norm *c, ac_tensor *running, const double *found, double factor, double momentum) {
    for (int64_t k = 0; running && k < c->channels; k++)
        ac_write_double(ac_data(running), running->dtype, k * running->strides[0],
                        (1 - momentum) * number(running, k, 0) + momentum * factor * found[k]);
}

int ac_cpu_batch_norm(const ac_run *r) {
    ATTRS(batch_norm);
    norm c;
    AC_TRY(open_norm(&c, r->in[0], NULL, r->out[0], 0));
    int failed = a->training ? each_piece(&c, measure) : 0;
    if (a->training) join_moments(&c);
    for (int64_t k = 0; k < c.channels && !a->training; k++)
        c.mean[k] = number(r->in[1], k, 0), c.rstd[k] = number(r->in[2], k, 0);
    double count = (double)(c.images * c.positions);
    if (!failed && a->training && count > 0 && r->in[1] && r->in[2] && !ac_interrupted()) {
        keep_running(&c, r->in[1], c.mean, 1, a->momentum);
        keep_running(&c, r->in[2], c.rstd, count / (count - 1), a->momentum);
    }
    if (!failed) failed = finish_forward(&c, r, r->in[3], r->in[4], a->eps);
    close_norm(&c);
    return failed;
}

int ac_cpu_group_norm(const ac_run *r) {
    ATTRS(group_norm);
    norm c;
    AC_TRY(open_norm(&c, r->in[0], NULL, r->out[0], a->num_groups));
    int failed = each_piece(&c, measure);
    join_moments(&c);
    if (!failed) failed = finish_forward(&c, r, r->in[1], r->in[2], a->eps);
    close_norm(&c);
    return failed;
}

/* -- backward ------------------------------------------------------------------------------------------------ */

/* The sums of g and of g (x - mean). */
static void measure_gradient(const norm *c, const piece *q, char *room) {
    const void *g = read_piece(c, &c->g, q, room), *x = read_piece(c, &c->x, q, room + AC_TILE * 8);
    c->loops->centred_sums[c->opmath](q->n, g, x, c->mean[set_of(c, q->image, q->channel)], q->part);
}

/* The gradients of weight and bias; and of each set, the means of g w and of g w xhat, in `one` and `two`. */
static void join_gradients(const norm *c, double *dweight, double *dbias) {
    double count = (double)(c->positions * (c->groups ? c->depth : c->images));
    for (int64_t s = 0; s < sets_of(c); s++) c->one[s] = c->two[s] = 0;
    for (int64_t k = 0; k < c->channels; k++) dweight[k] = dbias[k] = 0;
    for (int64_t image = 0; image < c->images; image++)
        for (int64_t channel = 0; channel < c->channels; channel++) {
            int64_t s = set_of(c, image, channel);
            const double *part = c->part + 2 * (image * c->channels + channel) * c->pieces;
            for (int64_t p = 0; p < c->pieces; p++, part += 2) {
                double hat = part[1] * c->rstd[s];
                dbias[channel] += part[0], dweight[channel] += hat;
                c->one[s] += c->weight[channel] * part[0] / count, c->two[s] += c->weight[channel] * hat / count;
            }
        }
}

/* rstd (g w - one - xhat two), or rstd g w where the statistics are fixed: an infinity in x is not looked at */
static void propagate(const norm *c, const piece *q, char *room) {
    bool direct = is_direct(c);
    int64_t s = set_of(c, q->image, q->channel);
    double rstd = c->rstd[s], scale = rstd * c->weight[q->channel];
    const void *g = read_piece(c, &c->g, q, room);
    void *dx = direct ? (void *)address_in(&c->y, q) : room + 2 * AC_TILE * 8;
    if (c->fixed) c->loops->scale_shift[c->opmath](q->n, g, 0, scale, 0, dx);
    else {
        const void *x = read_piece(c, &c->x, q, room + AC_TILE * 8);
        c->loops->mix[c->opmath](q->n, g, x, scale, c->mean[s], -rstd * rstd * c->two[s], -rstd * c->one[s], dx);
    }
    if (!direct) write_piece(c, q, dx);
}

/* g, x, mean, rstd, weight give dx, dweight, dbias. */
static int backward(const ac_run *r, int64_t groups, bool fixed) {
    ac_tensor *dw = r->out[1], *db = r->out[2];
    norm c;
    AC_TRY(open_norm(&c, r->in[1], r->in[0], r->out[0], groups));
    c.fixed = fixed;
    size_t bytes = (size_t)(2 * c.channels + 1) * sizeof(double);
    double *sums = ac_alloc(bytes);
    int failed = sums ? 0 : -1;
    for (int64_t s = 0; s < sets_of(&c); s++) c.mean[s] = number(r->in[2], s, 0), c.rstd[s] = number(r->in[3], s, 0);
    for (int64_t k = 0; k < c.channels; k++) c.weight[k] = number(r->in[4], k, 1);
    if (!failed) failed = each_piece(&c, measure_gradient);
    if (!failed) join_gradients(&c, sums, sums + c.channels);
    for (int64_t k = 0; k < c.channels && !failed; k++) {
        ac_write_double(ac_data(dw), dw->dtype, k, sums[k]);
        ac_write_double(ac_data(db), db->dtype, k, sums[c.channels + k]);
    }
    if (!failed) failed = each_piece(&c, propagate);
    if (sums) ac_free(sums, bytes);
    close_norm(&c);
    return failed;
}

int ac_cpu_batch_norm_backward(const ac_run *r) {
    ATTRS(training);
    return backward(r, 0, !a->training);
}

int ac_cpu_group_norm_backward(const ac_run *r) {
    ATTRS(num_groups);
    return backward(r, a->num_groups, false);
}
