/* The core tested from C, without an interpreter: allocation, the pool, operators, autograd, the
 * weight copies, the scaler, and every error path of a training step by failing each allocation. */
#include "amp/autocast.h"
#include "amp/scaler.h"
#include "autograd/split.h"
#include "base/alloc.h"
#include "base/machine.h"
#include "base/half.h"
#include "base/pool.h"
#include "dispatch/deferred_scale.h"
#include "tensor/list.h"
#include "optim/optim.h"
#include "shared/tensor_iter.h"
#include "tensor/packed_weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

/* -- helpers ---------------------------------------------------------------------------------------- */

static ac_tensor *filled(int64_t rows, int64_t cols, double value, ac_dtype dtype) {
    ac_attrs_full a = {.size = {2, {rows, cols}}, .value = {.kind = AC_FLOAT, .f = value}, .dtype = dtype};
    ac_tensor *out[AC_MAX_OUT] = {NULL};
    return ac_call(AC_OP_full, NULL, 0, &a, out) < 0 ? NULL : out[0];
}

static double at(const ac_tensor *t, int64_t i) { return ac_read_double(ac_data(t), t->dtype, i); }

/* -- base ------------------------------------------------------------------------------------------- */

static void test_half(void) {
    int wrong = 0;
    for (uint32_t h = 0; h < 65536; h++) { /* every 16-bit number survives the round trip */
        uint16_t x = (uint16_t)h;
        float f = ac_f16_to_f32(x), b = ac_bf16_to_f32(x);
        wrong += !isnan(f) && ac_f32_to_f16(f) != x;
        wrong += !isnan(b) && ac_f32_to_bf16(b) != x;
        wrong += isnan(f) && !isnan(ac_f16_to_f32(ac_f32_to_f16(f)));
        wrong += isnan(b) && !isnan(ac_bf16_to_f32(ac_f32_to_bf16(b)));
    }
    CHECK(wrong == 0);
    CHECK(ac_f32_to_f16(65519.0f) == 0x7BFF && ac_f32_to_f16(65520.0f) == 0x7C00); /* the edge of overflow */
    CHECK(ac_f32_to_f16(0x1p-25f) == 0 && ac_f32_to_f16(0x1.8p-25f) == 1);         /* the edge of underflow */
    CHECK(ac_f32_to_f16(1.0f + 0x1p-11f) == 0x3C00 && ac_f32_to_f16(1.0f + 0x1.8p-10f) == 0x3C02); /* ties to even */
}

static void test_quota(void) {
    CHECK(ac_quota_in("max 100000\n") == 0 && ac_quota_in("") == 0 && ac_quota_in("nothing") == 0);
    CHECK(ac_quota_in("100000 100000\n") == 1 && ac_quota_in("150000 100000\n") == 2 &&
          ac_quota_in("5000 100000") == 1);
    CHECK(ac_quota_in("9223372036854775807 1") >= 0);
    CHECK(ac_quota_in("400000") == 0 && ac_quota_in("-1 100000") == 0);
    CHECK(ac_this_machine()->cores >= 1);
}

#if defined(__linux__)
static void put(const char *root, const char *name, const char *text) {
    char path[512];
    (void)snprintf(path, sizeof path, "%s%s", root, name);
    FILE *f = fopen(path, "w");
    CHECK(f != NULL);
    if (f) (void)fputs(text, f), (void)fclose(f);
}

