/* Windows sweeping over a line of places, included by loops.inc: for convolutions of few channels. Places come in
 * sixteens; lines have room for the last ones. */

typedef float sweep_vec __attribute__((vector_size(64)));

/* y[i] = sum over t of w[t] x[offset[t] + i], for i < n */
static void sweep(int64_t n, int64_t taps, const float *x, const int64_t *offset, const float *w, float *y) {
    for (int64_t i = 0; i < n; i += 16) {
        sweep_vec sum = {0}, v;
        for (int64_t t = 0; t < taps; t++) {
            memcpy(&v, x + offset[t] + i, sizeof v);
            sum += w[t] * v;
        }
        memcpy(y + i, &sum, sizeof sum);
    }
}

/* sums[t][i % 16] += x[offset[t] + i] g[i], for i < n; g is zero from there on */
static void sweep_back(int64_t n, int64_t taps, const float *x, const int64_t *offset, const float *g, float *sums) {
    for (int64_t t = 0; t < taps; t++) {
        sweep_vec sum, v, u;
        memcpy(&sum, sums + t * 16, sizeof sum);
        for (int64_t i = 0; i < n; i += 16) {
            memcpy(&v, x + offset[t] + i, sizeof v);
            memcpy(&u, g + i, sizeof u);
            sum += v * u;
        }
        memcpy(sums + t * 16, &sum, sizeof sum);
    }
}
