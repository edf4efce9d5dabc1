/* Joining, indexing, nll_loss and integer products. Additions at one index happen in an order
 * that depends on the items alone: a stable sort puts equal keys together, and each run of them is summed in pieces. */
#include "cuda/classes.cuh"

/* Item f of `from` to item t, of 1, 2, 4, 8 or 16 bytes. */
DEV void copy_item(char *to, int64_t t, const char *from, int64_t f, int bytes) {
    switch (bytes) {
    case 1: to[t] = from[f]; return;
    case 2: ((uint16_t *)to)[t] = ((const uint16_t *)from)[f]; return;
    case 4: ((uint32_t *)to)[t] = ((const uint32_t *)from)[f]; return;
    case 8: ((uint64_t *)to)[t] = ((const uint64_t *)from)[f]; return;
    default: ((pack<uint32_t, 4> *)to)[t] = ((const pack<uint32_t, 4> *)from)[f];
    }
}

/* -- joining ---------------------------------------------------------------------------------------- */

DEV const ac_gpu_part &part_of(const ac_gpu_parts &a, int64_t piece) {
    int lo = 0, hi = a.n;
    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;
        if (a.part[mid].first_piece <= piece) lo = mid;
        else hi = mid;
    }
    return a.part[lo];
}

template <class R> DEV void join_parts(const ac_gpu_parts &a) {
    for (int64_t piece = blockIdx.x; piece < a.pieces; piece += gridDim.x) {
        const ac_gpu_part &p = part_of(a, piece);
        int64_t begin = (piece - p.first_piece) * AC_GPU_PART_PIECE, end = begin + AC_GPU_PART_PIECE;
        int64_t units = a.rows * p.width, row_stride = p.unit ? quotient(a.row_stride * a.item, p.unit) : a.row_stride;
        if (end > units) end = units;
        for (int64_t i = begin + threadIdx.x; i < end; i += AC_GPU_THREADS) {
            int64_t outer = a.rows == 1 ? 0 : quotient(i, p.width);
            int64_t to = outer * row_stride + p.start + i - outer * p.width;
            if (p.unit) copy_item((char *)a.out.data, to, (const char *)p.data, i, p.unit);
            else store<R>(a.out, to, load<R>(p.data, p.dtype, i));
        }
    }
}
AC_KERNEL(ac_join_f32, ac_gpu_parts) { join_parts<float>(a); }
AC_KERNEL(ac_join_f64, ac_gpu_parts) { join_parts<double>(a); }
AC_KERNEL(ac_join_i64, ac_gpu_parts) { join_parts<int64_t>(a); }

/* -- picking ---------------------------------------------------------------------------------------- */

/* Where item i lies in the indexed tensor; -1 when it is left out, or its index is bad (which is noted). */
DEV int64_t place_of(const ac_gpu_pick &a, int64_t i) {
    int64_t at = space_offset(a.base, i);
    for (int k = 0; k < a.n_index; k++) {
        const ac_gpu_axis &x = a.index[k];
        int64_t v = load<int64_t>(x.data, x.dtype, space_offset(x.at, i));
        if (v == a.skip) return -1;
        if (v < (a.wrap ? -x.size : 0) || v >= x.size) {
            note_trouble(a.trouble, a.op, x.input, v, x.size);
            return -1;
        }
        at += (v < 0 ? v + x.size : v) * x.stride;
    }
    return at;
}

DEV void zero_item(char *to, int64_t t, int bytes) {
    pack<uint32_t, 4> zero = {{0, 0, 0, 0}};
    copy_item(to, t, (const char *)&zero, 0, bytes);
}

/* other = indexed[index]; what a bad index would have given is 0 */
AC_KERNEL(ac_take, ac_gpu_pick) {
    EACH_OF_N(t, a.items * a.width) {
        int64_t i = quotient(t, a.width), e = t - i * a.width, from = place_of(a, i);
        int64_t to = space_offset(a.other_items, i) + space_offset(a.other_inner, e);
        if (from < 0) zero_item(a.other, to, a.item_bytes);
        else copy_item(a.other, to, a.indexed, from + space_offset(a.inner, e), a.item_bytes);
    }
}

/* indexed[index] = other, where no two items that differ meet */
AC_KERNEL(ac_put, ac_gpu_pick) {
    EACH_OF_N(t, a.items * a.width) {
        int64_t i = quotient(t, a.width), e = t - i * a.width, to = place_of(a, i);
        if (to < 0) continue;
        int64_t from = space_offset(a.other_items, i) + space_offset(a.other_inner, e);
        copy_item(a.indexed, to + space_offset(a.inner, e), a.other, from, a.item_bytes);
    }
}

