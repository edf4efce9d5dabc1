/* Fills, ranges and random numbers on a GPU: the host side of creation.cu. */
#include "cuda/gpu.h"

#include "base/rng.h"
#include "cpu/kernels.h"

static int run_fill(const ac_run *r, ac_gpu_kernel *k, ac_gpu_fill *f) {
    ac_device d = ac_run_device(r);
    f->out = ac_gpu_ref_of(r->out[0]), f->n = r->out[0]->numel;
    return f->n == 0 ? 0 : ac_gpu_launch(d, k, ac_gpu_blocks(d, f->n, 1), 0, f);
}

int ac_cuda_fill(const ac_run *r) {
    ATTRS(full);
    static ac_gpu_kernel k = {.image = AC_IMAGE_CREATION, .name = "ac_fill"};
    ac_gpu_fill f = {.a = ac_scalar_double(a->value), .ia = ac_scalar_int(a->value), .real = a->value.kind == AC_FLOAT};
    return run_fill(r, &k, &f);
}

int ac_cuda_arange(const ac_run *r) {
    ATTRS(arange);
    static ac_gpu_kernel k = {.image = AC_IMAGE_CREATION, .name = "ac_arange"};
    ac_gpu_fill f = {.a = ac_scalar_double(a->start),
                     .b = ac_scalar_double(a->step),
                     .ia = ac_scalar_int(a->start),
                     .ib = ac_scalar_int(a->step),
                     .real =
                         ac_is_floating(r->out[0]->dtype) && (a->start.kind == AC_FLOAT || a->step.kind == AC_FLOAT)};
    return run_fill(r, &k, &f);
}

static int run_draws(const ac_run *r, ac_gpu_kernel *k, ac_gpu_fill *f) {
    ac_generator *g = ac_default_generator();
    AC_TRY(ac_gpu_refuse_fixed_draws(g->offset));
    uint64_t offset = ac_generator_take(g, 4 * r->out[0]->numel);
    AC_TRY(ac_gpu_random_of(ac_run_device(r), g->seed, offset, &f->random));
    return run_fill(r, k, f);
}

static int run_random(const ac_run *r, ac_gpu_kernel *k) {
    ATTRS(random);
    ac_gpu_fill f = {.a = a->a, .b = a->b};
    return run_draws(r, k, &f);
}

int ac_cuda_uniform(const ac_run *r) {
    static ac_gpu_kernel k = {.image = AC_IMAGE_CREATION, .name = "ac_uniform"};
    return run_random(r, &k);
}
int ac_cuda_normal(const ac_run *r) {
    static ac_gpu_kernel k = {.image = AC_IMAGE_CREATION, .name = "ac_normal"};
    return run_random(r, &k);
}
int ac_cuda_randint(const ac_run *r) {
    ATTRS(randint);
    static ac_gpu_kernel k = {.image = AC_IMAGE_CREATION, .name = "ac_randint"};
    ac_gpu_fill f = {.ia = a->low, .ib = a->high};
    return run_draws(r, &k, &f);
}

/* A shuffle is one thing after another: it is drawn on the CPU and brought over. */
int ac_cuda_randperm(const ac_run *r) {
    ac_dims shape = ac_shape_of(r->out[0]);
    ac_tensor *order = ac_tensor_new(AC_int64, &shape);
    if (!order) return -1;
    ac_run draw = *r;
    draw.out = &order;
    int failed = ac_cpu_randperm(&draw);
    if (!failed) failed = ac_gpu_transfer(r->out[0], order, false);
    ac_tensor_release(order);
    return failed;
}
