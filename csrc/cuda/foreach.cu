/* Kernels over lists of tensors in one launch: unscale and check, norms, optimizer steps. Each block computes one
 * piece of a tensor; every read is 16 bytes wide where the tensor is aligned. */
#include "cuda/device.cuh"

/* The tensor that piece p belongs to. */
DEV const ac_gpu_item *owner_of(const ac_gpu_item *items, int n, int64_t piece) {
    int lo = 0, hi = n;
    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;
        if (items[mid].first_piece <= piece) lo = mid;
        else hi = mid;
    }
    return items + lo;
}

DEV bool aligned(const void *p) { return ((uintptr_t)p & 15) == 0; }

/* -- unscale, check, norm --------------------------------------------------------------------------- */

/* One value unscaled; stored as its dtype rounds it, and judged as stored. */
template <class R> DEV R unscaled(R x, R factor, int dtype) {
    R y = x * factor;
    if (dtype == AC_float16) return (R)half_to_float(float_to_half((float)y));
    if (dtype == AC_bfloat16) return (R)ac_bf16_to_f32(ac_f32_to_bf16((float)y));
    return y;
}

struct Earlier {
    template <class V> DEV_METHOD V operator()(V a, V b) const { return b != 0 && (a == 0 || b < a) ? b : a; }
};

/* What a thread has found, counted in 32 bits: a piece has fewer values. */
struct Found {
    double squares = 0;
    float amax = 0;
    int infs = 0, nans = 0, small = 0, first = 0; /* its index in the piece, from 1 */

    /* i: the value's index in the piece; they come in order */
    template <class R> DEV_METHOD void add(R scaled, R x, int64_t i) {
        R size = x < 0 ? -x : x, before = scaled < 0 ? -scaled : scaled;
        squares += (double)x * (double)x;
        small += before != 0 && before < (R)0x1p-14;
        nans += x != x;
        bool finite = x - x == 0;
        infs += !finite && x == x;
        if (finite && (float)size > amax) amax = (float)size;
        if (!finite && first == 0) first = (int)i + 1;
    }

    /* The same of neighbours. Their squares are summed in float32 where that neither overflows nor loses the largest:
     * many GPUs have few units for float64. */
    template <int V> DEV_METHOD void add_run(const float *scaled, const float *x, int64_t i) {
        float top = 0, sum = 0;
        int below = 0;
        bool finite = true;
        EACH_OF(V) {
            float size = x[j] < 0 ? -x[j] : x[j], before = scaled[j] < 0 ? -scaled[j] : scaled[j];
            below += before != 0 && before < 0x1p-14f;
            finite = finite && x[j] - x[j] == 0;
            top = size > top ? size : top, sum += x[j] * x[j];
        }
        if (finite && (top == 0 || (top > 0x1p-40f && top < 0x1p60f))) {
            squares += (double)sum, small += below;
            if (top > amax) amax = top;
            return;
        }
        EACH_OF(V) add(scaled[j], x[j], i + j);
    }

    /* Joins those of the block's threads: the first one has the sum. */
    DEV_METHOD ac_gpu_found of_block(void) const {
        ac_gpu_found *room = (ac_gpu_found *)ac_shared_memory;
        ac_gpu_found all = {warp_join(squares, Add()),       (double)warp_join(amax, Larger()),
                            (double)warp_join(infs, Add()),  (double)warp_join(nans, Add()),
                            (double)warp_join(small, Add()), (double)warp_join(first, Earlier())};
        __syncthreads(); /* nobody reads an earlier piece's any more */
        if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = all;
        __syncthreads();
        for (int w = 1; threadIdx.x == 0 && w < AC_GPU_THREADS / 32; w++) {
            all.squares += room[w].squares, all.amax = Larger()(all.amax, room[w].amax);
            all.infs += room[w].infs, all.nans += room[w].nans, all.small += room[w].small;
            all.first = Earlier()(all.first, room[w].first);
        }
        return all;
    }
};

