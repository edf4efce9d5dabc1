/* Batch norm, group norm and their gradients: sets of planes of x [N, C, ...] share statistics. A first pass leaves
 * two moments for each piece, which are joined in order in float64. A second pass computes the result. A piece is a
 * part of a plane, or a channel's planes of some images where they are small. Where operands lie in rows of one dtype,
 * the loops read and write them as they are. */
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
    const ac_source *waiting; /* what gives the values where they are not in memory, else NULL */
} planes;

typedef struct {
    const ac_loops *loops;
    ac_opmath opmath;
    int64_t images, channels, positions; /* planes are [images, channels] */
    int64_t groups, depth; /* 0: the planes of a channel are a set; else `depth` channels of an image are */
    int64_t pieces;        /* of a plane */
    int64_t stack, stacks; /* images whose planes are one piece, and how many such there are */
    bool fixed;            /* backward: the statistics do not depend on x */
    ac_dtype dtype;        /* that the loops take: that of all operands, which are read as they are, or opmath type */
    const ac_plane_loops *planes;
    planes x, g, y;
    double *part;              /* two of each piece, [stacks][channels][pieces][2] */
    double *mean, *var, *rstd; /* of each set */
    double eps;
    double *one, *two; /* forward: scale and shift of a channel; backward: of each set, see below */
    double *weight;    /* of each channel */
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
    return (planes){t, ac_space_of(t, flat ? others : others & ~1u), flat ? 0 : t->strides[0], t->strides[1], NULL};
}

static int64_t sets_of(const norm *c) { return c->groups ? c->images * c->groups : c->channels; }
static int64_t set_of(const norm *c, int64_t image, int64_t channel) {
    return c->groups ? image * c->groups + channel / c->depth : channel;
}

static bool is_one_run(const planes *p) {
    return p->positions.n < 1 || (p->positions.n == 1 && p->positions.stride[0] == 1);
}

static ac_dtype dtype_of(const norm *c) {
    ac_dtype dtype = c->x.t->dtype;
    bool g = !c->g.t || (is_one_run(&c->g) && c->g.t->dtype == dtype);
    bool same = g && is_one_run(&c->x) && is_one_run(&c->y) && c->y.t->dtype == dtype;
    return same ? dtype : ac_opmath_dtype(c->opmath);
}

/* Whether the loops read or write an operand's memory; else a copy of it in `room`. */
static bool is_in_place(const norm *c, const planes *p) {
    return is_one_run(p) && p->t->dtype == c->dtype && !p->waiting;
}

/* The ways that a norm takes, as base/ways.def names them. */
static void note_ways(const norm *c, bool flat) {
    if (flat) AC_WAY(channels_flat);
    if (c->pieces > 1) AC_WAY(channels_pieces);
    else if (c->stack > 1) AC_WAY(channels_stacked);
    else AC_WAY(channels_planes);
    if (is_in_place(c, &c->x)) AC_WAY(channels_in_place);
    else AC_WAY(channels_gathered);
}

static int open_norm(norm *c, const ac_tensor *x, const ac_tensor *g, const ac_tensor *y, int64_t groups) {
    bool flat = is_flat(x, groups);
    *c = (norm){.loops = ac_cpu_loops(), .opmath = ac_opmath_of(x->dtype), .groups = groups, .channels = x->shape[1]};
    c->images = flat ? 1 : x->shape[0], c->positions = flat ? x->shape[0] : 1;
    for (int d = 2; d < x->ndim; d++) c->positions *= x->shape[d];
    c->depth = groups ? c->channels / groups : 1;
    c->pieces = ac_ceil_div(c->positions, AC_TILE);
    c->x = planes_of(x, flat), c->y = planes_of(y, flat);
    bool alone = groups || !is_one_run(&c->x); /* channels-last, a block's lines of one image stay in the cache */
    c->stack = alone ? 1 : ac_most(1, ac_least(c->images, AC_TILE / ac_most(c->positions, 1)));
    c->stacks = ac_ceil_div(c->images, c->stack);
    if (g) c->g = planes_of(g, flat);
    c->dtype = dtype_of(c), c->planes = &c->loops->planes[c->dtype];
    note_ways(c, flat);
    int64_t sets = sets_of(c), parts = 2 * c->stacks * c->channels * c->pieces;
    c->bytes = (size_t)(parts + 5 * sets + 3 * c->channels + 1) * sizeof(double);
    c->room = ac_alloc(c->bytes);
    if (!c->room) return -1;
    c->part = (double *)(void *)c->room, c->mean = c->part + parts, c->rstd = c->mean + sets;
    c->var = c->rstd + sets, c->one = c->var + sets, c->two = c->one + (sets > c->channels ? sets : c->channels);
    c->weight = c->two + (sets > c->channels ? sets : c->channels);
    return 0;
}

