/* Kernels over lists of tensors in one launch: unscale and check, norms, optimizer steps, the scale. The host side of
 * foreach.cu. */
#include "cuda/foreach.h"

#include "base/alloc.h"
#include "cuda/tables.h"

#define LIST_KERNEL(id, text) static ac_gpu_kernel id = {.image = AC_IMAGE_FOREACH, .name = text}

/* -- tensors that are not contiguous go by a copy, which is copied back ----------------------------- */

typedef struct {
    ac_tensor **dense; /* n of them, owned */
    ac_tensor *const *own;
    int n;
} dense_list;

static void dense_free(dense_list *d) {
    for (int i = 0; i < d->n; i++) ac_tensor_clear(&d->dense[i]);
    ac_free(d->dense, (size_t)(d->n + 1) * sizeof *d->dense);
}

static int dense_new(dense_list *d, ac_tensor *const *own, int n) {
    *d = (dense_list){.dense = ac_calloc((size_t)(n + 1) * sizeof *d->dense), .own = own, .n = n};
    if (!d->dense) return -1;
    for (int i = 0; i < n; i++) {
        if (!own[i]) continue;
        d->dense[i] = ac_gpu_contiguous(own[i]);
        if (!d->dense[i]) {
            dense_free(d);
            return -1;
        }
    }
    return 0;
}

static int dense_write_back(const dense_list *d) {
    for (int i = 0; i < d->n; i++)
        if (d->own[i] && d->dense[i] != d->own[i]) AC_TRY(ac_gpu_copy(d->own[i], d->dense[i]));
    return 0;
}

/* -- statistics of gradients, multiplying them --------------------------------------------------------- */

/* What waits to be multiplied into a tensor's memory. */
static const double *factor_there(const ac_tensor *t) {
    const ac_storage *by = t->storage->deferred ? t->storage->factor_at : NULL;
    return by ? (const double *)(void *)by->data : NULL;
}

/* Where the statistics of values / *scale go: on the device each, or NULL. */
typedef struct {
    const float *scale;
    ac_gpu_found *totals; /* one a tensor */
    ac_gpu_stats_also also;
} stats_outputs;

/* The statistics of the pieces, then of the tensors. */
static int grad_stats_of_list(const ac_gpu_sent_list *l, const stats_outputs *k) {
    LIST_KERNEL(stats_only, "ac_list_grad_stats");
    LIST_KERNEL(join, "ac_list_join");
    ac_gpu_list a = ac_gpu_list_arguments(l);
    a.scale = k->scale, a.inverse = k->also.inverse, a.used = k->also.used, a.found_inf = k->also.found_inf;
    ac_gpu_block *room = ac_gpu_alloc(l->device, (l->pieces + 1) * (int64_t)sizeof(ac_gpu_found));
    if (!room) return -1;
    a.found = ac_gpu_address(room);
    int64_t blocks = l->pieces ? l->pieces : 1; /* somebody notes the inverse */
    int failed = ac_gpu_launch(l->device, &stats_only, blocks, AC_GPU_THREADS / 32 * sizeof(ac_gpu_found), &a);
    ac_gpu_join j = {a.items, a.n, a.pieces, a.found, k->totals, a.found_inf};
    if (!failed) failed = ac_gpu_launch(l->device, &join, ac_gpu_blocks(l->device, 32 * (int64_t)l->n, 1), 0, &j);
    ac_gpu_free(room);
    return failed;
}

/* factors: one a tensor, and one more of them all `there`, or NULL. Statistics include the deferred factor of each. */
static int pass(ac_tensor *const *tensors, int n, const double *factors, double factor, const double *there,
                const stats_outputs *k) {
    LIST_KERNEL(scale, "ac_list_scale");
    dense_list dense;
    ac_gpu_sent_list l;
    if (n == 0) return 0;
    AC_TRY(dense_new(&dense, tensors, n));
    int failed = ac_gpu_list_new(&l, ac_device_of(tensors[0]), n);
    for (int i = 0; i < n && !failed; i++) {
        ac_gpu_item *it = &l.items[i];
        it->grad = ac_data(dense.dense[i]), it->numel = dense.dense[i]->numel;
        it->grad_dtype = (int8_t)dense.dense[i]->dtype;
        it->at.factor = factors ? factors[i] : factor, it->by = k ? factor_there(tensors[i]) : there;
    }
    if (!failed) failed = ac_gpu_list_send(&l);
    if (!failed && k) failed = grad_stats_of_list(&l, k);
    if (!failed && !k && l.pieces) {
        ac_gpu_list a = ac_gpu_list_arguments(&l);
        failed = ac_gpu_launch(l.device, &scale, l.pieces, 0, &a);
    }
    if (!failed && !k) failed = dense_write_back(&dense);
    if (l.items) ac_gpu_list_free(&l);
    dense_free(&dense);
    return failed;
}