/* And where they may: the keys are sorted, their items behind them, and the last of those that meet stands */
AC_KERNEL(ac_put_last, ac_gpu_pick) {
    EACH_OF_N(t, a.items * a.width) {
        int64_t s = quotient(t, a.width), e = t - s * a.width, to = a.keys[s];
        if (to < 0 || (s + 1 < a.items && a.keys[s + 1] == to)) continue;
        int64_t from = space_offset(a.other_items, a.keys[a.items + s]) + space_offset(a.other_inner, e);
        copy_item(a.indexed, to + space_offset(a.inner, e), a.other, from, a.item_bytes);
    }
}

AC_KERNEL(ac_pick_keys, ac_gpu_pick) { EACH_OF_N(i, a.items) a.keys[i] = place_of(a, i); }

template <class R> DEV R *piece_of(const ac_gpu_add &a, int64_t chunk, int leaves, int64_t e) {
    return (R *)((char *)a.pieces + ((chunk * 2 + leaves) * a.width + e) * 8);
}
template <class R> DEV void add_to(const ac_gpu_add &a, uint64_t key, int64_t e, R sum) {
    int64_t to = (int64_t)key + space_offset(a.inner, e);
    store<R>(a.to, to, added(load<R>(a.to, to), sum));
}
/* Whether item s goes on with the run of the one before. */
DEV bool goes_on(const ac_gpu_add &a, int64_t s) { return s > 0 && s < a.items && a.keys[s] == a.keys[s - 1]; }

/* Sums what of each run lies in a chunk; adds it where that is all of the run. */
template <class R> DEV void add_runs(const ac_gpu_add &a) {
    EACH_OF_N(t, a.items * a.width) {
        int64_t s = quotient(t, a.width), e = t - s * a.width, chunk = s / AC_GPU_ADD_CHUNK;
        uint64_t key = a.keys[s];
        bool first = s % AC_GPU_ADD_CHUNK == 0, comes_in = goes_on(a, s);
        if (key == UINT64_MAX || (comes_in && !first)) continue;
        int64_t end = (chunk + 1) * AC_GPU_ADD_CHUNK, inner = space_offset(a.other_inner, e);
        if (end > a.items) end = a.items;
        R sum = 0;
        for (; s < end && a.keys[s] == key; s++)
            sum = added(sum, load<R>(a.from, space_offset(a.other_items, a.order[s]) + inner));
        if (comes_in) *piece_of<R>(a, chunk, 0, e) = sum;
        else if (s == end && goes_on(a, s)) *piece_of<R>(a, chunk, 1, e) = sum;
        else add_to(a, key, e, sum);
    }
}

/* Joins the pieces of runs that several chunks have. */
template <class R> DEV void add_pieces(const ac_gpu_add &a) {
    int64_t chunks = (a.items + AC_GPU_ADD_CHUNK - 1) / AC_GPU_ADD_CHUNK;
    EACH_OF_N(t, (chunks - 1) * a.width) {
        int64_t chunk = quotient(t, a.width), e = t - chunk * a.width, s = chunk * AC_GPU_ADD_CHUNK;
        uint64_t key = a.keys[s + AC_GPU_ADD_CHUNK - 1];
        if (key == UINT64_MAX || !goes_on(a, s + AC_GPU_ADD_CHUNK)) continue; /* none leaves it, */
        if (a.keys[s] == key && goes_on(a, s)) continue;                      /* or one that began before */
        R sum = *piece_of<R>(a, chunk, 1, e);
        do {
            chunk++, s += AC_GPU_ADD_CHUNK;
            sum = added(sum, *piece_of<R>(a, chunk, 0, e));
        } while (chunk + 1 < chunks && a.keys[s + AC_GPU_ADD_CHUNK] == key);
        add_to(a, key, e, sum);
    }
}

