/* What the files of the CUDA backend share: the opened libraries, devices, memory, streams and launches. */
#ifndef AC_CUDA_GPU_H
#define AC_CUDA_GPU_H

#include "backend/backend.h"
#include "cuda/abi.h"
#include "cuda/args.h"
#include "shared/fold.h"
#include "shared/opmath.h"

#include <pthread.h>

/* Every lock of the backend. A child that is forked from a process with CUDA cannot use CUDA, so it only makes the
 * locks anew (ac_gpu_forked). */
typedef struct {
    pthread_mutex_t libraries, devices, images, memory, pinned, products, convolutions, lists, graphs;
} ac_gpu_lock_set;
extern ac_gpu_lock_set ac_gpu_locks;

/* -- libraries (load.c) ----------------------------------------------------------------------------- */

extern ac_cu_table ac_cu;     /* filled by ac_gpu_init */
extern ac_lt_table ac_lt;     /* filled by ac_lt_open */
extern ac_dnn_table ac_dnn;   /* filled by ac_dnn_open */
extern ac_nccl_table ac_nccl; /* filled by ac_nccl_open */

/* Opens the driver, once in a process. RuntimeError that says what is missing; in a child forked from a process
 * that used CUDA, one that says so. Cheap when it has been done. */
int ac_gpu_init(void) AC_CHECKED;
bool ac_gpu_usable(void); /* in use, and in this process */
void ac_gpu_forked(void); /* called in a forked child */
int ac_lt_open(void) AC_CHECKED;
bool ac_dnn_open(void); /* whether cuDNN is there */
int ac_nccl_open(void) AC_CHECKED;
bool ac_gpu_is_simulated(void);

/* Folders where libraries may lie, separated by ':'; the first is looked at first. Before first use. */
int ac_gpu_set_paths(const char *paths) AC_CHECKED;
/* The oldest driver that runs code compiled by a toolkit, both counted as 13000 for CUDA 13.0: machine code runs on
 * every driver of the same major version. */
int ac_gpu_oldest_driver(int toolkit);
/* Tells the user something: a warning, where Python is. Fails when that is an error there. NULL: nobody listens. */
extern int (*ac_gpu_warn)(const char *text);
/* A failure that somebody else has noticed, which who waits for the GPU next is told: sets an error, and is NULL again.
 * NULL: there is none. */
extern int (*_Atomic ac_gpu_told)(void);
/* One line on a library ("driver", "cublasLt", "nccl", "cudnn", "kernels"): its version, or what is missing. */
const char *ac_gpu_library_note(const char *name);

/* Fails with the driver's name and text for `result`, unless it is success. `what` names the step. */
int ac_cu_check(CUresult result, const char *what) AC_CHECKED;
int ac_lt_check(cublasStatus_t status, const char *what) AC_CHECKED;

extern bool ac_gpu_allow_tf32;       /* float32 products may round their operands to TF32, */
extern bool ac_gpu_convolution_tf32; /* and cuDNN's convolutions */
extern bool ac_gpu_use_cudnn;        /* where it is found */

/* -- devices (device.c) ----------------------------------------------------------------------------- */

int ac_gpu_count(int *count) AC_CHECKED; /* 0 without a usable driver, never an error for that */
int ac_gpu_check_device(ac_device d) AC_CHECKED;

/* Makes the device's primary context the thread's current one for what follows; ac_gpu_leave restores what was. A
 * thread without a context keeps that of the first GPU, which the CUDA runtime would give it, too. So a thread that
 * other libraries leave alone is set once, and its context is asked for once a visit to the core (base/inside.h). */
typedef struct {
    CUcontext found; /* before, where it is to be restored */
    bool restore;
} ac_gpu_scope;
int ac_gpu_enter(ac_device d, ac_gpu_scope *scope) AC_CHECKED;
void ac_gpu_leave(const ac_gpu_scope *scope);
int ac_gpu_use(ac_device d) AC_CHECKED; /* the thread keeps the device's context from now on */
CUcontext ac_gpu_context(ac_device d);

