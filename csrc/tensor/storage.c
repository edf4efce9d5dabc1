#include "storage.h"

#include "../base/alloc.h"
#include "copies.h"

/* Header and data of our own storages share one block: half the allocations of a small operator. */
enum { HEADER = (sizeof(ac_storage) + AC_ALIGNMENT - 1) / AC_ALIGNMENT * AC_ALIGNMENT };

ac_storage *ac_storage_new(int64_t bytes) {
    ac_storage *s = ac_alloc(HEADER + (size_t)bytes);
    if (!s) return NULL;
    *s = (ac_storage){.refs = 1, .data = (char *)s + HEADER, .bytes = bytes};
    ac_memory_count(bytes);
    return s;
}

ac_storage *ac_storage_wrap(void *data, int64_t bytes, void (*release)(void *), void *owner) {
    ac_storage *s = ac_alloc(sizeof *s);
    if (!s) return NULL;
    *s = (ac_storage){.refs = 1, .data = data, .bytes = bytes, .exported = true, .release = release, .owner = owner};
    return s;
}

ac_storage *ac_storage_retain(ac_storage *s) {
    s->refs++;
    return s;
}

void ac_storage_release(ac_storage *s) {
    if (--s->refs > 0) return;
    ac_copies_free(s);
    if (s->release) {
        s->release(s->owner);
        ac_free(s, sizeof *s);
    } else {
        ac_memory_count(-s->bytes);
        ac_free(s, HEADER + (size_t)s->bytes);
    }
}
