/* The innermost loops, compiled once for each instruction set and selected once at start.
 *
 * Every loop computes in one of three types, its opmath type: float32 (also for the 16-bit types, which are widened on
 * load and rounded once on store), float64, and int64 (for integers and bool). */
#ifndef AC_CPU_LOOPS_H
#define AC_CPU_LOOPS_H

#include "backend/backend.h"
#include "shared/fold.h"
#include "shared/opmath.h"

/* Elements a loop is given at a time: three float32 operands and a result stay in L1. */
enum { AC_TILE = 1024 };
/* Steps along k that thin_across adds at a time, at most. */
enum { AC_THIN_DEPTH = 8 };

/* An accumulator: `f` for float32 and float64, `i` for int64. */
typedef struct {
    double f;
    int64_t i;
} ac_total;

/* The end of a product: y = act(alpha x + bias) + beta y. */
typedef struct {
    float alpha, beta;
    int act;                      /* ac_activation */
    bool stream;                  /* write past the caches: y is large, and its rows are aligned to 64 bytes */
    const float *bias, *row_bias; /* of these columns, and of these rows; or NULL */
} ac_finish;

/* Norms over channels: loops over rows of n values of one dtype, of planes that share statistics. `row` counts elements
 * from a row to the next. */
typedef struct {
    /* the mean, and the sum of squares around it */
    void (*moments)(int64_t rows, int64_t n, const void *x, int64_t row, double moments[2]);
    /* the sums of g and of g (x - mean) */
    void (*sums)(int64_t rows, int64_t n, const void *g, int64_t g_row, const void *x, int64_t x_row, double mean,
                 double sums[2]);
    /* y = (x - mean) scale + shift */
    void (*scale)(int64_t rows, int64_t n, const void *x, int64_t x_row, double mean, double scale, double shift,
                  void *y, int64_t y_row);
    /* y = by_g g + by_x (x - mean) + shift */
    void (*mix)(int64_t rows, int64_t n, const void *g, int64_t g_row, const void *x, int64_t x_row, double by_g,
                double mean, double by_x, double shift, void *y, int64_t y_row);
} ac_plane_loops;

