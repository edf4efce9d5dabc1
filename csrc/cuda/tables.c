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

static int copy_from(ac_device d, CUstream s, void *to, const void *from, size_t bytes) {
    ac_gpu_scope scope;
    AC_TRY(ac_gpu_enter(d, &scope));
    CUresult result = ac_cu.cuMemcpyHtoDAsync_v2((CUdeviceptr)(uintptr_t)to, from, bytes, s);
    ac_gpu_leave(&scope);
    return ac_cu_check(result, "a table for the GPU");
}

/* Nobody waits for it. The driver takes a copy of few bytes with the call itself, unless the GPU reads the host's
 * memory by itself. Others go through page-locked memory, which is not used again before the copy is done. */
int ac_gpu_send_on(ac_device d, CUstream s, void *to, const void *from, size_t bytes) {
    if (bytes <= TAKEN_AT_ONCE && !ac_gpu_reads_pageable(d)) return copy_from(d, s, to, from, bytes);
    ac_storage *staged = ac_gpu_pinned((int64_t)bytes);
    if (!staged) return -1;
    memcpy(staged->data, from, bytes);
    int failed = copy_from(d, s, to, staged->data, bytes);
    if (!failed) failed = ac_gpu_pinned_used(staged, d);
    ac_storage_release(staged);
    return failed;
}

static ac_gpu_table *new_table(const ac_gpu_sent_list *l) {
    ac_gpu_table *t = ac_calloc(sizeof *t);
    if (!t) return NULL;
    *t = (ac_gpu_table){.holders = 1, .device = l->device, .stream = ac_gpu_stream(l->device), .bytes = bytes_of(l->n)};
    t->items = ac_alloc(t->bytes);
    t->block = t->items ? ac_gpu_alloc_lasting(t->device, (int64_t)t->bytes) : NULL;
    if (t->block) memcpy(t->items, l->items, t->bytes);
    if (t->block && ac_gpu_send(t->device, ac_gpu_address(t->block), t->items, t->bytes) == 0) return t;
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

static void let_go_later(void *t) {
    (void)pthread_mutex_lock(&ac_gpu_locks.lists);
    let_go(t);
    (void)pthread_mutex_unlock(&ac_gpu_locks.lists);
}

/* A graph reads the same table at each replay. */
static int keep_for_graph(ac_gpu_table *t) {
    if (!ac_gpu_is_capturing()) return 0;
    AC_TRY(ac_gpu_capture_keep(let_go_later, t));
    t->holders++;
    return 0;
}

int ac_gpu_list_send(ac_gpu_sent_list *l) {
    l->pieces = 0;
    for (int i = 0; i < l->n; i++) {
        l->items[i].first_piece = l->pieces;
        l->pieces += (l->items[i].numel + AC_GPU_PIECE - 1) / AC_GPU_PIECE;
    }
    ac_gpu_end_given_up(); /* lets go of tables: not under the lock */
    (void)pthread_mutex_lock(&ac_gpu_locks.lists);
    l->table = table_for(l);
    (void)pthread_mutex_unlock(&ac_gpu_locks.lists);
    return l->table ? keep_for_graph(l->table) : -1;
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
