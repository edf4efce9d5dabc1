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

/* A device: the CPU, or AC_CUDA(i), the i-th GPU that the driver shows. */
typedef int ac_device;
enum { AC_CPU = 0, AC_MAX_GPUS = 64 };
#define AC_CUDA(index) ((ac_device)(index) + 1)
static inline int ac_gpu_index(ac_device d) { return d - 1; }
/* "cpu" or "cuda:0", in memory of the thread's own that the fourth call after it uses again. */
const char *ac_device_name(ac_device d);

typedef struct ac_packed_weight ac_packed_weight; /* a 16-bit copy of a weight, see packed_weights.h */

typedef struct ac_storage {
    int64_t refs;
    char *data;
    int64_t bytes;
    uint64_t content;   /* bumped by every write, whoever makes it; what caches key on */
    uint64_t scaled_at; /* the content, + 1, that was a gradient times a loss scale; see autograd/provenance.h */
    uint32_t version;   /* autograd's counter, shared by views and detach() */
    ac_device device;
    bool exported;           /* memory that somebody else may write: no trustworthy `content` */
    bool addressed;          /* somebody has its address: no factor may wait */
    bool deferred;           /* the values are the memory's times these factors, see ac_settle */
    bool blank;              /* a lazy module's: there are no values yet, and to settle it is an error; deferred, too */
    ac_dtype deferred_dtype; /* of all its memory, then */
    double factor;
    struct ac_storage *factor_at; /* owned: one float64 beside the memory, on a GPU; or NULL */
    int readers;                  /* steps that read it so, outside the lock */
    ac_packed_weight *packed;     /* owned, freed with the storage */
    void (*release)(void *owner); /* foreign memory: how to give it back */
    void *owner;
} ac_storage;

/* The factors have been multiplied in, or are of no use any more. */
void ac_storage_settled(ac_storage *s);
static inline double ac_waiting_factor(const ac_storage *s) { return s->deferred ? s->factor : 1; }
extern int64_t ac_deferred_scales; /* storages with a pending factor: mostly none, and nobody need look further */

/* How memory of a GPU is had and given back; set by that backend when it comes into use. */
typedef struct {
    int (*alloc)(ac_device device, int64_t bytes, char **data, void **block);
    void (*release)(void *block);
} ac_gpu_memory_hooks;
extern ac_gpu_memory_hooks ac_gpu_memory;

/* new: uninitialised bytes of our own */
ac_storage *ac_storage_new(ac_device device, int64_t bytes) AC_CHECKED;
/* new: wraps memory of somebody else; release(owner) is called once when the storage dies */
ac_storage *ac_storage_wrap(void *data, int64_t bytes, void (*release)(void *), void *owner) AC_CHECKED;
ac_storage *ac_storage_retain(ac_storage *s);
void ac_storage_release(ac_storage *s);

#endif
