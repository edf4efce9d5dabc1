/* Collectives between the GPUs of several processes, by NCCL (nccl.c). */
#ifndef AC_CUDA_NCCL_H
#define AC_CUDA_NCCL_H

#include "cuda/gpu.h"

/* One rank's end of a communicator: a GPU, and a stream of it that its operations run on. */
typedef struct ac_nccl_group {
    ac_device device;
    CUstream stream;
    ncclComm_t comm;            /* NULL: ended */
    CUevent done;               /* behind what is queued, once the group was watched */
    int64_t end_by;             /* by ac_microseconds; 0: the group is not watched now */
    bool late;                  /* the watch has broken it off */
    struct ac_nccl_group *next; /* of those that are watched */
} ac_nccl_group;

typedef enum {
    AC_NCCL_ALL_REDUCE,
    AC_NCCL_REDUCE,
    AC_NCCL_BROADCAST,
    AC_NCCL_ALL_GATHER,
    AC_NCCL_REDUCE_SCATTER,
    AC_NCCL_SEND,
    AC_NCCL_RECV,
    AC_NCCL_N_KINDS
} ac_nccl_kind;

/* Contiguous tensors of the group's GPU; `from` is NULL of a receive, `to` of a send. */
typedef struct {
    ac_nccl_kind kind;
    const ac_tensor *from, *to;
    ncclRedOp_t op; /* of reductions */
    int root;       /* or the partner of a message */
} ac_nccl_call;

/* RuntimeError where NCCL is missing or too old. */
int ac_nccl_version(int *version) AC_CHECKED;
int ac_nccl_unique_id(ncclUniqueId *id) AC_CHECKED;
/* Begins to connect this process as `rank` of `size`; `ac_nccl_state` tells when it is. Every rank must call it, with
 * the id that one of them has made. */
int ac_nccl_begin(ac_nccl_group *g, ac_device d, const ncclUniqueId *id, int rank, int size) AC_CHECKED;
/* Whether the last call of this group is still being made; fails with what has gone wrong in the group since. */
int ac_nccl_state(const ac_nccl_group *g, bool *in_progress) AC_CHECKED;
/* Queues operations on the group's stream, of several all together. Before the next, and before an event behind them,
 * the state must not be in progress. `kept` says whether the memory of all tensors is ours, which is kept for the
 * stream. */
int ac_nccl_queue(const ac_nccl_group *g, const ac_nccl_call *calls, int n, bool *kept) AC_CHECKED;
/* Unless all that is queued is done after so many seconds, a thread breaks the group off. It needs no lock of the
 * caller's, who may wait for the GPU with all of them held. */
int ac_nccl_watch(ac_nccl_group *g, double seconds) AC_CHECKED;
/* Fails where that has happened: what was queued has no values, though the stream is done. */
int ac_nccl_check(const ac_nccl_group *g) AC_CHECKED;
/* The group's memory is given back: nobody watches it any more. */
void ac_nccl_forget(ac_nccl_group *g);
/* Ends it after what is queued; every rank calls it. `ac_nccl_abort` ends it at once, and what runs, from any thread.
 */
int ac_nccl_end(ac_nccl_group *g) AC_CHECKED;
int ac_nccl_abort(ac_nccl_group *g) AC_CHECKED;

#endif