template <class R>
DEV void unscale_elements(const ac_gpu_item *it, R factor, int64_t piece, int64_t begin, int64_t end, bool write,
                          Found *found) {
    ac_gpu_ref grad = {it->grad, 0, 0, it->grad_dtype};
    for (int64_t i = begin + threadIdx.x; i < end; i += AC_GPU_THREADS) {
        R scaled = load_real<R>(grad, i), x = unscaled(scaled, factor, grad.dtype);
        found->add(scaled, x, i - piece);
        if (write) store_real<R>(grad, i, x);
    }
}

/* Whole runs of one dtype, for which the compiler knows it. */
template <int DTYPE>
DEV void unscale_runs(const ac_gpu_item *it, float factor, int64_t begin, int64_t end, bool write, Found *found) {
    constexpr int V = 8;
    for (int64_t i = begin + (int64_t)threadIdx.x * V; i + V <= end; i += AC_GPU_THREADS * V) {
        float scaled[V], x[V];
        load_run<V>(it->grad, DTYPE, i, scaled);
        EACH_OF(V) x[j] = unscaled(scaled[j], factor, DTYPE);
        found->add_run<V>(scaled, x, i - begin);
        if (write) store_run<V>(it->grad, DTYPE, i, x);
    }
}

/* What the gradient in memory is to be multiplied by. */
DEV double factor_of(const ac_gpu_list &a, const ac_gpu_item *it) {
    const double *by = a.by ? a.by : it->by;
    return by ? it->at.factor * *by : it->at.factor;
}
DEV double inverse_of(const ac_gpu_list &a) { return a.scale ? (double)(float)(1 / (double)*a.scale) : 1; }

DEV Found unscale_piece(const ac_gpu_list &a, const ac_gpu_item *it, int64_t begin, int64_t end, bool write) {
    constexpr int V = 8;
    Found found;
    double factor = factor_of(a, it) * inverse_of(a);
    int64_t piece = begin;
    if (it->grad_dtype == AC_float64) {
        unscale_elements<double>(it, factor, piece, begin, end, write, &found);
        return found;
    }
    if (aligned(it->grad)) {
        if (it->grad_dtype == AC_float32) unscale_runs<AC_float32>(it, (float)factor, begin, end, write, &found);
        else if (it->grad_dtype == AC_float16) unscale_runs<AC_float16>(it, (float)factor, begin, end, write, &found);
        else unscale_runs<AC_bfloat16>(it, (float)factor, begin, end, write, &found);
        begin += (end - begin) / V * V; /* the rest is the last few elements */
    }
    unscale_elements<float>(it, (float)factor, piece, begin, end, write, &found);
    return found;
}

DEV void grad_stats_of_pieces(const ac_gpu_list &a, bool write) {
    if (thread_index() == 0) {
        if (a.inverse) *a.inverse = inverse_of(a);
        if (a.used) *a.used = *a.scale;
        if (a.found_inf) a.found_inf[0] = a.found_inf[1] = 0; /* ac_list_join sets them */
    }
    for (int64_t piece = blockIdx.x; piece < a.pieces; piece += gridDim.x) {
        const ac_gpu_item *it = owner_of(a.items, a.n, piece);
        int64_t begin = (piece - it->first_piece) * AC_GPU_PIECE;
        int64_t end = begin + AC_GPU_PIECE < it->numel ? begin + AC_GPU_PIECE : it->numel;
        Found found = unscale_piece(a, it, begin, end, write);
        if (write) continue; /* nobody asks what was there */
        ac_gpu_found all = found.of_block();
        if (all.first != 0) all.first += (double)begin;
        if (threadIdx.x != 0) continue;
        if (a.found) a.found[piece] = all;
    }
}

/* Pass A: finds all in one read. */
AC_KERNEL(ac_list_grad_stats, ac_gpu_list) { grad_stats_of_pieces(a, false); }
/* Multiplies in place. */
AC_KERNEL(ac_list_scale, ac_gpu_list) { grad_stats_of_pieces(a, true); }

