/* Panels: the one layout that every micro-kernel of the products reads.
 *
 * An operand is cut into panels of 16 lanes (rows of A, columns of B), and a panel along k into
 * tiles of 1 KiB: 16 lanes by 16 cells of four bytes, a cell being one float32 or two 16-bit
 * neighbours along k. In A's tiles the cells of a lane lie together, in B's the lanes of a cell;
 * these are what the CPU's tile registers want, and vector kernels read them as well. Lanes and
 * cells beyond the operand's edge are zero.
 *
 * Tiles are ordered by k block, then panel, then k, so that a block of panels is one run of memory. */
#ifndef AC_CPU_GEMM_PANELS_H
#define AC_CPU_GEMM_PANELS_H

#include "cpu/loops.h"

typedef enum {
    AC_PANEL_F32,
    AC_PANEL_BF16,
    AC_PANEL_F16,
    /* float16 as the exact sum of two bfloat16 values: at each k step a tile of the leading 8 bits
     * of every significand, then one of the other 3. Finite values only. */
    AC_PANEL_SPLIT
} ac_panel_kind;

enum { AC_LANES = 16, AC_CELLS = 16, AC_TILE_BYTES = 1024, AC_TILE_FLOATS = 256 };

/* An operand in memory: value (lane, k) at data[lane * lane_stride + k * k_stride]. */
typedef struct {
    const void *data;
    ac_dtype dtype; /* float32, float16 or bfloat16 */
    int64_t lanes, k;
    int64_t lane_stride, k_stride; /* in elements */
    ac_dtype round;                /* the dtype that values are rounded to on the way */
    bool stream;                   /* panels are large: write them past the caches */
} ac_operand;

/* How an operand of depth k is cut: `blocks` k blocks of `k_steps` k steps (the last may have fewer). The sums of a
 * span's blocks are added one after the other, and then the spans, so that sums of millions keep their digits. */
typedef struct {
    ac_panel_kind kind;
    int64_t depth, bytes;    /* of one k step: values along k, memory in one panel */
    int64_t all_k_steps;     /* along k */
    int64_t k_steps, blocks; /* k steps a block */
    int64_t span;            /* blocks a span */
} ac_cut;

ac_cut ac_cut_of(ac_panel_kind kind, int64_t k);
static inline int64_t ac_panels_of(int64_t lanes) { return (lanes + AC_LANES - 1) / AC_LANES; }
static inline int64_t ac_cut_k_steps(const ac_cut *c, int64_t block) { /* k steps of one block */
    int64_t left = c->all_k_steps - block * c->k_steps;
    return left < c->k_steps ? left : c->k_steps;
}
static inline int64_t ac_panels_bytes(const ac_cut *c, int64_t lanes) {
    return ac_panels_of(lanes) * c->all_k_steps * c->bytes;
}

/* Where panel `panel` of k block `block` begins in a whole operand of `panels` panels. */
static inline int64_t ac_panel_offset(const ac_cut *c, int64_t panels, int64_t block, int64_t panel) {
    return (block * c->k_steps * panels + panel * ac_cut_k_steps(c, block)) * c->bytes;
}

/* Packs `count` panels from `panel` on of one k block to `to`, which begins a cache line; `columns` for B. False when a
 * value that the layout cannot hold (inf or nan in AC_PANEL_SPLIT) was met. */
bool ac_pack(const ac_operand *o, const ac_cut *cut, bool columns, int64_t block, int64_t panel, int64_t count,
             char *to);

/* Packs `k_steps` k steps of `panels` panels, from (panel, k step) on, to their slots in `all`, a whole operand's. */
bool ac_pack_part(const ac_operand *o, const ac_cut *cut, bool columns, int64_t panel, int64_t panels, int64_t k_step,
                  int64_t k_steps, char *all);

/* One k step of one panel; see ac_pack. */
typedef bool (*ac_pack_k_step)(const ac_operand *o, ac_panel_kind kind, bool columns, int64_t lane, int64_t k,
                               char *to);
bool ac_pack_k_step_portable(const ac_operand *o, ac_panel_kind kind, bool columns, int64_t lane, int64_t k, char *to);
bool ac_pack_k_step_avx2(const ac_operand *o, ac_panel_kind kind, bool columns, int64_t lane, int64_t k, char *to);
bool ac_pack_k_step_avx512(const ac_operand *o, ac_panel_kind kind, bool columns, int64_t lane, int64_t k, char *to);

#endif