typedef struct {
    char name[96];
    int major, minor, multiprocessors, threads_per_multiprocessor, l2_bytes;
    int64_t memory;
    unsigned char uuid[16];
} ac_gpu_facts;
int ac_gpu_facts_of(ac_device d, ac_gpu_facts *facts) AC_CHECKED;
int ac_gpu_multiprocessors(ac_device d);
int ac_gpu_architecture(ac_device d); /* 90 of compute capability 9.0 */
int ac_gpu_generation(ac_device d);   /* its major, 9 */
/* Whether the GPU reads the host's pageable memory itself, perhaps after the copy's call is over. */
bool ac_gpu_reads_pageable(ac_device d);

/* The thread's current stream of a device; NULL is the legacy default stream, which every thread starts on. */
CUstream ac_gpu_stream(ac_device d);
void ac_gpu_set_stream(ac_device d, CUstream s);
static inline CUstream ac_gpu_stream_for(ac_device d) { return ac_is_gpu(d) ? ac_gpu_stream(d) : NULL; }

/* One of the device's streams of that priority, which are never destroyed: whoever still has the handle of one that
 * nobody owns uses a stream. After AC_GPU_STREAMS the first is given out again. */
enum { AC_GPU_STREAMS = 32, AC_GPU_PRIORITIES = 6 /* from 0 down to -5 */ };
int ac_gpu_stream_of(ac_device d, int priority, CUstream *s) AC_CHECKED;
int ac_gpu_stream_wait(ac_device d, CUstream s) AC_CHECKED; /* the host waits */
int ac_gpu_stream_idle(ac_device d, CUstream s, bool *idle) AC_CHECKED;
/* What is queued on s from now on waits for all present work of `before`. Nothing where one of them alone is captured:
 * that can't wait for the other. */
int ac_gpu_stream_follow(ac_device d, CUstream s, CUstream before) AC_CHECKED;
int ac_gpu_stream_captured(ac_device d, CUstream s, bool *yes) AC_CHECKED; /* by whomever */
int ac_gpu_synchronize(ac_device d) AC_CHECKED;

int ac_gpu_event_new(ac_device d, bool timing, bool blocking, CUevent *e) AC_CHECKED;
int ac_gpu_event_free(ac_device d, CUevent e) AC_CHECKED;
int ac_gpu_event_record(ac_device d, CUevent e, CUstream s) AC_CHECKED;
int ac_gpu_event_await(ac_device d, CUevent e, CUstream s) AC_CHECKED; /* the stream waits */
int ac_gpu_event_wait(ac_device d, CUevent e) AC_CHECKED;              /* the host waits */
int ac_gpu_event_done(ac_device d, CUevent e, bool *done) AC_CHECKED;
int ac_gpu_event_elapsed(ac_device d, CUevent from, CUevent to, float *ms) AC_CHECKED;

/* A bad index that a kernel met becomes an IndexError that names operator and tensor. */
int ac_gpu_check_trouble(void) AC_CHECKED;
ac_gpu_trouble *ac_gpu_trouble_at(ac_device d); /* its device address; NULL with an error */

/* -- memory (memory.c) ------------------------------------------------------------------------------ */

typedef struct ac_gpu_block ac_gpu_block;

/* A block for use on the current stream of `d`; freed, it serves that stream again without waiting. */
ac_gpu_block *ac_gpu_alloc(ac_device d, int64_t bytes) AC_CHECKED;
void ac_gpu_free(ac_gpu_block *b); /* NULL is fine */
/* The same outside the pool of a graph that is captured: memory that the host fills while it is. */
ac_gpu_block *ac_gpu_alloc_lasting(ac_device d, int64_t bytes) AC_CHECKED;
bool ac_gpu_is_of_pool(const ac_gpu_block *b, uint64_t pool);
void *ac_gpu_address(const ac_gpu_block *b);
/* Work on `s` of `d` uses the block: after it is freed, it is not used again before that work is done. */
int ac_gpu_record_stream(ac_gpu_block *b, ac_device d, CUstream s) AC_CHECKED;

