/* The end of a product, included by loops.inc: from tiles of accumulators to a piece of the result,
 * with scale, bias, activation, what was there before, one rounding. Written on the compiler's
 * 64-byte vectors, which it splits where the instruction set has smaller ones. */

typedef float vec __attribute__((vector_size(64)));
typedef uint32_t uvec __attribute__((vector_size(64)));
#define INLINE static inline __attribute__((always_inline))

INLINE void finish_pack_float32(const float *x, float *y) { memcpy(y, x, sizeof(vec)); }
INLINE void finish_pack_bfloat16(const float *x, uint16_t *y) { ac_narrow_bf16(16, x, y); }
INLINE void finish_pack_float16(const float *x, uint16_t *y) { ac_narrow_f16(16, x, y); }

/* Sixteen accumulators, scaled, with the columns' bias and the row's; `clamp` is all ones for ReLU, else 0. A nan
 * stays. */
INLINE void finish_values(const float *tile, float alpha, const float *bias, float row, uint32_t clamp, float *out) {
    vec v, b;
    memcpy(&v, tile, sizeof v);
    memcpy(&b, bias, sizeof b);
    v = v * alpha + (b + row);
    v = (vec)((uvec)v & ~((uvec)(v < 0) & clamp));
    memcpy(out, &v, sizeof v);
}

INLINE void finish_add(float *v, float beta, const float *old) {
    vec x, o;
    memcpy(&x, v, sizeof x);
    memcpy(&o, old, sizeof o);
    x += beta * o;
    memcpy(v, &x, sizeof x);
}

static void finish_act(const ac_finish *f, float *v) {
    const void *in[1] = {v};
    static const ac_attrs_approximate exact = {0};
    if (f->act == 2) loop_gelu_f32(16, in, v, &exact);
    else loop_silu_f32(16, in, v, NULL);
}

#ifndef STREAM /* a store of 64 (32) aligned bytes past the caches, where there is one */
#define STREAM(to, from, bytes) memcpy(to, from, bytes)
#endif

enum { FINISH_COLUMNS = 64 }; /* more than any micro-kernel's tiles have */

#define FINISH(dtype, ctype)                                                                                           \
    /* the common end: whole lines */                                                                                  \
    INLINE void finish_plain_##dtype(int64_t rows, int64_t n, const float *tiles, const ac_finish *f,                  \
                                     const float *bias, int add, int stream, ctype *y, int64_t row) {                  \
        uint32_t clamp = f->act == 1 ? UINT32_MAX : 0;                                                                 \
        for (int64_t i = 0; i < rows; i++, y += row) {                                                                 \
            float rows_bias = f->row_bias ? f->row_bias[i] : 0;                                                        \
            for (int64_t j = 0; j < n; j += 16) {                                                                      \
                float v[16], old[16];                                                                                  \
                ctype packed[16];                                                                                      \
                finish_values(tiles + i * 16 + j * 16, f->alpha, bias + j, rows_bias, clamp, v);                       \
                if (add) {                                                                                             \
                    load_##dtype##_f32(16, y + j, 1, old);                                                             \
                    finish_add(v, f->beta, old);                                                                       \
                }                                                                                                      \
                if (stream) {                                                                                          \
                    finish_pack_##dtype(v, packed);                                                                    \
                    STREAM(y + j, packed, sizeof packed);                                                              \
                } else finish_pack_##dtype(v, y + j);                                                                  \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    INLINE void finish_line_##dtype(int64_t n, const float *tile, const ac_finish *f, const float *bias, float row,    \
                                    ctype *y) {                                                                        \
        float v[16], old[16];                                                                                          \
        finish_values(tile, f->alpha, bias, row, f->act == 1 ? UINT32_MAX : 0, v);                                     \
        if (f->act > 1) finish_act(f, v);                                                                              \
        if (f->beta != 0) {                                                                                            \
            load_##dtype##_f32(n, y, 1, old);                                                                          \
            for (int64_t l = 0; l < n; l++) v[l] += f->beta * old[l];                                                  \
        }                                                                                                              \
        store_f32_##dtype(n, v, y, 1);                                                                                 \
    }                                                                                                                  \
    static void finish_##dtype(int64_t rows, int64_t n, const float *tiles, const ac_finish *f, void *to,              \
                               int64_t row) {                                                                          \
        ctype *y = to;                                                                                                 \
        float bias[FINISH_COLUMNS] = {0};                                                                              \
        if (f->bias) memcpy(bias, f->bias, (size_t)n * sizeof *bias);                                                  \
        if (n % 16 || f->act > 1) {                                                                                    \
            for (int64_t i = 0; i < rows; i++, y += row)                                                               \
                for (int64_t j = 0; j < n; j += 16)                                                                    \
                    finish_line_##dtype(n - j < 16 ? n - j : 16, tiles + i * 16 + j * 16, f, bias + j,                 \
                                        f->row_bias ? f->row_bias[i] : 0, y + j);                                      \
        } else if (f->beta != 0) finish_plain_##dtype(rows, n, tiles, f, bias, true, false, y, row);                   \
        else if (f->stream) finish_plain_##dtype(rows, n, tiles, f, bias, false, true, y, row);                        \
        else if (n == 32) finish_plain_##dtype(rows, 32, tiles, f, bias, false, false, y, row);                        \
        else finish_plain_##dtype(rows, n, tiles, f, bias, false, false, y, row);                                      \
    }
FINISH(float32, float)
FINISH(float16, uint16_t)
FINISH(bfloat16, uint16_t)
#undef FINISH
#undef STREAM
#undef INLINE
