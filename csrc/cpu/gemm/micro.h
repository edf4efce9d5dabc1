/* Micro-kernels: the innermost products of panels, one for each kind of arithmetic unit. */
#ifndef AC_CPU_GEMM_MICRO_H
#define AC_CPU_GEMM_MICRO_H

#include "base/ways.h"
#include "cpu/gemm/panels.h"

/* C (+)= A B for up to micro->a by micro->b panels, in float32 tiles of 16 x 16. Vector kernels sum up the products of
 * a job and add that to C once, so that rounding errors grow with a job's k steps and with the number of jobs, not with
 * all of k. Tile units (AMX), whose operands have 16 bits, add each k step to C. */
typedef struct {
    int64_t k_steps;
    const char *a, *b;
    int64_t a_next, b_next; /* bytes from a panel to the next, */
    int64_t a_k_stride;     /* in A from a k step to the next, */
    int64_t a_lane_stride;  /* and from a lane: panels may be the operand itself; */
    int64_t a_cell_stride;  /* and from a cell: lanes of a cell lie together where A is packed as B; */
    int64_t b_cell_stride;  /* in B from a cell's lanes to the next's: panels may lie in padded channels */
    const int64_t *b_at;    /* bytes from b to each k step, or NULL: tiles follow each other */
    int na, nb;             /* panels of A and of B */
    int empty;              /* last cells of every k step, which hold zeros: a kernel may leave them out */
    float *c;
    int64_t c_a, c_b;            /* floats from a tile of C to the next along A's and B's panels */
    bool add;                    /* else C is overwritten */
    void *out;                   /* not NULL, of kernels that write results: sums go there, plus bias, and not to c; */
    ac_dtype out_dtype;          /* float32, or of kernels that round a 16-bit dtype; */
    int64_t out_row;             /* values from a row to the next; tiles side by side are 16 values apart */
    const float *bias;           /* of the result's columns, or NULL */
    bool stream;                 /* out is written past the caches: its rows are whole lines */
    const char *soon_a, *soon_b; /* panels wanted later, to fetch ahead; running over their end is harmless */
} ac_micro_job;

/* Where k step s of B's first panel lies; `bytes` a k step where tiles follow each other. */
static inline const char *ac_micro_b(const ac_micro_job *j, int64_t s, int64_t bytes) {
    return j->b + (j->b_at ? j->b_at[s] : s * bytes);
}

/* Cells of a k step that a kernel multiplies, which takes four at a time. */
static inline int ac_micro_cells(const ac_micro_job *j) { return (AC_CELLS - j->empty + 3) / 4 * 4; }

enum { AC_FETCH_A = 256, AC_FETCH_B = 128 }; /* bytes that a k step fetches of each */

typedef struct {
    const char *name;
    ac_way way; /* that a product with it enters */
    ac_panel_kind kind;
    ac_isa isa;
    int a, b;                          /* panels of A and of B that it takes at a time */
    bool writes_results;               /* knows ac_micro_job.out */
    void (*begin)(void), (*end)(void); /* around a series of runs on one thread, or NULL */
    void (*run)(const ac_micro_job *job);
    bool a_like_b;        /* A may be packed as B: it reads any layout that the strides of a job say */
    bool turns_rows;      /* then A that lies in rows of float32 is packed as B, too, by a transposition */
    bool streams_results; /* knows ac_micro_job.stream */
    bool rounds_results;  /* writes results in 16 bits, too */
} ac_micro;

/* The kernel for operands rounded to `round`; for float16 on bfloat16 tiles `finite` allows the split. */
const ac_micro *ac_micro_for(ac_dtype round, bool finite);
/* Every kernel that this CPU can run, for tests and `ampc info`; NULL past the last. */
const ac_micro *ac_micro_at(int i);

extern const ac_micro ac_micro_amx_fp16, ac_micro_amx_bf16, ac_micro_amx_split, ac_micro_avx512_bf16, ac_micro_avx512,
    ac_micro_avx2, ac_micro_portable;

#endif
