/* A list of tensors. A few tensors are stored in the list itself, which costs no allocation; more are stored on the
 * heap. Every list whose length a caller decides is one of these, such as the inputs of an operator and the
 * temporaries of a formula. */
#ifndef AC_TENSOR_LIST_H
#define AC_TENSOR_LIST_H

#include "tensor/tensor.h"

enum { AC_FEW = 24 };

typedef struct {
    ac_tensor **at; /* n entries, NULL among them where a tensor is absent; a list cannot be copied by value */
    int n, room;
    ac_tensor *few[AC_FEW];
} ac_list;

static inline void ac_list_init(ac_list *l) { l->at = l->few, l->n = 0, l->room = AC_FEW; }
/* Makes room for n entries, or for twice as many as now, on the heap; and gives that back. */
int ac_list_reserve(ac_list *l, int n) AC_CHECKED;
int ac_list_grow(ac_list *l) AC_CHECKED;
void ac_list_free_heap(ac_list *l);

/* Starts the list with n entries of NULL. After a failure it is empty, and may be freed or released all the same. */
static inline int ac_list_start(ac_list *l, int n) {
    ac_list_init(l);
    if (n > l->room) AC_TRY(ac_list_reserve(l, n));
    for (int i = 0; i < n; i++) l->at[i] = NULL;
    l->n = n;
    return 0;
}
static inline int ac_list_push(ac_list *l, ac_tensor *t) {
    if (l->n == l->room) AC_TRY(ac_list_grow(l));
    l->at[l->n++] = t;
    return 0;
}
/* Frees the list's own memory; the tensors stay as they are. */
static inline void ac_list_free(ac_list *l) {
    if (l->at != l->few) ac_list_free_heap(l);
}
/* The same, and releases the tensors. */
static inline void ac_list_release(ac_list *l) {
    for (int i = 0; i < l->n; i++) ac_tensor_clear(&l->at[i]);
    ac_list_free(l);
}

#endif