static void close_norm(norm *c) {
    if (c->room) ac_free(c->room, c->bytes);
}

/* Number i of a small tensor, or `missing` where there is none. */
static double number(const ac_tensor *t, int64_t i, double missing) {
    if (!t) return missing;
    ac_space all = ac_space_of(t, UINT32_MAX);
    return ac_read_double(ac_data(t), t->dtype, ac_space_offset(&all, i));
}

/* -- pieces -------------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t image, images, channel, at, n; /* positions [at, at + n) of that plane in so many images */
    double *part;
} piece;

/* Those of each image are a row: n values, `row` elements from the row before. */
typedef struct {
    char *at;
    int64_t row;
} rows;

static rows in_place(const planes *p, const piece *q) {
    int64_t at = q->image * p->image_stride + q->channel * p->channel_stride + q->at;
    return (rows){(char *)ac_data(p->t) + at * ac_itemsize(p->t->dtype), p->image_stride};
}

/* Calls act(address, stride, done, n) for the runs of neighbours in a row: n positions from the done-th on. */
#define EACH_RUN(p, q, image, act)                                                                                     \
    do {                                                                                                               \
        const planes *p_ = (p);                                                                                        \
        int last_ = p_->positions.n - 1;                                                                               \
        int64_t item_ = ac_itemsize(p_->t->dtype), inner_ = last_ < 0 ? 1 : p_->positions.size[last_];                 \
        int64_t stride_ = last_ < 0 ? 1 : p_->positions.stride[last_];                                                 \
        char *plane_ =                                                                                                 \
            (char *)ac_data(p_->t) + ((image) * p_->image_stride + (q)->channel * p_->channel_stride) * item_;         \
        for (int64_t done_ = 0, n_; done_ < (q)->n; done_ += n_) {                                                     \
            int64_t in_ = ((q)->at + done_) % inner_;                                                                  \
            n_ = inner_ - in_ < (q)->n - done_ ? inner_ - in_ : (q)->n - done_;                                        \
            act(plane_ + ac_space_offset(&p_->positions, (q)->at + done_) * item_, stride_, done_, n_);                \
        }                                                                                                              \
    } while (0)

/* To values of the loops' dtype. */
static void read_row(const norm *c, const planes *p, const piece *q, int64_t image, char *to) {
    int64_t first = (image * c->channels + q->channel) * c->positions + q->at; /* in row-major order */
#define LOAD(from, stride, done, n)                                                                                    \
    c->loops->load[p->t->dtype][c->opmath](n, from, stride, to + (done) * ac_itemsize(c->dtype))
    if (p->waiting && p->waiting->dtype == c->dtype) p->waiting->read(p->waiting, first, q->n, to);
    else if (p->waiting) (void)ac_cpu_read_source(c->loops, p->waiting, first, q->n, to);
    else EACH_RUN(p, q, image, LOAD);
#undef LOAD
}

/* A piece for the loops. */
static rows read_piece(const norm *c, const planes *p, const piece *q, char *room) {
    if (is_in_place(c, p)) return in_place(p, q);
    int64_t bytes = q->n * ac_itemsize(c->dtype);
    for (int64_t i = 0; i < q->images; i++) read_row(c, p, q, q->image + i, room + i * bytes);
    return (rows){room, q->n};
}

/* Where the loops leave a piece of the result, and, where that is `room`, on to memory. */
static rows to_write(const norm *c, const piece *q, char *room) {
    return is_in_place(c, &c->y) ? in_place(&c->y, q) : (rows){room, q->n};
}
static void written(const norm *c, const piece *q, const char *room) {
    const planes *p = &c->y;
    int64_t item = ac_itemsize(c->dtype), row = q->n * item;
#define STORE(to, stride, done, n)                                                                                     \
    c->loops->store[c->opmath][p->t->dtype](n, room + i * row + (done) * item, to, stride)
    for (int64_t i = 0; i < q->images && !is_in_place(c, p); i++) EACH_RUN(p, q, q->image + i, STORE);
#undef STORE
}

typedef void (*piece_fn)(const norm *c, const piece *q, char *room);

/* Pieces that one thread takes in order: those of neighbouring positions and channels. */
typedef struct {
    int64_t stack, at, pieces, channel, channels;
} unit;

