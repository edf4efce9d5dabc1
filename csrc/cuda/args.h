/* The arguments of the CUDA kernels: one struct a kernel, passed by value, read by the C host code and
 * by the .cu files alike. Pointers are device addresses; strides and offsets count elements. */
#ifndef AC_CUDA_ARGS_H
#define AC_CUDA_ARGS_H

#include "base/dtype.h"
#include "shared/rounding.h"
#include "shared/optim_options.h"
#include "shared/dim_iter.h"
#include "shared/windows.h"

enum { AC_GPU_THREADS = 256 };         /* of a block, everywhere */
enum { AC_GPU_SHARED_ALIGNMENT = 32 }; /* of a block's shared memory, for tiles of tensor cores */

/* Where a kernel notes the first bad index it meets: host memory that the device can write. */
typedef struct {
    int32_t flag; /* 0 nothing, 1 noted */
    int32_t op, input;
    int64_t value, size;
} ac_gpu_trouble;

/* Memory of one dtype; without memory, a number. */
typedef struct {
    void *data;
    double f;
    int64_t i;
    int32_t dtype;
} ac_gpu_ref;

/* Divides numbers below 2^31 by one of those, without a division (Granlund and Montgomery 1994). */
typedef struct {
    uint32_t multiplier, shift;
} ac_gpu_divisor;

/* Where the random numbers of a launch begin. */
typedef struct {
    uint64_t seed, offset;
    const uint64_t *from; /* {seed, offset} of a graph's replay, from where `offset` counts; or NULL */
} ac_gpu_random;

/* -- elementwise, copies, dropout -- */

enum { AC_GPU_OPERANDS = 4, AC_GPU_ATTRS = 32 };
typedef struct {
    int64_t numel;
    int32_t ndim, vector; /* vector: innermost neighbours are 0 or 1 apart, aligned, and come in whole runs */
    int32_t wraps;        /* computing in int64: the dtype that operands wrap into; int64: none */
    int64_t shape[AC_MAX_DIMS], strides[AC_GPU_OPERANDS][AC_MAX_DIMS];
    ac_gpu_ref operand[AC_GPU_OPERANDS]; /* the result, then the inputs */
    int64_t attrs[AC_GPU_ATTRS / 8];
    double p; /* dropout */
    ac_gpu_random random;
} ac_gpu_point;

/* A copy between operands of which one runs along `across` and the other along `down`, in squares of so many. */
enum { AC_GPU_TURN = 64 };
typedef struct {
    const void *from;
    void *to;
    int64_t across, down;              /* how many: neighbours in `to`, and neighbours in `from` */
    int64_t from_step, to_step;        /* from one to the next on the other side */
    int64_t tiles_across, tiles, jobs; /* of one item, and of all */
    ac_space from_items, to_items;     /* of the other dimensions */
    int32_t pairs;                     /* of 16-bit values: both sides go by two neighbours at once */
} ac_gpu_turn;

/* -- filling -- */

typedef struct {
    ac_gpu_ref out; /* contiguous */
    int64_t n;
    double a, b; /* start and step; bounds; mean and deviation */
    int64_t ia, ib;
    int32_t real; /* arange counts in floating point */
    ac_gpu_random random;
} ac_gpu_fill;

/* -- reductions -- */

typedef enum {
    AC_GPU_TOTAL,
    AC_GPU_MEAN,
    AC_GPU_ROOT,
    AC_GPU_POWER_ROOT,
    AC_GPU_VARIANCE,
    AC_GPU_DEVIATION,
    AC_GPU_ANY,
    AC_GPU_ALL
} ac_gpu_finish;

typedef struct {
    ac_gpu_ref x, out; /* out is contiguous */
    ac_space kept, inner;
    int64_t parts, part; /* the reduced elements of one result are cut into so many, of so many */
    void *partial;       /* [parts][kept.numel] totals of 8 bytes, when there are several */
    double p;            /* the fold's parameter, */
    const double *each;  /* or one for every result */
    double correction;
    int32_t finish, vector; /* vector: by runs of four, of x (rows) or of results (columns) */
    int32_t group, dense;   /* threads that take a row; of rows that go by packs of 16 bytes, a pack's elements, or 0 */
} ac_gpu_reduce;

