/* Loops over one contiguous row, written once for float and double (see scalar.h). */

static R S(row_max)(int64_t n, const R *x) {
    R best[16];
    for (int j = 0; j < 16; j++) best[j] = -INFINITY;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; j++) best[j] = x[i + j] > best[j] ? x[i + j] : best[j];
    for (; i < n; i++) best[0] = x[i] > best[0] ? x[i] : best[0];
    for (int j = 1; j < 16; j++) best[0] = best[j] > best[0] ? best[j] : best[0];
    return best[0];
}

static double S(row_sum)(int64_t n, const R *x) {
    double total = 0;
    for (int64_t at = 0; at < n; at += 4096) {
        int64_t end = n - at < 4096 ? n : at + 4096, i = at;
        R acc[16] = {0};
        for (; i + 16 <= end; i += 16)
            for (int j = 0; j < 16; j++) acc[j] += x[i + j];
        for (; i < end; i++) acc[0] += x[i];
        for (int half = 8; half; half /= 2)
            for (int j = 0; j < half; j++) acc[j] += acc[j + half];
        total += (double)acc[0];
    }
    return total;
}

/* y = exp(x - max x), and the sum of that; a row of -inf alone shifts by 0 and gives nan, as it must */
static double S(shifted_exp)(int64_t n, const R *x, R shift, R *y) {
    for (int64_t i = 0; i < n; i++) y[i] = M_EXP(x[i] - shift);
    return S(row_sum)(n, y);
}

static void S(softmax_row)(int64_t n, const void *from, void *to) {
    R *y = to;
    R scale = (R)(1.0 / S(shifted_exp)(n, from, S(row_max)(n, from), y));
    for (int64_t i = 0; i < n; i++) y[i] *= scale;
}

static double S(logsumexp_row)(int64_t n, const void *from) {
    const R *x = from;
    R top = S(row_max)(n, x), scratch[256];
    if (top - top != 0) return top > 0 ? (double)top : n > 0 ? (double)S(row_sum)(n, x) : -INFINITY;
    double total = 0;
    for (int64_t i = 0; i < n; i += 256) {
        int64_t run = n - i < 256 ? n - i : 256;
        total += S(shifted_exp)(run, x + i, top, scratch);
    }
    return (double)top + log(total);
}

/* Subtracts in two steps, so that large logits keep their differences. */
static void S(log_softmax_row)(int64_t n, const void *from, void *to) {
    const R *x = from;
    R *y = to, top = S(row_max)(n, x);
    R rest = (R)(S(logsumexp_row)(n, from) - (double)top);
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - top) - rest;
}

static double S(row_dot)(int64_t n, const R *a, const R *b) {
    double total = 0;
    for (int64_t at = 0; at < n; at += 4096) {
        int64_t end = n - at < 4096 ? n : at + 4096, i = at;
        R acc[16] = {0};
        for (; i + 16 <= end; i += 16)
            for (int j = 0; j < 16; j++) acc[j] += a[i + j] * b[i + j];
        for (; i < end; i++) acc[0] += a[i] * b[i];
        for (int half = 8; half; half /= 2)
            for (int j = 0; j < half; j++) acc[j] += acc[j + half];
        total += (double)acc[0];
    }
    return total;
}

static void S(softmax_backward_row)(int64_t n, const void *grad, const void *result, void *to) {
    const R *g = grad, *y = result;
    R *dx = to, along = (R)S(row_dot)(n, g, y);
    for (int64_t i = 0; i < n; i++) dx[i] = y[i] * (g[i] - along);
}

static void S(log_softmax_backward_row)(int64_t n, const void *grad, const void *result, void *to) {
    const R *g = grad, *y = result;
    R *dx = to, total = (R)S(row_sum)(n, g);
    for (int64_t i = 0; i < n; i++) dx[i] = g[i] - M_EXP(y[i]) * total;
}

static void S(normalize_row)(int64_t n, const void *from, double mean, double rstd, const void *weight,
                             const void *bias, void *to) {
    const R *x = from, *w = weight, *b = bias;
    R *y = to, m = (R)mean, r = (R)rstd;
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - m) * r;
    if (w)
        for (int64_t i = 0; i < n; i++) y[i] *= w[i];
    if (b)
        for (int64_t i = 0; i < n; i++) y[i] += b[i];
}

static void S(normalize_backward_row)(int64_t n, const void *grad, const void *from, double mean, double rstd,
                                      const void *weight, double mean1, double mean2, void *to) {
    const R *g = grad, *x = from, *w = weight;
    R *dx = to, m = (R)mean, r = (R)rstd, m1 = (R)mean1, m2 = (R)mean2;
    for (int64_t i = 0; i < n; i++) {
        R gw = w ? g[i] * w[i] : g[i];
        dx[i] = r * (gw - m1 - (x[i] - m) * r * m2);
    }
}

/* Element `first + i` is dropped when its random number is below p. */
static void S(dropout_row)(int64_t n, const void *from, double p, uint64_t seed, uint64_t offset, int64_t first,
                           void *to) {
    const R *x = from;
    R *y = to, scale = p < 1 ? (R)(1 / (1 - p)) : 0;
    float drop = (float)p;
    for (int64_t i = 0; i < n;) {
        uint64_t at = (uint64_t)(first + i);
        ac_philox_block random = ac_philox(seed, offset + at / 4);
        for (uint64_t j = at % 4; j < 4 && i < n; j++, i++) y[i] = ac_uniform24(random.v[j]) < drop ? 0 : x[i] * scale;
    }
}