/* The pieces of each tensor together, by a warp. */
AC_KERNEL(ac_list_join, ac_gpu_join) {
    for (int64_t t = thread_index() / 32; t < a.n; t += thread_count() / 32) {
        int64_t end = t + 1 < a.n ? a.items[t + 1].first_piece : a.pieces;
        ac_gpu_found all = {0, 0, 0, 0, 0, 0};
        for (int64_t piece = a.items[t].first_piece + threadIdx.x % 32; piece < end; piece += 32) {
            const ac_gpu_found &one = a.found[piece];
            all.squares += one.squares, all.infs += one.infs, all.nans += one.nans, all.small += one.small;
            all.amax = Larger()(all.amax, one.amax), all.first = Earlier()(all.first, one.first);
        }
        all.squares = warp_join(all.squares, Add()), all.amax = warp_join(all.amax, Larger());
        all.infs = warp_join(all.infs, Add()), all.nans = warp_join(all.nans, Add());
        all.small = warp_join(all.small, Add()), all.first = warp_join(all.first, Earlier());
        if (threadIdx.x % 32 != 0) continue;
        a.totals[t] = all;
        if (a.found_inf && all.infs + all.nans > 0) a.found_inf[0] = 1; /* every writer writes the same */
        if (a.found_inf && all.infs > 0) a.found_inf[1] = 1;
    }
}

/* By one block. */
AC_KERNEL(ac_list_norm, ac_gpu_clip) {
    double squares = 0;
    for (int32_t t = threadIdx.x; t < a.n; t += AC_GPU_THREADS) squares += a.totals[t].squares;
    squares = block_join(squares, Add());
    if (threadIdx.x == 0) store_real<double>(a.norm, 0, sqrt(squares));
}
/* nan spreads */
AC_KERNEL(ac_clip_factor, ac_gpu_clip) {
    if (thread_index() != 0) return;
    double limit = a.limit.data ? load_real<double>(a.limit, 0) : a.limit.f;
    double factor = limit / (load_real<double>(a.norm, 0) + 1e-6);
    *a.factor = factor > 1 ? 1 : factor;
}

/* -- optimizers ------------------------------------------------------------------------------------- */

/* The update rules, in float32 and float64. */
#define UPDATE DEV
#define R float
#define S(name) name##_f32
#define M_SQRT sqrtf
#include "shared/optim_update.inc"
#undef R
#undef S
#undef M_SQRT
#define R double
#define S(name) name##_f64
#define M_SQRT sqrt
#include "shared/optim_update.inc"
#undef R
#undef S
#undef M_SQRT

DEV const ac_optim_options *options_of(const ac_gpu_list &a) { return a.options_at ? a.options_at : &a.options; }

/* Counts of steps advance on applied steps only. */
AC_KERNEL(ac_list_advance, ac_gpu_list) {
    if (a.gate && *a.gate != 0) return;
    for (int64_t t = thread_index(); t < a.n; t += thread_count()) {
        if (!a.items[t].step) continue;
        double step = (double)(*a.items[t].step += 1);
        if (a.items[t].product) *a.items[t].product *= (float)momentum_at_f64(options_of(a), step);
    }
}

template <class R> struct Opmath {};
template <> struct Opmath<float> {
    typedef update_constants_f32 Constants;
    DEV_METHOD static Constants of(const ac_optim_options *o, const ac_optim_scalars *at) {
        return update_constants_of_f32(o, at);
    }
};
template <> struct Opmath<double> {
    typedef update_constants_f64 Constants;
    DEV_METHOD static Constants of(const ac_optim_options *o, const ac_optim_scalars *at) {
        return update_constants_of_f64(o, at);
    }
};

#define ENTRY(name)                                                                                                    \
    struct name##_update {                                                                                             \
        DEV_METHOD static float update(const update_constants_f32 *k, float g, float p, float *s, int n) {             \
            return update_##name##_f32(k, g, p, s, n);                                                                 \
        }                                                                                                              \
        DEV_METHOD static double update(const update_constants_f64 *k, double g, double p, double *s, int n) {         \
            return update_##name##_f64(k, g, p, s, n);                                                                 \
        }                                                                                                              \
    };
AC_UPDATE_RULES(ENTRY)
#undef ENTRY

/* What an update rule needs of one parameter, made once a block. */
template <class R> DEV typename Opmath<R>::Constants constants_of(const ac_gpu_list &a, const ac_gpu_item *it) {
    ac_optim_scalars at = it->at;
    at.factor = factor_of(a, it);
    if (it->step) at.step = (double)*it->step;
    if (it->product) at.product = (double)*it->product;
    return Opmath<R>::of(options_of(a), &at);
}