typedef struct {
    ac_gpu_ref x;
    ac_gpu_ref values; /* no memory: not wanted */
    int64_t *indices;
    ac_space kept, along;
    int32_t smallest, group, dense; /* group, dense: as above */
} ac_gpu_best;

/* -- rows -- */

enum { AC_GPU_HELD = 32 }; /* values of a row that a thread's registers hold, of each input */

/* Rows of values: row r begins at kept(r), its element i lies inner(i) further. */
typedef struct {
    ac_gpu_ref ref;
    ac_space kept, inner;
} ac_gpu_rows_of;

typedef struct {
    int64_t rows, n;
    ac_gpu_rows_of in[2], out;
    int32_t group;  /* threads that take a row: 1, or 1, 2, 4 or 8 warps */
    int32_t vector; /* whole runs of neighbours, in one dtype */
    int32_t safe;   /* softmax: a row of -inf alone gives 0 */
    /* layer norm: contiguous, NULL where absent */
    ac_gpu_ref weight, bias, mean, rstd;
    double eps;
} ac_gpu_rows;

/* Running totals along rows: `group` threads take one; vector: x and out by runs of four. */
typedef struct {
    int64_t rows, n;
    ac_gpu_rows_of x, with, out;
    int64_t *indices; /* where the extreme last was, laid out like `out` */
    int32_t group, vector, reverse, smallest;
} ac_gpu_running;

/* The gradients of weight and bias: column sums of g * xhat and g over contiguous [rows, n]. */
typedef struct {
    int64_t rows, n, parts;
    int32_t vector; /* runs of eight, of g and x in one dtype */
    ac_gpu_ref g, x, mean, rstd, dweight, dbias;
    double *partial; /* [parts][2][n] */
} ac_gpu_columns;

/* [batch, channels, inner]: strides from an image, a channel, a position to the next. */
typedef struct {
    ac_gpu_ref ref;
    int64_t image, channel, position;
} ac_gpu_planes;

/* Sets of values share statistics: those of a channel, or (groups not 0) of `depth` channels of an image. */
typedef struct {
    int64_t batch, channels, inner, groups, depth;
    int64_t sets, sets_of_image, width; /* batch norm: the images are one; channels from a set to the next */
    int64_t lines, parts, part;         /* of a set, each of `inner` values; it is cut into so many parts of so many */
    int32_t group, columns, vector;     /* threads that take a part; channels side by side; runs of so many, or 0 */
    int32_t training;
    ac_gpu_planes x, g, y;
    double *partial; /* [sets][parts][2]: sum and squares around the mean; backward, sums of g and g xhat */
    double *means;   /* of the values that share statistics, [2]: of g w and of g w xhat */
    ac_gpu_ref mean, rstd, weight, bias, running_mean, running_var, dweight, dbias;
    int64_t weight_stride, bias_stride, mean_stride, var_stride;
    double momentum, eps;
} ac_gpu_channels;

/* -- losses of classes: x [N, C, ...] -- */

/* The classes of samples, int64 or uint8, and what they weigh (no memory: 1). */
typedef struct {
    ac_gpu_ref target, weight;
    ac_space at;
    int64_t classes, weight_stride, ignore;
    ac_gpu_trouble *trouble;
    int32_t op;
} ac_gpu_classes;

typedef struct {
    ac_gpu_classes of;
    ac_gpu_ref x, out, grad; /* backward: out is the contiguous gradient of x */
    ac_space samples, grad_at;
    int64_t n, class_stride, inner;
    int32_t reduction; /* ac_reduction */
    double *total;     /* one number: the sum of weights */
} ac_gpu_nll;

/* Cross entropy: a row of logits a sample. */
enum { AC_GPU_LOSSES = 4096 }; /* of samples that a block joins, where there are more than these */
typedef struct {
    ac_gpu_rows rows; /* in[0]: logits, in[1]: probabilities or nothing; backward, out: the logits' gradient */
    ac_gpu_classes of;
    ac_gpu_ref loss, g;
    ac_space g_at;
    double *lse, *totals, *each; /* lse: largest logit and the logarithm of the sum (of probabilities, what they sum to,
                                    too), each: loss and weight of each sample, or of `n` parts of them */
    double *parts;
    int64_t n;
    double smoothing;
    int32_t mean; /* of the losses, by their weights; else their sum */
} ac_gpu_entropy;

