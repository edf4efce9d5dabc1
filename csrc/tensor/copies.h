/* The 16-bit copies of weights that autocast keeps on their storage. A copy is valid for one
 * value of the storage's `content` counter, so no write can leave it stale; it dies with the
 * storage, so it outlives autocast regions and no_grad. */
#ifndef AC_TENSOR_COPIES_H
#define AC_TENSOR_COPIES_H

#include "tensor.h"

struct ac_copy {
    ac_copy *next;          /* of the same storage */
    ac_copy *newer, *older; /* all copies of the process */
    ac_storage *home;       /* borrowed: the storage it hangs on */
    uint64_t content;       /* home's counter when the copy was made */
    int64_t offset;
    ac_dims shape, strides;
    ac_tensor *tensor; /* owned, 16-bit, contiguous */
};

/* borrowed: the valid copy of t in `dtype`, or NULL when there is none (never an error) */
ac_tensor *ac_copies_find(const ac_tensor *t, ac_dtype dtype);
/* Hangs `copy` (retained) on t's storage in place of an outdated one. */
int ac_copies_put(const ac_tensor *t, ac_tensor *copy) AC_CHECKED;
void ac_copies_free(ac_storage *s);

void ac_copies_clear(void);    /* drops every copy of the process */
int64_t ac_copies_bytes(void); /* bytes they hold now */
int64_t ac_copies_limit(void); /* bytes they may hold; beyond it weights are cast each time */
void ac_copies_set_limit(int64_t bytes);

#endif
