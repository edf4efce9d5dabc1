/* The scaler's run: unscale in place and count what is not finite. */

/* 16 counters keep the loop vectorisable. Non-finite after scaling is what counts: a gradient
 * that is finite when scaled and infinite when unscaled is infinite. */
static int64_t unscale_run(int64_t n, float *g, float factor) {
    int32_t bad[16] = {0};
    int64_t i = 0, total = 0;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; j++) {
            float x = g[i + j] * factor;
            g[i + j] = x;
            bad[j] += x - x != 0;
        }
    for (; i < n; i++) {
        g[i] *= factor;
        total += g[i] - g[i] != 0;
    }
    for (int j = 0; j < 16; j++) total += bad[j];
    return total;
}