/* Control groups in a folder of their own: of version 2, of version 1 and of both, deep ones, and none. */
static void test_groups(void) {
    char root[] = "/tmp/ampc-groups-XXXXXX", command[256];
    CHECK(mkdtemp(root) != NULL);
    CHECK(ac_quota_of("0::/\n", root) == 0 && ac_quota_of("", root) == 0 && ac_quota_of("no lines", root) == 0);
    (void)snprintf(command, sizeof command, "mkdir -p %s/a/b/c %s/cpu/job/step %s/cpuacct", root, root, root);
    CHECK(system(command) == 0);
    put(root, "/a/cpu.max", "300000 100000\n");
    put(root, "/a/b/cpu.max", "max 100000\n");
    put(root, "/a/b/c/cpu.max", "500000 100000\n");
    CHECK(ac_quota_of("0::/a/b/c\n", root) == 3 && ac_quota_of("0::/a/b\n", root) == 3 &&
          ac_quota_of("0::/\n", root) == 0);
    CHECK(ac_quota_of("0::/a/gone/deeper\n", root) == 3 && ac_quota_of("0::/../a\n", root) == 0);
    put(root, "/cpu/cpu.cfs_quota_us", "-1\n");
    put(root, "/cpu/cpu.cfs_period_us", "100000\n");
    put(root, "/cpu/job/cpu.cfs_quota_us", "150000\n");
    put(root, "/cpu/job/cpu.cfs_period_us", "100000\n");
    CHECK(ac_quota_of("3:cpuset:/job\n2:cpuacct,cpu:/job/step\n1:name=systemd:/x\n", root) == 2);
    CHECK(ac_quota_of("3:cpuset:/job\n2:cpuacct:/job/step\n1:cpu:/\n0::/\n", root) == 0);
    put(root, "/cpu/job/cpu.cfs_period_us", "");
    CHECK(ac_quota_of("2:cpu:/job\n", root) == 0);
    put(root, "/cpu/cpu.cfs_quota_us",
        "100000\n"); /* a container's mount: its own group is the root, the path is the host's */
    CHECK(ac_quota_of("2:cpu:/docker/0123\n", root) == 1 && ac_quota_of("2:cpu:/docker/0123\n0::/a/b\n", root) == 1);
    (void)snprintf(command, sizeof command, "rm -r %s", root);
    CHECK(system(command) == 0);
}
#else
static void test_groups(void) {}
#endif

static void test_alloc(void) {
    ac_memory_stats before = ac_memory();
    for (size_t bytes = 0; bytes < 100000; bytes += 97) {
        char *p = ac_alloc(bytes);
        CHECK(p && (uintptr_t)p % AC_ALIGNMENT == 0);
        if (p) memset(p, 1, bytes);
        ac_free(p, bytes);
    }
    CHECK(ac_memory().blocks == before.blocks);
    ac_alloc_fail_at(2, 0);
    void *first = ac_alloc(10), *second = ac_alloc(10), *third = ac_alloc(10);
    ac_alloc_fail_at(0, 0);
    CHECK(first && !second && third && ac_error_code() == AC_MEMORY);
    ac_free(first, 10);
    ac_free(third, 10);
    CHECK(ac_alloc((size_t)1 << 50) == NULL);
    ac_memory_trim();
    CHECK(ac_memory().cached == 0);
}

typedef struct {
    int64_t n;
    unsigned char *seen;
} coverage;

static void visit(void *context, int64_t chunk, int thread) {
    const coverage *c = context;
    unsigned char *seen = &c->seen[chunk];
    *seen = (unsigned char)(*seen + (thread < ac_num_threads() && thread < c->n ? 1 : 100));
}

static void test_pool(void) {
    for (int threads = 1; threads <= 4; threads++) {
        ac_set_num_threads(threads);
        for (int64_t n = 0; n < 200; n++) {
            unsigned char seen[200] = {0};
            coverage c = {n, seen};
            int wrong = 0;
            ac_parallel(n, threads, visit, &c);
            for (int64_t i = 0; i < n; i++) wrong += seen[i] != 1;
            CHECK(wrong == 0);
        }
    }
    ac_set_num_threads(2);
}

/* -- operators -------------------------------------------------------------------------------------- */

static void test_views(void) {
    ac_tensor *x = filled(3, 4, 0, AC_float32), *out[AC_MAX_OUT] = {NULL};
    for (int64_t i = 0; i < 12; i++) ac_write_double(ac_data(x), AC_float32, i, (double)i);
    ac_attrs_two_dims swap = {0, 1};
    CHECK(ac_call(AC_OP_transpose, &x, 1, &swap, out) == 0);
    ac_tensor *y = out[0], *flat = NULL;
    CHECK(y->shape[0] == 4 && y->storage == x->storage && y->base == x);
    ac_attrs_size size = {{1, {12}}};
    CHECK(ac_call(AC_OP_view, &y, 1, &size, out) < 0); /* needs a copy */
    CHECK(ac_call(AC_OP_reshape, &y, 1, &size, &flat) == 0 && at(flat, 1) == 4);
    ac_tensor_release(flat);
    ac_tensor_release(y);
    ac_tensor_release(x);
}