static void do_unit(const norm *c, const unit *u, piece_fn act, bool backwards, char *room) {
    for (int64_t k = 0; k < u->pieces; k++) {
        int64_t at = u->at + (backwards ? u->pieces - 1 - k : k);
        piece q = {.image = u->stack * c->stack, .at = at * AC_TILE};
        q.images = ac_least(c->images - q.image, c->stack), q.n = ac_least(c->positions - q.at, AC_TILE);
        for (q.channel = u->channel; q.channel < u->channel + u->channels; q.channel++) {
            q.part = c->part + 2 * ((u->stack * c->channels + q.channel) * c->pieces + at);
            act(c, &q, room);
        }
    }
}

typedef struct {
    const norm *c;
    piece_fn first, second;
    void (*join)(const norm *c, int64_t set); /* what the first left of a set's pieces */
    int64_t sets;                             /* that a unit has */
} passes;

static void some_pieces(void *context, int64_t begin, int64_t end, char *room) {
    const passes *p = context;
    const norm *c = p->c;
    int64_t blocks = ac_ceil_div(c->channels, BLOCK);
    for (int64_t i = begin; i < end; i++) {
        unit u = {i / c->pieces / blocks, i % c->pieces, 1, i / c->pieces % blocks * BLOCK, BLOCK};
        u.channels = ac_least(u.channels, c->channels - u.channel);
        do_unit(c, &u, p->first, false, room);
    }
}

enum { ROOM = 3 * AC_TILE * 8 };

static int each_piece(const norm *c, piece_fn act) {
    passes p = {.c = c, .first = act};
    int64_t work = BLOCK * ac_least(c->stack * c->positions, AC_TILE);
    return ac_for_range_with(c->stacks * c->pieces * ac_ceil_div(c->channels, BLOCK), AC_GRAIN_SLOW / (work + 1) + 1,
                             ROOM, some_pieces, &p);
}

/* Units of whole sets, of group norm. The second pass begins where the first ended, with what is still in the cache. */
static void some_sets(void *context, int64_t begin, int64_t end, char *room) {
    const passes *p = context;
    const norm *c = p->c;
    int64_t blocks = ac_ceil_div(c->groups, p->sets);
    for (int64_t i = begin; i < end; i++) {
        int64_t image = i / blocks, first = i % blocks * p->sets, n = ac_least(p->sets, c->groups - first);
        unit u = {image, 0, c->pieces, first * c->depth, n * c->depth};
        do_unit(c, &u, p->first, false, room);
        for (int64_t s = first; s < first + n; s++) p->join(c, image * c->groups + s);
        do_unit(c, &u, p->second, true, room);
    }
}

/* Both passes. Those of a set of group norm, whose planes lie together, follow each other where every thread has some
 * sets. The planes of a channel lie apart, in all images, and each pass takes all channels. */
static int each_set(const norm *c, piece_fn first, void (*join)(const norm *c, int64_t set), piece_fn second) {
    passes p = {c, first, second, join, is_one_run(&c->x) ? 1 : ac_most(BLOCK / ac_most(c->depth, 1), 1)};
    int64_t units = c->images * ac_ceil_div(c->groups, p.sets);
    int64_t work = c->images * c->channels * c->positions / ac_most(units, 1);
    if (c->groups && units >= ac_num_threads()) {
        AC_WAY(channels_set_by_set);
        return ac_for_range_with(units, AC_GRAIN_SLOW / (work + 1) + 1, ROOM, some_sets, &p);
    }
    AC_WAY(channels_pass_by_pass);
    AC_TRY(each_piece(c, first));
    for (int64_t s = 0; s < sets_of(c); s++) join(c, s);
    return second ? each_piece(c, second) : 0;
}

/* What the first pass left of the pieces of a set's k-th plane or stack of planes, how many of these it has, and how
 * many values piece i of it. */
static const double *parts_of(const norm *c, int64_t set, int64_t k) {
    int64_t stack = c->groups ? set / c->groups : k, channel = c->groups ? set % c->groups * c->depth + k : set;
    return c->part + 2 * (stack * c->channels + channel) * c->pieces;
}
static int64_t stacks_in_set(const norm *c) { return c->groups ? c->depth : c->stacks; }
static int64_t values_in(const norm *c, int64_t k, int64_t i) {
    int64_t images = c->groups ? 1 : ac_least(c->images - k * c->stack, c->stack);
    return images * ac_least(c->positions - i * AC_TILE, AC_TILE);
}

/* -- forward ------------------------------------------------------------------------------------------------- */

static void measure(const norm *c, const piece *q, char *room) {
    rows x = read_piece(c, &c->x, q, room);
    c->planes->moments(q->images, q->n, x.at, x.row, q->part);
}

