/* Square blocks turned (transposed), included by loops.inc: 16 x 16 values of four bytes, in four steps that exchange
 * halves, quarters, and so on, of pairs of rows. Written on the compiler's 64-byte vectors, as finish.h is. */

typedef uint32_t turn_row_t __attribute__((vector_size(64)));

/* Rows a and b, `gap` apart, become their even and odd groups of `gap` values. */
#define TURN_PAIR(gap, a, b)                                                                                           \
    do {                                                                                                               \
        turn_row_t even, odd;                                                                                          \
        for (uint32_t lane = 0; lane < 16; lane++) {                                                                   \
            even[lane] = (lane & (gap)) ? 16 + lane - (gap) : lane;                                                    \
            odd[lane] = (lane & (gap)) ? 16 + lane : lane + (gap);                                                     \
        }                                                                                                              \
        turn_row_t x = __builtin_shuffle(v[a], v[b], even), y = __builtin_shuffle(v[a], v[b], odd);                    \
        v[a] = x, v[b] = y;                                                                                            \
    } while (0)
#define TURN_STEP(gap)                                                                                                 \
    for (int i = 0; i < 16; i++)                                                                                       \
        if (!(i & (gap))) TURN_PAIR(gap, i, i + (gap))

static inline void turn_rows(turn_row_t v[16]) {
    TURN_STEP(8);
    TURN_STEP(4);
    TURN_STEP(2);
    TURN_STEP(1);
}

/* to[j][i] = from[i][j], rows `step` and `to_step` values apart */
static void turn_words(const float *from, int64_t step, float *to, int64_t to_step) {
    turn_row_t v[16];
    for (int i = 0; i < 16; i++) memcpy(&v[i], from + i * step, sizeof v[i]);
    turn_rows(v);
    for (int i = 0; i < 16; i++) memcpy(to + i * to_step, &v[i], sizeof v[i]);
}

/* The same for 32 rows of 16 halves: 16 rows of 32, neighbouring rows as the two halves of a word. */
static void turn_halves(const void *const *from, int64_t at, uint16_t *to, int64_t to_step) {
    turn_row_t v[16];
    for (int i = 0; i < 16; i++) {
        const uint16_t *low = (const uint16_t *)from[2 * i] + at, *high = (const uint16_t *)from[2 * i + 1] + at;
        uint32_t words[16];
        for (int j = 0; j < 16; j++) words[j] = low[j] | (uint32_t)high[j] << 16;
        memcpy(&v[i], words, sizeof v[i]);
    }
    turn_rows(v);
    for (int i = 0; i < 16; i++) memcpy(to + i * to_step, &v[i], sizeof v[i]);
}

#undef TURN_PAIR
#undef TURN_STEP
