/* Lists of tensors: growth, appending and release. */
#include "tensor/list.h"

#include "base/alloc.h"

#include <limits.h>
#include <string.h>

void ac_list_free_heap(ac_list *l) { ac_free(l->at, (size_t)l->room * sizeof *l->at); }

int ac_list_reserve(ac_list *l, int n) {
    ac_tensor **more = ac_alloc((size_t)n * sizeof *more);
    if (!more) return -1;
    memcpy(more, l->at, (size_t)l->n * sizeof *more);
    ac_list_free(l);
    l->at = more, l->room = n;
    return 0;
}

int ac_list_grow(ac_list *l) {
    if (l->room > INT_MAX / 2) return ac_fail(AC_VALUE, "a list of more than %d tensors is too long", l->room);
    return ac_list_reserve(l, 2 * l->room);
}
