/* Copies between devices: to the GPU, from it, from one to another. */
#include "cuda/gpu.h"

#include "cpu/kernels.h"

#include <string.h>

/* A copy whose bytes are those of `to`, where `from` lies. What follows runs outside the core's lock, so it takes no
 * references: NULL where `from` has them already. */
static int like_target(const ac_tensor *to, ac_tensor *from, ac_tensor **copy) {
    ac_dims shape = ac_shape_of(from);
    *copy = NULL;
    if (ac_lie_alike(to, from)) return 0;
    *copy = ac_tensor_new_on(ac_device_of(from), from->dtype, &shape);
    if (!*copy) return -1;
    memcpy((*copy)->strides, to->strides, sizeof to->strides);
    if (ac_device_of(from) != AC_CPU) return ac_gpu_copy(*copy, from);
    ac_cpu_copy_into(*copy, from);
    return 0;
}

/* A copy from or to the host's tensor t is queued, and uses its memory until it is done. That is waited for, unless
 * asked not to: our own page-locked memory can be kept until then, of another's nobody tells when it goes. */
static int settle_host(const ac_tensor *t, ac_device d, bool non_blocking) {
    if (non_blocking && ac_gpu_pinned_is_ours(t->storage)) return ac_gpu_pinned_used(t->storage, d);
    return ac_gpu_stream_wait(d, ac_gpu_stream(d));
}

/* Whether a copy to the GPU goes on reading the host's tensor t. Of pageable memory the driver has taken what it needs,
 * unless the GPU reads it itself. */
static bool is_still_read(const ac_tensor *t, ac_device d) {
    return ac_gpu_pinned_is_ours(t->storage) || ac_gpu_reads_pageable(d) || ac_gpu_is_pinned(ac_data(t));
}

/* A number becomes a part of the graph, as it is now. */
static int capture_number(ac_tensor *to, ac_tensor *from) {
    ac_attrs_full number = {.value = {.kind = ac_is_floating(from->dtype) ? AC_FLOAT : AC_INT}};
    if (number.value.kind == AC_FLOAT) number.value.f = ac_read_double(ac_data(from), from->dtype, 0);
    else number.value.i = ac_read_int(ac_data(from), from->dtype, 0);
    ac_run fill = {.op = AC_OP_full, .attrs = &number, .out = &to, .n_out = 1};
    return ac_cuda_fill(&fill);
}

static int upload(ac_tensor *to, ac_tensor *from, bool non_blocking) {
    ac_gpu_scope scope;
    if (ac_gpu_is_capturing() && from->numel == 1) return capture_number(to, from);
    AC_TRY(ac_gpu_refuse_capture("a copy from the CPU"));
    ac_device d = ac_device_of(to);
    ac_tensor *copy;
    AC_TRY(like_target(to, from, &copy));
    if (copy) from = copy;
    int failed = ac_gpu_enter(d, &scope);
    if (!failed) {
        size_t bytes = (size_t)(to->numel * ac_itemsize(to->dtype));
        CUdeviceptr address = (CUdeviceptr)(uintptr_t)ac_data(to);
        failed = ac_cu_check(ac_cu.cuMemcpyHtoDAsync_v2(address, ac_data(from), bytes, ac_gpu_stream(d)),
                             "a copy to the GPU");
        if (!failed && is_still_read(from, d)) failed = settle_host(from, d, non_blocking);
        ac_gpu_leave(&scope);
    }
    ac_tensor_clear(&copy);
    return failed;
}

static int download(ac_tensor *to, ac_tensor *from, bool non_blocking) {
    ac_gpu_scope scope;
    ac_device d = ac_device_of(from);
    ac_tensor *copy;
    AC_TRY(ac_gpu_refuse_capture("a copy to the CPU"));
    int failed = like_target(to, from, &copy);
    if (!failed) failed = ac_gpu_enter(d, &scope);
    if (!failed) {
        size_t bytes = (size_t)(to->numel * ac_itemsize(to->dtype));
        CUdeviceptr address = (CUdeviceptr)(uintptr_t)ac_data(copy ? copy : from);
        failed = ac_cu_check(ac_cu.cuMemcpyDtoHAsync_v2(ac_data(to), address, bytes, ac_gpu_stream(d)),
                             "a copy from the GPU");
        if (!failed) failed = settle_host(to, d, non_blocking);
        ac_gpu_leave(&scope);
    }
    ac_tensor_clear(&copy);
    return failed;
}

int ac_gpu_fetch(ac_device d, void *to, const void *from, size_t bytes) {
    ac_gpu_scope scope;
    AC_TRY(ac_gpu_enter(d, &scope));
    CUresult result = ac_cu.cuMemcpyDtoHAsync_v2(to, (CUdeviceptr)(uintptr_t)from, bytes, ac_gpu_stream(d));
    ac_gpu_leave(&scope);
    AC_TRY(ac_cu_check(result, "a result of the GPU"));
    return ac_gpu_stream_wait(d, ac_gpu_stream(d));
}

/* After the work queued on both: the source's stream waits for the target's, copies, and is waited for. */
static int across(ac_tensor *to, ac_tensor *from) {
    ac_device there = ac_device_of(to), here = ac_device_of(from);
    CUevent ready = NULL, done = NULL;
    ac_gpu_scope scope;
    ac_tensor *copy;
    AC_TRY(ac_gpu_refuse_capture("a copy between GPUs"));
    int failed = like_target(to, from, &copy) < 0 || ac_gpu_event_new(there, false, false, &ready) < 0 ||
                 ac_gpu_event_new(here, false, false, &done) < 0 ||
                 ac_gpu_event_record(there, ready, ac_gpu_stream(there)) < 0 ||
                 ac_gpu_event_await(here, ready, ac_gpu_stream(here)) < 0 || ac_gpu_enter(here, &scope) < 0;
    if (!failed) {
        CUresult result =
            ac_cu.cuMemcpyPeerAsync((CUdeviceptr)(uintptr_t)ac_data(to), ac_gpu_context(there),
                                    (CUdeviceptr)(uintptr_t)ac_data(copy ? copy : from), ac_gpu_context(here),
                                    (size_t)(to->numel * ac_itemsize(to->dtype)), ac_gpu_stream(here));
        ac_gpu_leave(&scope);
        failed = ac_cu_check(result, "a copy between GPUs") < 0 ||
                 ac_gpu_event_record(here, done, ac_gpu_stream(here)) < 0 ||
                 ac_gpu_event_await(there, done, ac_gpu_stream(there)) < 0;
    }
    if (ready) failed |= ac_gpu_event_free(there, ready) < 0;
    if (done) failed |= ac_gpu_event_free(here, done) < 0;
    ac_tensor_clear(&copy);
    return failed ? -1 : 0;
}

int ac_gpu_transfer(ac_tensor *to, ac_tensor *from, bool non_blocking) {
    if (to->numel == 0) return 0;
    if (ac_device_of(from) == ac_device_of(to)) return ac_gpu_copy(to, from);
    if (ac_device_of(from) == AC_CPU) return upload(to, from, non_blocking);
    if (ac_device_of(to) == AC_CPU) return download(to, from, non_blocking);
    return across(to, from);
}

int ac_cuda_to_device(const ac_run *r) {
    ATTRS(to_device);
    return ac_gpu_transfer(r->out[0], r->in[0], a->non_blocking != 0);
}