/* -- joining -- */

/* Parts that lie side by side in the rows of the result. Each is contiguous: `width` units for every row, which go
 * there from `start` on. A unit is as many bytes, up to 16, as all sizes and addresses are multiples of; or it is an
 * element, where dtypes differ. Blocks take pieces of so many units. */
enum { AC_GPU_PARTS = 96, AC_GPU_PART_PIECE = 1024 };
typedef struct {
    const void *data;
    int64_t start, width, first_piece;
    int32_t dtype, unit; /* unit: bytes, or 0 for elements that are converted */
} ac_gpu_part;
typedef struct {
    ac_gpu_ref out;
    int64_t rows, row_stride, pieces; /* row_stride: elements of the result, of so many bytes */
    int32_t n, item;
    ac_gpu_part part[AC_GPU_PARTS];
} ac_gpu_parts;

/* -- picking by index -- */

typedef struct {
    const void *data;
    int32_t dtype;
    int32_t input; /* its number among the operator's inputs, for messages */
    ac_space at;   /* over the items */
    int64_t size, stride;
} ac_gpu_axis;

/* Items i of `width` elements e. The indexed tensor has them at base(i) + sum of index_k(i) * stride_k + inner(e),
 * the other at other_items(i) + other_inner(e). */
enum { AC_GPU_INDICES = 11 };
typedef struct {
    int64_t items, width;
    char *indexed, *other;
    int64_t *keys;
    ac_gpu_trouble *trouble;
    int32_t n_index, item_bytes, op, wrap; /* wrap: negative indices count from the end */
    int64_t skip;                          /* an index value whose items are left out; or none is INT64_MIN */
    ac_space base, inner, other_items, other_inner;
    ac_gpu_axis index[AC_GPU_INDICES];
} ac_gpu_pick;

/* Adds items to the elements that their sorted keys say. The items of one element are a run of them, which is summed in
 * pieces, where chunks of so many items end, and these in order. */
enum { AC_GPU_ADD_CHUNK = 128 };
typedef struct {
    int64_t items, width;
    void *pieces; /* [chunks][2][width], 8 bytes each: of the run that comes into a chunk, of the one that leaves it */
    const uint64_t *keys;
    const int64_t *order;
    ac_gpu_ref to, from;
    ac_space inner, other_items, other_inner;
} ac_gpu_add;

/* -- sorting pairs of a 64-bit key and a payload, stable -- */

/* In shared memory a block sorts up to so many, in rows of a power of 2; short rows several at a time. */
enum { AC_GPU_SORT_MOST = 4096, AC_GPU_SORT_LEAST = 512, AC_GPU_SORT_ITEM = 12 /* bytes */ };

/* Longer rows go by digits of 8 bits, in tiles of so many. */
enum { AC_GPU_DIGITS = 256, AC_GPU_DIGIT_BITS = 8, AC_GPU_SORT_TILE = 2048 };

typedef struct {
    int64_t rows, n, tiles; /* tiles: of a row of n */
    const uint64_t *keys;
    const int64_t *payload; /* NULL: places in the row */
    uint64_t *keys_out;
    int64_t *payload_out;
    int64_t *counts, *totals; /* [rows][digits][tiles], [rows][digits] */
    int32_t shift, width;     /* width: of the row, where one block sorts all */
} ac_gpu_radix;

typedef struct {
    int64_t *values;
    int64_t n;
    int64_t *total; /* or NULL */
} ac_gpu_scan;

typedef struct {
    ac_gpu_ref x, values;
    ac_space from; /* of the rows in x */
    int64_t n, k, rows, stride, stride_out, values_stride;
    ac_space to;
    int32_t descending, width, items; /* in shared memory: of a row, and of all rows of a block */
    uint64_t *keys;
    const int64_t *order; /* the places in their rows that values come from */
    int64_t *indices;
} ac_gpu_sort;

