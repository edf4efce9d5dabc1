/* The packed copies of weights, of 16 bits and of float32. They hang on the weight's storage, in the layouts that
 * products read. A copy is valid for one value of the storage's `content` counter, which every write increments, so a
 * write outdates it. It is freed with the storage, so it outlives autocast regions and no_grad. */
#ifndef AC_TENSOR_PACKED_WEIGHTS_H
#define AC_TENSOR_PACKED_WEIGHTS_H

#include "tensor/tensor.h"

/* What a copy is of, beside the view: the dtype it was rounded to, which way round it was packed, and for whom: the
 * stream of a GPU that makes, reads and renews it. Another stream could read it before it is made. NULL on the CPU. */
typedef struct {
    ac_dtype dtype;
    bool out_first;
    const void *stream;
} ac_packed_kind;

struct ac_packed_weight {
    ac_packed_weight *next;          /* of the same storage */
    ac_packed_weight *newer, *older; /* all copies of the process */
    ac_storage *home;                /* borrowed: the storage it hangs on */
    uint64_t content;                /* home's counter when the copy was made */
    ac_packed_kind kind;
    int64_t offset;
    ac_dims shape, strides;
    ac_tensor *tensor; /* owned: its bytes */
    bool used;         /* since it was packed */
};

/* borrowed: the valid copy of t, or NULL when there is none (never an error) */
ac_tensor *ac_packed_weight_find(const ac_tensor *t, ac_packed_kind kind);
/* Whether `bytes` more of a dtype may be kept. */
bool ac_packed_weights_have_room(ac_dtype dtype, int64_t bytes);
/* Counts a use of t by a product of float32. Whether there were so many since its last write that a copy pays. */
bool ac_packed_weight_is_reused(const ac_tensor *t, bool out_first);
/* Hangs `copy` (retained), made when the storage's counter was `content`, on t's storage. */
int ac_packed_weight_put(const ac_tensor *t, ac_packed_kind kind, ac_tensor *copy, uint64_t content) AC_CHECKED;

/* Copies that are packed again by whoever writes the tensor: taken before the write, given back after. */
enum { AC_KEPT = 2 };
typedef struct {
    ac_tensor *panels; /* owned, NULL where there is none */
    ac_packed_kind kind;
    uint64_t content;    /* of the storage when it was taken */
    _Atomic bool refuse; /* the writer could not pack the new values */
} ac_kept;
/* The valid copies of t in 16 bits, for a stream, that have been used since they were packed: the others are not worth
 * the work. */
void ac_packed_weights_take(const ac_tensor *t, const void *stream, ac_kept kept[AC_KEPT]);
/* After exactly one write, which `written` says happened: those that were packed again are valid. */
void ac_packed_weights_give_back(const ac_tensor *t, ac_kept kept[AC_KEPT], bool written);

void ac_packed_weights_free(ac_storage *s);
void ac_packed_weights_clear(void); /* drops every copy of the process */
void ac_packed_weights_set_limit(int64_t bytes);

typedef struct {
    int64_t bytes, limit; /* held now, and at most: beyond it weights are packed each time */
    int64_t copies;       /* held now */
    int64_t used, packed; /* times one was found, and made */
    int64_t renewed;      /* times an optimizer packed one again in its own pass */
    int64_t refused;      /* times the limit stood against one */
} ac_packed_weights_stats;
ac_packed_weights_stats ac_packed_weights_now(void);

#endif