/* Joins the moments of a set's pieces, in order (Chan, Golub and LeVeque 1979). */
static void join_moments(const norm *c, int64_t s) {
    double mean = 0, squares = 0, had = 0;
    for (int64_t k = 0; k < stacks_in_set(c); k++) {
        const double *part = parts_of(c, s, k);
        for (int64_t p = 0; p < c->pieces; p++, part += 2) {
            double has = (double)values_in(c, k, p), apart = part[0] - mean;
            mean += apart * has / (had + has);
            squares += part[1] + apart * apart * had * has / (had + has);
            had += has;
        }
    }
    c->mean[s] = mean, c->var[s] = squares / had, c->rstd[s] = 1 / sqrt(c->var[s] + c->eps);
}

static void normalize_to(const norm *c, const piece *q, char *room, rows y) {
    int64_t s = set_of(c, q->image, q->channel);
    rows x = read_piece(c, &c->x, q, room);
    c->planes->scale(q->images, q->n, x.at, x.row, c->mean[s], c->rstd[s] * c->one[q->channel], c->two[q->channel],
                     y.at, y.row);
}

static void normalize(const norm *c, const piece *q, char *room) {
    normalize_to(c, q, room, to_write(c, q, room + AC_TILE * 8));
    written(c, q, room + AC_TILE * 8);
}

/* The result, left to whoever reads it. */
typedef struct {
    ac_source source;
    norm c;
    ac_tensor x;
} waiting_norm;

static void read_normalized(const ac_source *source, int64_t at, int64_t n, void *to) {
    const norm *c = &((const waiting_norm *)(const void *)source)->c;
    double room[AC_TILE], result[AC_TILE];
    bool direct = c->dtype == source->dtype;
    char *y = direct ? to : (char *)result;
    for (int64_t done = 0, run; done < n; done += run) {
        int64_t plane = (at + done) / c->positions, from = (at + done) % c->positions;
        piece q = {.image = plane / c->channels, .images = 1, .channel = plane % c->channels, .at = from};
        q.n = run = ac_least(n - done, c->positions - from);
        normalize_to(c, &q, (char *)room, (rows){y + done * ac_itemsize(c->dtype), 0});
    }
    if (!direct) c->loops->store[c->opmath][source->dtype](n, result, to, 1);
}

static void release_normalized(ac_source *source) {
    waiting_norm *w = (waiting_norm *)(void *)source;
    close_norm(&w->c);
    ac_free(w, sizeof *w);
}

/* Takes over the norm's memory. */
static int leave(norm *c, const ac_run *r) {
    waiting_norm *w = ac_alloc(sizeof *w);
    if (!w) return -1;
    *w = (waiting_norm){{read_normalized, release_normalized, r->out[0]->dtype, false}, *c, *r->in[0]};
    w->c.x.t = &w->x;
    c->room = NULL;
    *r->rest = &w->source;
    return 0;
}

static void read_parameters(norm *c, const ac_tensor *weight, const ac_tensor *bias, double eps) {
    c->eps = eps;
    for (int64_t k = 0; k < c->channels; k++) c->one[k] = number(weight, k, 1), c->two[k] = number(bias, k, 0);
}

static void write_statistics(const norm *c, const ac_run *r) {
    for (int64_t s = 0; s < sets_of(c); s++) {
        ac_write_double(ac_data(r->out[1]), r->out[1]->dtype, s, c->mean[s]);
        ac_write_double(ac_data(r->out[2]), r->out[2]->dtype, s, c->rstd[s]);
    }
}

static void keep_running(const norm *c, ac_tensor *running, const double *found, double factor, double momentum) {
    for (int64_t k = 0; running && k < c->channels; k++)
        ac_write_double(ac_data(running), running->dtype, k * running->strides[0],
                        (1 - momentum) * number(running, k, 0) + momentum * factor * found[k]);
}

static void take_running(const norm *c, const ac_tensor *mean, const ac_tensor *var) {
    for (int64_t k = 0; k < c->channels; k++) {
        c->mean[k] = number(mean, k, 0);
        c->rstd[k] = 1 / sqrt(number(var, k, 0) + c->eps);
    }
}

int ac_cpu_batch_norm(const ac_run *r) {
    ATTRS(batch_norm);
    norm c;
    AC_TRY(open_norm(&c, r->in[0], NULL, r->out[0], 0));
    bool waits = r->rest && !is_flat(r->in[0], 0);
    int failed = 0;
    read_parameters(&c, r->in[3], r->in[4], a->eps);
    if (!a->training) take_running(&c, r->in[1], r->in[2]);
    if (a->training) failed = each_set(&c, measure, join_moments, waits ? NULL : normalize);
    else if (!waits) failed = each_piece(&c, normalize);
    double count = (double)(c.images * c.positions);
    if (!failed && a->training && count > 0 && r->in[1] && r->in[2] && !ac_interrupted()) {
        keep_running(&c, r->in[1], c.mean, 1, a->momentum);
        keep_running(&c, r->in[2], c.var, count / (count - 1), a->momentum);
    }
    if (!failed) write_statistics(&c, r);
    if (!failed && waits) failed = leave(&c, r);
    close_norm(&c);
    return failed;
}