typedef struct {
    ac_gpu_ref x;
    ac_space all;
    int64_t blocks;
    int64_t *counts; /* of each block */
    int64_t *out;    /* [count][ndim] */
    int32_t ndim;
    int64_t shape[AC_MAX_DIMS];
} ac_gpu_nonzero;

/* -- integer products -- */

typedef struct {
    ac_gpu_ref a, b, c, bias; /* bias: a value for each column, or NULL */
    int64_t batch, m, n, k;
    int64_t a_batch_stride, a_row, a_col, b_batch_stride, b_row, b_col, bias_col;
} ac_gpu_product;

/* -- attention -- */

/* Matrices of 16-bit values, one an item of the leading dimensions; columns lie side by side. */
typedef struct {
    void *data;
    ac_space items;
    int64_t row;
} ac_gpu_rows_2d;

/* Of a block: threads; queries forward, of up to 64 values or more; queries or keys backward; shared bytes. */
enum { AC_GPU_ATTENTION_THREADS = 128, AC_GPU_ATTENTION_QUERIES = 128, AC_GPU_ATTENTION_WIDE_QUERIES = 64 };
enum { AC_GPU_ATTENTION_ROWS = 64 };
enum { AC_GPU_ATTENTION_ROOM = 36 * 1024 };
typedef struct {
    ac_gpu_rows_2d q, k, v;
    void *out;       /* contiguous */
    float *log_sums; /* [items][queries][2]: the largest score, and the logarithm of the sum of exponentials above it */
    ac_gpu_ref mask; /* of truth values or added, or no memory */
    ac_space mask_items;
    int64_t mask_row, mask_column, queries, keys;
    int32_t width, causal;
    float scale;
    double dropped; /* the probability that a weight is dropped */
    ac_gpu_random random;
} ac_gpu_attention;

typedef struct {
    ac_gpu_attention forward;
    ac_gpu_rows_2d g;
    void *dq, *dk, *dv; /* contiguous */
    float *dmask;       /* gradients of the scores, contiguous, or NULL */
    float *means;       /* [items][queries]: sums of g * out, which the queries' kernel leaves for that of the keys */
} ac_gpu_attention_backward;

/* -- recurrent layers -- */

/* One time step of a layer, forward or backward. Its rows are the sequences that run, those from `starts` on with
 * their first state and those from `ends` on with their last. Rows of all but x follow each other. What a cell carries
 * beside its hidden state, of an LSTM the cell state, of a GRU the hidden state unrounded, lies in `carried`. */
typedef struct {
    int64_t rows, units, starts, ends;
    ac_gpu_ref x, bias; /* sums from the input, x_row values apart; what is added to those from the state, or none */
    int64_t x_row;
    void *sums, *carried;   /* sums from the state; both float32 or float64 */
    ac_gpu_ref start, last; /* carried states before the first step; hidden states after the last, */
    int64_t last_cell;      /* and so many values behind them the cell states */
    ac_gpu_ref y, kept;     /* kept: none where backward is not wanted */
} ac_gpu_cell;

/* Its gradients. dh and dc are those of the states, float32 or float64: here without what goes through the product. */
typedef struct {
    int64_t rows, units, starts, ends;
    ac_gpu_ref g, g_last, kept, y;
    int64_t last_cell;
    ac_gpu_ref start, before; /* what the cell multiplies by itself: of rows that start, and of the step before, */
    int64_t before_row;       /* whose rows lie so many values apart */
    ac_gpu_ref hidden_start, hidden, entered; /* the same of the hidden state, copied to `entered`; or no memory */
    ac_gpu_ref dx, du;                        /* of the sums; du: no memory where it is dx */
    void *dh, *dc;
} ac_gpu_cell_back;

/* All steps of sequences of one length, in 16 bits. `step` is the first that is computed. From one to the next the
 * results lie so many rows apart, and the sums from the input so many values. `weight` begins on a boundary of 32
 * bytes; backward it is turned. */
enum { AC_GPU_CELL_ROWS = 16, AC_GPU_CELL_PAD = 8, AC_GPU_CELL_ROOM = 48 * 1024 /* shared bytes, at most */ };
typedef struct {
    ac_gpu_cell step;
    const void *weight;
    ac_gpu_ref hidden; /* before the first step */
    int64_t steps, rows_apart, x_apart;
} ac_gpu_cells;
typedef struct {
    ac_gpu_cell_back step;
    const void *weight;
    int64_t steps, rows_apart;
} ac_gpu_cells_back;

