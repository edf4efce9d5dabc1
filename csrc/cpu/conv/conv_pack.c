/* Packing for the implicit-product convolutions: rows of positions with their padding, and panels made of them. */
#include "cpu/conv/conv_implicit.h"

#include <string.h>

ac_conv_kernel ac_conv_kernel_for(ac_dtype dtype, bool finite) {
    ac_conv_kernel k = {.micro = ac_micro_for(dtype, finite), .parts = 1};
    k.kind = k.micro->kind, k.depth = k.kind == AC_PANEL_F32 ? AC_CELLS : 2 * AC_CELLS;
#ifdef AC_HAVE_X86
    if (k.kind == AC_PANEL_SPLIT) k.micro = &ac_micro_amx_bf16, k.parts = 2; /* as products of every two parts */
#endif
    ac_way_enter(k.micro->way);
    return k;
}

bool ac_values_are_cells(const ac_conv_kernel *k, ac_dtype dtype) {
    return (k->kind == AC_PANEL_F32 && dtype == AC_float32) || (k->kind == AC_PANEL_BF16 && dtype == AC_bfloat16) ||
           (k->kind == AC_PANEL_F16 && dtype == AC_float16);
}

bool ac_pack_channels(const ac_conv_kernel *k, const ac_operand *padded, bool columns, int64_t k_steps, int64_t apart,
                      char *to) {
    ac_cut cut = {k->kind, k->depth, AC_TILE_BYTES * k->parts, k_steps, k_steps, 1, 1};
    if (k->parts == 1) return ac_pack(padded, &cut, columns, 0, 0, 1, to);
    _Alignas(AC_ALIGNMENT) char both[2 * AC_TILE_BYTES];
    bool fits = true;
    cut.all_k_steps = cut.k_steps = 1;
    for (int64_t s = 0; s < k_steps; s++, to += AC_TILE_BYTES) {
        ac_operand one = *padded;
        one.data = (const char *)padded->data + s * k->depth * padded->k_stride * ac_itemsize(padded->dtype);
        one.k -= s * k->depth;
        fits &= ac_pack(&one, &cut, columns, 0, 0, 1, both);
        memcpy(to, both, AC_TILE_BYTES);
        memcpy(to + apart, both + AC_TILE_BYTES, AC_TILE_BYTES);
    }
    return fits;
}

bool ac_padding_fits(const ac_windows *w) {
    bool fits = true;
    for (int d = 0; d < 3; d++) fits = fits && w->padding[d] <= w->dilation[d] * (w->kernel[d] - 1);
    return fits;
}

ac_geometry ac_geometry_of(const ac_windows *w, bool turned) {
    ac_geometry q = {.turned = turned};
    for (int d = 0; d < 3; d++) {
        int64_t reach = w->dilation[d] * (w->kernel[d] - 1);
        q.kernel[d] = w->kernel[d], q.dilation[d] = w->dilation[d];
        q.stride[d] = turned ? 1 : w->stride[d], q.spread[d] = turned ? w->stride[d] : 1;
        q.in[d] = turned ? w->out[d] : ac_values_read(w, d), q.out[d] = turned ? w->in[d] : w->out[d];
        q.before[d] = turned ? reach - w->padding[d] : w->padding[d];
        q.size[d] = q.out[d] + reach / q.stride[d];
    }
    return q;
}

int64_t ac_tap_at(const int64_t kernel[3], const int64_t stride[3], const int64_t dilation[3], const int64_t size[3],
                  int64_t tap, int64_t *phase) {
    int64_t k[3] = {tap / kernel[2] / kernel[1], tap / kernel[2] % kernel[1], tap % kernel[2]}, at = 0;
    *phase = 0;
    for (int d = 0; d < 3; d++) {
        int64_t moved = k[d] * dilation[d];
        *phase = *phase * stride[d] + moved % stride[d];
        at = at * size[d] + moved / stride[d];
    }
    return at;
}

static int64_t ceil_at(int64_t x, int64_t by) { return x > 0 ? ac_ceil_div(x, by) : 0; } /* 0 at least */

ac_span ac_span_of(int64_t begin, int64_t count, int64_t before, int64_t spread, int64_t every, int64_t size) {
    int64_t first, end;
    ac_span s;
    if (spread > 1) { /* pixel z is at before + z spread */
        first = ceil_at(begin - before, spread), end = ac_least(size, ceil_at(begin + count - before, spread));
        s = (ac_span){before + first * spread - begin, spread, 0, first, 1};
    } else { /* position i holds pixel i every - before */
        int64_t least = ceil_at(before, every), most = ceil_at(size + before, every);
        first = begin > least ? begin : least, end = ac_least(begin + count, most);
        s = (ac_span){first - begin, 1, 0, first * every - before, every};
    }
    s.n = end > first ? end - first : 0;
    return s;
}

