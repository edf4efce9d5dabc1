/* The scaler's run: what values are, once multiplied, and written where `to` is given; counts below float16's normal
 * numbers are of the values as they come. `found` comes as zeros. */

enum { AHEAD = 1024 }; /* values, fetched before they are read: a page in a row is all that the hardware sees ahead */
enum { F32_INF = 0x7F800000, F16_NORMAL = 0x38800000 /* 2^-14 */ };

typedef float look_f32 __attribute__((vector_size(64)));
typedef uint32_t look_u32 __attribute__((vector_size(64)));
typedef float look_half __attribute__((vector_size(32)));
typedef double look_f64 __attribute__((vector_size(64)));

/* Sixteen values at a time, on the compiler's vectors. Sums in float64, where squares of 1e38 have room. Magnitudes
 * compare as integers, nan above infinity above all. */
typedef struct {
    look_u32 largest, small;
    look_f64 squares[2];
} look_sums;

static inline __attribute__((always_inline)) void look_at_16(const float *g, float f, look_sums *s, float *to) {
    look_f32 scaled, x;
    look_half part[2];
    memcpy(&scaled, g, sizeof scaled);
    x = scaled * f;
    look_u32 size = (look_u32)x & 0x7FFFFFFFu, before = ((look_u32)scaled & 0x7FFFFFFFu) - 1;
    look_u32 larger = (look_u32)(size > s->largest);
    s->largest = (size & larger) | (s->largest & ~larger);
    s->small -= (look_u32)(before < F16_NORMAL - 1u);
    memcpy(part, &x, sizeof part);
    for (int k = 0; k < 2; k++) {
        look_f64 wide = __builtin_convertvector(part[k], look_f64);
        s->squares[k] += wide * wide;
    }
    if (to) memcpy(to, &x, sizeof x);
}

static void look_for_bad(int64_t n, const float *g, float f, ac_found *found, uint32_t *top) {
    *top = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t size = ac_bits(g[i] * f) & 0x7FFFFFFFu;
        found->infs += size == F32_INF, found->nans += size > F32_INF;
        if (size >= F32_INF && found->first == 0) found->first = (double)(i + 1);
        if (size < F32_INF && size > *top) *top = size;
    }
}

static void look_run_f32(int64_t n, const void *from, double factor, ac_found *found, void *to) {
    const float *g = from;
    float last[16] = {0}, f = (float)factor; /* zeros count as nothing */
    look_sums s = {0};
    int64_t whole = n / 16 * 16;
    uint32_t top = 0;
    for (int64_t i = 0; i < whole && !to; i += 16) {
        __builtin_prefetch(g + i + AHEAD);
        look_at_16(g + i, f, &s, NULL);
    }
    for (int64_t i = 0; i < whole && to; i += 16) {
        __builtin_prefetch(g + i + AHEAD);
        look_at_16(g + i, f, &s, (float *)to + i);
    }
    if (whole < n) {
        memcpy(last, g + whole, (size_t)(n - whole) * sizeof *last);
        look_at_16(last, f, &s, last);
        if (to) memcpy((float *)to + whole, last, (size_t)(n - whole) * sizeof *last);
    }
    for (int j = 0; j < 16; j++) {
        top = s.largest[j] > top ? s.largest[j] : top;
        found->small += s.small[j], found->squares += s.squares[j / 8][j % 8];
    }
    if (top >= F32_INF && to) { /* rare, and written already: from there */
        look_for_bad(n, to, 1, found, &top);
    } else if (top >= F32_INF) {
        look_for_bad(n, g, f, found, &top);
    }
    if ((double)ac_from_bits(top) > found->amax) found->amax = (double)ac_from_bits(top);
}

static void look_run_f64(int64_t n, const void *from, double factor, ac_found *found, void *to) {
    const double *g = from;
    double *out = to;
    for (int64_t i = 0; i < n; i++) {
        double x = g[i] * factor, size = x < 0 ? -x : x, before = g[i] < 0 ? -g[i] : g[i];
        found->squares += x * x;
        found->small += before != 0 && before < 0x1p-14;
        found->nans += x != x;
        found->infs += size > 0x1.fffffffffffffp1023;
        if (x - x == 0 && size > found->amax) found->amax = size;
        if (x - x != 0 && found->first == 0) found->first = (double)(i + 1);
        if (out) out[i] = x;
    }
}