/* Tensors that lie in memory in one order are one run, whatever the order of their dimensions. */
static void test_runs_lie_along_memory(void) {
    ac_iter it;
    ac_tensor *x = filled(40, 30, 1, AC_float32), *y = filled(40, 30, 2, AC_float32), *turned[2], *rows[2];
    ac_dims shape = {2, {30, 40}}, strides = {2, {1, 30}}, one = {2, {30, 1}}, step = {2, {1, 1}};
    turned[0] = ac_tensor_view(x, &shape, &strides, 0), turned[1] = ac_tensor_view(y, &shape, &strides, 0);
    ac_iter_init(&it, &shape, turned, 2);
    CHECK(it.ndim == 2 && it.shape[0] == 30 && it.strides[0][1] == 30);
    ac_iter_init_by_memory(&it, turned, 2);
    CHECK(it.ndim == 1 && it.shape[0] == 1200 && it.strides[0][0] == 1 && it.strides[1][0] == 1);
    rows[0] = turned[0], rows[1] = ac_tensor_view(y, &one, &step, 0); /* one row is broadcast along the other */
    ac_iter_init_by_memory(&it, rows, 2);
    CHECK(it.ndim == 2 && it.shape[1] == 30 && it.strides[0][1] == 1 && it.strides[1][0] == 0 && it.strides[1][1] == 1);
    ac_tensor *long_ones = filled(1000, 256, 0, AC_float32), *out = filled(256, 1000, 0, AC_float32);
    ac_dims back = {2, {256, 1000}}, columns = {2, {1, 256}};
    ac_tensor *across[2] = {out, ac_tensor_view(long_ones, &back, &columns, 0)}; /* in parts that the cache keeps */
    ac_iter_init_by_memory(&it, across, 2);
    CHECK(it.ndim == 3 && it.shape[0] == 20 && it.shape[1] == 256 && it.shape[2] == 50);
    CHECK(it.strides[1][0] == 50 * 256 && it.strides[1][1] == 1 && it.strides[1][2] == 256 && it.strides[0][1] == 1000);
    ac_tensor_release(across[1]), ac_tensor_release(long_ones), ac_tensor_release(out);
    ac_tensor *all[] = {turned[0], turned[1], rows[1], x, y};
    for (int i = 0; i < 5; i++) ac_tensor_release(all[i]);
}

static void test_threads_do_not_change_results(void) {
    double first = 0;
    for (int threads = 1; threads <= 4; threads++) {
        ac_set_num_threads(threads);
        ac_tensor *x = filled(700, 300, 0.1, AC_float32), *out[AC_MAX_OUT] = {NULL}, *sum = NULL;
        ac_attrs_reduce all = {{.n = -1}, 0, AC_NO_DTYPE};
        CHECK(ac_call(AC_OP_exp, &x, 1, NULL, out) == 0 && ac_call(AC_OP_sum, out, 1, &all, &sum) == 0);
        if (threads == 1) first = at(sum, 0);
        CHECK(at(sum, 0) == first);
        ac_tensor_release(sum);
        ac_tensor_release(out[0]);
        ac_tensor_release(x);
    }
    ac_set_num_threads(2);
}

/* -- autograd --------------------------------------------------------------------------------------- */

