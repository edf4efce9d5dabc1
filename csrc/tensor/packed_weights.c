/* The packed copies of weights: found, added, renewed and dropped, within a limit of bytes for the process. */
#include "tensor/packed_weights.h"

#include "base/alloc.h"

#include <stdatomic.h>

static ac_packed_weight *newest; /* head of the process-wide list */
static ac_packed_weights_stats stats = {.limit = INT64_MAX};

/* Copies in float32 take as much memory as the weights, so they have a limit of their own. */
enum { MOST_IN_FLOAT32 = 256 << 20 };
static int64_t bytes_in_float32;

static bool same_view(const ac_packed_weight *c, const ac_tensor *t, ac_packed_kind kind) {
    if (c->kind.dtype != kind.dtype || c->kind.out_first != kind.out_first || c->kind.stream != kind.stream)
        return false;
    if (c->offset != t->offset || c->shape.n != t->ndim) return false;
    for (int i = 0; i < t->ndim; i++)
        if (c->shape.v[i] != t->shape[i] || c->strides.v[i] != t->strides[i]) return false;
    return true;
}

static void drop(ac_packed_weight **link) {
    ac_packed_weight *c = *link;
    *link = c->next;
    if (c->newer) c->newer->older = c->older;
    else newest = c->older;
    if (c->older) c->older->newer = c->newer;
    stats.bytes -= c->tensor->storage->bytes;
    if (c->kind.dtype == AC_float32) bytes_in_float32 -= c->tensor->storage->bytes;
    stats.copies--;
    ac_tensor_release(c->tensor);
    ac_free(c, sizeof *c);
}

/* The link to the entry for this view, NULL inside when there is none; outdated ones go. */
static ac_packed_weight **link_of(const ac_tensor *t, ac_packed_kind kind) {
    ac_packed_weight **link = &t->storage->packed;
    while (*link) {
        if ((*link)->content != t->storage->content) drop(link);
        else if (same_view(*link, t, kind)) return link;
        else link = &(*link)->next;
    }
    return link;
}

ac_tensor *ac_packed_weight_find(const ac_tensor *t, ac_packed_kind kind) {
    ac_packed_weight *c = *link_of(t, kind);
    if (!c) return NULL;
    stats.used++;
    c->used = true;
    return c->tensor;
}

bool ac_packed_weights_have_room(ac_dtype dtype, int64_t bytes) {
    bool room = bytes <= stats.limit - stats.bytes;
    if (dtype == AC_float32) room &= bytes <= MOST_IN_FLOAT32 - bytes_in_float32;
    stats.refused += !room;
    return room;
}

bool ac_packed_weight_is_reused(const ac_tensor *t, bool out_first) {
    enum { OFTEN = 3 }; /* a step of training, or two that accumulate, read a weight less often between two writes */
    ac_weight_uses *u = &t->storage->uses;
    if (u->content != t->storage->content || u->offset != t->offset)
        *u = (ac_weight_uses){t->storage->content, t->offset, {0, 0}};
    if (u->times[out_first] < OFTEN) u->times[out_first]++;
    return u->times[out_first] == OFTEN;
}

int ac_packed_weight_put(const ac_tensor *t, ac_packed_kind kind, ac_tensor *copy, uint64_t content) {
    if (content != t->storage->content) return 0; /* written meanwhile */
    ac_packed_weight **link = link_of(t, kind);
    if (*link) drop(link);
    ac_packed_weight *c = ac_alloc(sizeof *c);
    if (!c) return -1;
    *c = (ac_packed_weight){.next = t->storage->packed,
                            .older = newest,
                            .home = t->storage,
                            .content = content,
                            .kind = kind,
                            .offset = t->offset,
                            .shape = ac_shape_of(t),
                            .strides = ac_strides_of(t),
                            .tensor = ac_tensor_retain(copy),
                            .used = true};
    if (newest) newest->newer = c;
    newest = t->storage->packed = c;
    stats.bytes += copy->storage->bytes;
    if (kind.dtype == AC_float32) bytes_in_float32 += copy->storage->bytes;
    stats.copies++, stats.packed++;
    return 0;
}

void ac_packed_weights_take(const ac_tensor *t, const void *stream, ac_kept kept[AC_KEPT]) {
    int n = 0;
    for (int i = 0; i < AC_KEPT; i++) kept[i].panels = NULL;
    for (ac_packed_weight *c = t->storage->packed; c && n < AC_KEPT; c = c->next) {
        bool asked = c->kind.dtype != AC_float32 && c->kind.stream == stream && c->used;
        if (!asked || c->content != t->storage->content || !same_view(c, t, c->kind)) continue;
        kept[n].panels = ac_tensor_retain(c->tensor);
        kept[n].kind = c->kind, kept[n].content = c->content;
        atomic_store(&kept[n++].refuse, false);
    }
}

void ac_packed_weights_give_back(const ac_tensor *t, ac_kept kept[AC_KEPT], bool written) {
    for (int i = 0; i < AC_KEPT && kept[i].panels; i++) {
        bool valid = written && !atomic_load(&kept[i].refuse) && t->storage->content == kept[i].content + 1;
        for (ac_packed_weight *c = t->storage->packed; c && valid;
             c = c->next) { /* unless somebody dropped it meanwhile */
            if (c->tensor != kept[i].panels) continue;
            c->content = t->storage->content;
            c->used = false;
            stats.renewed++;
        }
        ac_tensor_clear(&kept[i].panels);
    }
}

void ac_packed_weights_free(ac_storage *s) {
    while (s->packed) drop(&s->packed);
}

void ac_packed_weights_clear(void) {
    while (newest) ac_packed_weights_free(newest->home);
}

ac_packed_weights_stats ac_packed_weights_now(void) { return stats; }

void ac_packed_weights_set_limit(int64_t bytes) {
    stats.limit = bytes;
    if (stats.bytes > bytes) ac_packed_weights_clear();
}
