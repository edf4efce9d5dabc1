/* Kernels over lists of tensors, for the loss scaler and gradient clipping. Pieces of all tensors are one job of the
 * thread pool, so many small tensors cost no more than one large. */
#include "cpu/kernels.h"

#include "base/alloc.h"

#include <math.h>

typedef struct {
    ac_tensor *const *tensors;
    int n;
    int64_t *first; /* the first piece of each tensor, and their number at [n] */
    int64_t grain;
    double factor;
    const double *factors; /* one a tensor, or NULL: `factor` */
    ac_found *found;       /* one a piece, or NULL: products are written instead */
} list_call;

static int list_init(list_call *c, ac_tensor *const *tensors, int n) {
    c->tensors = tensors, c->n = n;
    c->first = ac_alloc((size_t)(n + 1) * sizeof *c->first);
    if (!c->first) return -1;
    int64_t pieces = 0, elements = 0;
    for (int i = 0; i < n; i++) {
        c->first[i] = pieces;
        elements += tensors[i]->numel;
        pieces += (tensors[i]->numel + AC_PIECE - 1) / AC_PIECE;
    }
    c->first[n] = pieces;
    c->grain = ac_pieces_grain(pieces, elements);
    return 0;
}

static void list_free(list_call *c) { ac_free(c->first, (size_t)(c->n + 1) * sizeof *c->first); }

int ac_owner_of(const int64_t *first, int n, int64_t piece) {
    int lo = 0, hi = n;
    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;
        if (first[mid] <= piece) lo = mid;
        else hi = mid;
    }
    return lo;
}

static void join(ac_found *all, const ac_found *one) {
    all->squares += one->squares, all->infs += one->infs, all->nans += one->nans, all->small += one->small;
    if (one->amax > all->amax) all->amax = one->amax;
    if (all->first == 0) all->first = one->first; /* they come in order */
}

/* 16-bit values are judged as their dtype stores the products: infinite where it overflows. */
static void grad_stats_of_halves(const ac_loops *loops, ac_dtype dtype, int64_t n, const void *x, double factor,
                                 ac_found *found) {
    float products[AC_TILE];
    uint16_t stored[AC_TILE];
    ac_found before = {0}, after = {0};
    loops->grad_stats[0](n, x, factor, &before, products);
    loops->store[AC_OPMATH_F32][dtype](n, products, stored, 1);
    loops->load[dtype][AC_OPMATH_F32](n, stored, 1, products);
    loops->grad_stats[0](n, products, 1, &after, NULL);
    after.small = before.small;
    *found = after;
}

static bool is_direct(ac_dtype dtype, int64_t stride) {
    return stride == 1 && dtype == ac_opmath_dtype(ac_opmath_of(dtype));
}

/* One run of neighbours: its statistics, or the products. `found` comes as zeros, or NULL. */
static void one_run(const ac_loops *loops, char *data, ac_dtype dtype, int64_t n, int64_t stride, double factor,
                    ac_found *found) {
    double room[AC_TILE];
    ac_found unused = {0};
    ac_opmath opmath = ac_opmath_of(dtype);
    bool direct = is_direct(dtype, stride), wide = opmath == AC_OPMATH_F64;
    const void *x = ac_read_run(loops, opmath, dtype, n, data, stride, room);
    if (found && ac_is_half(dtype)) grad_stats_of_halves(loops, dtype, n, x, factor, found);
    else loops->grad_stats[wide](n, x, factor, found ? found : &unused, found ? NULL : direct ? (void *)data : room);
    if (!found && !direct) loops->store[opmath][dtype](n, room, data, stride);
}

static void some_pieces(void *context, int64_t begin, int64_t end) {
    const list_call *c = context;
    const ac_loops *loops = ac_cpu_loops();
    for (int64_t piece = begin; piece < end; piece++) {
        int owner = ac_owner_of(c->first, c->n, piece);
        const ac_tensor *t = c->tensors[owner];
        int64_t at = (piece - c->first[owner]) * AC_PIECE, last = at + AC_PIECE < t->numel ? at + AC_PIECE : t->numel;
        ac_space all = ac_space_of(t, UINT32_MAX);
        int64_t inner = all.size[all.n - 1], stride = all.stride[all.n - 1];
        for (int64_t run; at < last; at += run) {
            run = inner - at % inner;
            if (run > last - at) run = last - at;
            if (run > AC_TILE && !is_direct(t->dtype, stride)) run = AC_TILE; /* what has buffers */
            char *data = (char *)ac_data(t) + ac_space_offset(&all, at) * ac_itemsize(t->dtype);
            ac_found one = {0};
            one_run(loops, data, t->dtype, run, stride, c->factors ? c->factors[owner] : c->factor,
                    c->found ? &one : NULL);
            if (one.first > 0) one.first += (double)at;
            if (c->found) join(&c->found[piece], &one);
        }
    }
}

int ac_cpu_grad_stats(ac_tensor *const *tensors, int n, const double *factors, ac_found *found) {
    list_call c = {.factors = factors};
    AC_TRY(list_init(&c, tensors, n));
    size_t bytes = (size_t)(c.first[n] + 1) * sizeof *c.found;
    c.found = ac_calloc(bytes);
    if (c.found) {
        ac_for_range(c.first[n], c.grain, some_pieces, &c);
        for (int i = 0; i < n; i++) {
            found[i] = (ac_found){0};
            for (int64_t p = c.first[i]; p < c.first[i + 1]; p++) join(&found[i], &c.found[p]); /* in order */
        }
        ac_free(c.found, bytes);
    }
    list_free(&c);
    return c.found ? 0 : -1;
}

int ac_cpu_scale(ac_tensor *const *tensors, int n, double factor, const double *there) {
    list_call c = {.factor = there ? factor * *there : factor};
    AC_TRY(list_init(&c, tensors, n));
    ac_for_range(c.first[n], c.grain, some_pieces, &c);
    list_free(&c);
    return 0;
}