/* loss = mean((x w^T)^2), under autocast when `low` */
static int training_step(bool low) {
    ac_tensor *x = filled(8, 4, 0.5, AC_float32), *w = filled(3, 4, 0.25, AC_float32);
    ac_tensor *y = NULL, *target = filled(8, 3, 1, AC_float32), *loss = NULL, *in[3] = {x, w, NULL};
    ac_attrs_reduction mean = {AC_REDUCE_MEAN};
    double tolerance = low ? 1e-3 : 1e-6; /* the incoming gradient is bfloat16 then */
    int result = x && w && target ? ac_set_requires_grad(w, true) : -1;
    ac_autocast_state outside = ac_autocast;
    if (low) ac_autocast_enter(AC_AMP_CPU, true, AC_bfloat16, true, NULL);
    if (!result) result = ac_call(AC_OP_linear, in, 3, NULL, &y);
    ac_tensor *pair[2] = {y, target};
    if (!result) result = ac_call(AC_OP_mse_loss, pair, 2, &mean, &loss);
    ac_autocast = outside;
    if (!result) {
        ac_backward_args run = {.roots = &loss, .n_roots = 1};
        result = ac_backward(&run);
    }
    if (!result) { /* y = 0.5 everywhere: dL/dw = sum over rows of 2 (0.5 - 1) 0.5 / 24 */
        CHECK(w->meta->grad && fabs(at(w->meta->grad, 0) - 8 * 2 * -0.5 * 0.5 / 24) < tolerance);
        ac_update u = {.grad = w->meta->grad, .param = w, .at = {.step = 1}};
        ac_step_args k = {.options = {.lr = 1}};
        int done;
        ac_optim_begin(&u, 1);
        result = ac_optim_step(AC_UPDATE_RULE_sgd, &u, 1, &k, &done);
        ac_optim_end(&u, 1, done, false);
        if (!result) CHECK(fabs(at(w, 0) - (0.25 + 8 * 0.5 / 24)) < tolerance);
    }
    if (low && !result)
        CHECK(ac_packed_weight_find(w, (ac_packed_kind){AC_bfloat16, true, NULL}) != NULL); /* the step renewed it */
    if (low && !result) ac_wrote(w);
    if (low && !result)
        CHECK(ac_packed_weight_find(w, (ac_packed_kind){AC_bfloat16, true, NULL}) == NULL); /* outdated by a write */
    ac_tensor_clear(&loss);
    ac_tensor_clear(&y);
    ac_tensor_clear(&target);
    ac_tensor_clear(&w);
    ac_tensor_clear(&x);
    return result;
}

static void test_training_step(void) {
    int64_t blocks = ac_memory().blocks;
    for (int low = 0; low < 2; low++) {
        CHECK(training_step(low) == 0);
        CHECK(ac_memory().blocks == blocks); /* nothing leaked */
        ac_alloc_fail_at(0, 0);
        CHECK(training_step(low) == 0);
        int64_t calls = ac_alloc_calls();
        CHECK(calls > 10);
        for (int64_t n = 1; n <= calls; n++) { /* every allocation of the step fails once */
            ac_alloc_fail_at(n, 0);
            CHECK(training_step(low) < 0 && ac_error_code() == AC_MEMORY);
            ac_alloc_fail_at(0, 0);
            CHECK(ac_memory().blocks == blocks);
        }
        CHECK(training_step(low) == 0);
    }
}

static void test_long_chain(void) {
    ac_tensor *x = filled(1, 1, 1, AC_float32), *y = ac_tensor_retain(x);
    CHECK(ac_set_requires_grad(x, true) == 0);
    for (int i = 0; i < 200000; i++) {
        ac_tensor *next = NULL;
        if (ac_call(AC_OP_neg, &y, 1, NULL, &next) < 0) break;
        ac_tensor_release(y);
        y = next;
    }
    ac_backward_args run = {.roots = &y, .n_roots = 1};
    CHECK(ac_backward(&run) == 0 && at(x->meta->grad, 0) == 1);
    ac_tensor_release(y);
    ac_tensor_release(x);
}