int ac_cpu_group_norm(const ac_run *r) {
    ATTRS(group_norm);
    norm c;
    AC_TRY(open_norm(&c, r->in[0], NULL, r->out[0], a->num_groups));
    read_parameters(&c, r->in[1], r->in[2], a->eps);
    int failed = each_set(&c, measure, join_moments, normalize);
    if (!failed) write_statistics(&c, r);
    close_norm(&c);
    return failed;
}

/* -- backward ------------------------------------------------------------------------------------------------ */

/* The sums of g and of g (x - mean). */
static void measure_gradient(const norm *c, const piece *q, char *room) {
    rows g = read_piece(c, &c->g, q, room), x = read_piece(c, &c->x, q, room + AC_TILE * 8);
    double mean = c->mean[set_of(c, q->image, q->channel)];
    c->planes->sums(q->images, q->n, g.at, g.row, x.at, x.row, mean, q->part);
}

/* Of a set, the means of g w and of g w xhat, in `one` and `two`. */
static void join_gradients(const norm *c, int64_t s) {
    double count = (double)(c->positions * (c->groups ? c->depth : c->images)), one = 0, two = 0;
    for (int64_t k = 0; k < stacks_in_set(c); k++) {
        const double *part = parts_of(c, s, k);
        double w = c->weight[c->groups ? s % c->groups * c->depth + k : s];
        for (int64_t p = 0; p < c->pieces; p++, part += 2)
            one += w * part[0] / count, two += w * (part[1] * c->rstd[s]) / count;
    }
    c->one[s] = one, c->two[s] = two;
}

/* Gradients of weight and bias. */
static void parameter_gradients(const norm *c, ac_tensor *dw, ac_tensor *db) {
    for (int64_t k = 0; k < c->channels; k++) {
        double dweight = 0, dbias = 0;
        for (int64_t i = 0; i < c->stacks; i++) {
            const double *part = c->part + 2 * (i * c->channels + k) * c->pieces;
            for (int64_t p = 0; p < c->pieces; p++, part += 2)
                dbias += part[0], dweight += part[1] * c->rstd[set_of(c, i, k)];
        }
        ac_write_double(ac_data(dw), dw->dtype, k, dweight);
        ac_write_double(ac_data(db), db->dtype, k, dbias);
    }
}

/* rstd (g w - one - xhat two), or rstd g w where the statistics are fixed: an infinity in x is not looked at */
static void propagate(const norm *c, const piece *q, char *room) {
    int64_t s = set_of(c, q->image, q->channel);
    double rstd = c->rstd[s], scale = rstd * c->weight[q->channel];
    rows g = read_piece(c, &c->g, q, room), dx = to_write(c, q, room + 2 * AC_TILE * 8);
    if (c->fixed) c->planes->scale(q->images, q->n, g.at, g.row, 0, scale, 0, dx.at, dx.row);
    else {
        rows x = read_piece(c, &c->x, q, room + AC_TILE * 8);
        c->planes->mix(q->images, q->n, g.at, g.row, x.at, x.row, scale, c->mean[s], -rstd * rstd * c->two[s],
                       -rstd * c->one[s], dx.at, dx.row);
    }
    written(c, q, room + 2 * AC_TILE * 8);
}

/* g, x, mean, rstd, weight give dx, dweight, dbias. */
static int backward(const ac_run *r, int64_t groups, bool fixed) {
    norm c;
    AC_TRY(open_norm(&c, r->in[1], r->in[0], r->out[0], groups));
    c.fixed = fixed;
    if (r->waiting && is_flat(r->in[1], groups)) ac_cpu_compute(r->waiting, r->in[0]);
    c.g.waiting = ac_source_of(r, 0);
    for (int64_t s = 0; s < sets_of(&c); s++) c.mean[s] = number(r->in[2], s, 0), c.rstd[s] = number(r->in[3], s, 0);
    for (int64_t k = 0; k < c.channels; k++) c.weight[k] = number(r->in[4], k, 1);
    int failed = each_set(&c, measure_gradient, join_gradients, propagate);
    if (!failed) parameter_gradients(&c, r->out[1], r->out[2]);
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
