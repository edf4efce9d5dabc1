/* A list of tensors: in the list itself while they are few, which costs nothing, and on the heap beyond. Every list
 * whose length a caller decides is one of these: the inputs of an operator, the temporaries of a formula. */
#ifndef AC_TENSOR_LIST_H
#define AC_TENSOR_LIST_H

#include "tensor.h"

enum { AC_FEW = 24 };

typedef struct {
    ac_tensor **at; /* n entries, NULL among them where a tensor is absent; a list cannot be copied by value */
    int n, room;
    ac_tensor *few[AC_FEW];
} ac_list;

static inline void ac_list_init(ac_list *l) { l->at = l->few, l->n = 0, l->room = AC_FEW; }
/* Starts the list with n entries of NULL. What ac_list_free and ac_list_release do is allowed after a failure, too. */
int ac_list_start(ac_list *l, int n) AC_CHECKED;
/* Makes room for twice as many. */
int ac_list_grow(ac_list *l) AC_CHECKED;
static inline int ac_list_push(ac_list *l, ac_tensor *t) {
    if (l->n == l->room) AC_TRY(ac_list_grow(l));
    l->at[l->n++] = t;
    return 0;
}
/* Frees the list's own memory; the tensors stay as they are. */
void ac_list_free(ac_list *l);
/* The same, and releases the tensors. */
void ac_list_release(ac_list *l);

#endif
