/* The CUDA backend's host code from C, on the simulator of tests/cuda_sim: the allocator under threads, operators,
 * and every error path by failing each of the host's allocations. Under the sanitizers, like the rest. */
#include "autograd/node.h"
#include "base/alloc.h"
#include "base/pool.h"
#include "base/rng.h"
#include "cuda/foreach.h"
#include "dispatch/placement.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static const ac_device GPU = AC_CUDA(0);

static ac_tensor *random_on(ac_device d, int64_t rows, int64_t cols, ac_dtype dtype) {
    ac_attrs_random a = {.size = {2, {rows, cols}}, .a = 0.5, .b = 1.5, .dtype = dtype, .device = d};
    ac_tensor *out[AC_MAX_OUT] = {NULL};
    return ac_call(AC_OP_uniform, NULL, 0, &a, out) < 0 ? NULL : out[0];
}

static double first_of(ac_tensor *t) {
    ac_tensor *here = ac_on_cpu(t);
    double x = here ? ac_read_double(ac_data(here), here->dtype, 0) : NAN;
    ac_tensor_clear(&here);
    return x;
}

static void test_start(void) {
    int count = 0;
    CHECK(ac_gpu_count(&count) == 0 && count == 2);
    CHECK(ac_gpu_check_device(AC_CUDA(1)) == 0 && ac_gpu_check_device(AC_CUDA(2)) < 0);
    CHECK(ac_gpu_check_device(-3) < 0 && ac_gpu_alloc(AC_CUDA(900), 8) == NULL);
    CHECK(ac_gpu_oldest_driver(13020) == 13000 && ac_gpu_oldest_driver(12080) == 12000);
    CHECK(ac_gpu_oldest_driver(11080) == 12000);
    CHECK(ac_gpu_is_simulated() && strstr(ac_gpu_library_note("driver"), "simulated"));
}

/* The architecture of what is chosen of this list; less than 0 of PTX; 0: nothing. */
static int chosen(int architecture) {
    static const ac_gpu_code all[] = {{.image = AC_IMAGE_ROWS, .architecture = 89},
                                      {.image = AC_IMAGE_SORT, .architecture = 75},
                                      {.image = AC_IMAGE_SORT, .architecture = 86},
                                      {.image = AC_IMAGE_SORT, .architecture = 80},
                                      {.image = AC_IMAGE_SORT, .architecture = 100},
                                      {.image = AC_IMAGE_SORT, .architecture = 75, .is_ptx = true},
                                      {.image = AC_IMAGE_SORT, .architecture = 80, .is_ptx = true},
                                      {.image = AC_N_IMAGES}};
    const ac_gpu_code *machine = ac_gpu_choose(all, AC_IMAGE_SORT, false, architecture);
    const ac_gpu_code *ptx = ac_gpu_choose(all, AC_IMAGE_SORT, true, architecture);
    return machine ? machine->architecture : ptx ? -ptx->architecture : 0;
}

static void test_images(void) {
    CHECK(chosen(75) == 75 && chosen(80) == 80 && chosen(86) == 86 && chosen(89) == 86 && chosen(103) == 100);
    CHECK(chosen(90) == -80 && chosen(120) == -80 && chosen(72) == 0 && chosen(61) == 0);
}

/* -- the allocator ---------------------------------------------------------------------------------- */

enum { LIVE = 64, ROUNDS = 3000 };

/* Blocks of random sizes on a stream of the thread's own; live ones never overlap. */
static void *churn(void *seed) {
    uint64_t state = (uint64_t)(uintptr_t)seed * 0x9E3779B97F4A7C15u + 1;
    ac_gpu_block *live[LIVE] = {NULL};
    int64_t sizes[LIVE] = {0};
    CUstream stream;
    if (ac_gpu_stream_of(GPU, 0, &stream) < 0) return (void *)1;
    ac_gpu_set_stream(GPU, stream);
    intptr_t wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        int i = (int)(state >> 33) % LIVE;
        ac_gpu_free(live[i]);
        sizes[i] = (int64_t)(state >> 40) % (round % 50 == 0 ? 5 << 20 : 100000);
        live[i] = ac_gpu_alloc(GPU, sizes[i]);
        wrong += live[i] == NULL;
        for (int k = 0; k < LIVE && live[i]; k++) {
            char *a = ac_gpu_address(live[i]), *b = live[k] ? ac_gpu_address(live[k]) : NULL;
            if (k != i && b && a < b + sizes[k] && b < a + sizes[i]) wrong++;
        }
    }
    for (int i = 0; i < LIVE; i++) ac_gpu_free(live[i]);
    return (void *)wrong;
}

static void test_allocator(void) {
    pthread_t threads[3];
    ac_gpu_memory_stats before, after;
    CHECK(ac_gpu_memory_now(GPU, &before) == 0);
    for (intptr_t i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)) == 0);
    for (int i = 0; i < 3; i++) {
        void *wrong;
        CHECK(pthread_join(threads[i], &wrong) == 0 && wrong == NULL);
    }
    CHECK(ac_gpu_memory_now(GPU, &after) == 0 && after.allocated == before.allocated && after.blocks == before.blocks);
    CHECK(after.reserved >= after.allocated && after.reserved_peak >= after.reserved && after.allocated_peak > 0);
    CHECK(ac_gpu_empty_cache(GPU) == 0);
    CHECK(ac_gpu_memory_now(GPU, &after) == 0 && after.reserved == before.reserved &&
          after.segments == before.segments);
}

