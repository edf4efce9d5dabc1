#include "copies.h"

#include "../base/alloc.h"

static ac_copy *newest; /* head of the process-wide list */
static int64_t held_bytes;
static int64_t limit_bytes = INT64_MAX;

static bool same_view(const ac_copy *c, const ac_tensor *t, ac_dtype dtype) {
    if (c->tensor->dtype != dtype || c->offset != t->offset || c->shape.n != t->ndim) return false;
    for (int i = 0; i < t->ndim; i++)
        if (c->shape.v[i] != t->shape[i] || c->strides.v[i] != t->strides[i]) return false;
    return true;
}

static void drop(ac_copy **link) {
    ac_copy *c = *link;
    *link = c->next;
    if (c->newer) c->newer->older = c->older;
    else newest = c->older;
    if (c->older) c->older->newer = c->newer;
    held_bytes -= c->tensor->storage->bytes;
    ac_tensor_release(c->tensor);
    ac_free(c, sizeof *c);
}

/* The link to the entry for this view, NULL inside when there is none; outdated ones go. */
static ac_copy **link_of(const ac_tensor *t, ac_dtype dtype) {
    ac_copy **link = &t->storage->copies;
    while (*link) {
        if ((*link)->content != t->storage->content) drop(link);
        else if (same_view(*link, t, dtype)) return link;
        else link = &(*link)->next;
    }
    return link;
}

ac_tensor *ac_copies_find(const ac_tensor *t, ac_dtype dtype) {
    ac_copy *c = *link_of(t, dtype);
    return c ? c->tensor : NULL;
}

int ac_copies_put(const ac_tensor *t, ac_tensor *copy) {
    ac_copy **link = link_of(t, copy->dtype);
    if (*link) drop(link);
    if (held_bytes + copy->storage->bytes > limit_bytes) return 0;
    ac_copy *c = ac_alloc(sizeof *c);
    if (!c) return -1;
    *c = (ac_copy){.next = t->storage->copies,
                   .older = newest,
                   .home = t->storage,
                   .content = t->storage->content,
                   .offset = t->offset,
                   .shape = ac_shape_of(t),
                   .strides = ac_strides_of(t),
                   .tensor = ac_tensor_retain(copy)};
    if (newest) newest->newer = c;
    newest = t->storage->copies = c;
    held_bytes += copy->storage->bytes;
    return 0;
}

void ac_copies_free(ac_storage *s) {
    while (s->copies) drop(&s->copies);
}

void ac_copies_clear(void) {
    while (newest) ac_copies_free(newest->home);
}

int64_t ac_copies_bytes(void) { return held_bytes; }
int64_t ac_copies_limit(void) { return limit_bytes; }

void ac_copies_set_limit(int64_t bytes) {
    limit_bytes = bytes;
    if (held_bytes > limit_bytes) ac_copies_clear();
}