int ac_gpu_grad_stats(ac_tensor *const *grads, int n, const double *factors, const float *scale, ac_gpu_found *ledger,
                      const ac_gpu_stats_also *also) {
    stats_outputs k = {scale, ledger, also ? *also : (ac_gpu_stats_also){NULL}};
    return pass(grads, n, factors, 1, NULL, &k);
}

int ac_gpu_norm(const ac_gpu_found *ledger, int n, ac_tensor *norm) {
    LIST_KERNEL(kernel, "ac_list_norm");
    ac_gpu_clip a = {.totals = ledger, .n = n, .norm = ac_gpu_ref_of(norm)};
    return ac_gpu_launch(ac_device_of(norm), &kernel, 1, AC_GPU_THREADS / 32 * sizeof(double), &a);
}

int ac_gpu_clip_factor(const ac_tensor *norm, const ac_tensor *limit, double most, double *factor) {
    LIST_KERNEL(kernel, "ac_clip_factor");
    ac_gpu_clip a = {.norm = ac_gpu_ref_of(norm), .limit = {.f = most}, .factor = factor};
    if (limit) a.limit = ac_gpu_ref_of(limit);
    return ac_gpu_launch(ac_device_of(norm), &kernel, 1, 0, &a);
}

_Static_assert(sizeof(ac_found) == sizeof(ac_gpu_found), "one table for both backends");

/* Brings the totals to the host. */
int ac_cuda_grad_stats(ac_tensor *const *tensors, int n, const double *factors, ac_found *found) {
    size_t bytes = (size_t)n * sizeof *found;
    if (n == 0) return 0;
    AC_TRY(ac_gpu_refuse_capture("the norm of gradients, as a number of the CPU,"));
    ac_device d = ac_device_of(tensors[0]);
    ac_gpu_block *room = ac_gpu_alloc(d, (int64_t)bytes);
    if (!room) return -1;
    int failed = ac_gpu_grad_stats(tensors, n, factors, NULL, ac_gpu_address(room), NULL);
    if (!failed) failed = ac_gpu_fetch(d, found, ac_gpu_address(room), bytes);
    ac_gpu_free(room);
    return failed;
}

int ac_cuda_scale(ac_tensor *const *tensors, int n, double factor, const double *there) {
    return pass(tensors, n, NULL, factor, there, NULL);
}

/* -- optimizers ------------------------------------------------------------------------------------- */

/* The columns of a list of updates: gradient, parameter, state. */
enum { GRAD, PARAM, EXTRA, STATE, COLUMNS = STATE + AC_MAX_STATE };

static ac_tensor *column(const ac_update *u, int c) {
    return c == GRAD ? u->grad : c == PARAM ? u->param : c == EXTRA ? u->extra : u->state[c - STATE];
}

static int fill_item(ac_gpu_item *it, ac_update *u, ac_tensor *const *dense) {
    it->grad = ac_data(dense[GRAD]), it->grad_dtype = (int8_t)dense[GRAD]->dtype;
    it->param = ac_data(dense[PARAM]), it->param_dtype = (int8_t)dense[PARAM]->dtype;
    it->numel = u->param->numel, it->at = u->at, it->by = factor_there(u->grad);
    if (u->count) it->step = ac_data(u->count);
    if (u->product) it->product = ac_data(u->product);
    it->rounding = (int8_t)u->rounding;
    AC_TRY(ac_gpu_random_of(ac_device_of(u->param), u->seed, u->offset, &it->random));
    if (dense[EXTRA]) it->extra = ac_data(dense[EXTRA]);
    for (int k = 0; k < AC_MAX_STATE; k++) {
        if (!dense[STATE + k]) continue;
        it->state[k] = ac_data(dense[STATE + k]), it->state_dtype = (int8_t)dense[STATE + k]->dtype;
    }
    /* one 16-bit copy is written along; the GPU keeps a weight in one layout, so there is no second. A graph would go
     * on writing it when nobody has it any more. */
    for (int k = 0; k < AC_KEPT; k++) {
        if (!u->kept[k].panels) continue;
        bool takes = !it->copy && !ac_gpu_is_capturing() && dense[PARAM] == u->param;
        if (takes) it->copy = ac_data(u->kept[k].panels), it->copy_dtype = (int8_t)u->kept[k].kind.dtype;
        else u->kept[k].refuse = true;
    }
    return 0;
}

