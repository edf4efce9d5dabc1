/* Tensors: made, aliased, counted and freed. */
#include "tensor/tensor.h"

#include "base/alloc.h"
#include "base/half.h"

#include <string.h>

static void no_py(void *py) { (void)py; }
static void no_meta(ac_meta *meta) { (void)meta; }
ac_tensor_hooks ac_hooks = {no_py, no_py, no_meta, NULL};

/* A tensor of `storage`, which it takes over, without shape and strides. */
static ac_tensor *plain(ac_storage *storage, ac_dtype dtype, int64_t numel, int64_t ndim) {
    ac_tensor *t = numel < 0 ? NULL : ac_alloc(sizeof *t);
    if (!t) {
        ac_storage_release(storage);
        return NULL;
    }
    memset(t, 0, offsetof(ac_tensor, shape));
    t->refs = 1, t->storage = storage, t->numel = numel, t->dtype = dtype;
    t->ndim = (int)ndim;
    return t;
}

ac_tensor *ac_tensor_from_storage(ac_storage *storage, ac_dtype dtype, const ac_dims *shape, const ac_dims *strides) {
    ac_tensor *t = plain(storage, dtype, ac_dims_numel(shape), shape->n);
    for (int64_t i = 0; t && i < shape->n; i++) t->shape[i] = shape->v[i], t->strides[i] = strides->v[i];
    return t;
}

ac_tensor *ac_tensor_new(ac_dtype dtype, const ac_dims *shape) { return ac_tensor_new_on(AC_CPU, dtype, shape); }

ac_tensor *ac_tensor_new_on(ac_device device, ac_dtype dtype, const ac_dims *shape) {
    int64_t numel = ac_dims_numel(shape), stride = 1;
    ac_storage *s = numel < 0 ? NULL : ac_storage_new(device, numel * ac_itemsize(dtype));
    ac_tensor *t = s ? plain(s, dtype, numel, shape->n) : NULL;
    for (int64_t i = shape->n - 1; t && i >= 0; i--) {
        t->shape[i] = shape->v[i], t->strides[i] = stride;
        stride *= ac_most(shape->v[i], 1);
    }
    return t;
}

static void share_counter(ac_tensor *t, const ac_tensor *from) {
    t->counter = from->counter;
    if (t->counter) t->counter->refs++;
    t->changes = from->changes;
}

ac_tensor *ac_tensor_view(const ac_tensor *t, const ac_dims *shape, const ac_dims *strides, int64_t offset) {
    ac_tensor *v = ac_tensor_from_storage(ac_storage_retain(t->storage), t->dtype, shape, strides);
    if (!v) return NULL;
    v->offset = offset;
    v->is_inference = t->is_inference, v->is_constant = t->is_constant;
    share_counter(v, t);
    return v;
}

ac_tensor *ac_tensor_alias(const ac_tensor *t) {
    ac_tensor *v = ac_alloc(sizeof *v);
    if (!v) return NULL;
    memcpy(v, t, sizeof *v);
    v->refs = 1, v->py = NULL, v->meta = NULL, v->base = NULL, v->view_kind = AC_VIEW_PLAIN;
    v->is_part = false;
    (void)ac_storage_retain(t->storage);
    share_counter(v, t);
    return v;
}

void ac_tensor_take(ac_tensor *t, const ac_tensor *from) {
    ac_storage *old = t->storage;
    uint32_t version = ac_version_seen(t);
    t->storage = ac_storage_retain(from->storage);
    t->offset = from->offset, t->numel = from->numel, t->dtype = from->dtype, t->ndim = from->ndim;
    memcpy(t->shape, from->shape, sizeof t->shape);
    memcpy(t->strides, from->strides, sizeof t->strides);
    t->changes += version - ac_version_seen(t);
    ac_storage_release(old);
    ac_tensor_clear(&t->base);
    t->view_kind = AC_VIEW_PLAIN;
}

ac_tensor *ac_tensor_scalar(ac_dtype dtype, double value) {
    ac_dims none = {.n = 0};
    ac_tensor *t = ac_tensor_new(dtype, &none);
    if (t) ac_write_double(ac_data(t), dtype, 0, value);
    return t;
}

ac_tensor *ac_tensor_scalar_int(ac_dtype dtype, int64_t value) {
    ac_dims none = {.n = 0};
    ac_tensor *t = ac_tensor_new(dtype, &none);
    if (t) ac_write_int(ac_data(t), dtype, 0, value);
    return t;
}

/* Freeing is a loop, not a recursion: what a tensor owns may end a chain of a million views. */
void ac_tensor_free(ac_tensor *t) {
    while (t) {
        if (t->is_part) ac_deferred_scales--;
        ac_tensor *base = t->base;
        if (t->meta) ac_hooks.meta_free(t->meta);
        if (t->counter && --t->counter->refs == 0) ac_free(t->counter, sizeof *t->counter);
        ac_storage_release(t->storage);
        ac_free(t, sizeof *t);
        t = NULL;
        if (base) {
            if (base->refs == 1) base->refs = 0, t = base;
            else ac_tensor_release(base);
        }
    }
}

int ac_tensor_own_counter(ac_tensor *t) {
    ac_counter *c = ac_alloc(sizeof *c);
    if (!c) return -1;
    *c = (ac_counter){.refs = 1};
    if (t->counter && --t->counter->refs == 0) ac_free(t->counter, sizeof *t->counter);
    t->counter = c, t->changes = 0;
    return 0;
}

static ac_dims list(int n, const int64_t *v) {
    ac_dims d = {.n = n};
    for (int i = 0; i < n; i++) d.v[i] = v[i];
    return d;
}