/* -- windows -- */

/* x [images, channels, in...] with any strides (channels * taps rows of columns come from it, or go to it); the
 * columns have row and image strides of their own, their positions side by side. */
typedef struct {
    ac_windows w;
    ac_gpu_ref x, columns, bias; /* bias: one a channel, or no memory */
    int64_t images, channels;
    int64_t x_stride[5], row_stride, image_stride;
} ac_gpu_columned;

/* Values of float16, without gaps, on a boundary of 16 bytes. */
typedef struct {
    uint16_t *values;
    int64_t n;
} ac_gpu_halves;

/* A convolution as one product, out[m, j] = sum over k of rows[m, k] image[k, j] (+ bias[m]), of values that an image
 * has under the taps of a window. One of k and j counts taps (channel, three positions in the window), the other
 * positions (image of the batch, three of the lattice); the image is read where the two meet. Strides count
 * elements; those of k's coordinates in `rows`, and of j's in `out`, are `tap_stride` and `position_stride`, whichever
 * is which. */
enum {
    AC_GPU_KEYS = 32,                    /* ks of a tile, */
    AC_GPU_TILE = 128,                   /* its ms and js, */
    AC_GPU_ROW_STRIDE = AC_GPU_KEYS + 8, /* and from one of those to the next */
    AC_GPU_CONVOLVE_ROOM = 8 * AC_GPU_TILE * AC_GPU_ROW_STRIDE + 40 * AC_GPU_KEYS +
        20 * AC_GPU_TILE /* shared bytes: tiles, lists of ks and js */
};
typedef struct {
    ac_gpu_ref image, rows, out, bias;           /* bias: one an m of every group, or no memory */
    int32_t in[3], lattice[3], pace[3], taps[3]; /* position u and tap q meet at u * pace + first + q * shift of `in` */
    int32_t first[3], shift[3];
    int32_t images, channels, groups, m, j, k; /* of a group: channels, m, j, k */
    int32_t image_stride[5];                   /* batch, channel, three dimensions */
    int32_t tap_stride[4], position_stride[4];
    int32_t image_group, rows_group, out_group, rows_row, out_row; /* from a group to the next, from an m to the next */
    int32_t channels_last;         /* of a tap's coordinates the channel moves fastest */
    int32_t image_runs, rows_runs; /* eight ks lie side by side there, on a boundary of 16 bytes */
    int32_t image_lines; /* eight ks lie side by side in a line of pixels, from any on; lines are whole runs */
    int32_t image_across, rows_across; /* neighbouring threads take neighbouring js, or ms, rather than ks */
    int32_t parts, part;               /* k is cut into so many, of so many ks; */
    float *partial;                    /* [groups][parts][m][j] sums, when there are several */
} ac_gpu_implicit;

/* Two-dimensional windows in 32-bit numbers. A thread has so many results of a column; backward, a tile of
 * values: so many of two rows. */
enum { AC_GPU_POOL_COLUMN = 4, AC_GPU_POOL_RUN = 4 };
typedef struct {
    int32_t in[2], out[2], kernel[2], stride[2], padding[2], dilation[2];
    uint32_t jobs;         /* of threads: plane, row, column, the last moving fastest */
    int32_t rows, columns; /* of jobs in a plane */
    ac_gpu_divisor by_rows, by_columns, by_stride[2];
} ac_gpu_flat_windows;

typedef struct {
    ac_windows w;
    ac_gpu_ref x, values;
    int64_t *indices;
    ac_space planes;
    int64_t stride[3];
    ac_gpu_flat_windows flat;
} ac_gpu_pool;

/* The gradient of a pooled tensor; all contiguous. */
typedef struct {
    ac_windows w;
    ac_gpu_ref g, x;
    const int64_t *indices;
    int64_t planes;
    ac_gpu_flat_windows flat;
    int32_t vector; /* rows of x are whole runs */
} ac_gpu_unpool;

/* Means of windows, or the gradient that goes back from them to the values; `to` is contiguous. `group` threads take
 * a result. */
