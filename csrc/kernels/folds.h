// clang-format off
/* Reduction loops, in lanes (see lanes.h). */

#define FOLDS(ROW)                                                                                 \
    ROW(SUM, sum) ROW(SUM_SQUARES, sum_squares) ROW(SUM_ABS, sum_abs) ROW(SUM_POWERS, sum_powers)  \
    ROW(COUNT, count) ROW(PROD, prod) ROW(MAX, max) ROW(MIN, min) ROW(MAX_ABS, max_abs)            \
    ROW(MIN_ABS, min_abs)

#define MUL(a, b) ((a) * (b))
/* a nan, once seen, stays */
#define LARGER(a, b) (((a) > (b)) | ((a) != (a)) ? (a) : (b))
#define SMALLER(a, b) (((a) < (b)) | ((a) != (a)) ? (a) : (b))
#define MAGNITUDE(x) ((x) < 0 ? -(x) : (x))

/* map may use x and p (in lane type); START is the combination's neutral value */
#define FOLD_LOOP(name, R, lane, field, START, map, COMBINE)                                       \
    static void fold_##name##_##lane(int64_t n, const void *from, double param, ac_total *total) { \
        const R *v = from, p = (R)param;                                                           \
        R acc[LANES];                                                                              \
        (void)p;                                                                                   \
        for (int j = 0; j < LANES; j++) acc[j] = START;                                            \
        int64_t i = 0;                                                                             \
        for (; i + LANES <= n; i += LANES)                                                         \
            for (int j = 0; j < LANES; j++) {                                                      \
                R x = v[i + j];                                                                    \
                acc[j] = COMBINE(acc[j], map);                                                     \
            }                                                                                      \
        for (; i + FEW_LANES <= n; i += FEW_LANES)                                                 \
            for (int j = 0; j < FEW_LANES; j++) {                                                  \
                R x = v[i + j];                                                                    \
                acc[j] = COMBINE(acc[j], map);                                                     \
            }                                                                                      \
        for (; i < n; i++) {                                                                       \
            R x = v[i];                                                                            \
            acc[0] = COMBINE(acc[0], map);                                                         \
        }                                                                                          \
        for (int half = LANES / 2; half; half /= 2)                                                \
            for (int j = 0; j < half; j++) acc[j] = COMBINE(acc[j], acc[j + half]);                \
        total->field = COMBINE(total->field, acc[0]);                                              \
    }                                                                                              \
    static void columns_##name##_##lane(int64_t n, const void *from, double param, void *totals) { \
        const R *v = from, p = (R)param;                                                           \
        R *acc = totals;                                                                           \
        (void)p;                                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                          \
            R x = v[i];                                                                            \
            acc[i] = COMBINE(acc[i], map);                                                         \
        }                                                                                          \
    }

#define FOLD_LANES(name, real_start, int_start, f32_map, f64_map, int_map, COMBINE)                \
    FOLD_LOOP(name, float, f32, f, real_start, f32_map, COMBINE)                                   \
    FOLD_LOOP(name, double, f64, f, real_start, f64_map, COMBINE)                                  \
    FOLD_LOOP(name, int64_t, i64, i, int_start, int_map, COMBINE)
#define FOLD_ALL(name, real_start, int_start, map, COMBINE)                                        \
    FOLD_LANES(name, real_start, int_start, map, map, map, COMBINE)

FOLD_ALL(sum, 0, 0, x, ADD)
FOLD_ALL(sum_squares, 0, 0, (x - p) * (x - p), ADD)
FOLD_ALL(sum_abs, 0, 0, MAGNITUDE(x), ADD)
FOLD_LANES(sum_powers, 0, 0, powf(MAGNITUDE(x), p), pow(MAGNITUDE(x), p), x, ADD)
FOLD_ALL(count, 0, 0, (x != 0), ADD)
FOLD_ALL(prod, 1, 1, x, MUL)
FOLD_ALL(max, -INFINITY, INT64_MIN, x, LARGER)
FOLD_ALL(min, INFINITY, INT64_MAX, x, SMALLER)
FOLD_ALL(max_abs, 0, 0, MAGNITUDE(x), LARGER)
FOLD_ALL(min_abs, INFINITY, INT64_MAX, MAGNITUDE(x), SMALLER)
