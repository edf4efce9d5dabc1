/* Loops over one contiguous row, written once for float and double (see scalar.h). */

/* acc[j] = COMBINE over the values VALUE at every j-th of [i, end), in as many lanes as folds.h has. */
#define ROW_FOLD(acc, i, end, COMBINE, VALUE)                                                                          \
    do {                                                                                                               \
        for (; i + LANES <= end; i += LANES)                                                                           \
            for (int j = 0; j < LANES; j++) acc[j] = COMBINE(acc[j], VALUE(i + j));                                    \
        for (; i + FEW_LANES <= end; i += FEW_LANES)                                                                   \
            for (int j = 0; j < FEW_LANES; j++) acc[j] = COMBINE(acc[j], VALUE(i + j));                                \
        for (; i < end; i++) acc[0] = COMBINE(acc[0], VALUE(i));                                                       \
        for (int half = LANES / 2; half; half /= 2)                                                                    \
            for (int j = 0; j < half; j++) acc[j] = COMBINE(acc[j], acc[j + half]);                                    \
    } while (0)
#define ROW_LARGER(a, b) ((b) > (a) ? (b) : (a))
#define ROW_X(at) x[at]
#define ROW_AB(at) a[at] * b[at]

static R S(row_max)(int64_t n, const R *x) {
    R acc[LANES];
    for (int j = 0; j < LANES; j++) acc[j] = -INFINITY;
    int64_t i = 0;
    ROW_FOLD(acc, i, n, ROW_LARGER, ROW_X);
    return acc[0];
}

#define ROW_TOTAL(VALUE)                                                                                               \
    double total = 0;                                                                                                  \
    for (int64_t i = 0; i < n;) {                                                                                      \
        int64_t end = n - i < 4096 ? n : i + 4096;                                                                     \
        R acc[LANES] = {0};                                                                                            \
        ROW_FOLD(acc, i, end, ADD, VALUE);                                                                             \
        total += (double)acc[0];                                                                                       \
    }                                                                                                                  \
    return total

static double S(row_sum)(int64_t n, const R *x) { ROW_TOTAL(ROW_X); }
static double S(row_dot)(int64_t n, const R *a, const R *b) { ROW_TOTAL(ROW_AB); }

#undef ROW_TOTAL
#undef ROW_FOLD
#undef ROW_LARGER
#undef ROW_X
#undef ROW_AB

/* y = exp(x - shift), and the sum of that; a row of -inf alone shifts by 0 and gives nan, as it must */
static double S(shifted_exp)(int64_t n, const R *x, R shift, R *y) {
    double total = 0;
    for (int64_t at = 0; at < n; at += 4096) {
        int64_t end = n - at < 4096 ? n : at + 4096, i = at;
        R acc[16] = {0};
        for (; i + 16 <= end; i += 16)
            for (int j = 0; j < 16; j++) {
                R e = M_EXP(x[i + j] - shift);
                y[i + j] = e;
                acc[j] += e;
            }
        for (; i < end; i++) acc[0] += y[i] = M_EXP(x[i] - shift);
        for (int half = 8; half; half /= 2)
            for (int j = 0; j < half; j++) acc[j] += acc[j + half];
        total += (double)acc[0];
    }
    return total;
}

static void S(softmax_row)(int64_t n, const void *from, void *to) {
    R *y = to;
    R scale = (R)(1.0 / S(shifted_exp)(n, from, S(row_max)(n, from), y));
    for (int64_t i = 0; i < n; i++) y[i] *= scale;
}

/* log(sum(exp(x - top))) */
static double S(log_of_rest)(int64_t n, const R *x, R top) {
    R scratch[1024];
    double total = 0;
    for (int64_t i = 0; i < n; i += 1024) {
        int64_t run = n - i < 1024 ? n - i : 1024;
        total += S(shifted_exp)(run, x + i, top, scratch);
    }
    return log(total);
}

static double S(logsumexp_row)(int64_t n, const void *from) {
    const R *x = from;
    R top = S(row_max)(n, x);
    if (top - top != 0 && top > 0)
        for (int64_t i = 0; i < n; i++)
            if (x[i] != x[i]) return (double)x[i]; /* row_max does not see a nan beside an infinity */
    if (top - top != 0) return top > 0 ? (double)top : n > 0 ? (double)S(row_sum)(n, x) : -INFINITY;
    return (double)top + S(log_of_rest)(n, x, top);
}

