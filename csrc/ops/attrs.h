// clang-format off
/* The non-tensor parameters of the operators, as their kernels and formulas see them.
 *
 * A row's signature fills its struct field by field in order, so a struct lists its fields in the
 * order and kind of the signature: int, bool, dtype and choices are int64_t, float is double,
 * Scalar is ac_scalar, int[] is ac_dims. ac_ops_init compares the sizes. */
#ifndef AC_OPS_ATTRS_H
#define AC_OPS_ATTRS_H

#include "base/inline.h"
#include "tensor/shape.h"

/* A Python number; AC_NONE stands for an absent `Scalar?`. */
typedef enum { AC_NONE, AC_INT, AC_FLOAT, AC_BOOL } ac_scalar_kind;
typedef struct {
    ac_scalar_kind kind;
    union {
        int64_t i;
        double f;
    };
} ac_scalar;

AC_INLINE double ac_scalar_double(ac_scalar s) { return s.kind == AC_FLOAT ? s.f : (double)s.i; }
/* Whether a number stands in a dtype: integers must not wrap, but for a whole -n of an unsigned type, as torch has it; floating point holds
 * all, the largest as infinities. An error names `what`. */
int ac_scalar_fits(ac_scalar s, ac_dtype dtype, const char *what) AC_CHECKED;
/* The same, and a finite number must not become an infinity. */
int ac_scalar_held(ac_scalar s, ac_dtype dtype, const char *what) AC_CHECKED;
AC_INLINE int64_t ac_scalar_int(ac_scalar s) { return s.kind == AC_FLOAT ? (int64_t)s.f : s.i; }

static const int64_t AC_ABSENT = INT64_MIN; /* an absent `int?` */

/* The cells of recurrent networks, see shared/cells.inc: their gates, and the values a unit that backward needs. */
#define AC_CELLS(CELL) CELL(tanh, 1, 0) CELL(relu, 1, 0) CELL(lstm, 4, 5) CELL(gru, 3, 4)
#define AC_CELL_ENTRY(name, gates, keeps) AC_CELL_##name,
typedef enum { AC_CELLS(AC_CELL_ENTRY) AC_N_CELLS } ac_cell;
#define AC_CELL_GATES(name, gates, keeps) cell == AC_CELL_##name ? gates :
#define AC_CELL_KEEPS(name, gates, keeps) cell == AC_CELL_##name ? keeps :
AC_INLINE int64_t ac_cell_gates(int64_t cell) { return AC_CELLS(AC_CELL_GATES) 0; }
AC_INLINE int64_t ac_cell_keeps(int64_t cell) { return AC_CELLS(AC_CELL_KEEPS) 0; }
AC_INLINE int64_t ac_cell_states(int64_t cell) { return cell == AC_CELL_lstm ? 2 : 1; }

typedef enum { AC_REDUCE_NONE, AC_REDUCE_MEAN, AC_REDUCE_SUM } ac_reduction;

