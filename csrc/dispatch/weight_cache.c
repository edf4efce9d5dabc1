/* The weight cache: finds or makes the packed copy of a weight for a product. A weight is used many times between two
 * writes, so it is packed once. */
#include "dispatch/weight_cache.h"

#include "dispatch/lock.h"

#include "amp/autocast.h"
#include "autograd/node.h"
#include "base/pool.h"
#include "base/ways.h"
#include "cpu/gemm/gemm.h"
#include "cuda/gpu.h"
#include "tensor/packed_weights.h"

/* Leaves that require gradients are weights: they are used again and again between two writes.
 * Memory that somebody else may write has no version to trust. A CUDA graph makes its copies itself, at each replay. */
static bool is_trained(const ac_tensor *t, int ndim) {
    return !ac_gpu_is_capturing() && t->meta && t->meta->requires_grad && !t->meta->node && !t->storage->exported &&
           t->ndim == ndim && t->dtype != AC_float64 && t->numel > 0;
}

/* A copy of a large weight is not kept if it takes as much memory as the weight itself. That is so for float16 in two
 * parts, on a CPU without float16 tiles. Products then pack the weight each time. In training this costs the same as
 * renewing the copy, and the model takes half the memory. */
static bool is_worth_keeping(const ac_tensor *w, int64_t bytes) {
    enum { LARGE = 32 << 20 };
    return bytes < LARGE || bytes < w->numel * ac_itemsize(w->dtype);
}

/* new: w packed for a product that rounds to kind.dtype; NULL inside when it is not to be kept. */
static int weight_panels(ac_tensor *w, ac_packed_kind kind, ac_tensor **panels) {
    ac_tensor *kept = ac_packed_weight_find(w, kind);
    *panels = kept ? ac_tensor_retain(kept) : NULL;
    if (kept) {
        AC_WAY(copy_found);
        return 0;
    }
    if (kind.dtype == AC_float32 && !ac_packed_weight_is_reused(w, kind.out_first)) return 0;
    const ac_backend *backend = ac_backend_of(ac_device_of(w));
    int64_t bytes = backend->panels_bytes(w, kind.dtype, kind.out_first);
    if (!is_worth_keeping(w, bytes) || !ac_packed_weights_have_room(kind.dtype, bytes)) {
        AC_WAY(copy_declined);
        return 0;
    }
    AC_WAY(copy_packed);
    ac_dims shape = {1, {bytes}};
    ac_tensor *copy = ac_tensor_new_on(ac_device_of(w), AC_uint8, &shape);
    if (!copy) return -1;
    uint64_t content = w->storage->content;
    void *state = w->numel < AC_LOCK_ELEMENTS ? NULL : ac_lock.release();
    bool fits = backend->pack(w, kind.dtype, kind.out_first, copy);
    if (w->numel >= AC_LOCK_ELEMENTS) ac_lock.acquire(state);
    if (ac_interrupted()) {
        ac_tensor_release(copy);
        return ac_fail(AC_PYTHON, "interrupted");
    }
    if (fits && ac_packed_weight_put(w, kind, copy, content) == 0) *panels = copy;
    else ac_tensor_release(copy);
    return fits && !*panels ? -1 : 0;
}

/* A product of float32 with so few rows that packing the weight takes a good part of its time, and so many that it is
 * packed at all: with fewer the weight is read where it lies (cpu/gemm/thin.c). */
static bool packs_for_few_rows(const ac_run *run) {
    enum { MOST_ROWS = 256 };
    const ac_tensor *x = run->in[0], *w = run->in[1];
    int64_t k = x->ndim ? x->shape[x->ndim - 1] : 0, rows = k ? x->numel / k : 0, columns = k ? w->numel / k : 0;
    if (w->storage->addressed) return false; /* somebody may write it, unseen, as scripts without autocast may */
    return x->dtype == AC_float32 && w->dtype == AC_float32 && (ac_device_of(x) | ac_device_of(w)) == AC_CPU &&
           rows > AC_THIN_LANES && columns > AC_THIN_LANES && rows <= MOST_ROWS;
}

int ac_packed_weight_for(const ac_run *run, ac_tensor **panels) {
    *panels = NULL;
    if (ac_autocast.no_cache || !is_trained(run->in[1], 2)) return 0;
    if (!ac_is_half(run->compute) && (run->compute != AC_float32 || !packs_for_few_rows(run))) return 0;
    bool gpu = ac_device_of(run->in[1]) != AC_CPU; /* takes a weight of that dtype as it is, and copies in one layout */
    if (gpu && run->in[1]->dtype == run->compute) return 0;
    bool out_first = !gpu && ac_ops[run->op].flags & AC_FLAG_OUT_FIRST;
    ac_packed_kind kind = {run->compute, out_first, ac_gpu_stream_for(ac_device_of(run->in[1]))};
    return weight_panels(run->in[1], kind, panels);
}

int ac_kept_bias_for(const ac_run *run, ac_tensor **bias) {
    ac_tensor *own = run->n_in > 2 ? run->in[2] : NULL, *copy;
    *bias = NULL;
    if (!own || ac_device_of(own) == AC_CPU || !ac_is_half(run->out[0]->dtype) || own->dtype == run->out[0]->dtype ||
        ac_autocast.no_cache || !is_trained(own, 1))
        return 0;
    ac_packed_kind kind = {run->out[0]->dtype, false, ac_gpu_stream_for(ac_device_of(own))};
    AC_TRY(weight_panels(own, kind, &copy));
    if (!copy) return 0;
    ac_dims shape = ac_shape_of(own), strides = ac_dims_contiguous(&shape);
    *bias = ac_tensor_from_storage(ac_storage_retain(copy->storage), run->out[0]->dtype, &shape, &strides);
    ac_tensor_release(copy);
    return *bias ? 0 : -1;
}
