/* Storages: made, counted, freed, on the CPU and on GPUs. */
#include "tensor/storage.h"

#include "base/alloc.h"
#include "base/inline.h"
#include "tensor/packed_weights.h"

#include <stdio.h>
#include <string.h>

/* Header and data of our own storages share one block: half the allocations of a small operator. */
enum { HEADER = (sizeof(ac_storage) + AC_ALIGNMENT - 1) / AC_ALIGNMENT * AC_ALIGNMENT };

static int no_gpu(ac_device device, int64_t bytes, char **data, void **block) {
    (void)bytes, (void)data, (void)block;
    return ac_fail(AC_RUNTIME, "%s is not in use: CUDA was not initialised", ac_device_name(device));
}
static void no_release(void *block) { (void)block; }
static int no_copy(ac_device device, char *to, const char *from, int64_t bytes) {
    (void)to, (void)from;
    return no_gpu(device, bytes, NULL, NULL);
}
int64_t ac_deferred_scales;
ac_storage *ac_waiting_result;
void (*ac_note_write)(ac_storage *s);
ac_gpu_memory_hooks ac_gpu_memory = {no_gpu, no_release, no_copy};
ac_storage_hooks ac_storage_object = {no_release, no_release};

const char *ac_device_name(ac_device d) {
    static _Thread_local char text[4][24];
    static _Thread_local unsigned next;
    if (d == AC_CPU || d == AC_META) return d == AC_CPU ? "cpu" : "meta";
    char *name = text[next++ % 4];
    (void)snprintf(name, sizeof text[0], "cuda:%d", ac_gpu_index(d));
    return name;
}

static ac_storage *gpu_storage(ac_device device, int64_t bytes) {
    ac_storage *s = ac_alloc(sizeof *s);
    if (!s) return NULL;
    *s = (ac_storage){.refs = 1, .bytes = bytes, .device = device, .release = ac_gpu_memory.release};
    s->replayed = ac_note_write != NULL;
    if (ac_gpu_memory.alloc(device, bytes, &s->data, &s->owner) == 0) return s;
    ac_free(s, sizeof *s);
    return NULL;
}

/* Without memory: the address is one that nothing else has, and is never followed. */
static ac_storage *meta_storage(int64_t bytes) {
    ac_storage *s = ac_alloc(sizeof *s);
    if (s) *s = (ac_storage){.refs = 1, .data = (char *)s, .bytes = bytes, .device = AC_META, .release = no_release};
    return s;
}

ac_storage *ac_storage_new(ac_device device, int64_t bytes) {
    if (device == AC_META) return meta_storage(bytes);
    if (device != AC_CPU) return gpu_storage(device, bytes);
    ac_storage *s = ac_alloc_data(HEADER + (size_t)bytes, bytes);
    if (s) *s = (ac_storage){.refs = 1, .data = (char *)s + HEADER, .bytes = bytes};
    return s;
}

ac_storage *ac_storage_wrap(void *data, int64_t bytes, void (*release)(void *), void *owner) {
    ac_storage *s = ac_alloc(sizeof *s);
    if (!s) return NULL;
    *s = (ac_storage){.refs = 1, .data = data, .bytes = bytes, .exported = true, .release = release, .owner = owner};
    return s;
}

ac_storage *ac_storage_retain(ac_storage *s) {
    AC_ASSERT(s->refs > 0);
    if (++s->refs == 2 && s->py) ac_storage_object.incref(s->py);
    return s;
}

void ac_storage_settled(ac_storage *s) {
    ac_storage *there = s->factor_at;
    if (!s->deferred) return;
    s->deferred = false, s->factor_at = NULL, ac_deferred_scales--;
    if (there) ac_storage_release(there);
}

static void free_storage(ac_storage *s) {
    int64_t own = s->moved ? s->moved->own : s->bytes;
    ac_storage_settled(s);
    if (s->packed) ac_packed_weights_free(s);
    if (s->moved) {
        ac_storage *keeps = s->moved->keeps;
        ac_free(s->moved, sizeof *s->moved);
        if (keeps) ac_storage_release(keeps);
    }
    if (s->release || s->owner) {
        if (s->release) s->release(s->owner);
        ac_free(s, sizeof *s);
    } else {
        ac_free_data(s, HEADER + (size_t)own, own);
    }
}

void ac_storage_release(ac_storage *s) {
    AC_ASSERT(s->refs > 0);
    int64_t left = --s->refs;
    if (left == 0) free_storage(s);
    else if (left == 1 && s->py) ac_storage_object.decref(s->py);
}

static ac_storage_moved *moved_of(ac_storage *s) {
    if (s->moved) return s->moved;
    s->moved = ac_alloc(sizeof *s->moved);
    if (s->moved) *s->moved = (ac_storage_moved){.own = s->bytes, .room = s->bytes};
    return s->moved;
}

int ac_storage_move(ac_storage *s, ac_storage *to) {
    ac_storage_moved *mine = moved_of(s), *its = mine ? moved_of(to) : NULL;
    if (!its) return -1;
    AC_ASSERT(s != to && !its->keeps && s->device == to->device && its->room >= mine->room);
    if (ac_is_gpu(s->device)) AC_TRY(ac_gpu_memory.copy(s->device, to->data, s->data, mine->room));
    else if (mine->room) memcpy(to->data, s->data, (size_t)mine->room);
    its->keeps = mine->keeps; /* it keeps what was kept before */
    mine->keeps = ac_storage_retain(to);
    mine->room = its->room;
    s->data = to->data;
    s->content++;
    return 0;
}

int ac_storage_set_bytes(ac_storage *s, int64_t bytes) {
    if (!moved_of(s)) return -1;
    AC_ASSERT(bytes >= 0 && bytes <= s->moved->room);
    s->bytes = bytes;
    s->content++;
    return 0;
}

static int take(ac_storage *s, ac_storage *from) {
    ac_storage_moved *mine = moved_of(s);
    if (!mine) return -1;
    AC_ASSERT(mine->own == 0 && s != from && (!from || s->device == from->device));
    if (mine->keeps) ac_storage_release(mine->keeps);
    mine->keeps = from ? ac_storage_retain(from) : NULL;
    s->data = from ? from->data : s->device == AC_CPU ? (char *)s + HEADER : NULL;
    s->bytes = mine->room = from ? from->bytes : 0;
    s->content++;
    return 0;
}

int ac_storage_fill(ac_storage *s, ac_storage *from) {
    AC_TRY(take(s, from));
    ac_storage_settled(s);
    s->blank = false;
    return 0;
}

int ac_storage_drop(ac_storage *s, ac_dtype dtype) {
    AC_TRY(take(s, NULL));
    ac_packed_weights_free(s);
    ac_storage_settled(s);
    s->deferred = s->blank = true;
    s->factor = 1, s->deferred_dtype = dtype;
    ac_deferred_scales++;
    return 0;
}
