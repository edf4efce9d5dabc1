/* Iteration over strided tensors: dimensions merged where strides allow it, and elements split over the threads. */
#include "shared/tensor_iter.h"

#include "base/alloc.h"
#include "base/inline.h"

static void push_dim(ac_iter *it, int64_t size, const int64_t *strides) {
    int last = it->ndim - 1;
    bool merges = it->ndim > 0; /* the dimension before covers exactly this one */
    for (int k = 0; k < it->operands && merges; k++) merges = it->strides[k][last] == strides[k] * size;
    int at = merges ? last : it->ndim++;
    it->shape[at] = merges ? it->shape[at] * size : size;
    for (int k = 0; k < it->operands; k++) it->strides[k][at] = strides[k];
}

/* Dimensions in the order of `order`. */
static void init(ac_iter *it, const ac_dims *shape, ac_tensor *const *operands, int n, const int64_t *order) {
    AC_ASSERT(n <= AC_MAX_OPERANDS && shape->n <= AC_MAX_DIMS);
    it->operands = n, it->ndim = 0, it->numel = 1;
    for (int k = 0; k < n; k++) {
        it->data[k] = ac_data(operands[k]);
        it->itemsize[k] = ac_itemsize(operands[k]->dtype);
    }
    for (int64_t i = 0; i < shape->n; i++) {
        int64_t d = order[i];
        it->numel *= shape->v[d];
        if (shape->v[d] == 1) continue;
        int64_t strides[AC_MAX_OPERANDS] = {0};
        for (int k = 0; k < n; k++) {
            int64_t own = d - (shape->n - operands[k]->ndim);
            strides[k] = own >= 0 && operands[k]->shape[own] != 1 ? operands[k]->strides[own] : 0;
        }
        push_dim(it, shape->v[d], strides);
    }
    if (it->ndim == 0) {
        it->ndim = 1, it->shape[0] = 1;
        for (int k = 0; k < n; k++) it->strides[k][0] = 0;
    }
}

void ac_iter_init(ac_iter *it, const ac_dims *shape, ac_tensor *const *operands, int n) {
    int64_t order[AC_MAX_DIMS];
    for (int64_t d = 0; d < shape->n; d++) order[d] = d;
    init(it, shape, operands, n, order);
}

/* Whether the memory of operands runs along the dimension before the last, so that each of its lines of the cache
 * serves many runs, and the lines of one run do not stay there: they fall on few sets, or lie on more pages than are
 * kept. */
static bool runs_across(const ac_iter *it) {
    enum { LEAST = 256, PAGES = 2048, SET = 1024 };
    int last = it->ndim - 1;
    int64_t lines = 0;
    bool collide = false;
    if (last < 1 || it->shape[last] < LEAST || it->shape[last - 1] < 8) return false;
    for (int k = 0; k < it->operands; k++) {
        int64_t step = it->strides[k][last] * it->itemsize[k];
        if (it->strides[k][last - 1] != 1 || step < SET / 2) continue;
        lines += it->shape[last], collide = collide || step % SET == 0;
    }
    return collide || lines >= PAGES;
}

/* Runs so short that those lines are still in the cache when the next run comes: the last dimension in parts of equal
 * length, which all steps of the one before take first. */
static void shorten_runs(ac_iter *it) {
    enum { LEAST = 16, GOOD = 64 };
    int last = it->ndim - 1;
    int64_t n = it->shape[last], part = GOOD;
    while (part >= LEAST && n % part) part--;
    if (part < LEAST || n == part || it->ndim == AC_MAX_DIMS) return;
    it->shape[last + 1] = part, it->shape[last] = it->shape[last - 1], it->shape[last - 1] = n / part;
    for (int k = 0; k < it->operands; k++) {
        int64_t *strides = it->strides[k], along = strides[last];
        strides[last + 1] = along, strides[last] = strides[last - 1], strides[last - 1] = along * part;
    }
    it->ndim++;
}

void ac_iter_init_along(ac_iter *it, ac_tensor *const *operands, int n) {
    const ac_tensor *out = operands[0];
    ac_dims shape = ac_shape_of(out);
    int64_t order[AC_MAX_DIMS];
    for (int64_t d = 0; d < shape.n; d++) { /* longer steps first; equal ones as they are */
        int64_t at = d;
        for (; at > 0 && out->strides[order[at - 1]] < out->strides[d]; at--) order[at] = order[at - 1];
        order[at] = d;
    }
    init(it, &shape, operands, n, order);
}

void ac_iter_init_by_memory(ac_iter *it, ac_tensor *const *operands, int n) {
    ac_iter_init_along(it, operands, n);
    if (runs_across(it)) shorten_runs(it);
}

typedef struct {
    const ac_iter *it;
    ac_run_fn fn;
    void *context;
} walk;