typedef struct ac_loops {
    const char *name;
    void (*point[AC_N_OPS][AC_N_OPMATHS])(int64_t n, const void *const *in, void *out, const void *attrs);
    /* the same of float16 and bfloat16 as they are: operators whose result is an operand's value or 0; others have NULL
     */
    void (*point16[AC_N_OPS][2])(int64_t n, const void *const *in, void *out);
    /* `stride` counts elements */
    void (*load[AC_N_DTYPES][AC_N_OPMATHS])(int64_t n, const void *from, int64_t stride, void *to);
    void (*store[AC_N_OPMATHS][AC_N_DTYPES])(int64_t n, const void *from, void *to, int64_t stride);
    /* folds n values into *total */
    void (*fold[AC_N_FOLDS][AC_N_OPMATHS])(int64_t n, const void *x, double p, ac_total *total);
    /* folds x[r * step + j], for every row r in turn, into totals[j] */
    void (*fold_columns[AC_N_FOLDS][AC_N_OPMATHS])(int64_t rows, int64_t n, const void *x, int64_t step, double p,
                                                   void *totals);
    /* fold_columns of AC_FOLD_SUM in float32, of bfloat16 */
    void (*columns_sum_bfloat16)(int64_t rows, int64_t n, const uint16_t *x, int64_t step, float *totals);
    /* keys in the order of values, each xor `flip`, see order_loops.inc */
    void (*order[AC_N_OPMATHS])(int64_t n, const void *x, uint64_t flip, uint64_t *keys);
    int64_t (*first_below)(int64_t n, const uint64_t *keys, uint64_t limit);
    /* the first place of `best`, and the places of the best, see there too */
    int64_t (*find[AC_N_OPMATHS])(int64_t n, const void *x, const ac_total *best);
    int64_t (*best_of_few[AC_N_OPMATHS])(int64_t n, const void *x, bool smallest);
    void (*best_columns[AC_N_OPMATHS])(int64_t n, const void *x, bool smallest, int64_t row, void *best,
                                       int64_t *index);
    /* the largest magnitude of floating point of 2, 4 and 8 bytes, as an integer, see there too */
    uint64_t (*largest[3])(int64_t n, const void *x);
    /* rows, indexed 0 float32, 1 float64 */
    void (*softmax[2])(int64_t n, const void *x, void *y);
    void (*safe_softmax[2])(int64_t n, const void *x, void *y);
    void (*log_softmax[2])(int64_t n, const void *x, void *y);
    void (*softmax_backward[2])(int64_t n, const void *g, const void *y, void *dx);
    void (*log_softmax_backward[2])(int64_t n, const void *g, const void *y, void *dx);
    double (*logsumexp[2])(int64_t n, const void *x);
    /* y = (x - mean) * rstd * w + b; w and b may be NULL */
    void (*normalize[2])(int64_t n, const void *x, double mean, double rstd, const void *w, const void *b, void *y);
    /* dw += g xhat, db += g, dx = rstd * (g w - (sum(g w) + xhat sum(g w xhat)) / n); w may be NULL */
    void (*normalize_backward[2])(int64_t n, const void *g, const void *x, double mean, double rstd, const void *w,
                                  void *dw, void *db, void *dx);
    ac_plane_loops planes[AC_N_DTYPES]; /* of floating point */
    void (*dropout[2])(int64_t n, const void *x, double p, uint64_t seed, uint64_t offset, int64_t first, void *y);
    /* sums[i, j] += sum over p of x[i, p] w[j, p], or w[p, j]: products of few rows, see thin_loops.inc */
    void (*thin_along)(int64_t k, int64_t rows, const float *x, int64_t x_row, int64_t lanes, const float *w,
                       int64_t w_row, float *sums, int64_t sums_row);
    void (*thin_across)(int64_t depth, int64_t rows, const float *x, int64_t lanes, const float *w, int64_t w_row,
                        float *sums, int64_t sums_row);
    /* one tap of max pooling's windows, see pool_rows.inc */
    void (*pool_tap[AC_N_OPMATHS])(int64_t n, const void *x, int64_t stride, int32_t tap, void *best, int32_t *which);
    /* n windows of two by two of two rows, see there too */
    void (*pool_fours[AC_N_OPMATHS])(int64_t n, const void *x, const void *below, void *best, int32_t *which);
    /* rows of two channels as cells of pairs, see conv_pack.inc */
    void (*pair_rows)(int64_t rows, int64_t n, const uint16_t *even, const uint16_t *odd, int64_t stride,
                      int64_t from_row, uint32_t *to, int64_t to_row);
    /* rows of windows over rows of positions, see conv_depthwise.inc */
    void (*sweep)(int64_t n, int64_t taps, const float *x, const int64_t *offset, const float *w, float *y);
    void (*sweep_back)(int64_t n, int64_t taps, const float *x, const int64_t *offset, const float *g, float *sums);
    /* rows x n values from tiles of 16 x 16, side by side, to float32, float16 or bfloat16; `row` elements apart */
    void (*finish[3])(int64_t rows, int64_t n, const float *tiles, const ac_finish *f, void *y, int64_t row);
    /* adds what n values are, times factor, to *found; writes the products unless `to` is NULL (it may be `from`) */
    void (*grad_stats[2])(int64_t n, const void *from, double factor, ac_found *found, void *to);
    /* one step of a recurrent cell for one row of n units, and its gradients, see rnn_cells.inc; by the dtype of x, and
     * of kept, before, y and g */
    void (*cell[AC_N_CELLS][AC_N_DTYPES])(int64_t n, const void *x, const void *u, void *h, void *c, void *kept);
    void (*cell_back[AC_N_CELLS][AC_N_DTYPES])(int64_t n, const void *kept, const void *before, const void *y,
                                               const void *g, void *dh, void *dc, void *dx, void *du);
    /* an optimizer's update rule over n values; `state` has 3 entries, those that it uses first, then NULL */
    void (*step[AC_N_UPDATE_RULES][2])(int64_t n, const ac_optim_options *o, const ac_optim_scalars *at,
                                       const void *grad, void *param, void *const *state);
} ac_loops;

extern const ac_loops ac_loops_baseline, ac_loops_avx2, ac_loops_avx512;

const ac_loops *ac_cpu_loops(void); /* those of this machine */
/* Notes which of base/ways.def these are. Once an operator, not where loops are asked for again and again. */
void ac_cpu_note_loops(const ac_loops *loops);

#endif