/* One value of every operand: p and the state are updated in place. */
template <class Update, class R, class K> DEV void step_value(const ac_gpu_item *it, const K &k, R g, R &p, R *s) {
    p = Update::update(&k, g, p, s, (it->state[0] != nullptr) + (it->state[1] != nullptr) + (it->state[2] != nullptr));
}

/* What a 16-bit parameter takes of an update; see rounding.h. */
DEV_CALL float rounded(const ac_gpu_item *it, int64_t i, float old, float x) {
    if (it->rounding == AC_ROUND_master) ((float *)it->extra)[i] = x;
    if (it->rounding == AC_ROUND_stochastic) {
        ac_gpu_random random = random_now(it->random);
        ac_philox_block block = ac_philox(random.seed, random.offset + (uint64_t)i / 4);
        return ac_round_stochastic(x, it->param_dtype == AC_bfloat16, block.v[i % 4]);
    }
    if (it->rounding != AC_ROUND_kahan) return x;
    ac_gpu_ref lost = {it->extra, 0, 0, it->param_dtype}, param = {it->param, 0, 0, it->param_dtype};
    float by = x - old + load_real<float>(lost, i);
    store_real<float>(param, i, old + by);
    float now = load_real<float>(param, i);
    store_real<float>(lost, i, by - (now - old));
    return now;
}

template <class R, class Update>
DEV void step_elements(const ac_gpu_item *it, const typename Opmath<R>::Constants &k, int64_t first, int64_t end) {
    ac_gpu_ref grad = {it->grad, 0, 0, it->grad_dtype}, param = {it->param, 0, 0, it->param_dtype};
    ac_gpu_ref copy = {it->copy, 0, 0, it->copy_dtype};
    for (int64_t i = first + threadIdx.x; i < end; i += AC_GPU_THREADS) {
        R old = load_real<R>(param, i), p = old, s[AC_GPU_STATE] = {0, 0, 0};
        if (it->rounding == AC_ROUND_master) p = (R)((const float *)it->extra)[i];
        for (int n = 0; n < AC_GPU_STATE; n++)
            if (it->state[n]) s[n] = load_real<R>({it->state[n], 0, 0, it->state_dtype}, i);
        step_value<Update>(it, k, load_real<R>(grad, i), p, s);
        if (it->rounding != AC_ROUND_nearest) p = (R)rounded(it, i, (float)old, (float)p);
        store_real<R>(param, i, p);
        for (int n = 0; n < AC_GPU_STATE; n++)
            if (it->state[n]) store_real<R>({it->state[n], 0, 0, it->state_dtype}, i, s[n]);
        if (it->copy) store_real<R>(copy, i, load_real<R>(param, i)); /* of the value as it was stored */
        if (it->zero) store_real<R>(grad, i, 0);
    }
}

/* in float32, everything aligned */
template <class Update> DEV void step_run(const ac_gpu_item *it, const update_constants_f32 &k, int64_t i) {
    constexpr int V = 4;
    float g[V], p[V], s[AC_GPU_STATE][V];
    load_run<V>(it->grad, it->grad_dtype, i, g);
    load_run<V>(it->param, it->param_dtype, i, p);
    for (int n = 0; n < AC_GPU_STATE; n++)
        if (it->state[n]) load_run<V>(it->state[n], it->state_dtype, i, s[n]);
    EACH_OF(V) {
        float one[AC_GPU_STATE];
        for (int n = 0; n < AC_GPU_STATE; n++) one[n] = it->state[n] ? s[n][j] : 0;
        step_value<Update>(it, k, g[j], p[j], one);
        for (int n = 0; n < AC_GPU_STATE; n++) s[n][j] = one[n];
    }
    if (it->zero) {
        const float zeros[V] = {0};
        store_run<V>(it->grad, it->grad_dtype, i, zeros);
    }
    store_run<V>(it->param, it->param_dtype, i, p);
    for (int n = 0; n < AC_GPU_STATE; n++)
        if (it->state[n]) store_run<V>(it->state[n], it->state_dtype, i, s[n]);
    if (!it->copy) return;
    if (it->param_dtype != AC_float32) load_run<V>(it->param, it->param_dtype, i, p);
    store_run<V>(it->copy, it->copy_dtype, i, p);
}

