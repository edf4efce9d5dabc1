/* Storages: made, counted, freed, on the CPU and on GPUs. */
#include "tensor/storage.h"

#include "base/alloc.h"
#include "base/inline.h"
#include "tensor/packed_weights.h"

#include <stdio.h>

/* Header and data of our own storages share one block: half the allocations of a small operator. */
enum { HEADER = (sizeof(ac_storage) + AC_ALIGNMENT - 1) / AC_ALIGNMENT * AC_ALIGNMENT };

static int no_gpu(ac_device device, int64_t bytes, char **data, void **block) {
    (void)bytes, (void)data, (void)block;
    return ac_fail(AC_RUNTIME, "%s is not in use: CUDA was not initialised", ac_device_name(device));
}
static void no_release(void *block) { (void)block; }
int64_t ac_deferred_scales;
ac_gpu_memory_hooks ac_gpu_memory = {no_gpu, no_release};

const char *ac_device_name(ac_device d) {
    static _Thread_local char text[4][24];
    static _Thread_local unsigned next;
    if (d == AC_CPU) return "cpu";
    char *name = text[next++ % 4];
    (void)snprintf(name, sizeof text[0], "cuda:%d", ac_gpu_index(d));
    return name;
}

static ac_storage *gpu_storage(ac_device device, int64_t bytes) {
    ac_storage *s = ac_alloc(sizeof *s);
    if (!s) return NULL;
    *s = (ac_storage){.refs = 1, .bytes = bytes, .device = device, .release = ac_gpu_memory.release};
    if (ac_gpu_memory.alloc(device, bytes, &s->data, &s->owner) == 0) return s;
    ac_free(s, sizeof *s);
    return NULL;
}

ac_storage *ac_storage_new(ac_device device, int64_t bytes) {
    if (device != AC_CPU) return gpu_storage(device, bytes);
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
    AC_ASSERT(s->refs > 0);
    s->refs++;
    return s;
}

void ac_storage_settled(ac_storage *s) {
    ac_storage *there = s->factor_at;
    if (!s->deferred) return;
    s->deferred = false, s->factor_at = NULL, ac_deferred_scales--;
    if (there) ac_storage_release(there);
}

void ac_storage_release(ac_storage *s) {
    AC_ASSERT(s->refs > 0);
    if (--s->refs > 0) return;
    ac_storage_settled(s);
    ac_packed_weights_free(s);
    if (s->release || s->owner) {
        if (s->release) s->release(s->owner);
        ac_free(s, sizeof *s);
    } else {
        ac_memory_count(-s->bytes);
        ac_free(s, HEADER + (size_t)s->bytes);
    }
}