typedef struct {
    ac_windows w;
    ac_gpu_ref from, to;
    ac_space planes; /* of `from` */
    int64_t stride[3], results;
    int32_t group, counts_padding;
    double divisor; /* 0: the number of values */
} ac_gpu_means;

/* Rows of x, and y [outer, out, inner], contiguous. */
typedef struct {
    ac_gpu_ref x, y;
    ac_space rows;  /* where [outer, inner] of them begin in x, */
    int64_t stride; /* and from a value of one to the next */
    int64_t outer, in, out, inner, taps;
    const int64_t *index;
    const double *weight;
} ac_gpu_resample;

/* -- lists of tensors -- */

enum { AC_GPU_PIECE = 16384, AC_GPU_STATE = 3 }; /* elements of a list's tensor that one block takes */

/* One tensor of a list, or one parameter of a step; contiguous, elements in the dtypes given. */
typedef struct {
    void *grad, *param, *state[AC_GPU_STATE];
    void *copy;          /* 16-bit copy to write, or NULL */
    float *step;         /* the parameter's count of steps, on the device; NULL: `at.step` */
    float *product;      /* the same of `at.product` */
    ac_optim_scalars at; /* step: with this one; its factor is that of the gradient in statistics and products, too, */
    const double *by;    /* and this one, on the device, or NULL */
    int64_t numel, first_piece;
    int8_t grad_dtype, param_dtype, state_dtype, copy_dtype;
    int8_t zero;     /* the gradient becomes 0 in the same pass, of a step left out, too */
    int8_t rounding; /* ac_rounding; and what that has beside the parameter */
    void *extra;
    ac_gpu_random random;
} ac_gpu_item;

/* The statistics of a gradient, the ledger's entry for it: numbers as doubles, so that a table of them is a
 * tensor. All of the unscaled values but `small`: how many of the scaled ones were not 0 but below float16's
 * smallest normal number, where it loses bits. amax is of the finite ones. first: the index of the first that is not
 * finite, counted from 1, or 0. */
typedef struct {
    double squares, amax, infs, nans, small, first;
} ac_gpu_found;
enum { AC_GPU_FOUND = 6 };

typedef struct {
    const ac_gpu_item *items;
    int32_t n;
    int64_t pieces;
    const float *scale;  /* statistics: of values / *scale (1 / it is rounded to float32), or NULL */
    double *inverse;     /* where that is noted, or NULL */
    float *used;         /* and where the scale itself is, or NULL */
    float *found_inf;    /* statistics: set to 0, 0 for those who join them; or NULL */
    const double *by;    /* in place of every item's, or NULL */
    const float *gate;   /* steps: nonzero leaves them out; or NULL */
    ac_gpu_found *found; /* one a piece, or NULL */
    ac_optim_options options;
    const ac_optim_options *options_at; /* in their place, of a captured step; or NULL */
} ac_gpu_list;

/* Sums of what each piece found, one a tensor. */
typedef struct {
    const ac_gpu_item *items;
    int32_t n;
    int64_t pieces;
    const ac_gpu_found *found;
    ac_gpu_found *totals;
    float *found_inf; /* [2], set to 1 where a value is not finite, and where it is infinite; or NULL */
} ac_gpu_join;

/* The norm of what totals tell; and by what clipping multiplies where the norm is above the limit, else 1. */
typedef struct {
    const ac_gpu_found *totals;
    int32_t n;
    ac_gpu_ref norm, limit;
    double *factor;
} ac_gpu_clip;

typedef struct {
    float *scale;
    int32_t *tracker;       /* good steps in a row; overflows in a row; whether nans were still there at scale 1 */
    float *before_nans;     /* the scale when steps began to meet nans alone, else 0 */
    const float *found_inf; /* [2], as the statistics leave them */
    const float *loss;      /* where it is not finite itself, the scale stays; or NULL */
    float least, most;
    int32_t hysteresis;
    double growth, backoff;
    int32_t interval;
} ac_gpu_scale;

/* The most bytes of arguments that a launch carries on every driver: the simulator's compiler checks every kernel. */
enum { AC_GPU_MOST_ARGS = 4096 };

#endif