DEV bool all_aligned(const ac_gpu_item *it) {
    bool wide = it->rounding == AC_ROUND_nearest && aligned(it->grad) && aligned(it->param) && aligned(it->copy) &&
                it->grad_dtype != AC_float64;
    for (int n = 0; n < AC_GPU_STATE; n++) wide = wide && aligned(it->state[n]);
    return wide;
}

template <class Update> DEV void step_piece(const ac_gpu_list &a, const ac_gpu_item *it, int64_t begin, int64_t end) {
    constexpr int V = 4;
    if (it->param_dtype == AC_float64) {
        step_elements<double, Update>(it, constants_of<double>(a, it), begin, end);
        return;
    }
    update_constants_f32 k = constants_of<float>(a, it);
    if (all_aligned(it)) {
        for (int64_t i = begin + (int64_t)threadIdx.x * V; i + V <= end; i += AC_GPU_THREADS * V)
            step_run<Update>(it, k, i);
        begin += (end - begin) / V * V;
    }
    step_elements<float, Update>(it, k, begin, end);
}

DEV_CALL void zero_piece(const ac_gpu_item *it, int64_t begin, int64_t end) {
    ac_gpu_ref grad = {it->grad, 0, 0, it->grad_dtype};
    for (int64_t i = begin + threadIdx.x; i < end; i += AC_GPU_THREADS) store_real<float>(grad, i, 0);
}

template <class Update> DEV void step_list(const ac_gpu_list &a) {
    bool out = a.gate && *a.gate != 0;
    for (int64_t piece = blockIdx.x; piece < a.pieces; piece += gridDim.x) {
        const ac_gpu_item *it = owner_of(a.items, a.n, piece);
        int64_t begin = (piece - it->first_piece) * AC_GPU_PIECE;
        int64_t end = begin + AC_GPU_PIECE < it->numel ? begin + AC_GPU_PIECE : it->numel;
        if (!out) step_piece<Update>(a, it, begin, end);
        else if (it->zero) zero_piece(it, begin, end);
    }
}
#define ENTRY(name)                                                                                                    \
    AC_KERNEL(ac_list_##name, ac_gpu_list) { step_list<name##_update>(a); }
AC_UPDATE_RULES(ENTRY)
#undef ENTRY

/* -- the scale -------------------------------------------------------------------------------------- */

/* Nans that no scale would have prevented, told from overflow, as GradScaler._update_number does: they were there when
 * the scale had come down to 1. Whether they leave the scale alone. */
DEV bool spares(const ac_gpu_scale &a) {
    bool found = a.found_inf[0] != 0, nans = found && a.found_inf[1] == 0;
    if (!nans) *a.before_nans = 0, a.tracker[2] = 0;
    if (found && a.loss && !(*a.loss - *a.loss == 0)) return true;
    if (!nans) return false;
    if (*a.before_nans == 0) *a.before_nans = *a.scale;
    if (!a.tracker[2] && *a.scale <= 1) a.tracker[2] = 1, *a.scale = *a.before_nans;
    return a.tracker[2] != 0;
}

/* As ac_scaler_update of amp/scaler.c, on the device. */
AC_KERNEL(ac_scale_update, ac_gpu_scale) {
    if (thread_index() != 0 || spares(a)) return;
    if (*a.found_inf != 0) {
        a.tracker[0] = 0;
        if (++a.tracker[1] < a.hysteresis) return;
        float shrunk = (float)((double)*a.scale * a.backoff);
        *a.scale = shrunk >= a.least ? shrunk : a.least;
        return;
    }
    a.tracker[1] = 0;
    if (++a.tracker[0] < a.interval) return;
    double grown = (double)*a.scale * a.growth;
    if (grown <= (double)a.most) *a.scale = (float)grown;
    else if (*a.scale < a.most) *a.scale = a.most;
    a.tracker[0] = 0;
}
