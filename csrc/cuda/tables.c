/* Tables of lists of tensors: sent to a GPU, and kept there for the next step. */
#include "cuda/tables.h"

#include "base/alloc.h"

#include <string.h>

/* A table on a device. Its memory belongs to a stream, whose launches read it; so it serves that stream alone. */
struct ac_gpu_table {
    int holders; /* lists, and the keeping */
    ac_device device;
    CUstream stream;
    size_t bytes;
    ac_gpu_item *items; /* what it holds */
    ac_gpu_block *block;
};

enum { KEPT = 16, TAKEN_AT_ONCE = 64 << 10 };
static ac_gpu_table *kept[KEPT]; /* the one used last comes first */

static size_t bytes_of(int n) { return (size_t)(n > 0 ? n : 1) * sizeof(ac_gpu_item); }

static void let_go(ac_gpu_table *t) {
    if (!t || --t->holders > 0) return;
    ac_gpu_free(t->block);
    ac_free(t->items, t->bytes);
    ac_free(t, sizeof *t);
}

int ac_gpu_list_new(ac_gpu_sent_list *l, ac_device d, int n) {
    *l = (ac_gpu_sent_list){.device = d, .n = n, .items = ac_calloc(bytes_of(n))};
    return l->items ? 0 : -1;
}

void ac_gpu_list_free(ac_gpu_sent_list *l) {
    (void)pthread_mutex_lock(&ac_gpu_locks.lists);
    let_go(l->table);
    (void)pthread_mutex_unlock(&ac_gpu_locks.lists);
    if (l->items) ac_free(l->items, bytes_of(l->n));
}

static int copy_from(const ac_gpu_table *t, const void *items) {
    ac_gpu_scope scope;
    AC_TRY(ac_gpu_enter(t->device, &scope));
    CUresult result =
        ac_cu.cuMemcpyHtoDAsync_v2((CUdeviceptr)(uintptr_t)ac_gpu_address(t->block), items, t->bytes, t->stream);
    ac_gpu_leave(&scope);
    return ac_cu_check(result, "a list of tensors for the GPU");
}

/* Nobody waits for it. The driver takes a copy of a small table with the call itself, unless the GPU reads the host's
 * memory by itself. Other tables go through page-locked memory, which is not used again before the copy is done. */
static int upload(const ac_gpu_table *t) {
    if (t->bytes <= TAKEN_AT_ONCE && !ac_gpu_reads_pageable(t->device)) return copy_from(t, t->items);
    ac_storage *staged = ac_gpu_pinned((int64_t)t->bytes);
    if (!staged) return -1;
    memcpy(staged->data, t->items, t->bytes);
    int failed = copy_from(t, staged->data);
    if (!failed) failed = ac_gpu_pinned_used(staged, t->device);
    ac_storage_release(staged);
    return failed;
}

static ac_gpu_table *new_table(const ac_gpu_sent_list *l) {
    ac_gpu_table *t = ac_calloc(sizeof *t);
    if (!t) return NULL;
    *t = (ac_gpu_table){.holders = 1, .device = l->device, .stream = ac_gpu_stream(l->device), .bytes = bytes_of(l->n)};
    t->items = ac_alloc(t->bytes);
    t->block = t->items ? ac_gpu_alloc(t->device, (int64_t)t->bytes) : NULL;
    if (t->block) memcpy(t->items, l->items, t->bytes);
    if (t->block && upload(t) == 0) return t;
    let_go(t);
    return NULL;
}

static bool serves(const ac_gpu_table *t, const ac_gpu_sent_list *l) {
    return t->device == l->device && t->stream == ac_gpu_stream(l->device) && t->bytes == bytes_of(l->n) &&
           memcmp(t->items, l->items, t->bytes) == 0;
}

/* Puts the table at place i, or a new one in the last place, in front. */
static void put_first(ac_gpu_table *t, int i) {
    memmove(kept + 1, kept, (size_t)i * sizeof *kept);
    kept[0] = t;
}

static ac_gpu_table *table_for(const ac_gpu_sent_list *l) {
    int i = 0;
    while (i < KEPT && kept[i] && !serves(kept[i], l)) i++;
    ac_gpu_table *t = i < KEPT ? kept[i] : NULL;
    if (!t) {
        t = new_table(l);
        if (!t) return NULL;
        if (i == KEPT) let_go(kept[--i]);
    }
    put_first(t, i);
    t->holders++;
    return t;
}

int ac_gpu_list_send(ac_gpu_sent_list *l) {
    l->pieces = 0;
    for (int i = 0; i < l->n; i++) {
        l->items[i].first_piece = l->pieces;
        l->pieces += (l->items[i].numel + AC_GPU_PIECE - 1) / AC_GPU_PIECE;
    }
    (void)pthread_mutex_lock(&ac_gpu_locks.lists);
    l->table = table_for(l);
    (void)pthread_mutex_unlock(&ac_gpu_locks.lists);
    return l->table ? 0 : -1;
}

ac_gpu_list ac_gpu_list_arguments(const ac_gpu_sent_list *l) {
    return (ac_gpu_list){.items = ac_gpu_address(l->table->block), .n = l->n, .pieces = l->pieces};
}

void ac_gpu_lists_forget(ac_device d) {
    (void)pthread_mutex_lock(&ac_gpu_locks.lists);
    int left = 0;
    for (int i = 0; i < KEPT && kept[i]; i++) {
        if (kept[i]->device == d) let_go(kept[i]);
        else kept[left++] = kept[i];
    }
    while (left < KEPT) kept[left++] = NULL;
    (void)pthread_mutex_unlock(&ac_gpu_locks.lists);
}
