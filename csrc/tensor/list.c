#include "list.h"

#include "../base/alloc.h"

#include <limits.h>
#include <string.h>

static int move_to(ac_list *l, int room) {
    ac_tensor **more = ac_alloc((size_t)room * sizeof *more);
    if (!more) return -1;
    memcpy(more, l->at, (size_t)l->n * sizeof *more);
    ac_list_free(l);
    l->at = more, l->room = room;
    return 0;
}

int ac_list_grow(ac_list *l) {
    if (l->room > INT_MAX / 2) return ac_fail(AC_VALUE, "a list of more than %d tensors is too long", l->room);
    return move_to(l, 2 * l->room);
}

int ac_list_start(ac_list *l, int n) {
    ac_list_init(l);
    if (n > l->room) AC_TRY(move_to(l, n));
    memset(l->at, 0, (size_t)n * sizeof *l->at);
    l->n = n;
    return 0;
}

void ac_list_free(ac_list *l) {
    if (l->at != l->few) ac_free(l->at, (size_t)l->room * sizeof *l->at);
}

void ac_list_release(ac_list *l) {
    for (int i = 0; i < l->n; i++) ac_tensor_clear(&l->at[i]);
    ac_list_free(l);
}