static int launch_step(ac_update_rule rule, const ac_gpu_sent_list *l, const ac_step_args *s, const double *by) {
    LIST_KERNEL(advance, "ac_list_advance");
#define ENTRY(rule) [AC_UPDATE_RULE_##rule] = {.image = AC_IMAGE_FOREACH, .name = "ac_list_" #rule},
    static ac_gpu_kernel rules[AC_N_UPDATE_RULES] = {AC_UPDATE_RULES(ENTRY)};
#undef ENTRY
    ac_gpu_list a = ac_gpu_list_arguments(l);
    bool counted = false;
    a.by = by, a.gate = s->found_inf, a.options = s->options;
    AC_TRY(ac_gpu_capture_options(l->device, &s->options, &a.options_at));
    for (int i = 0; i < l->n; i++) counted = counted || l->items[i].step;
    if (counted) AC_TRY(ac_gpu_launch(l->device, &advance, ac_gpu_blocks(l->device, l->n, 1), 0, &a));
    if (l->pieces == 0) return 0;
    return ac_gpu_launch(l->device, &rules[rule], l->pieces, 0, &a);
}

/* The number that waits for all of the gradients: it is passed with the launch, because the table stays the same from
 * step to step, and the number's address does not. NULL where they have several, or none. */
static const double *common_factor(const ac_update *updates, int n) {
    const double *by = factor_there(updates[0].grad);
    for (int i = 1; i < n; i++)
        if (factor_there(updates[i].grad) != by) return NULL;
    return by;
}

int ac_cuda_step(ac_update_rule rule, ac_update *updates, int n, const ac_step_args *constants) {
    ac_gpu_sent_list l;
    if (n == 0) return 0;
    AC_TRY(ac_gpu_list_new(&l, ac_device_of(updates[0].param), n));
    size_t bytes = (size_t)n * COLUMNS * sizeof(ac_tensor *);
    ac_tensor **dense = ac_calloc(bytes);
    const double *by = common_factor(updates, n);
    int failed = dense ? 0 : -1;
    for (int i = 0; i < n * COLUMNS && !failed; i++) {
        ac_tensor *t = column(&updates[i / COLUMNS], i % COLUMNS);
        if (t) dense[i] = ac_gpu_contiguous(t);
        if (t && !dense[i]) failed = -1;
    }
    for (int i = 0; i < n && !failed; i++) {
        failed = fill_item(&l.items[i], &updates[i], dense + i * COLUMNS);
        l.items[i].zero = constants->zero;
        if (by) l.items[i].by = NULL;
    }
    if (!failed) failed = ac_gpu_list_send(&l);
    if (!failed) failed = launch_step(rule, &l, constants, by);
    for (int i = 0; i < n * COLUMNS && dense; i++) {
        ac_tensor *t = column(&updates[i / COLUMNS], i % COLUMNS);
        if (!failed && t && dense[i] != t && (i % COLUMNS != GRAD || constants->zero))
            failed = ac_gpu_copy(t, dense[i]);
        ac_tensor_clear(&dense[i]);
    }
    if (dense) ac_free(dense, bytes);
    ac_gpu_list_free(&l);
    return failed;
}

/* -- the scale -------------------------------------------------------------------------------------- */

int ac_gpu_scale_update(ac_device d, const ac_gpu_scale *how) {
    LIST_KERNEL(kernel, "ac_scale_update");
    return ac_gpu_launch(d, &kernel, 1, 0, how);
}