/* Subtracts in two steps, so that large logits keep their differences. */
static void S(log_softmax_row)(int64_t n, const void *from, void *to) {
    const R *x = from;
    R *y = to, top = S(row_max)(n, x);
    R rest = (R)S(log_of_rest)(n, x, top);
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - top) - rest;
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
    if (w && b)
        for (int64_t i = 0; i < n; i++) y[i] = (x[i] - m) * r * w[i] + b[i];
    else if (w)
        for (int64_t i = 0; i < n; i++) y[i] = (x[i] - m) * r * w[i];
    else if (b)
        for (int64_t i = 0; i < n; i++) y[i] = (x[i] - m) * r + b[i];
    else
        for (int64_t i = 0; i < n; i++) y[i] = (x[i] - m) * r;
}

/* y = (x - mean) a + b */
static void S(scale_shift)(int64_t n, const void *from, double mean, double scale, double shift, void *to) {
    const R *x = from;
    R *y = to, m = (R)mean, a = (R)scale, b = (R)shift;
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - m) * a + b;
}

/* y = a g + b (x - mean) + c */
static void S(mix)(int64_t n, const void *grad, const void *from, double by_g, double mean, double by_x, double shift,
                   void *to) {
    const R *g = grad, *x = from;
    R *y = to, m = (R)mean, a = (R)by_g, b = (R)by_x, c = (R)shift;
    for (int64_t i = 0; i < n; i++) y[i] = g[i] * a + ((x[i] - m) * b + c);
}

/* The sums of g and of g (x - mean), for n that float32 can add. */
static void S(centred_sums)(int64_t n, const void *grad, const void *from, double mean, double *sums) {
    const R *g = grad, *x = from;
    R m = (R)mean, sum[32] = {0}, with[32] = {0};
    int64_t i = 0;
    for (; i + 32 <= n; i += 32)
        for (int j = 0; j < 32; j++) sum[j] += g[i + j], with[j] += g[i + j] * (x[i + j] - m);
    sums[0] = sums[1] = 0;
    for (; i < n; i++) sums[0] += (double)g[i], sums[1] += (double)(g[i] * (x[i] - m));
    for (int j = 0; j < 32; j++) sums[0] += (double)sum[j], sums[1] += (double)with[j];
}

/* One row's part in the gradients of weight and bias, then its own. */
static void S(normalize_backward_row)(int64_t n, const void *grad, const void *from, double mean, double rstd,
                                      const void *weight, void *dweight, void *dbias, void *to) {
    const R *g = grad, *x = from, *w = weight;
    R *dx = to, *dw = dweight, *db = dbias, m = (R)mean, r = (R)rstd;
    double sum1 = 0, sum2 = 0; /* of g w and g w xhat; dx holds g w for a while */
    for (int64_t i = 0; i < n; i++) dw[i] += g[i] * ((x[i] - m) * r);
    for (int64_t i = 0; i < n; i++) db[i] += g[i];
    for (int64_t i = 0; i < n; i++) dx[i] = w ? g[i] * w[i] : g[i];
    for (int64_t at = 0; at < n; at += 4096) {
        int64_t end = n - at < 4096 ? n : at + 4096, i = at;
        R part1[16] = {0}, part2[16] = {0};
        for (; i + 16 <= end; i += 16)
            for (int j = 0; j < 16; j++) {
                part1[j] += dx[i + j];
                part2[j] += dx[i + j] * ((x[i + j] - m) * r);
            }
        for (; i < end; i++) part1[0] += dx[i], part2[0] += dx[i] * ((x[i] - m) * r);
        for (int j = 0; j < 16; j++) sum1 += (double)part1[j], sum2 += (double)part2[j];
    }
    R m1 = (R)(sum1 / (double)n), m2 = (R)(sum2 / (double)n);
    for (int64_t i = 0; i < n; i++) dx[i] = r * (dx[i] - m1 - (x[i] - m) * r * m2);
}

/* Element `first + i` is dropped when its random number is below p. */
static void S(dropout_row)(int64_t n, const void *from, double p, uint64_t seed, uint64_t offset, int64_t first,
                           void *to) {
    const R *x = from;
    R *y = to, scale = p < 1 ? (R)(1 / (1 - p)) : 0;
    float drop = (float)p;
    uint32_t words[4 * RANDOM_BLOCKS];
    uint64_t at = (uint64_t)first;
    for (int64_t i = 0; i < n;) {
        int64_t skip = (int64_t)(at % 4), run = 4 * RANDOM_BLOCKS - skip < n - i ? 4 * RANDOM_BLOCKS - skip : n - i;
        random_words(seed, offset + at / 4, words);
        for (int64_t j = 0; j < run; j++) y[i + j] = ac_uniform24(words[skip + j]) < drop ? 0 : x[i + j] * scale;
        i += run, at += (uint64_t)run;
    }
}