/* -- operators -------------------------------------------------------------------------------------- */

/* Some of every family; -1 when one fails. */
static int some_work(double *result) {
    ac_tensor *x = random_on(GPU, 40, 24, AC_float16), *w = random_on(GPU, 24, 24, AC_float32);
    ac_tensor *t[12] = {x, w}, *out[AC_MAX_OUT];
    ac_attrs_product product = {AC_NO_DTYPE};
    ac_attrs_reduce all = {{.n = -1}, 0, AC_NO_DTYPE};
    ac_attrs_softmax soft = {1, AC_NO_DTYPE};
    ac_attrs_sort sort = {1, 0, 1};
    ac_attrs_dtype half = {AC_float16};
    ac_attrs_two_dims swap = {0, 1};
    struct {
        ac_op op;
        int a, b, to;
        const void *attrs;
    } steps[] = {{AC_OP_cast, 1, -1, 2, &half},    {AC_OP_mm, 0, 2, 3, &product}, {AC_OP_transpose, 3, -1, 4, &swap},
                 {AC_OP_softmax, 4, -1, 5, &soft}, {AC_OP_sort, 5, -1, 6, &sort}, {AC_OP_nonzero, 5, -1, 7, NULL},
                 {AC_OP_mul, 5, 6, 8, NULL},       {AC_OP_sum, 8, -1, 9, &all}};
    int error = x && w ? 0 : -1;
    for (size_t i = 0; i < sizeof steps / sizeof *steps && !error; i++) {
        ac_tensor *in[2] = {t[steps[i].a], steps[i].b < 0 ? NULL : t[steps[i].b]};
        memset(out, 0, sizeof out);
        error = ac_call(steps[i].op, in, steps[i].b < 0 ? 1 : 2, steps[i].attrs, out);
        t[steps[i].to] = out[0];
        ac_tensor_clear(&out[1]);
    }
    ac_tensor *list[2] = {w, x};
    const double ones[2] = {1, 1};
    ac_found found[2];
    if (!error) error = ac_cuda_grad_stats(list, 2, ones, found);
    if (!error) *result = first_of(t[9]) + found[0].squares + found[1].squares;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) ac_tensor_clear(&t[i]);
    return error || isnan(*result) ? -1 : 0;
}

static void test_work(void) {
    double first = 0, again = 0;
    ac_manual_seed(3);
    CHECK(some_work(&first) == 0);
    ac_manual_seed(3);
    CHECK(some_work(&again) == 0 && first == again && isfinite(first));
}

/* The n-th allocation of the host fails: an error, nothing lost, and all works afterwards. */
static void test_every_allocation_may_fail(void) {
    double want = 0, got = 0;
    ac_gpu_memory_stats before, after;
    ac_manual_seed(3);
    CHECK(some_work(&want) == 0);
    int64_t blocks = ac_memory().blocks, calls;
    CHECK(ac_gpu_memory_now(GPU, &before) == 0);
    ac_alloc_fail_at(1 << 30, 0);
    ac_manual_seed(3);
    CHECK(some_work(&got) == 0);
    calls = ac_alloc_calls();
    int failures = 0;
    for (int64_t n = 1; n <= calls; n++) {
        ac_alloc_fail_at(n, 0);
        failures += some_work(&got) < 0;
        ac_alloc_fail_at(0, 0);
        ac_error_clear();
        CHECK(ac_gpu_memory_now(GPU, &after) == 0 && after.blocks == before.blocks);
    }
    CHECK(failures > 20);
    ac_manual_seed(3);
    CHECK(some_work(&got) == 0 && got == want);
    CHECK(ac_gpu_empty_cache(GPU) == 0 && ac_memory().blocks <= blocks);
}

static void test_pinned(void) {
    ac_storage *s = ac_gpu_pinned(100);
    CHECK(s && ac_gpu_is_pinned(s->data) && !ac_gpu_is_pinned(&s) && s->device == AC_CPU);
    CHECK(ac_gpu_pinned_used(s, GPU) == 0);
    void *address = s->data;
    ac_storage_release(s);
    s = ac_gpu_pinned(5000); /* another size: another block */
    CHECK(s && s->data != address);
    ac_storage_release(s);
    CHECK(ac_gpu_synchronize(GPU) == 0);
    s = ac_gpu_pinned(200);
    CHECK(s && s->data == address); /* the copy is done */
    ac_storage_release(s);
    ac_gpu_pinned_trim();
}

int main(void) {
    if (ac_ops_init() < 0 || !getenv("AMPC_CUDA_LIBS")) {
        fprintf(stderr, "AMPC_CUDA_LIBS must name the simulator's folder: %s\n", ac_error_message());
        return 1;
    }
    ac_hooks.meta_free = ac_meta_free;
    ac_gpu_memory = ac_cuda_memory;
    test_start();
    test_images();
    test_allocator();
    test_work();
    test_every_allocation_may_fail();
    test_pinned();
    ac_memory_trim();
    printf("cuda: %d passed, %d failed\n", passed, failed);
    return failed != 0;
}