typedef struct {
    int64_t allocated, allocated_peak; /* bytes in live blocks */
    int64_t reserved, reserved_peak;   /* bytes held from the driver */
    int64_t requested;                 /* bytes asked for by live blocks */
    int64_t blocks, free, segments;    /* live blocks, free ones, pieces held from the driver */
    int64_t allocations, driver_calls; /* so far */
    int64_t retries, failures;         /* times the cache was emptied to go on; times that did not help */
} ac_gpu_memory_stats;
int ac_gpu_memory_now(ac_device d, ac_gpu_memory_stats *stats) AC_CHECKED;
int ac_gpu_memory_reset_peak(ac_device d) AC_CHECKED;
int ac_gpu_memory_info(ac_device d, int64_t *free, int64_t *total) AC_CHECKED;
int ac_gpu_empty_cache(ac_device d) AC_CHECKED;
/* For the driver's own memory, and the libraries', which compete with the cache: whether it was emptied, so that a call
 * that failed may be made again. Not during a capture. */
bool ac_gpu_make_room(ac_device d);
int ac_gpu_memory_limit(ac_device d, double fraction) AC_CHECKED;
/* From `begin` to `end`, this thread's allocations on `d` come from a pool of their own and go back to it; a pool
 * of a captured graph. Pool 0 is everybody's. */
int ac_gpu_pool_begin(ac_device d, uint64_t pool) AC_CHECKED;
void ac_gpu_pool_end(ac_device d);
/* Nobody will use the pool again: its memory joins everybody's once it is free. */
int ac_gpu_pool_retire(ac_device d, uint64_t pool) AC_CHECKED;

/* Page-locked memory of the host, for copies that do not wait. */
ac_storage *ac_gpu_pinned(int64_t bytes) AC_CHECKED; /* new: a storage of the CPU */
bool ac_gpu_pinned_is_ours(const ac_storage *s);
/* The current stream of `d` has queued a copy that uses `s`, which is ours and may be freed before it is done. */
int ac_gpu_pinned_used(const ac_storage *s, ac_device d) AC_CHECKED;
void ac_gpu_pinned_trim(void); /* gives back what nobody uses */
bool ac_gpu_is_pinned(const void *p);
/* Which GPU an address of somebody else belongs to. */
int ac_gpu_owner(uint64_t address, ac_device *d) AC_CHECKED;

/* -- captures of CUDA graphs (graph.c) --------------------------------------------------------------- */

bool ac_gpu_is_capturing(void); /* whether this thread captures */
bool ac_gpu_any_capture(void);  /* whether some thread does */
void ac_gpu_end_given_up(void); /* ends this thread's capture where its graph is gone, before more is queued */
/* CaptureError when this thread captures: `what` would wait for the GPU, or needs the host at each replay. */
int ac_gpu_refuse_capture(const char *what) AC_CHECKED;
/* Around calls of the driver that would end a capture, of any thread: allocations, loading code. */
CUstreamCaptureMode ac_gpu_relax(void);
void ac_gpu_relax_end(CUstreamCaptureMode before);
/* The graph that is captured calls release(owner) when it ends. */
int ac_gpu_capture_keep(void (*release)(void *owner), void *owner) AC_CHECKED;
/* Where a captured optimizer step on `d` finds its options, which change between replays; NULL outside a capture. */
int ac_gpu_capture_options(ac_device d, const ac_optim_options *options, const ac_optim_options **there) AC_CHECKED;
/* Bytes of the host, for the current stream's next launches; captured, for all replays of them. Nobody waits. */
int ac_gpu_send(ac_device d, void *to, const void *from, size_t bytes) AC_CHECKED;
int ac_gpu_send_on(ac_device d, CUstream s, void *to, const void *from, size_t bytes) AC_CHECKED; /* outside captures */
/* Seed and offset as kernels of `d` take them: an offset that was drawn during a capture counts from each replay's own,
 * on the GPU that was captured; an error on others. */