/* Packed operands begin a cache line, as kernels that store whole vectors need, however many keys there are. */
static void test_attention_of_odd_lengths(void) {
    ac_tensor *q = filled(200, 24, 0.5, AC_float32), *k = filled(197, 24, 0.25, AC_float32),
              *v = filled(197, 24, 3, AC_float32);
    ac_attrs_attention plain = {.scale = {.kind = AC_NONE}};
    ac_tensor *in[4] = {q, k, v, NULL}, *out[AC_MAX_OUT] = {NULL};
    CHECK(ac_call(AC_OP_attention, in, 4, &plain, out) == 0);
    CHECK(out[0] && fabs(at(out[0], 0) - 3) < 1e-5 && fabs(at(out[0], 200 * 24 - 1) - 3) < 1e-5);
    ac_tensor_clear(&out[0]);
    ac_tensor_release(q);
    ac_tensor_release(k);
    ac_tensor_release(v);
}

/* -- lists ------------------------------------------------------------------------------------------- */

/* The sum of squares of n small tensors, joined, cut apart again and joined once more; backward through all that. */
static int join_and_cut(ac_list *x, ac_section *spans) {
    ac_tensor *whole[AC_MAX_OUT] = {NULL}, *again[AC_MAX_OUT] = {NULL}, *sum[AC_MAX_OUT] = {NULL};
    ac_attrs_one_dim along = {0};
    ac_attrs_reduce all = {{.n = -1}, 0, AC_NO_DTYPE};
    ac_list parts;
    int n = x->n, result = ac_list_start(&parts, n);
    for (int i = 0; i < n && !result; i++) {
        x->at[i] = filled(2, 1, i, AC_float32);
        result = x->at[i] ? ac_set_requires_grad(x->at[i], true) : -1;
        spans[i] = (ac_section){2 * i, 2};
    }
    if (!result) result = ac_call(AC_OP_cat, x->at, n, &along, whole);
    if (!result) result = ac_split(whole[0], 0, spans, n, false, parts.at);
    if (!result) result = ac_call(AC_OP_stack, parts.at, n, &along, again);
    if (!result) result = ac_call(AC_OP_sum, again, 1, &all, sum);
    if (!result) result = ac_backward(&(ac_backward_args){.roots = sum, .n_roots = 1});
    ac_tensor_clear(&whole[0]);
    ac_tensor_clear(&again[0]);
    ac_tensor_clear(&sum[0]);
    ac_list_release(&parts);
    return result;
}

static int lists_of(int n) {
    ac_list x;
    ac_section *spans = malloc((size_t)n * sizeof *spans);
    int result = ac_list_start(&x, n);
    if (!result) result = join_and_cut(&x, spans);
    for (int i = 0; i < n && !result; i++) CHECK(at(x.at[i]->meta->grad, 0) == 1 && at(x.at[i]->meta->grad, 1) == 1);
    ac_list_release(&x);
    free(spans);
    return result;
}

static void test_lists(void) {
    int64_t blocks = ac_memory().blocks;
    CHECK(lists_of(1) == 0 && lists_of(AC_FEW) == 0 && lists_of(AC_FEW + 1) == 0 && lists_of(50000) == 0);
    CHECK(ac_memory().blocks == blocks);
    ac_alloc_fail_at(0, 0);
    CHECK(lists_of(AC_FEW + 1) == 0);
    int64_t calls = ac_alloc_calls();
    for (int64_t n = 1; n <= calls; n++) {
        ac_alloc_fail_at(n, 0);
        CHECK(lists_of(AC_FEW + 1) < 0 && ac_error_code() == AC_MEMORY);
        ac_alloc_fail_at(0, 0);
        CHECK(ac_memory().blocks == blocks);
    }
}

/* -- mixed precision -------------------------------------------------------------------------------- */

static double low_product(ac_tensor *x, ac_tensor *w) { /* x w in bfloat16, its first value */
    ac_attrs_product plain = {AC_NO_DTYPE};
    ac_tensor *in[2] = {x, w}, *out[AC_MAX_OUT] = {NULL};
    ac_autocast_state outer = ac_autocast_compute_in(AC_bfloat16);
    ac_mode.no_grad = true;
    CHECK(ac_call(AC_OP_mm, in, 2, &plain, out) == 0);
    ac_mode.no_grad = false;
    ac_autocast = outer;
    double first = out[0] ? at(out[0], 0) : -1;
    ac_tensor_clear(&out[0]);
    return first;
}

