/* The classes that targets name, and their weights: for nll_loss and cross entropy. */
#pragma once

#include "cuda/device.cuh"

/* Sample i's class, or -1 when it is ignored or bad. */
DEV int64_t class_of(const ac_gpu_classes &a, int64_t i) {
    int64_t c = load<int64_t>(a.target, space_offset(a.at, i));
    if (c == a.ignore) return -1;
    if (c >= 0 && c < a.classes) return c;
    note_trouble(a.trouble, a.op, 1, c, a.classes);
    return -1;
}
template <class R> DEV R weight_of(const ac_gpu_classes &a, int64_t c) {
    return a.weight.data ? load_real<R>(a.weight, c * a.weight_stride) : (R)1;
}
