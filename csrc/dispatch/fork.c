/* Handles every lock of the core around a fork (base/fork.h). All else that threads share is used under the GIL,
 * which the forking thread holds, or belongs to one thread alone. */
#include "dispatch/fork.h"

#include "dispatch/waiting.h"

#include "base/alloc.h"
#include "base/pool.h"
#include "cuda/gpu.h"

#include <pthread.h>

static void gpu(ac_fork_moment moment) {
    if (moment == AC_FORK_CHILD) ac_gpu_forked();
}

static void waiting(ac_fork_moment moment) {
    if (moment == AC_FORK_CHILD) ac_waiting_forked();
}

/* In the order in which they are taken: whoever is inside OpenBLAS takes no other lock, and memory's is held for a few
 * instructions only. */
static void (*const owners[])(ac_fork_moment) = {waiting, ac_pool_around_fork, gpu, ac_blas_around_fork,
                                                 ac_alloc_around_fork};
enum { N_OWNERS = sizeof owners / sizeof *owners };

static void before(void) {
    for (int i = 0; i < N_OWNERS; i++) owners[i](AC_FORK_BEFORE);
}
static void in_parent(void) {
    for (int i = N_OWNERS - 1; i >= 0; i--) owners[i](AC_FORK_PARENT);
}
static void in_child(void) {
    for (int i = N_OWNERS - 1; i >= 0; i--) owners[i](AC_FORK_CHILD);
}

int ac_fork_init(void) {
    static bool done;
    if (!done && pthread_atfork(before, in_parent, in_child) != 0)
        return ac_fail(AC_MEMORY, "no memory to watch for forks");
    done = true;
    return 0;
}