#define ADDITIONS(R, opmath)                                                                                           \
    AC_KERNEL(ac_add_runs_##opmath, ac_gpu_add) { add_runs<R>(a); }                                                    \
    AC_KERNEL(ac_add_pieces_##opmath, ac_gpu_add) { add_pieces<R>(a); }
ADDITIONS(float, f32)
ADDITIONS(double, f64)
ADDITIONS(int64_t, i64)

/* A block takes TILE neighbours, a thread EACH of them in order. */
enum { EACH = 4, TILE = AC_GPU_THREADS * EACH };

/* -- nonzero ---------------------------------------------------------------------------------------- */

DEV bool is_nonzero(const ac_gpu_nonzero &a, int64_t i) {
    return i < a.all.numel && load<double>(a.x, space_offset(a.all, i)) != 0;
}

AC_KERNEL(ac_nonzero_count, ac_gpu_nonzero) {
    for (int64_t block = blockIdx.x; block < a.blocks; block += gridDim.x) {
        int count = 0;
        for (int e = 0; e < EACH; e++) count += is_nonzero(a, block * TILE + (int64_t)threadIdx.x * EACH + e);
        count = block_join(count, Add());
        if (threadIdx.x == 0) a.counts[block] = count;
    }
}

AC_KERNEL(ac_nonzero_write, ac_gpu_nonzero) {
    int *room = (int *)ac_shared_memory;
    for (int64_t block = blockIdx.x; block < a.blocks; block += gridDim.x) {
        int64_t first = block * TILE + (int64_t)threadIdx.x * EACH;
        int own = 0;
        for (int e = 0; e < EACH; e++) own += is_nonzero(a, first + e);
        int64_t to = a.counts[block] + block_scan(&own, room);
        for (int e = 0; e < EACH; e++) {
            if (!is_nonzero(a, first + e)) continue;
            int64_t rest = first + e;
            for (int d = a.ndim - 1; d >= 0; d--) a.out[to * a.ndim + d] = rest % a.shape[d], rest /= a.shape[d];
            to++;
        }
    }
}

/* -- nll loss --------------------------------------------------------------------------------------- */

DEV double loss_of(const ac_gpu_nll &a, int64_t i, int64_t c) {
    return -weight_of<double>(a.of, c) * load<double>(a.x, space_offset(a.samples, i) + c * a.class_stride);
}

AC_KERNEL(ac_nll_each, ac_gpu_nll) {
    EACH_OF_N(i, a.n) {
        int64_t c = class_of(a.of, i);
        store<double>(a.out, i, c < 0 ? 0 : loss_of(a, i, c));
    }
}

/* By one block: the loss into `out`, or (without `out`) the sum of weights into `total`. */
AC_KERNEL(ac_nll_sum, ac_gpu_nll) {
    double loss = 0, total = 0;
    for (int64_t i = threadIdx.x; i < a.n; i += AC_GPU_THREADS) {
        int64_t c = class_of(a.of, i);
        if (c < 0) continue;
        total += weight_of<double>(a.of, c);
        if (a.out.data) loss += loss_of(a, i, c);
    }
    loss = block_join(loss, Add());
    total = block_join(total, Add());
    if (threadIdx.x != 0) return;
    if (a.out.data) store<double>(a.out, 0, a.reduction == 1 ? loss / total : loss);
    else *a.total = total;
}

/* out [n / inner, classes, inner] is 0 already: only the targets' elements are written. */
AC_KERNEL(ac_nll_backward, ac_gpu_nll) {
    double scale = a.reduction == 1 ? 1 / *a.total : 1;
    EACH_OF_N(i, a.n) {
        int64_t c = class_of(a.of, i), image = quotient(i, a.inner);
        if (c < 0) continue;
        double g = load<double>(a.grad, a.reduction == 0 ? space_offset(a.grad_at, i) : 0);
        store<double>(a.out, (image * a.of.classes + c) * a.inner + i - image * a.inner,
                      -weight_of<double>(a.of, c) * scale * g);
    }
}

/* -- products of integers, which no tensor core takes ----------------------------------------------- */

AC_KERNEL(ac_integer_product, ac_gpu_product) {
    EACH_OF_N(t, a.batch * a.m * a.n) {
        int64_t outer = quotient(t, a.n), b = quotient(outer, a.m), i = outer - b * a.m, j = t - outer * a.n;
        uint64_t sum = a.bias.data ? (uint64_t)load<int64_t>(a.bias, j * a.bias_col) : 0;
        for (int64_t p = 0; p < a.k; p++)
            sum += (uint64_t)load<int64_t>(a.a, b * a.a_batch_stride + i * a.a_row + p * a.a_col) *
                   (uint64_t)load<int64_t>(a.b, b * a.b_batch_stride + p * a.b_row + j * a.b_col);
        store<int64_t>(a.c, t, (int64_t)sum);
    }
}