int ac_gpu_random_of(ac_device d, uint64_t seed, uint64_t offset, ac_gpu_random *r) AC_CHECKED;
/* An error where what is drawn from that offset on is captured and would be drawn again at each replay. */
int ac_gpu_refuse_fixed_draws(uint64_t offset) AC_CHECKED;

/* -- the kernels' images (images.c) ----------------------------------------------------------------- */

typedef enum {
    AC_IMAGE_ELEMENTWISE,
    AC_IMAGE_CREATION,
    AC_IMAGE_REDUCE,
    AC_IMAGE_ROWS,
    AC_IMAGE_CHANNELS,
    AC_IMAGE_INDEX,
    AC_IMAGE_SORT,
    AC_IMAGE_FOREACH,
    AC_IMAGE_SCAN,
    AC_IMAGE_WINDOWS,
    AC_IMAGE_CONV,
    AC_IMAGE_ATTENTION,
    AC_IMAGE_ATTENTION_BACKWARD,
    AC_IMAGE_RNN,
    AC_N_IMAGES
} ac_gpu_image;

/* What the build made of a .cu file for one architecture (90 is sm_90), from `packed` to `end`. */
typedef struct {
    ac_gpu_image image;
    int architecture;
    bool is_ptx; /* else machine code */
    const char *packed, *end;
} ac_gpu_code;

bool ac_gpu_has_images(void);           /* whether this build embeds any: */
const ac_gpu_code *ac_gpu_images(void); /* which end with AC_N_IMAGES */
/* The newest of `all`, which ends with AC_N_IMAGES, that runs on a GPU; NULL: none does. Machine code runs on later
 * minor versions of its generation, PTX on all that is newer. */
const ac_gpu_code *ac_gpu_choose(const ac_gpu_code *all, ac_gpu_image image, bool is_ptx, int architecture);
/* Unpacks an image into memory that the caller frees, with a 0 behind it; NULL and an error. Set once by csrc/python,
 * whose lock it takes: no other lock may be held. */
extern char *(*ac_gpu_unpack)(const char *packed, size_t n);
/* The image as loaded into the device's context, which is current. */
int ac_gpu_module(ac_device d, ac_gpu_image image, CUmodule *module) AC_CHECKED;

/* -- launches (launch.c) ---------------------------------------------------------------------------- */

/* A kernel by name, found at first use on each device. Static, one for each. */
typedef struct {
    ac_gpu_image image;
    const char *name;
    unsigned threads; /* of a block; 0: AC_GPU_THREADS */
    _Atomic(CUfunction) found[AC_MAX_GPUS];
} ac_gpu_kernel;
#define AC_GPU_BY_OPMATH(of, text)                                                                                     \
    {{.image = of, .name = text "_f32"}, {.image = of, .name = text "_f64"}, {.image = of, .name = text "_i64"}}

/* Queues `blocks` blocks of the kernel's threads on the current stream. */
int ac_gpu_launch(ac_device d, ac_gpu_kernel *k, int64_t blocks, size_t shared, const void *args) AC_CHECKED;
/* Blocks for n elements at `each` a thread: enough to fill the device, the kernels go round. */
int64_t ac_gpu_blocks(ac_device d, int64_t n, int64_t each);

extern const ac_gpu_memory_hooks ac_cuda_memory; /* of storage.h */
/* The block that a storage's memory lies in; NULL of memory that is not ours. */
ac_gpu_block *ac_gpu_block_of(const ac_storage *s);

/* -- the operators of the table, by family --------------------------------------------------------------- */

#define KERNEL(name, py, home, infer, kernel, ...) int ac_cuda_##kernel(const ac_run *r) AC_CHECKED;
#include "ops/ops.def"
int ac_cuda_pointwise(const ac_run *r) AC_CHECKED;

#define ATTRS(name) const ac_attrs_##name *a = r->attrs