ac_dims ac_shape_of(const ac_tensor *t) { return list(t->ndim, t->shape); }
ac_dims ac_strides_of(const ac_tensor *t) { return list(t->ndim, t->strides); }

bool ac_same_shape(const ac_tensor *a, const ac_tensor *b) {
    bool same = a->ndim == b->ndim;
    for (int i = 0; same && i < a->ndim; i++) same = a->shape[i] == b->shape[i];
    return same;
}

bool ac_is_contiguous(const ac_tensor *t) {
    int64_t stride = 1;
    if (t->numel == 0) return true;
    for (int i = t->ndim - 1; i >= 0; i--) {
        if (t->shape[i] == 1) continue;
        if (t->strides[i] != stride) return false;
        stride *= t->shape[i];
    }
    return true;
}

const char *ac_shape_text(const ac_tensor *t, char *buffer) {
    ac_dims d = ac_shape_of(t);
    return ac_dims_text(&d, buffer);
}

bool ac_overlaps_itself(const ac_tensor *t) {
    if (t->numel < 2 || ac_is_contiguous(t)) return false;
    /* Sort the dimensions by stride; each must reach beyond everything the smaller ones reach. */
    int order[AC_MAX_DIMS], n = 0;
    for (int i = 0; i < t->ndim; i++) {
        if (t->shape[i] == 1) continue;
        int j = n++;
        for (; j > 0 && t->strides[order[j - 1]] > t->strides[i]; j--) order[j] = order[j - 1];
        order[j] = i;
    }
    int64_t reach = 0;
    for (int k = 0; k < n; k++) {
        int64_t stride = t->strides[order[k]];
        if (stride <= reach) return true;
        reach += stride * (t->shape[order[k]] - 1);
    }
    return false;
}

bool ac_is_dense(const ac_tensor *t) {
    int64_t reach = 1;
    for (int i = 0; i < t->ndim; i++) reach += t->strides[i] * (t->shape[i] - 1);
    return ac_is_contiguous(t) || (reach == t->numel && !ac_overlaps_itself(t));
}

bool ac_lie_alike(const ac_tensor *a, const ac_tensor *b) {
    bool alike = ac_same_shape(a, b);
    for (int d = 0; alike && d < a->ndim; d++) alike = a->shape[d] == 1 || a->strides[d] == b->strides[d];
    return alike && ac_is_dense(a);
}

static const char *end_of(const ac_tensor *t) {
    int64_t last = t->offset;
    for (int i = 0; i < t->ndim; i++) last += t->strides[i] * (t->shape[i] - 1);
    return t->storage->data + (last + 1) * ac_itemsize(t->dtype);
}

/* By addresses, as two storages may lie on the same memory: of NumPy arrays, or a part of another storage. */
bool ac_shares_memory(const ac_tensor *a, const ac_tensor *b) {
    return a->numel && b->numel && (const char *)ac_data(a) < end_of(b) && (const char *)ac_data(b) < end_of(a);
}

bool ac_overlaps_partly(const ac_tensor *out, const ac_tensor *in) {
    if (!ac_shares_memory(out, in)) return false;
    bool same = out->dtype == in->dtype && ac_data(out) == ac_data(in) && ac_same_shape(out, in) &&
                memcmp(out->strides, in->strides, (size_t)in->ndim * sizeof *in->strides) == 0;
    return !same;
}

double ac_read_double(const void *data, ac_dtype dtype, int64_t i) {
    switch (dtype) {
    case AC_float64: return ((const double *)data)[i];
    case AC_float32: return (double)((const float *)data)[i];
    case AC_float16: return (double)ac_f16_to_f32(((const uint16_t *)data)[i]);
    case AC_bfloat16: return (double)ac_bf16_to_f32(((const uint16_t *)data)[i]);
    default: return (double)ac_read_int(data, dtype, i);
    }
}

int64_t ac_read_int(const void *data, ac_dtype dtype, int64_t i) {
    switch (dtype) {
    case AC_bool: return ((const uint8_t *)data)[i] != 0;
    case AC_uint8: return ((const uint8_t *)data)[i];
    case AC_int8: return ((const int8_t *)data)[i];
    case AC_int16: return ((const int16_t *)data)[i];
    case AC_int32: return ((const int32_t *)data)[i];
    case AC_int64: return ((const int64_t *)data)[i];
    default: {
        double x = ac_read_double(data, dtype, i);
        return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN;
    }
    }
}

void ac_write_double(void *data, ac_dtype dtype, int64_t i, double x) {
    switch (dtype) {
    case AC_float64: ((double *)data)[i] = x; return;
    case AC_float32: ((float *)data)[i] = (float)x; return;
    case AC_float16: ((uint16_t *)data)[i] = ac_f32_to_f16((float)x); return;
    case AC_bfloat16: ((uint16_t *)data)[i] = ac_f32_to_bf16((float)x); return;
    case AC_bool: ((uint8_t *)data)[i] = x != 0; return;
    case AC_int64: ((int64_t *)data)[i] = x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN; return;
    default: ac_write_int(data, dtype, i, x >= -0x1p31 && x < 0x1p31 ? (int32_t)x : INT32_MIN);
    }
}

void ac_write_int(void *data, ac_dtype dtype, int64_t i, int64_t x) {
    switch (dtype) {
    case AC_bool: ((uint8_t *)data)[i] = x != 0; return;
    case AC_uint8: ((uint8_t *)data)[i] = (uint8_t)x; return;
    case AC_int8: ((int8_t *)data)[i] = (int8_t)x; return;
    case AC_int16: ((int16_t *)data)[i] = (int16_t)x; return;
    case AC_int32: ((int32_t *)data)[i] = (int32_t)x; return;
    case AC_int64: ((int64_t *)data)[i] = x; return;
    default: ac_write_double(data, dtype, i, (double)x);
    }
}
