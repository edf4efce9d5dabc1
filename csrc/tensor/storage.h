/* Storage: the bytes behind one or more tensors.
 *
 * Reference counts here and in tensor.h are plain integers: every call into the core is made
 * under one lock (the GIL, from Python); only kernels, which never count, run outside it. */
#ifndef AC_TENSOR_STORAGE_H
#define AC_TENSOR_STORAGE_H

#include "base/dtype.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A device: the CPU; AC_CUDA(i), the i-th GPU that the driver shows; or AC_META, whose tensors have no values
 * (backend/meta.c). Devices of a call are joined by `|`, which keeps the bit of AC_META. */
typedef int ac_device;
enum { AC_CPU = 0, AC_MAX_GPUS = 64, AC_META = 128 };
static inline bool ac_is_gpu(ac_device d) { return d > AC_CPU && d <= AC_MAX_GPUS; }
#define AC_CUDA(index) ((ac_device)(index) + 1)
static inline int ac_gpu_index(ac_device d) { return d - 1; }
/* "cpu" or "cuda:0", in memory of the thread's own that the fourth call after it uses again. */
const char *ac_device_name(ac_device d);

typedef struct ac_packed_weight ac_packed_weight; /* a packed copy of a weight, see packed_weights.h */

/* How often products of float32 have read a weight since `content`: the one at `offset`, in either layout. */
typedef struct {
    uint64_t content;
    int64_t offset;
    uint8_t times[2];
} ac_weight_uses;

/* What few storages have: memory of another size or place than they were made with. */
typedef struct {
    int64_t own, room;        /* bytes of the block that it was made with, and of the memory at `data` now */
    struct ac_storage *keeps; /* owned: whose memory that is, or NULL */
} ac_storage_moved;

/* Python identity: as for tensors (tensor.h), all C references but the object's own together hold one Python
 * reference to the storage's object. */
typedef struct ac_storage {
    int64_t refs;
    char *data;
    int64_t bytes;
    uint64_t content;   /* bumped by every write, whoever makes it; what caches key on */
    uint64_t scaled_at; /* the content, + 1, that was a gradient times a loss scale; see autograd/provenance.h */
    double scaled_by;   /* and what it was multiplied by: infinite of a GPU's scale, 0 where nobody knows any more */
    uint32_t version;   /* autograd's counter, shared by views and detach() */
    ac_device device;
    bool exported;  /* memory that somebody else may write: no trustworthy `content` */
    bool addressed; /* somebody has its address: no factor may wait */
    bool replayed;  /* a capture made it, whose replays write it: no factor of work that is not captured may wait */
    bool deferred;  /* the values are the memory's times these factors, see ac_settle */
    bool blank;     /* a lazy module's: there are no values yet, and to settle it is an error; deferred, too */
    ac_dtype deferred_dtype; /* of all its memory, then */
    double factor;
    struct ac_storage *factor_at; /* owned: one float64 beside the memory, on a GPU; or NULL */
    int readers;                  /* steps that read it so, outside the lock */
    bool shared;                  /* other processes, forked or mapping its file, write the same memory */
    void *py;                     /* its Python object, or NULL */
    ac_storage_moved *moved;      /* owned, or NULL */
    ac_packed_weight *packed;     /* owned, freed with the storage */
    ac_weight_uses uses;
    void (*release)(void *owner); /* foreign memory: how to give it back */
    void *owner;
} ac_storage;

/* The storage of the result that waits (dispatch/waiting.h), which has a reference of its own; or NULL. */
extern ac_storage *ac_waiting_result;
/* References by others. */
static inline int64_t ac_storage_users(const ac_storage *s) { return s->refs - (s == ac_waiting_result); }

/* The factors have been multiplied in, or are of no use any more. */
void ac_storage_settled(ac_storage *s);
static inline double ac_waiting_factor(const ac_storage *s) { return s->deferred ? s->factor : 1; }
/* Storages with a pending factor, and tensors that are parts (tensor.h): mostly none, and nobody need look further. */
extern int64_t ac_deferred_scales;

/* Called for every write while a CUDA graph is captured, else NULL: its replays write the same memory. */
extern void (*ac_note_write)(ac_storage *s);

/* How memory of a GPU is had and given back; set by that backend when it comes into use. */
typedef struct {
    int (*alloc)(ac_device device, int64_t bytes, char **data, void **block);
    void (*release)(void *block);
    int (*copy)(ac_device device, char *to, const char *from, int64_t bytes); /* within it, queued */
} ac_gpu_memory_hooks;
extern ac_gpu_memory_hooks ac_gpu_memory;

/* new: uninitialised bytes of our own */
ac_storage *ac_storage_new(ac_device device, int64_t bytes) AC_CHECKED;
/* new: wraps memory of somebody else; release(owner) is called once when the storage dies */
ac_storage *ac_storage_wrap(void *data, int64_t bytes, void (*release)(void *), void *owner) AC_CHECKED;
ac_storage *ac_storage_retain(ac_storage *s);
void ac_storage_release(ac_storage *s);

/* s takes over the memory of `to` (retained) on the same device, which is new and has room for all that s has; it is
 * copied, beyond s->bytes too, since tensors may reach further. The memory before stays until s dies: a kernel outside
 * the lock, or on a GPU, may be reading it. */
int ac_storage_move(ac_storage *s, ac_storage *to) AC_CHECKED;
/* Bytes that the memory has: at least s->bytes. */
static inline int64_t ac_storage_room(const ac_storage *s) { return s->moved ? s->moved->room : s->bytes; }
/* Gives s fewer bytes, or more within its room. No memory moves, so tensors that reach further stay readable. */
int ac_storage_set_bytes(ac_storage *s, int64_t bytes) AC_CHECKED;
/* s, made with no bytes, takes over the memory of `from` on the same device: only s may write it from then on. Memory
 * that it took before is given back. */
int ac_storage_fill(ac_storage *s, ac_storage *from) AC_CHECKED;
/* And gives it back: s is blank until it is filled again. Its version stays, as its values will be the same in
 * backward. */
int ac_storage_drop(ac_storage *s, ac_dtype dtype) AC_CHECKED;

/* How the Python object of a storage is held; set by its owner. */
typedef struct {
    void (*incref)(void *py);
    void (*decref)(void *py);
} ac_storage_hooks;
extern ac_storage_hooks ac_storage_object;

#endif
