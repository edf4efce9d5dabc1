/* Collectives of processes that share memory: the ranks of a group that are on one host.
 *
 * The memory has a line of counters for each rank, then two buffers for each. Values pass through the buffers in
 * pieces, which are counted over all collectives of the group; a piece uses its rank's buffer by turns. A rank puts
 * what others need of a piece into its buffer, combines its share of it, and takes the other shares from the others'
 * buffers. Three counters say how far a rank is. So each element is combined by one rank in the order of ranks, and all
 * ranks have the same bits. */
#ifndef AC_CPU_RANKS_RANKS_H
#define AC_CPU_RANKS_RANKS_H

#include "base/dtype.h"
#include "base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { AC_MOST_RANKS = 256 };

typedef enum {
    AC_COMBINE_SUM,
    AC_COMBINE_PRODUCT,
    AC_COMBINE_MIN, /* nan wins */
    AC_COMBINE_MAX,
    AC_COMBINE_AND,
    AC_COMBINE_OR,
    AC_COMBINE_XOR,
    AC_N_COMBINES
} ac_combine;

/* out = the combination of `count` arrays of n values, from the first to the last, divided by `divisor`. It is computed
 * in the opmath type of `dtype` and rounded once, to `out_dtype`, whose opmath type is the same. Of floating point
 * only: divisors other than 1; of integers and bool only: AND, OR and XOR. `out` may be one of `from`. */
void ac_cpu_combine(ac_combine how, ac_dtype dtype, int64_t n, int count, const void *const *from, int divisor,
                    ac_dtype out_dtype, void *out);

/* How far a rank is: how many pieces it has put into its buffer, combined, and read all of. Who sleeps for a counter
 * sleeps on its lower half. */
typedef struct {
    _Alignas(128) _Atomic uint64_t put;
    _Atomic uint64_t combined, done;
    uint64_t said[2];          /* what it was called with, of the last two collectives by turns */
    _Atomic uint32_t sleepers; /* who sleep for one of its counters */
} ac_rank_line;

/* A group, as one of its ranks sees it. */
typedef struct {
    ac_rank_line *lines; /* shared */
    char *buffers;       /* shared */
    int rank, size;
    int64_t bytes;  /* of a buffer, a multiple of 128 */
    uint64_t piece; /* the number of the next */
    int spins;      /* looks before it sleeps */
    /* While a rank waits it is called every tenth of a second. Nonzero ends the collective, and the group with it. */
    int (*waits)(void *context);
    void (*rests)(void *context,
                  bool begins); /* is called before it sleeps for the first time, and after that; or NULL */
    void *context;
} ac_ranks;

/* Bytes of the memory that the ranks share. It begins as zeros. */
static inline int64_t ac_ranks_bytes(int size, int64_t buffer_bytes) {
    return size * ((int64_t)sizeof(ac_rank_line) + 2 * buffer_bytes);
}

typedef enum { AC_MEET, AC_ALL_REDUCE, AC_REDUCE_SCATTER, AC_ALL_GATHER, AC_BROADCAST, AC_N_COLLECTIVES } ac_collective;

/* Contiguous elements, such as those of one gradient. */
typedef struct {
    char *data;
    int64_t n;
} ac_rank_part;

typedef struct {
    ac_collective kind;
    ac_combine how;
    ac_dtype dtype;
    int64_t n;        /* elements: of `to` for reduce_scatter, else of `from` */
    const char *from; /* of all_reduce it may be `to` */
    char *to;         /* of all_reduce NULL: this rank does not want the result */
    /* For an all_reduce in place, instead of `from` and `to`: parts that have n elements together. The result replaces
     * them. */
    const ac_rank_part *parts;
    int root;
    int divisor;
    uint64_t said;  /* what must be the same in all ranks */
    bool unchecked; /* it is not compared */
} ac_rank_call;

/* 0; 1 in every rank where they did not say the same, and the group can be used on; -1 after `waits` did. */
int ac_ranks_run(ac_ranks *g, const ac_rank_call *c) AC_CHECKED;

/* Waits until a counter of rank `other` is at least `value`. */
int ac_ranks_wait(ac_ranks *g, int other, const _Atomic uint64_t *counter, uint64_t value) AC_CHECKED;
/* Sets one of this rank's counters, after all it has written before; who sleeps for it wakes. */
void ac_ranks_set(ac_ranks *g, _Atomic uint64_t *counter, uint64_t value);

#endif
