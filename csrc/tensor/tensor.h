/* Tensor: a strided view of a storage, with autograd's notes attached.
 *
 * Python identity. A tensor has at most one Python object. While C references besides the object's own
 * exist, they hold one Python reference to it together. So the object, its attributes and weak
 * references live exactly as long as the tensor does. */
#ifndef AC_TENSOR_TENSOR_H
#define AC_TENSOR_TENSOR_H

#include "base/inline.h"
#include "tensor/shape.h"
#include "tensor/storage.h"

typedef struct ac_node ac_node;
typedef struct ac_meta ac_meta; /* autograd's notes, autograd/node.h */

/* A version counter of its own, which `.data` gives a tensor. */
typedef struct {
    int64_t refs;
    uint32_t version;
} ac_counter;

/* How a view was made, which says whether a write to it can be recorded. */
typedef enum {
    AC_VIEW_PLAIN,
    AC_VIEW_ONE_OF_MANY, /* of unbind or split: writing it would rewrite its siblings' history */
    AC_VIEW_OF_FUNCTION, /* a Python Function returned it: the history of a written view would leave its backward out */
    AC_VIEW_NO_GRAD,     /* under no_grad or inference_mode */
} ac_view_kind;

typedef struct ac_tensor {
    int64_t refs;
    void *py;            /* its Python object, or NULL */
    ac_storage *storage; /* owned */
    int64_t offset;      /* in elements */
    int64_t numel;
    ac_dtype dtype;
    int ndim;
    bool is_scalar;         /* came from a Python number: does not take part in promotion */
    bool is_constant;       /* made of an operator's attributes alone: nodes keep it when they free what they saved */
    bool is_inference;      /* made under inference_mode */
    bool is_part;           /* of a larger tensor that processes share: operators refuse it, its aliases are plain */
    uint8_t view_kind;      /* of a view: an ac_view_kind */
    uint32_t view_version;  /* of a view: the version its history was made for */
    uint32_t changes;       /* of memory or geometry in place; they count as writes to this tensor alone */
    ac_meta *meta;          /* owned, NULL until autograd has something to note */
    ac_counter *counter;    /* owned, NULL: the storage's `version` counts */
    struct ac_tensor *base; /* owned: the tensor this is a view of, or NULL */
    int64_t shape[AC_MAX_DIMS], strides[AC_MAX_DIMS];
} ac_tensor;

/* What lower ranks need of higher ones, set once at start by their owners. */
typedef struct {
    void (*py_incref)(void *py);
    void (*py_decref)(void *py);
    void (*meta_free)(ac_meta *meta);
    bool (*py_alone)(void *py); /* nobody but the C side refers to it */
} ac_tensor_hooks;
extern ac_tensor_hooks ac_hooks;

/* new: uninitialised, contiguous; on the CPU, or on `device` */
ac_tensor *ac_tensor_new(ac_dtype dtype, const ac_dims *shape) AC_CHECKED;
ac_tensor *ac_tensor_new_on(ac_device device, ac_dtype dtype, const ac_dims *shape) AC_CHECKED;
/* new: another view of t's storage; `base` is left to the caller */
ac_tensor *ac_tensor_alias(const ac_tensor *t) AC_CHECKED;
/* new: the same storage with another geometry (numel is derived) */
ac_tensor *ac_tensor_view(const ac_tensor *t, const ac_dims *shape, const ac_dims *strides, int64_t offset) AC_CHECKED;
/* new: takes over `storage` (steals it, on failure too) */
ac_tensor *ac_tensor_from_storage(ac_storage *storage, ac_dtype dtype, const ac_dims *shape,
                                  const ac_dims *strides) AC_CHECKED;
/* t takes over from's memory, dtype and shape; its identity, history and version stay. */
void ac_tensor_take(ac_tensor *t, const ac_tensor *from);
/* new: 0-d */
ac_tensor *ac_tensor_scalar(ac_dtype dtype, double value) AC_CHECKED;
ac_tensor *ac_tensor_scalar_int(ac_dtype dtype, int64_t value) AC_CHECKED;

static inline ac_tensor *ac_tensor_retain(ac_tensor *t) {
    AC_ASSERT(t->refs > 0);
    if (++t->refs == 2 && t->py) ac_hooks.py_incref(t->py);
    return t;
}
void ac_tensor_free(ac_tensor *t);
static inline void ac_tensor_release(ac_tensor *t) {
    AC_ASSERT(t->refs > 0);
    int64_t left = --t->refs;
    if (left == 0) ac_tensor_free(t);
    else if (left == 1 && t->py) ac_hooks.py_decref(t->py);
}
static inline void ac_tensor_clear(ac_tensor **t) { /* releases and forgets; NULL is fine */
    ac_tensor *old = *t;
    *t = NULL;
    if (old) ac_tensor_release(old);
}

ac_dims ac_shape_of(const ac_tensor *t);
ac_dims ac_strides_of(const ac_tensor *t);
bool ac_same_shape(const ac_tensor *a, const ac_tensor *b);
bool ac_is_contiguous(const ac_tensor *t);
/* Whether its elements, in some order of the dimensions, fill their memory without gaps. */
bool ac_is_dense(const ac_tensor *t);
/* Whether elements of two tensors of one shape, without gaps, follow each other in the same order. */
bool ac_lie_alike(const ac_tensor *a, const ac_tensor *b);
const char *ac_shape_text(const ac_tensor *t, char *buffer);

static inline ac_device ac_device_of(const ac_tensor *t) { return t->storage->device; }
static inline void *ac_data(const ac_tensor *t) { return t->storage->data + t->offset * ac_itemsize(t->dtype); }
static inline uint32_t *ac_version(const ac_tensor *t) {
    return t->counter ? &t->counter->version : &t->storage->version;
}
/* Notes a write to t's memory, for autograd and for the caches. */
static inline void ac_wrote(const ac_tensor *t) {
    t->storage->content++;
    if (ac_note_write) ac_note_write(t->storage);
    ++*ac_version(t);
}
/* What Python sees as `_version`, and what saved tensors are compared by: writes to the memory and changes of t. */
static inline uint32_t ac_version_seen(const ac_tensor *t) { return *ac_version(t) + t->changes; }
/* Gives t a version counter of its own, as `.data` has. */
int ac_tensor_own_counter(ac_tensor *t) AC_CHECKED;

/* True when two elements of t share memory, so that it cannot be written (expand). */
bool ac_overlaps_itself(const ac_tensor *t);
bool ac_shares_memory(const ac_tensor *a, const ac_tensor *b);
/* True when writing `out` element by element while reading `in` could read what was written:
 * the memory overlaps and the views are not the same. */
bool ac_overlaps_partly(const ac_tensor *out, const ac_tensor *in);

/* Element i of a contiguous run of `dtype`, as the widest type of its category. */
double ac_read_double(const void *data, ac_dtype dtype, int64_t i);
int64_t ac_read_int(const void *data, ac_dtype dtype, int64_t i);
void ac_write_double(void *data, ac_dtype dtype, int64_t i, double value);
void ac_write_int(void *data, ac_dtype dtype, int64_t i, int64_t value);

#endif