static inline ac_device ac_run_device(const ac_run *r) { return ac_device_of(r->out[0]); }
ac_gpu_ref ac_gpu_ref_of(const ac_tensor *t); /* NULL: no memory */
/* from, broadcast and converted, into `to`, both on one device (a 0-d `from` may be the CPU's) */
int ac_gpu_copy(ac_tensor *to, const ac_tensor *from) AC_CHECKED;
int ac_gpu_clear(ac_tensor *t) AC_CHECKED; /* to zeros; it has no gaps */
/* from, without a change of dtype, into `to`, which has no gaps, on any two devices */
int ac_gpu_transfer(ac_tensor *to, ac_tensor *from, bool non_blocking) AC_CHECKED;
/* Bytes of the device for the host, which waits for the current stream. */
int ac_gpu_fetch(ac_device d, void *to, const void *from, size_t bytes) AC_CHECKED;
/* new: a contiguous copy of that dtype; t itself where it is one already */
ac_tensor *ac_gpu_copy_as(const ac_tensor *t, ac_dtype dtype) AC_CHECKED;
ac_tensor *ac_gpu_dense_as(ac_tensor *t, ac_dtype dtype) AC_CHECKED;
static inline ac_tensor *ac_gpu_contiguous(ac_tensor *t) { return ac_gpu_dense_as(t, t->dtype); }
/* The opmath type of a dtype, as an index into "f32", "f64", "i64". */
int ac_gpu_opmath(ac_dtype compute);
extern const char *const ac_gpu_opmath_names[3];
/* Whether a dtype moves in runs, and an address is on a boundary of 16 bytes. */
bool ac_gpu_is_bulk(ac_dtype t);
static inline bool ac_gpu_aligned(const void *p) { return ((uintptr_t)p & 15) == 0; }
/* Sorts rows of n keys by `bits` bits, stably, in place; `places` become those in its row that a row's keys had. */
int ac_gpu_sort_pairs(ac_device d, int64_t rows, int64_t n, int bits, uint64_t *keys, int64_t *places) AC_CHECKED;
static inline int ac_gpu_bits_for(uint64_t values) {
    int bits = 0;
    while (bits < 64 && values >> bits) bits++;
    return bits;
}
/* In place of each number the sum of those before it; the sum of all into `total`, or NULL. */
int ac_gpu_scan_sums(ac_device d, int64_t *values, int64_t n, int64_t *total) AC_CHECKED;

/* A convolution, forward or transposed, by cuDNN (cudnn.c). Returns 1 when it is queued, 0 if cuDNN is missing or does
 * not support it, and -1 with an error. `dtype` is what the product rounds to. */
int ac_gpu_cudnn_convolution(const ac_run *r, const ac_windows *w, ac_dtype dtype) AC_CHECKED;

/* The same by the implicit product (conv.cu), and the weight's gradient: 1 when queued, 0 for other dtypes and for
 * sizes beyond its integers. */
int ac_gpu_implicit_convolution(const ac_run *r, const ac_windows *w, ac_dtype dtype) AC_CHECKED;
int ac_gpu_implicit_weight(const ac_run *r, const ac_windows *w, ac_dtype dtype) AC_CHECKED;

/* See backend.h. */
bool ac_gpu_attends(const ac_tensor *q, const ac_tensor *v, ac_dtype dtype);

/* FNV-1a of a plan's key */
static inline uint64_t ac_gpu_hash(const void *key, size_t bytes) {
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < bytes; i++) h = (h ^ ((const unsigned char *)key)[i]) * 0x100000001B3u;
    return h ^ h >> 29;
}

/* The scaler, the optimizers (foreach.c); see backend.h. */
int ac_cuda_grad_stats(ac_tensor *const *tensors, int n, const double *factors, ac_found *found) AC_CHECKED;
int ac_cuda_scale(ac_tensor *const *tensors, int n, double factor, const double *there) AC_CHECKED;
int ac_cuda_step(ac_update_rule rule, ac_update *updates, int n, const ac_step_args *constants) AC_CHECKED;

/* The classes that r->in[1] names, with the weights in r->in[2]. */
int ac_gpu_classes_of(ac_gpu_classes *c, const ac_run *r, int64_t classes, int64_t ignore) AC_CHECKED;

#endif
