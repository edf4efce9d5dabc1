/* The scaler's run: what values are, once multiplied, and written where `to` is given; counts below float16's normal
 * numbers are of the values as they come. */

enum { F32_INF = 0x7F800000, F16_NORMAL = 0x38800000 /* 2^-14 */ };

/* Sums in float64, where squares of 1e38 have room. Magnitudes compare as integers, nan above infinity above all. */
static void look_run_f32(int64_t n, const void *from, double factor, ac_found *found, void *to) {
    const float *g = from;
    float *out = to, f = (float)factor;
    double squares[16] = {0}, rest = 0;
    uint32_t largest[16] = {0}, small[16] = {0}, top = 0, few = 0;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; j++) {
            float x = g[i + j] * f;
            uint32_t size = ac_bits(x) & 0x7FFFFFFFu, before = ac_bits(g[i + j]) & 0x7FFFFFFFu;
            largest[j] = size > largest[j] ? size : largest[j];
            small[j] += before - 1 < F16_NORMAL - 1u;
            squares[j] += (double)x * (double)x;
            if (out) out[i + j] = x;
        }
    for (; i < n; i++) {
        float x = g[i] * f;
        uint32_t size = ac_bits(x) & 0x7FFFFFFFu, before = ac_bits(g[i]) & 0x7FFFFFFFu;
        top = size > top ? size : top;
        few += before - 1 < F16_NORMAL - 1u;
        rest += (double)x * (double)x;
        if (out) out[i] = x;
    }
    for (int j = 0; j < 16; j++) rest += squares[j], few += small[j], top = largest[j] > top ? largest[j] : top;
    found->squares += rest, found->small += few;
    if (top >= F32_INF) { /* rare: again, value by value */
        top = 0;
        for (i = 0; i < n; i++) {
            uint32_t size = ac_bits(g[i] * f) & 0x7FFFFFFFu;
            found->infs += size == F32_INF, found->nans += size > F32_INF;
            if (size < F32_INF && size > top) top = size;
        }
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
        if (out) out[i] = x;
    }
}