typedef struct { int64_t nothing[0]; } ac_attrs_none;
typedef struct { ac_scalar alpha; } ac_attrs_alpha;
typedef struct { ac_scalar value; } ac_attrs_value;
typedef struct { ac_scalar min, max; } ac_attrs_clamp;
typedef struct { int64_t tanh; } ac_attrs_approximate;
typedef struct { double beta, threshold; } ac_attrs_softplus;
typedef struct { double alpha, scale, input_scale; } ac_attrs_elu;
typedef struct { double slope; } ac_attrs_slope;
typedef struct { double low, high; } ac_attrs_bounds;
typedef struct { double lambd; } ac_attrs_lambd;
typedef struct { double threshold, value; } ac_attrs_threshold;
typedef struct { double nan, posinf, neginf; } ac_attrs_nan_to_num;
typedef struct { ac_scalar nan, posinf, neginf; } ac_attrs_nan_to_num_limits;
typedef struct { double alpha; } ac_attrs_alpha_only;
typedef struct { ac_scalar eps; } ac_attrs_eps;
typedef struct { int64_t n; } ac_attrs_order;
typedef struct { int64_t p; } ac_attrs_p_order;
typedef struct { int64_t family; } ac_attrs_family;
typedef struct { double rtol, atol; int64_t equal_nan; } ac_attrs_isclose;
typedef struct { int64_t check; } ac_attrs_check;
typedef struct { int64_t left; } ac_attrs_left;
typedef struct { int64_t left, check_errors; } ac_attrs_left_check;
typedef struct { int64_t left, adjoint; } ac_attrs_left_adjoint;
typedef struct { int64_t left, transpose; } ac_attrs_left_transpose;
typedef struct { int64_t upper; } ac_attrs_upper;
typedef struct { int64_t upper, check_errors; } ac_attrs_upper_check;
typedef struct { int64_t upper, unit; } ac_attrs_triangle;
typedef struct { int64_t upper, left, unitriangular; } ac_attrs_triangular;
typedef struct { int64_t pivot; } ac_attrs_pivot;
typedef struct { int64_t pivot, check_errors; } ac_attrs_pivot_check;
typedef struct { int64_t unpack_data, unpack_pivots; } ac_attrs_unpack;
typedef struct { int64_t hermitian; } ac_attrs_hermitian;
typedef struct { int64_t hermitian, check_errors; } ac_attrs_hermitian_check;
typedef struct { int64_t rows; } ac_attrs_row_count;
typedef struct { int64_t mode; } ac_attrs_qr_mode;
typedef struct { int64_t some; } ac_attrs_some;
typedef struct { int64_t some, compute_uv; } ac_attrs_svd_old;
typedef struct { int64_t full; } ac_attrs_full_matrices;
typedef struct { int64_t full_matrices, driver; } ac_attrs_svd;
typedef struct { int64_t driver; } ac_attrs_driver;
typedef struct { int64_t uplo; } ac_attrs_uplo;
typedef struct { double rcond; } ac_attrs_rcond;
typedef struct { ac_scalar rcond; int64_t driver; } ac_attrs_lstsq;
typedef struct { int64_t q, niter; } ac_attrs_lowrank;
typedef struct { int64_t q, center, niter; } ac_attrs_pca;
typedef struct { int64_t ind; } ac_attrs_ind;
typedef struct { int64_t dtype; } ac_attrs_dtype;
typedef struct { ac_dims size; ac_scalar value; int64_t dtype, device; } ac_attrs_full;
typedef struct { ac_scalar start, end, step; int64_t dtype, device; } ac_attrs_arange;
typedef struct { ac_dims size; double a, b; int64_t dtype, device; } ac_attrs_random;
typedef struct { ac_dims size; int64_t low, high, dtype, device; } ac_attrs_randint;
typedef struct { int64_t n, device; } ac_attrs_count;
typedef struct { int64_t device, non_blocking; } ac_attrs_to_device;
typedef struct { ac_dims size, stride; int64_t offset; } ac_attrs_as_strided;
typedef struct { ac_dims size, stride; int64_t offset, accumulate; } ac_attrs_as_strided_scatter;
typedef struct { ac_dims dim; int64_t keepdim; } ac_attrs_reduce_dim;
typedef struct { ac_dims dim; int64_t keepdim, dtype; } ac_attrs_reduce;
typedef struct { ac_dims dim; ac_scalar correction; int64_t keepdim; } ac_attrs_var;
/* What var and std subtract from the number of values: 1 when None, as torch has it. */
AC_INLINE double ac_correction(const ac_attrs_var *a) { return a->correction.kind == AC_NONE ? 1 : ac_scalar_double(a->correction); }
typedef struct { int64_t dim, keepdim; } ac_attrs_dim;
typedef struct { int64_t dim, keepdim; } ac_attrs_maybe_dim;
typedef struct { ac_scalar p; ac_dims dim; int64_t keepdim, dtype; } ac_attrs_norm;
typedef struct { int64_t ord; ac_dims dim; int64_t keepdim, dtype; } ac_attrs_norm_word;
typedef struct { int64_t p; } ac_attrs_norm_word_only;
typedef struct { int64_t dim, dtype; } ac_attrs_softmax;
typedef struct { int64_t dim; } ac_attrs_softmax_backward;
typedef struct { int64_t dim, dtype; } ac_attrs_cumulative;
typedef struct { int64_t dim, reverse; } ac_attrs_linear_scan;
typedef struct { ac_dims dims; } ac_attrs_dims;
typedef struct { int64_t reduction; } ac_attrs_reduction;
typedef struct { int64_t reduction; } ac_attrs_reduction_only;
typedef struct { int64_t ignore_index, reduction; } ac_attrs_nll;
typedef struct { ac_dims size; int64_t ignore_index, reduction; } ac_attrs_nll_backward;
typedef struct { int64_t ignore_index, reduction; double label_smoothing; } ac_attrs_cross_entropy;
typedef struct { int64_t reduction; double label_smoothing; } ac_attrs_soft_entropy;
typedef struct { int64_t out_dtype; } ac_attrs_product;
typedef struct { ac_scalar beta, alpha; } ac_attrs_addmm;
typedef struct { ac_dims dims, other_dims; } ac_attrs_tensordot;
typedef struct { const char *equation; } ac_attrs_einsum;
typedef struct { double dropout_p; int64_t is_causal; ac_scalar scale; int64_t enable_gqa; } ac_attrs_attention;
typedef struct { double scale; int64_t is_causal, out_dtype; } ac_attrs_fused_attention;
typedef struct { int64_t cell, reverse; } ac_attrs_rnn_layer;
typedef struct { int64_t cell, reverse, keep; } ac_attrs_recurrence;
typedef struct { ac_scalar p; } ac_attrs_p;
typedef struct { ac_scalar p; int64_t compute_mode; } ac_attrs_cdist;
typedef struct { ac_scalar p; int64_t dim; ac_scalar maxnorm; } ac_attrs_renorm;
typedef struct { int64_t dim; double eps; } ac_attrs_cosine;
typedef struct { double p; ac_dims dim; double eps; } ac_attrs_normalize;
typedef struct { double p, eps; int64_t keepdim; } ac_attrs_pairwise;
typedef struct { int64_t reduction, log_target; } ac_attrs_kl_div;
typedef struct { int64_t log_input, full; double eps; int64_t reduction; } ac_attrs_poisson;
typedef struct { int64_t reduction; double beta; } ac_attrs_smooth;
typedef struct { double margin; int64_t reduction; } ac_attrs_margin;
typedef struct { ac_scalar p, margin; int64_t reduction; } ac_attrs_multi_margin;
typedef struct { double margin, p, eps; int64_t swap, reduction; } ac_attrs_triplet;
typedef struct { int64_t full; double eps; int64_t reduction; } ac_attrs_gaussian;
typedef struct { int64_t dim; } ac_attrs_one_dim;
typedef struct { int64_t dim; } ac_attrs_maybe_one_dim;
typedef struct { int64_t dim; } ac_attrs_index_dim;
typedef struct { int64_t dim; ac_scalar alpha; } ac_attrs_index_add_alpha;
typedef struct { int64_t dim, reduce; } ac_attrs_scatter;
typedef struct { int64_t dim; ac_scalar value; int64_t reduce; } ac_attrs_scatter_value;
typedef struct { int64_t dim, reduce, include_self; } ac_attrs_scatter_reduce;
typedef struct { int64_t accumulate; } ac_attrs_accumulate;
typedef struct { int64_t accumulate, from_start; } ac_attrs_index_put;
typedef struct { int64_t padding_idx, by_frequency; } ac_attrs_padding;
typedef struct { int64_t rows, padding_idx; } ac_attrs_rows;
typedef struct { int64_t padding_idx; ac_scalar max_norm; double norm_type; int64_t scale_grad_by_freq, sparse; } ac_attrs_embedding;
typedef struct {
    ac_scalar max_norm;
    double norm_type;
    int64_t scale_grad_by_freq, mode, sparse, include_last_offset, padding_idx;
} ac_attrs_embedding_bag;
typedef struct { int64_t num_classes; } ac_attrs_classes;
typedef struct { int64_t k, dim, largest, sorted; } ac_attrs_topk;
typedef struct { int64_t dim, descending, stable; } ac_attrs_sort;
typedef struct { int64_t mode; } ac_attrs_rounding;
typedef struct { int64_t decimals; } ac_attrs_decimals;
typedef struct { ac_dims dim; int64_t unbiased, keepdim; } ac_attrs_unbiased;
typedef struct { int64_t unbiased; } ac_attrs_all_unbiased;
typedef struct { ac_dims normalized_shape; double eps; } ac_attrs_layer_norm;
typedef struct { int64_t rows; } ac_attrs_rows_only;
typedef struct { ac_dims normalized_shape; ac_scalar eps; } ac_attrs_rms_norm;
typedef struct { int64_t training; double momentum, eps; } ac_attrs_batch_norm;
typedef struct { int64_t training; } ac_attrs_training;
typedef struct { int64_t num_groups; double eps; } ac_attrs_group_norm;
typedef struct { int64_t num_groups; } ac_attrs_num_groups;
typedef struct { double p; int64_t training; } ac_attrs_dropout;
typedef struct { double lower, upper; int64_t training; } ac_attrs_rrelu;
typedef struct { int64_t use_input_stats; double momentum, eps; } ac_attrs_instance_norm;
typedef struct { double p; int64_t seed, offset; } ac_attrs_dropout_mask;
typedef struct { double scale; int64_t is_causal; ac_attrs_dropout_mask drop; } ac_attrs_flash_attention;
typedef struct { ac_attrs_flash_attention forward; int64_t mask_gradient; } ac_attrs_flash_attention_backward;
typedef struct {
    ac_dims stride, padding, dilation;
    int64_t transposed;
    ac_dims output_padding;
    int64_t groups, out_dtype;
} ac_attrs_convolution;
typedef struct { ac_dims kernel, stride, padding, dilation; int64_t groups, out_dtype; } ac_attrs_convolution_weight;
typedef struct { ac_dims kernel, dilation, padding, stride; } ac_attrs_im2col;
typedef struct { ac_dims size, kernel, dilation, padding, stride; } ac_attrs_col2im;
typedef struct { ac_dims kernel, stride, padding, dilation; int64_t ceil_mode, adaptive; } ac_attrs_max_pool;
typedef struct { ac_dims size, kernel, stride, padding, dilation; int64_t ceil_mode, adaptive; } ac_attrs_max_pool_backward;
typedef struct { ac_dims kernel, stride, padding; int64_t ceil_mode, adaptive, counts_padding; double divisor; } ac_attrs_means;
typedef struct { ac_dims size, kernel, stride, padding; int64_t ceil_mode, adaptive, counts_padding; double divisor; } ac_attrs_means_backward;
typedef struct { ac_dims stride, padding, dilation; int64_t groups; } ac_attrs_conv;
typedef struct { ac_dims stride, padding, output_padding; int64_t groups; ac_dims dilation; } ac_attrs_conv_transpose;
typedef struct { int64_t pad; } ac_attrs_conv_tbc;
typedef struct { ac_dims kernel, stride, padding, dilation; int64_t ceil_mode, return_indices; } ac_attrs_max_pooling;
typedef struct { ac_dims size; int64_t return_indices; } ac_attrs_adaptive_max;
typedef struct { ac_dims kernel, stride, padding, size; } ac_attrs_max_unpool;
typedef struct { ac_dims kernel, stride, padding; int64_t ceil_mode, count_include_pad; } ac_attrs_avg_pool1d;
typedef struct { ac_dims kernel, stride, padding; int64_t ceil_mode, count_include_pad, divisor_override; } ac_attrs_avg_pool;
typedef struct { ac_dims size; } ac_attrs_parts;
typedef struct { double norm_type; ac_dims kernel, stride; int64_t ceil_mode; } ac_attrs_lp_pool;
typedef struct { int64_t dim; } ac_attrs_resample;
typedef struct { ac_dims before, after; int64_t mode; ac_scalar value; } ac_attrs_pad;
typedef struct { ac_dims size; ac_scalar scale[3]; int64_t mode, align_corners, antialias; } ac_attrs_interpolate;
typedef struct { int64_t mode, padding_mode, align_corners; } ac_attrs_grid_sample;
typedef struct { ac_dims size; int64_t align_corners; } ac_attrs_affine_grid;
typedef struct { int64_t factor; } ac_attrs_factor;
typedef struct { int64_t size; double alpha, beta, k; } ac_attrs_local_response;
typedef struct { ac_dims size; } ac_attrs_size;
typedef struct { ac_dims kernel, size; } ac_attrs_fractional;
typedef struct { int64_t dim0, dim1; } ac_attrs_two_dims;
typedef struct { ac_dims dim; } ac_attrs_maybe_dims;
typedef struct { int64_t dim, index; } ac_attrs_select;
typedef struct { int64_t offset, dim1, dim2; } ac_attrs_diagonal;
typedef struct { int64_t dim, start, end, step; } ac_attrs_slice;
typedef struct { int64_t dim, size, step; } ac_attrs_unfold;
typedef struct { int64_t start_dim, end_dim; } ac_attrs_flatten;
typedef struct { int64_t dim, start, length; } ac_attrs_narrow;
typedef struct { ac_dims source, destination; } ac_attrs_movedim;
typedef struct { int64_t dim; ac_dims sizes; } ac_attrs_unflatten;
typedef struct { int64_t k; ac_dims dims; } ac_attrs_rot90;
typedef struct { ac_dims shifts, dims; } ac_attrs_roll;
typedef struct { int64_t output_size; } ac_attrs_output_size;
typedef struct { int64_t dim, output_size; } ac_attrs_repeat_each;
typedef struct { int64_t repeats, dim, output_size; } ac_attrs_repeat_interleave;
typedef struct { int64_t r, with_replacement; } ac_attrs_combinations;
typedef struct { int64_t ndim; } ac_attrs_at_least;
typedef struct { int64_t num_samples, replacement; } ac_attrs_multinomial;
typedef struct { int64_t offset; } ac_attrs_offset;
typedef struct { int64_t dim; ac_scalar value; } ac_attrs_index_fill;
typedef struct { int64_t k, dim, keepdim; } ac_attrs_kthvalue;
typedef struct { int64_t dim, keepdim, interpolation; } ac_attrs_quantile;
typedef struct { int64_t out_int32, right, side; } ac_attrs_searchsorted;
typedef struct { int64_t out_int32, right; } ac_attrs_bucketize;
typedef struct { int64_t assume_unique, invert; } ac_attrs_isin;
typedef struct { int64_t bins; ac_scalar min, max; } ac_attrs_histc;
typedef struct { int64_t density; } ac_attrs_histogram;
typedef struct { int64_t consecutive, inverse, counts, dim; } ac_attrs_unique;
typedef struct { int64_t minlength; } ac_attrs_bincount;
typedef struct { int64_t size, fill_value; } ac_attrs_nonzero_static;
typedef struct { int64_t n, dim; } ac_attrs_diff;
typedef struct { double dx; int64_t dim; } ac_attrs_trapezoid;
typedef struct { int64_t correction; } ac_attrs_correction;
typedef struct { int64_t N, increasing; } ac_attrs_vander;
typedef struct { double step; int64_t dim, edge_order; } ac_attrs_gradient;
typedef struct { int64_t upper; } ac_attrs_upper_factor;
typedef struct { int64_t upper, transpose, unitriangular; } ac_attrs_triangular_solve;

enum { AC_MAX_ATTRS = 640 }; /* bytes; ac_ops_init refuses a larger struct */

#endif