/* The elements [begin, end) in row-major order, as runs along the last dimension. */
static void walk_range(void *context, int64_t begin, int64_t end) {
    const walk *w = context;
    const ac_iter *it = w->it;
    int last = it->ndim - 1;
    int64_t index[AC_MAX_DIMS], strides[AC_MAX_OPERANDS], rest = begin;
    char *data[AC_MAX_OPERANDS];
    for (int d = last; d >= 0; d--) index[d] = rest % it->shape[d], rest /= it->shape[d];
    for (int k = 0; k < it->operands; k++) {
        int64_t at = 0;
        for (int d = 0; d <= last; d++) at += index[d] * it->strides[k][d];
        data[k] = it->data[k] + at * it->itemsize[k];
        strides[k] = it->strides[k][last];
    }
    while (begin < end) {
        int64_t run = it->shape[last] - index[last];
        if (run > end - begin) run = end - begin;
        w->fn(w->context, run, data, strides, begin);
        begin += run;
        if (begin == end) break;
        for (int k = 0; k < it->operands; k++) data[k] -= index[last] * strides[k] * it->itemsize[k];
        index[last] = 0;
        for (int d = last - 1; d >= 0; d--) {
            bool wraps = ++index[d] == it->shape[d];
            int64_t move = wraps ? 1 - it->shape[d] : 1;
            for (int k = 0; k < it->operands; k++) data[k] += move * it->strides[k][d] * it->itemsize[k];
            if (!wraps) break;
            index[d] = 0;
        }
    }
}

typedef struct {
    int64_t n, grain;
    ac_range_fn fn;
    void *context;
} ranges;

static void one_range(void *context, int64_t chunk, int thread) {
    const ranges *r = context;
    (void)thread;
    int64_t begin = chunk * r->grain, end = begin + r->grain;
    r->fn(r->context, begin, end < r->n ? end : r->n);
}

void ac_for_range(int64_t n, int64_t grain, ac_range_fn fn, void *context) {
    if (n <= 0) return;
    if (grain < 1) grain = 1;
    ranges r = {n, grain, fn, context};
    ac_parallel((n + grain - 1) / grain, ac_num_threads(), one_range, &r);
}

typedef struct {
    int64_t n, grain;
    ac_scratch_fn fn;
    void *context;
    char *scratch;
    size_t each;
} scratch_ranges;

static void one_scratch_range(void *context, int64_t chunk, int thread) {
    const scratch_ranges *r = context;
    int64_t begin = chunk * r->grain, end = begin + r->grain;
    r->fn(r->context, begin, end < r->n ? end : r->n, r->scratch + (size_t)thread * r->each);
}

int ac_for_range_with(int64_t n, int64_t grain, size_t bytes, ac_scratch_fn fn, void *context) {
    if (n <= 0) return 0;
    if (grain < 1) grain = 1;
    int64_t chunks = (n + grain - 1) / grain;
    int threads = ac_num_threads() < chunks ? ac_num_threads() : (int)chunks;
    scratch_ranges r = {n, grain, fn, context, NULL, (bytes + AC_ALIGNMENT - 1) / AC_ALIGNMENT * AC_ALIGNMENT};
    r.scratch = ac_alloc((size_t)threads * r.each);
    if (!r.scratch) return -1;
    ac_parallel(chunks, threads, one_scratch_range, &r);
    ac_free(r.scratch, (size_t)threads * r.each);
    return 0;
}

void ac_iter_run(const ac_iter *it, int64_t grain, ac_run_fn fn, void *context) {
    walk w = {it, fn, context};
    ac_for_range(it->numel, grain, walk_range, &w);
}

ac_space ac_space_of(const ac_tensor *t, uint32_t mask) {
    ac_space s = {.numel = 1};
    for (int d = 0; d < t->ndim; d++) {
        if (!(mask & (1u << d))) continue;
        s.numel *= t->shape[d];
        if (t->shape[d] == 1) continue;
        int last = s.n - 1;
        bool merges = s.n > 0 && s.stride[last] == t->strides[d] * t->shape[d];
        int at = merges ? last : s.n++;
        s.size[at] = merges ? s.size[at] * t->shape[d] : t->shape[d];
        s.stride[at] = t->strides[d];
    }
    if (s.n == 0) s.n = 1, s.size[0] = 1, s.stride[0] = 0;
    return s;
}

int64_t ac_space_offset(const ac_space *s, int64_t index) {
    int64_t at = 0;
    for (int d = s->n - 1; d > 0; d--) {
        at += index % s->size[d] * s->stride[d];
        index /= s->size[d];
    }
    return at + index * s->stride[0];
}

ac_tensor ac_flipped(const ac_tensor *t, const ac_dims *dims) {
    ac_tensor view = *t;
    for (int64_t i = 0; i < dims->n; i++) {
        int64_t d = dims->v[i] < 0 ? dims->v[i] + t->ndim : dims->v[i];
        if (t->ndim == 0 || t->shape[d] == 0) continue;
        view.offset += (t->shape[d] - 1) * t->strides[d], view.strides[d] = -t->strides[d];
    }
    return view;
}