/* n values of `item` bytes (2 or 4), every `stride`-th of them: by hand, for runs of memory are short. */
static inline __attribute__((always_inline)) void copy_row(char *to, const char *from, int64_t n, int64_t item,
                                                           int64_t stride) {
    int64_t i = 0, bytes = n * item;
    for (; stride == 1 && i + 32 <= bytes; i += 32) memcpy(to + i, from + i, 32);
    for (; stride == 1 && i + 8 <= bytes; i += 8) memcpy(to + i, from + i, 8);
    for (; i < bytes; i += item) memcpy(to + i, from + i * stride, (size_t)item);
}

/* from [lanes, ..., rows, n] (or [lanes, n]) to `to`, of the same shape and with one of what lies between. */
static void copy_rows(ac_tensor *to, const ac_tensor *from) {
    int last = from->ndim - 1;
    int64_t item = ac_itemsize(to->dtype), n = to->shape[last], stride = from->strides[last];
    if (to->dtype != from->dtype || to->strides[last] != 1 || (item != 2 && item != 4)) {
        ac_cpu_copy_into(to, from);
        return;
    }
    int64_t rows = last > 1 ? to->shape[last - 1] : 1, from_row = last > 1 ? from->strides[last - 1] * item : 0,
            to_row = last > 1 ? to->strides[last - 1] * item : 0;
    for (int64_t lane = 0; lane < to->shape[0]; lane++) {
        const char *source = (const char *)ac_data(from) + lane * from->strides[0] * item;
        char *target = (char *)ac_data(to) + lane * to->strides[0] * item;
        for (int64_t row = 0; row < rows; row++, source += from_row, target += to_row) {
            if (stride == 1 && item == 4) copy_row(target, source, n, 4, 1);
            else if (stride == 1) copy_row(target, source, n, 2, 1);
            else if (item == 4) copy_row(target, source, n, 4, stride);
            else copy_row(target, source, n, 2, stride);
        }
    }
}

void ac_copy_padded(const ac_tensor *t, const ac_span s[3], ac_dtype dtype, int64_t channel_stride, int64_t row,
                    char *padded) {
    const int64_t stride[3] = {0, row, 1}, n[3] = {s[0].n ? 1 : 0, s[1].n, s[2].n};
    ac_tensor from = *t, to = *t;
    ac_storage memory = {.data = padded};
    to.storage = &memory, to.dtype = dtype, to.offset = 0, to.strides[0] = channel_stride, to.numel = t->shape[0];
    for (int i = 1; i < t->ndim; i++) {
        int d = 3 - t->ndim + i;
        from.offset += s[d].from * t->strides[i], from.strides[i] *= s[d].every;
        to.offset += s[d].at * stride[d], to.strides[i] = s[d].stride * stride[d];
        from.shape[i] = to.shape[i] = n[d], to.numel *= n[d];
    }
    from.numel = to.numel;
    if (to.numel > 0) copy_rows(&to, &from);
}

void ac_pair_channels(const ac_tensor *t, const ac_span s[3], int64_t channel_stride, int64_t row, char *cells) {
    int64_t apart[3] = {0, 0, 0}, offset = 0;
    for (int i = 1; i < t->ndim; i++) {
        int d = 3 - t->ndim + i;
        offset += s[d].from * t->strides[i], apart[d] = s[d].every * t->strides[i];
    }
    const uint16_t *from = (const uint16_t *)ac_data(t) + offset;
    uint32_t *to = (uint32_t *)(void *)cells + s[1].at * row + s[2].at;
    for (int64_t lane = 0; lane < t->shape[0] && s[0].n; lane += 2, to += channel_stride, from += 2 * t->strides[0])
        ac_cpu_loops()->pair_rows(s[1].n, s[2].n, from, from + t->strides[0], apart[2], apart[1], to, row);
}

ac_ahead ac_ahead_of(const ac_tensor *t, int64_t image, int64_t images, int64_t channel, int64_t channels) {
    ac_tensor part = ac_part_of(t, image, channel, channels);
    const char *at = ac_data(&part);
    return (ac_ahead){at, at + images * channels * part.strides[0] * ac_itemsize(t->dtype)};
}
