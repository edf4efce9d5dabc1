/* Collectives of ranks that share memory, with threads in the place of processes: sanitizers see what they do to each
 * other's buffers. */
#include "cpu/ranks/ranks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { SIZE = 3, BUFFER = 65536, MOST = 60001, MOST_PARTS = 64, STEPS = 200 };

typedef struct {
    void *memory;
    int rank, wrong;
} one;

static unsigned drawn(unsigned step, unsigned salt) { return (step * 2654435761u + salt * 40503u) >> 7; }

/* What a rank's element is before a step. */
static float value(int rank, unsigned step, int64_t i) {
    return (float)((unsigned)(rank + 1) * (step % 7 + 1) + (unsigned)(i % 5));
}

static bool is_right(const ac_rank_call *c, unsigned step, int rank, const float *to) {
    int64_t n = c->kind == AC_ALL_GATHER ? SIZE * c->n : c->kind == AC_MEET ? 0 : c->n;
    for (int64_t i = 0; i < n; i++) {
        float want = 0;
        int64_t at = c->kind == AC_REDUCE_SCATTER ? rank * c->n + i : c->kind == AC_ALL_GATHER ? i % c->n : i;
        if (c->kind == AC_ALL_GATHER) want = value((int)(i / c->n), step, at);
        else if (c->kind == AC_BROADCAST) want = value(c->root, step, at);
        else
            for (int r = 0; r < SIZE; r++) want += value(r, step, at);
        if (to[i] != want) return false;
    }
    return true;
}

/* `n` elements in rows of drawn lengths, each beginning one float behind the end of the one before; some are empty. */
static int64_t cut(unsigned step, int64_t n, float *memory, ac_rank_part *parts) {
    int64_t count = 0;
    for (int64_t begin = 0; begin < n || count == 0; count++) {
        int64_t left = n - begin, drawn_n = drawn(step, (unsigned)count + 9) % (count % 4 == 3 ? 1 : 9000);
        parts[count] = (ac_rank_part){(char *)(memory + begin + count),
                                      count == MOST_PARTS - 1 || drawn_n > left ? left : drawn_n};
        begin += parts[count].n;
    }
    return count;
}

/* In place, in rows. */
static bool runs_in_parts(ac_ranks *g, unsigned step, int64_t n, float *memory) {
    ac_rank_part parts[MOST_PARTS];
    float row[MOST];
    int64_t count = cut(step + (unsigned)g->rank, n, memory, parts), at = 0;
    ac_rank_call c = {.kind = AC_ALL_REDUCE, .dtype = AC_float32, .n = n, .parts = parts, .divisor = 1, .said = step};
    for (int64_t k = 0, i = 0; k < count; k++)
        for (int64_t j = 0; j <= parts[k].n; j++)
            ((float *)parts[k].data)[j] = j < parts[k].n ? value(g->rank, step, i++) : -1;
    if (ac_ranks_run(g, &c) != 0) return false;
    for (int64_t k = 0; k < count; k++) {
        const float *data = (const float *)parts[k].data;
        if (data[parts[k].n] != -1) return false;
        memcpy(row + at, data, (size_t)parts[k].n * sizeof *row);
        at += parts[k].n;
    }
    return is_right(&c, step, g->rank, row);
}

static void *run(void *argument) {
    one *self = argument;
    ac_rank_line *lines = self->memory;
    float *from = malloc(sizeof *from * SIZE * MOST), *to = malloc(sizeof *to * SIZE * MOST);
    ac_ranks g = {.lines = lines, .buffers = (char *)(lines + SIZE), .rank = self->rank, .size = SIZE, .bytes = BUFFER};
    for (unsigned step = 0; step < STEPS; step++) {
        bool differ = drawn(step, 3) % 16 == 0;
        ac_rank_call c = {.kind = (ac_collective)(drawn(step, 1) % AC_N_COLLECTIVES),
                          .dtype = AC_float32,
                          .n = drawn(step, 2) % (drawn(step, 5) % 2 ? MOST : 50),
                          .from = (char *)from,
                          .to = (char *)to,
                          .root = (int)(step % SIZE),
                          .divisor = 1,
                          .said = differ ? step + (unsigned)self->rank : step};
        g.spins = (int)(drawn(step, 4) % 3) * 50;
        for (int64_t i = 0; i < SIZE * c.n; i++) from[i] = value(self->rank, step, i);
        if (c.kind == AC_BROADCAST && c.root == self->rank) memcpy(to, from, sizeof *to * (size_t)c.n);
        if (c.kind == AC_ALL_REDUCE && !differ && drawn(step, 6) % 2) {
            if (!runs_in_parts(&g, step, c.n, to)) self->wrong++;
            continue;
        }
        int result = ac_ranks_run(&g, &c);
        if (result != differ || (!differ && !is_right(&c, step, self->rank, to))) self->wrong++;
    }
    free(from), free(to);
    return NULL;
}

int main(void) {
    size_t bytes = (size_t)ac_ranks_bytes(SIZE, BUFFER);
    void *memory = aligned_alloc(128, bytes);
    CHECK(memory != NULL);
    memset(memory, 0, bytes);
    one ranks[SIZE];
    pthread_t threads[SIZE];
    for (int r = 0; r < SIZE; r++) {
        ranks[r] = (one){memory, r, 0};
        CHECK(pthread_create(&threads[r], NULL, run, &ranks[r]) == 0);
    }
    for (int r = 0; r < SIZE; r++) {
        (void)pthread_join(threads[r], NULL);
        CHECK(ranks[r].wrong == 0);
    }
    free(memory);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