static void test_copies(void) {
    ac_tensor *w = filled(4, 4, 1.5, AC_float32), *x = filled(2, 4, 1, AC_float32);
    CHECK(ac_set_requires_grad(w, true) == 0);
    int64_t packed = ac_packed_weights_now().packed;
    CHECK(low_product(x, w) == 6 && low_product(x, w) == 6);
    CHECK(ac_packed_weights_now().packed == packed + 1 && ac_packed_weights_now().copies == 1);
    ((float *)ac_data(w))[0] = 7;
    ac_wrote(w);
    CHECK(low_product(x, w) == 11.5 && ac_packed_weights_now().packed == packed + 2 &&
          ac_packed_weights_now().copies == 1);
    ac_packed_weights_set_limit(10);
    CHECK(ac_packed_weights_now().bytes == 0 && low_product(x, w) == 11.5 && ac_packed_weights_now().refused > 0);
    ac_packed_weights_set_limit(INT64_MAX);
    CHECK(low_product(x, w) == 11.5 && ac_packed_weights_now().bytes > 0);
    ac_tensor_release(w);
    ac_tensor_release(x);
    CHECK(ac_packed_weights_now().bytes == 0);
}

static void test_scaler(void) {
    ac_scaler s = {65536, 2, 0.5, 3, 0, 0x1p-126f, 0x1p127f, 1, 0};
    for (int i = 0; i < 3; i++) ac_scaler_update(&s, false);
    CHECK(s.scale == 131072 && s.growth_tracker == 0);
    for (int i = 0; i < 1000; i++) ac_scaler_update(&s, true);
    CHECK(s.scale > 0 && isnormal(s.scale) && isfinite(ac_scaler_inverse(&s)));
    s.growth_interval = 1;
    for (int i = 0; i < 1000; i++) ac_scaler_update(&s, false);
    CHECK(isfinite(s.scale) && s.scale > 1e38f);
    ac_tensor *g[2] = {filled(3, 3, 4, AC_float32), filled(100, 400, 2, AC_float16)};
    ac_found found[2];
    CHECK(ac_optim_grad_stats(g, 2, 0.5, found) == 0 && found[0].infs + found[1].nans == 0 && found[0].amax == 2);
    CHECK(found[0].squares == 9 * 4 && found[1].squares == 40000);
    CHECK(ac_optim_scale(g, 2, 0.5, NULL) == 0 && ac_deferred_scales == 1 && at(g[0], 0) == 4 &&
          at(g[1], 39999) == 1); /* noted; done */
    CHECK(ac_optim_grad_stats(g, 1, 0.5, found) == 0 && found[0].amax == 1);
    CHECK(ac_settle(g[0]) == 0 && ac_deferred_scales == 0 && at(g[0], 0) == 2);
    ((float *)ac_data(g[0]))[4] = 1e36f; /* finite now, infinite when unscaled by 1e4 */
    CHECK(ac_optim_grad_stats(g, 1, 1e4, found) == 0 && found[0].infs == 1 && found[0].nans == 0 &&
          found[0].amax == 2e4);
    CHECK(ac_optim_scale(g, 1, 2, NULL) == 0 && ac_deferred_scales == 1);
    ac_tensor_release(g[0]);
    CHECK(ac_deferred_scales == 0);
    ac_tensor_release(g[1]);
}

int main(void) {
    if (ac_ops_init() < 0) {
        fprintf(stderr, "%s\n", ac_error_message());
        return 1;
    }
    ac_hooks.meta_free = ac_meta_free;
    test_half();
    test_quota();
    test_groups();
    test_alloc();
    test_pool();
    test_views();
    test_runs_lie_along_memory();
    test_threads_do_not_change_results();
    test_training_step();
    test_long_chain();
    test_attention_of_odd_lengths();
    test_lists();
    test_copies();
    test_scaler();
    ac_memory_trim();
    printf("core: %d passed, %d failed\n", passed, failed);
    return failed != 0;
}
