/* The driver of blocked matrix products. It cuts C into blocks; one block is one chunk for the thread pool. A block's
 * accumulators, 16 x 16 tiles of float32, stay in the second-level cache over all of k. At the end they are written
 * once, with bias, activation and rounding.
 *
 * Borders of blocks depend on sizes and the cache alone. Every element of C is summed in the order of the k blocks,
 * span by span. So results do not depend on the number of threads. */
#include "cpu/gemm/gemm.h"

#include "backend/backend.h"
#include "base/alloc.h"
#include "base/pool.h"
#include "shared/tensor_iter.h"

#include <stdatomic.h>
#include <string.h>

enum {
    SMALL_BYTES = 48 << 10,       /* packed operands and accumulators that fit here live on the stack */
    WORTH_THREADS = 1 << 22,      /* multiplications that are worth other threads on any unit (see worth_threads), */
    WORTH_THREADS_THIN = 1 << 19, /* and fewer where each waits for memory */
    LEAST_COLUMNS = 4             /* panels of B in a block, at least, but for threads */
};

typedef struct {
    const ac_gemm_call *call;
    const ac_micro *micro;
    ac_cut cut;
    int64_t a_panels, b_panels; /* of the operands */
    int64_t a_block, b_block;   /* panels in a block of C, */
    int64_t a_blocks, b_blocks; /* and how many blocks that makes */
    const char *a, *b;          /* packed; NULL: each block packs what it needs */
    bool direct;                /* a is read where it lies: it has the panels' dtype and whole tiles */
    bool a_like_b;              /* a is packed in the layout of b */
    bool brief;                 /* k is one block: accumulators are needed for two runs of the micro-kernel only */
    bool stream;                /* c is too large for caches */
    bool plain;                 /* the micro-kernel writes whole tiles of c by itself */
    void (*finish)(int64_t rows, int64_t n, const float *tiles, const ac_finish *f, void *y, int64_t row);
    char *scratch; /* of every thread: accumulators, of several spans their sums, then its panels of a and of b */
    int64_t scratch_bytes;
    _Atomic bool *finite;
} plan;

/* -- one block of C -------------------------------------------------------------------------------------- */

static const char *panels_at(const char *base, const plan *p, int64_t panels, int64_t block, int64_t panel) {
    return base + ac_panel_offset(&p->cut, panels, block, panel);
}

/* What one block of C works with. */
typedef struct {
    const plan *p;
    int64_t a0, na, b0, nb; /* its panels */
    float *tiles, *sums;    /* accumulators: na rows of nb tiles; as many sums of spans, or NULL for one span */
    char *own_a, *own_b;    /* room for a k block of its panels of a and of b */
} c_block;

/* bias, activation, beta c, rounding, of up to micro->a by micro->b tiles from (ia, jb) of the block. */
static void finish(const c_block *w, int64_t ia, int64_t jb, const ac_micro_job *job) {
    const ac_gemm_call *g = w->p->call;
    int64_t row = (w->a0 + ia) * AC_LANES, col = (w->b0 + jb) * AC_LANES, item = ac_itemsize(g->c_dtype);
    int64_t cols = ac_least(job->nb * AC_LANES, g->b.lanes - col);
    ac_finish f = {g->alpha, g->beta, (int)g->act, w->p->stream, g->bias ? g->bias + col : NULL, NULL};
    for (int i = 0; i < job->na && row < g->a.lanes; i++, row += AC_LANES)
        w->p->finish(ac_least(AC_LANES, g->a.lanes - row), cols, job->c + i * job->c_a, &f,
                     g->c + (row * g->c_row + col) * item, g->c_row);
}

/* Where the micro-kernel writes the result of a run by itself: whole tiles, as they are or plus bias. */
static void set_out(const c_block *w, int64_t ia, int64_t jb, ac_micro_job *job) {
    const ac_gemm_call *g = w->p->call;
    int64_t row = (w->a0 + ia) * AC_LANES, col = (w->b0 + jb) * AC_LANES;
    bool whole = row + job->na * AC_LANES <= g->a.lanes && col + job->nb * AC_LANES <= g->b.lanes;
    job->out = whole ? g->c + (row * g->c_row + col) * ac_itemsize(g->c_dtype) : NULL;
    job->out_row = g->c_row, job->out_dtype = g->c_dtype;
    job->bias = g->bias ? g->bias + col : NULL, job->stream = job->out && w->p->stream;
}

static int64_t tiles_at_a_time(const ac_micro *micro) { return micro->a * micro->b; }

/* One k block: every pair of panels. B's stay in the first-level cache while A's stream by. After
 * the last k block each tile is written while it is still in that cache. The next tile's
 * multiplications run meanwhile. */
static void multiply_panels(const c_block *w, const ac_micro_job *k_block, bool last) {
    const ac_micro *micro = w->p->micro;
    int64_t runs = ac_ceil_div(w->na, micro->a) * ac_ceil_div(w->nb, micro->b), run = 0, ia_done = 0, jb_done = 0, nb;
    int64_t ahead_a = w->na * k_block->a_next / runs, ahead_b = w->nb * k_block->b_next / runs;
    ac_micro_job job = *k_block, done = job;
    for (int64_t jb = 0; jb < w->nb; jb += nb) {
        nb = ac_least(micro->b, w->nb - jb);
        if (nb == 3 && w->nb - jb == 4) nb = 2; /* 2 + 2 is faster than 3 + 1 */
        for (int64_t ia = 0; ia < w->na; ia += micro->a, run++) {
            job.a = k_block->a + ia * job.a_next, job.b = k_block->b + jb * job.b_next;
            job.na = (int)ac_least(micro->a, w->na - ia), job.nb = (int)nb;
            job.c = w->tiles +
                    (w->p->brief ? run % 2 * tiles_at_a_time(micro) * AC_TILE_FLOATS : ia * job.c_a + jb * job.c_b);
            job.soon_a = k_block->soon_a + run * ahead_a, job.soon_b = k_block->soon_b + run * ahead_b;
            if (last && w->p->plain && job.k_steps) set_out(w, ia, jb, &job);
            if (job.k_steps) micro->run(&job);
            if (last && run > 0 && !done.out) finish(w, ia_done, jb_done, &done);
            done = job, ia_done = ia, jb_done = jb;
        }
    }
    if (last && !done.out) finish(w, ia_done, jb_done, &done);
}

/* Where k has several spans. */
static bool is_deep(const plan *p) { return p->cut.blocks > p->cut.span; }

/* Tiles that one block of C has at a time. */
static int64_t accumulators_of(const plan *p) {
    return p->brief ? 2 * tiles_at_a_time(p->micro) : p->a_block * p->b_block;
}

/* If C is one block wide, each block packs its part of a right before use, in the second-level cache of the thread that
 * reads it. A split in two parts would be checked again with every block. */
static bool packs_a_lazily(const plan *p) { return !p->direct && p->b_blocks == 1 && p->cut.kind != AC_PANEL_SPLIT; }

/* A k block of so many panels. */
static int64_t block_bytes(const plan *p, int64_t panels) { return panels * p->cut.k_steps * p->cut.bytes; }

static c_block block_at(const plan *p, int64_t chunk, int thread) {
    c_block w = {.p = p, .a0 = chunk % p->a_blocks * p->a_block, .b0 = chunk / p->a_blocks * p->b_block};
    w.na = ac_least(p->a_block, p->a_panels - w.a0), w.nb = ac_least(p->b_block, p->b_panels - w.b0);
    w.tiles = (float *)(void *)(p->scratch + thread * p->scratch_bytes);
    int64_t floats = accumulators_of(p) * AC_TILE_FLOATS;
    w.sums = is_deep(p) ? w.tiles + floats : NULL;
    w.own_a = (char *)(w.tiles + (w.sums ? 2 : 1) * floats);
    w.own_b = w.own_a + (packs_a_lazily(p) ? block_bytes(p, p->a_block) : 0);
    return w;
}

/* The end of a span: its accumulators are added to the sums. */
static void add_span(const c_block *w, bool first) {
    int64_t n = w->na * w->nb * AC_TILE_FLOATS;
    if (first) memcpy(w->sums, w->tiles, (size_t)n * sizeof *w->sums);
    for (int64_t i = 0; !first && i < n; i++) w->sums[i] += w->tiles[i];
}

/* What is left to do once the spans are summed up. */
static void finish_sums(const c_block *w, ac_micro_job *job) {
    c_block summed = *w;
    summed.tiles = w->sums, job->k_steps = 0;
    multiply_panels(&summed, job, true);
}

static const char *a_panels(const c_block *w, int64_t k) {
    const plan *p = w->p;
    const ac_operand *a = &p->call->a;
    if (!p->direct) return p->a ? panels_at(p->a, p, p->a_panels, k, w->a0) : w->own_a;
    return (const char *)a->data +
           (w->a0 * AC_LANES * a->lane_stride + k * p->cut.k_steps * p->cut.depth * a->k_stride) *
               ac_itemsize(a->dtype);
}
static const char *b_panels(const c_block *w, int64_t k) { return panels_at(w->p->b, w->p, w->p->b_panels, k, w->b0); }

/* k steps and strides of k block k. */
static void set_k_block(ac_micro_job *job, const c_block *w, int64_t k) {
    const plan *p = w->p;
    job->k_steps = ac_cut_k_steps(&p->cut, k), job->add = k % p->cut.span > 0;
    job->b_next = job->a_next = job->k_steps * p->cut.bytes;
    job->a_k_stride = p->cut.bytes, job->a_lane_stride = AC_CELLS * 4, job->a_cell_stride = 4;
    if (p->a_like_b) job->a_lane_stride = 4, job->a_cell_stride = AC_LANES * 4;
    if (!p->direct) return;
    int64_t item = ac_itemsize(p->call->a.dtype);
    job->a_lane_stride = p->call->a.lanes == 1 ? 0 : p->call->a.lane_stride * item;
    job->a_cell_stride = p->call->a.k_stride == 1 ? 4 : p->call->a.k_stride * item;
    job->a_next = AC_LANES * job->a_lane_stride, job->a_k_stride = AC_CELLS * job->a_cell_stride;
}

static void one_block(void *context, int64_t chunk, int thread) {
    const plan *p = context;
    if (!atomic_load(p->finite)) return;
    c_block w = block_at(p, chunk, thread),
            next = block_at(p, chunk + 1 < p->a_blocks * p->b_blocks ? chunk + 1 : 0, thread);
    ac_micro_job job = {
        .c_a = (p->brief ? p->micro->b : w.nb) * AC_TILE_FLOATS, .c_b = AC_TILE_FLOATS, .b_cell_stride = AC_LANES * 4};
    if (p->cut.blocks == 0) { /* k = 0 */
        AC_WAY(product_no_depth);
        memset(w.tiles, 0, (size_t)(w.na * w.nb * AC_TILE_BYTES));
        multiply_panels(&w, &job, true);
        return;
    }
    if (p->micro->begin) p->micro->begin();
    for (int64_t k = 0; k < p->cut.blocks; k++) {
        bool last = k + 1 == p->cut.blocks;
        job.a = a_panels(&w, k), job.b = p->b ? b_panels(&w, k) : w.own_b;
        if (!p->direct && !p->a) (void)ac_pack(&p->call->a, &p->cut, p->a_like_b, k, w.a0, w.na, w.own_a);
        if (!p->b && !ac_pack(&p->call->b, &p->cut, true, k, w.b0, w.nb, w.own_b)) atomic_store(p->finite, false);
        job.soon_a = last ? a_panels(&next, 0) : a_panels(&w, k + 1);
        job.soon_b = !p->b ? w.own_b : last ? b_panels(&next, 0) : b_panels(&w, k + 1);
        set_k_block(&job, &w, k);
        multiply_panels(&w, &job, last && !w.sums);
        if (w.sums && (last || (k + 1) % p->cut.span == 0)) add_span(&w, k < p->cut.span);
    }
    if (w.sums) finish_sums(&w, &job);
    if (p->micro->end) p->micro->end();
}

/* -- the plan ---------------------------------------------------------------------------------------------- */

/* Multiplications that take a thread some ten microseconds: less is not worth a block of its own. */
static int64_t least_work(const ac_micro *micro) {
    if (micro->isa >= AC_ISA_AMX_BF16) return 1 << 23;
    return micro->kind == AC_PANEL_F32 ? 1 << 19 : 1 << 20;
}

static int64_t whole_runs(int64_t panels, int64_t at_a_time) { return ac_ceil_div(panels, at_a_time) * at_a_time; }

/* Panels in each of some blocks: whole runs of the micro-kernel, which is slower with fewer panels than it takes,
 * unless that would leave next to nothing for the last block. */
static int64_t side_of(int64_t panels, int64_t blocks, int64_t at_a_time) {
    int64_t even = ac_ceil_div(panels, blocks), whole = whole_runs(even, at_a_time), last = (panels - 1) % whole + 1;
    return 2 * last < whole ? even : whole;
}

/* Panels of A in a block, of at most 32. Each run of the micro-kernel along them reads their k block again, which takes
 * a quarter of the second-level cache for each panel of columns that a run takes: few runs may fetch it from further.
 */
static int64_t rows_of_panels(const plan *p) {
    int64_t panel = ac_most(1, p->cut.k_steps * p->cut.bytes);
    return ac_most(4, ac_least(32, ac_l2_bytes() / 4 * p->micro->b / panel));
}

/* Accumulators take an eighth of the second-level cache, or a little more: two hardware threads may have to share it.
 * If C is small, blocks are smaller, down to least_work. Eight blocks for every thread let the others take over the
 * share of a slow thread. */
static void choose_blocks(plan *p, int threads) {
    const ac_micro *micro = p->micro;
    int64_t tiles = ac_l2_bytes() / 8 / AC_TILE_BYTES, depth = p->call->a.k > 64 ? p->call->a.k : 64;
    int64_t enough = least_work(micro) / (AC_TILE_FLOATS * depth) + 1;
    int64_t rows = rows_of_panels(p), a = ac_least(rows, p->a_panels);
    int64_t b = whole_runs(ac_most(LEAST_COLUMNS, tiles / rows), micro->b);
    while (threads > 1 && ac_ceil_div(p->a_panels, a) * ac_ceil_div(p->b_panels, b) < 8 * threads && a * b > enough) {
        AC_WAY(product_smaller_blocks);
        if (a > b) a = ac_ceil_div(a, 2);
        else b = ac_ceil_div(b, 2);
    }
    p->a_blocks = ac_ceil_div(p->a_panels, a), p->b_blocks = ac_ceil_div(p->b_panels, b);
    p->a_block = side_of(p->a_panels, p->a_blocks, micro->a), p->b_block = side_of(p->b_panels, p->b_blocks, micro->b);
    p->a_blocks = ac_ceil_div(p->a_panels, p->a_block), p->b_blocks = ac_ceil_div(p->b_panels, p->b_block);
}

typedef struct {
    const plan *p;
    ac_operand o;
    bool columns;
    char *to;
    int64_t panels, group, groups; /* all, those packed together, and how many such in each k block */
} packing;

static void pack_groups(void *context, int64_t begin, int64_t end) {
    const packing *w = context;
    for (int64_t i = begin; i < end; i++) {
        int64_t block = i / w->groups, panel = i % w->groups * w->group, count = ac_least(w->group, w->panels - panel);
        char *to = (char *)(uintptr_t)panels_at(w->to, w->p, w->panels, block, panel);
        if (!ac_pack(&w->o, &w->p->cut, w->columns, block, panel, count, to)) atomic_store(w->p->finite, false);
    }
}

static bool is_large(const ac_cut *cut, const ac_operand *o) {
    return ac_panels_bytes(cut, o->lanes) >= 2 * ac_l2_bytes();
}

static void pack_all(const plan *p, const ac_operand *o, bool columns, char *to) {
    packing w = {.p = p, .o = *o, .columns = columns, .to = to, .panels = ac_panels_of(o->lanes)};
    w.group = ac_least(o->k_stride == 1 ? 8 : 16, w.panels); /* where memory runs along lanes, longer stretches of it */
    w.groups = ac_ceil_div(w.panels, w.group);
    w.o.stream = is_large(&p->cut, o);
    if (w.o.stream) AC_WAY(product_stream_panels);
    int64_t each = w.group * AC_LANES * p->cut.k_steps * p->cut.depth, grain = each ? AC_GRAIN / each : 1;
    ac_for_range(w.groups * p->cut.blocks, grain, pack_groups, &w);
}

/* Rows of whole tiles in the panels' own dtype need no packing. With rows further apart the
 * 16 of a tile would fall on the same few sets of the first-level cache. One row alone is read as all 16 of its tile:
 * packed it would take 16 times its memory. */
static bool is_direct(const ac_operand *a, const ac_micro *micro, const ac_cut *cut) {
    enum { ROW_BYTES = 2048, COLUMN_BYTES = 1024 }; /* from one to the next at most */
    if (cut->kind == AC_PANEL_SPLIT || (cut->kind == AC_PANEL_F32 && a->dtype != AC_float32)) return false;
    bool whole = a->lanes % AC_LANES == 0,
         rows = a->k_stride == 1 && a->lane_stride * ac_itemsize(a->dtype) <= ROW_BYTES,
         columns = micro->a_like_b && cut->kind == AC_PANEL_F32 && a->lane_stride == 1 &&
                   a->k_stride * ac_itemsize(a->dtype) <= COLUMN_BYTES;
    bool readable = a->lanes == 1 ? a->k_stride == 1 : whole && (rows || columns);
    return readable && a->dtype == a->round && a->k % cut->depth == 0;
}

/* Whether the micro-kernel can write tiles of C by itself. */
static bool is_plain(const plan *p) {
    const ac_gemm_call *g = p->call;
    const ac_micro *micro = p->micro;
    bool same = g->c_dtype == AC_float32 && (!p->stream || micro->streams_results);
    bool rounded = ac_is_half(g->c_dtype) && !p->stream && micro->rounds_results;
    return micro->writes_results && (same || rounded) && g->alpha == 1 && g->beta == 0 && g->act == AC_ACT_NONE;
}

static plan plan_of(const ac_gemm_call *g, const ac_micro *micro, int threads, _Atomic bool *finite) {
    plan p = {.call = g, .micro = micro, .cut = ac_cut_of(micro->kind, g->a.k), .finite = finite};
    p.a_panels = ac_panels_of(g->a.lanes), p.b_panels = ac_panels_of(g->b.lanes);
    p.direct = is_direct(&g->a, micro, &p.cut), p.brief = p.cut.blocks == 1;
    /* 16-bit values are converted while they are packed: to transpose them as well would take longer */
    p.a_like_b = micro->a_like_b && (g->a.k_stride != 1 || (micro->turns_rows && g->a.dtype == AC_float32));
    choose_blocks(&p, threads);
    int64_t row_bytes = g->c_row * ac_itemsize(g->c_dtype);
    p.stream = g->a.lanes * row_bytes >= 2 * ac_l2_bytes() && row_bytes % AC_ALIGNMENT == 0 &&
               (uintptr_t)g->c % AC_ALIGNMENT == 0 && !(ac_is_half(g->c_dtype) && micro->rounds_results);
    p.plain = is_plain(&p);
    p.finish = ac_cpu_loops()->finish[g->c_dtype == AC_float32 ? 0 : g->c_dtype == AC_float16 ? 1 : 2];
    return p;
}

/* -- running it ---------------------------------------------------------------------------------------------- */

static int64_t work_of(const ac_gemm_call *g) { return g->a.lanes * g->b.lanes * g->a.k; }

/* What a plan needs beside its operands. */
typedef struct {
    int64_t a, b, scratch, all;
    int threads;
} memory;

/* If C is one block high, each block packs its part of b right before use, in the second-level cache. Every value is
 * still packed once. Values that the split cannot hold are then found late, and C is computed again. So C must not
 * be an input. */
static bool packs_b_lazily(const plan *p) {
    return p->a_blocks == 1 && p->a_panels >= 4 && (p->cut.kind != AC_PANEL_SPLIT || p->call->beta == 0);
}

static memory memory_of(plan *p, int threads) {
    const ac_gemm_call *g = p->call;
    bool lazy = packs_b_lazily(p);
    memory m = {.threads = threads};
    m.a = p->direct || packs_a_lazily(p) ? 0 : ac_panels_bytes(&p->cut, g->a.lanes);
    m.b = g->panels || lazy ? 0 : ac_panels_bytes(&p->cut, g->b.lanes);
    p->scratch_bytes = accumulators_of(p) * AC_TILE_BYTES * (is_deep(p) ? 2 : 1);
    if (packs_a_lazily(p)) p->scratch_bytes += block_bytes(p, p->a_block);
    if (!g->panels && lazy) p->scratch_bytes += block_bytes(p, p->b_block);
    m.scratch = threads * p->scratch_bytes;
    m.all = m.a + m.b + m.scratch;
    return m;
}

/* The ways that a plan takes, as base/ways.def names them. */
static void note_ways(const plan *p, const memory *m) {
    ac_way_enter(p->micro->way);
    if (m->threads > 1) AC_WAY(product_threads);
    else AC_WAY(product_one_thread);
    if (p->a_blocks * p->b_blocks > 1) AC_WAY(product_blocks);
    else AC_WAY(product_one_block);
    if (p->cut.blocks > 1) AC_WAY(product_k_blocks);
    else AC_WAY(product_one_k_block);
    if (is_deep(p)) AC_WAY(product_spans);
    if (p->direct) AC_WAY(product_a_in_place);
    else if (packs_a_lazily(p)) AC_WAY(product_a_as_it_goes);
    else AC_WAY(product_a_packed);
    if (p->call->panels) AC_WAY(product_b_kept);
    else if (m->b) AC_WAY(product_b_first);
    else AC_WAY(product_b_as_it_goes);
    if (p->stream) AC_WAY(product_stream_result);
}

static void run_in(plan *p, const memory *m, char *room) {
    const ac_gemm_call *g = p->call;
    p->a = m->a ? room : NULL;
    p->b = m->b ? room + m->a : g->panels; /* NULL, too, where each block packs what it needs */
    p->scratch = room + m->a + m->b;
    if (m->a) pack_all(p, &g->a, p->a_like_b, room);
    if (m->b) pack_all(p, &g->b, true, room + m->a);
    if (!atomic_load(p->finite)) return;
    ac_parallel(p->a_blocks * p->b_blocks, m->threads, one_block, p);
}

static int run_with(const ac_gemm_call *g, const ac_micro *micro, int threads, bool *finite) {
    _Atomic bool all_finite = true;
    plan p = plan_of(g, micro, threads, &all_finite);
    memory m = memory_of(&p, (int)ac_least(threads, p.a_blocks * p.b_blocks));
    note_ways(&p, &m);
    if (m.all <= SMALL_BYTES) {
        AC_WAY(product_on_stack);
        _Alignas(AC_ALIGNMENT) char room[SMALL_BYTES];
        run_in(&p, &m, room);
    } else {
        AC_WAY(product_on_heap);
        char *room = ac_alloc((size_t)m.all);
        if (!room) return -1;
        run_in(&p, &m, room);
        ac_free(room, (size_t)m.all);
    }
    *finite = atomic_load(&all_finite);
    return 0;
}

int ac_gemm_run_on(const ac_gemm_call *g, const ac_micro *micro, bool *finite) {
    *finite = true;
    return g->a.lanes && g->b.lanes ? run_with(g, micro, ac_num_threads(), finite) : 0;
}

static int run_whole(const ac_gemm_call *g, int threads) {
    bool finite = true;
    if (g->a.lanes == 0 || g->b.lanes == 0) return 0;
    AC_TRY(run_with(g, ac_micro_for(g->a.round, true), threads, &finite));
    if (finite) return 0;
    AC_WAY(product_again);
    ac_gemm_call again = *g; /* what the split cannot hold, float32 panels can */
    again.panels = NULL;
    return run_with(&again, ac_micro_for(g->a.round, false), threads, &finite);
}

/* A large `b` in two parts would take as much memory again as the weight that it is: so many columns at a time. */
static int run_one(const ac_gemm_call *g, int threads) {
    if (ac_gemm_is_thin(g)) return ac_gemm_run_thin(g, threads);
    enum { MOST_PANELS = 8 << 20, COLUMNS = 256 };
    const ac_micro *micro = ac_micro_for(g->a.round, true);
    ac_cut cut = ac_cut_of(micro->kind, g->b.k);
    int64_t bytes = ac_panels_bytes(&cut, g->b.lanes), at_once = g->b.lanes;
    if (!g->panels && micro->kind == AC_PANEL_SPLIT && bytes > 2 * MOST_PANELS) {
        plan p = plan_of(g, micro, threads, NULL);
        if (!packs_b_lazily(&p))
            at_once = ac_most(1, ac_ceil_div(MOST_PANELS / ac_ceil_div(bytes, g->b.lanes), COLUMNS)) * COLUMNS;
    }
    if (at_once >= g->b.lanes) return run_whole(g, threads);
    AC_WAY(product_b_in_columns);
    for (int64_t j = 0; j < g->b.lanes; j += at_once) {
        ac_gemm_call some = *g;
        some.b.lanes = ac_least(at_once, g->b.lanes - j);
        some.b.data = (const char *)g->b.data + j * g->b.lane_stride * ac_itemsize(g->b.dtype);
        some.c = g->c + j * ac_itemsize(g->c_dtype);
        some.bias = g->bias ? g->bias + j : NULL;
        AC_TRY(run_whole(&some, threads));
    }
    return 0;
}

/* -- batches --------------------------------------------------------------------------------------------------- */

static ac_gemm_call member(const ac_gemm_call *g, int64_t i) {
    ac_gemm_call one = *g;
    one.a.data = (const char *)g->a.data + i * g->a_batch_stride * ac_itemsize(g->a.dtype);
    one.b.data = (const char *)g->b.data + i * g->b_batch_stride * ac_itemsize(g->b.dtype);
    one.c = g->c + i * g->c_batch_stride * ac_itemsize(g->c_dtype);
    return one;
}

typedef struct {
    const ac_gemm_call *call;
    _Atomic int failed;
} batch;

static void run_members(void *context, int64_t begin, int64_t end) {
    batch *b = context;
    for (int64_t i = begin; i < end; i++) {
        ac_gemm_call one = member(b->call, i);
        if (run_one(&one, 1) < 0) atomic_store(&b->failed, 1);
    }
}

/* Whether each value is used in few multiplications by the threads that did not pack it. They wait for its line to come
 * from the core of the one that did. */
static bool packs_much(const ac_gemm_call *g, const ac_micro *micro) {
    enum { MULTIPLICATIONS = 64 };
    ac_cut cut = ac_cut_of(micro->kind, g->a.k);
    bool one_block_wide = ac_panels_of(g->b.lanes) <= LEAST_COLUMNS && cut.kind != AC_PANEL_SPLIT; /* packs_a_lazily */
    int64_t lanes = (one_block_wide || is_direct(&g->a, micro, &cut) ? 0 : g->a.lanes) + (g->panels ? 0 : g->b.lanes);
    return g->a.lanes * g->b.lanes < MULTIPLICATIONS * lanes;
}

/* Multiplications of one product that are worth other threads: two blocks on slower units. Smaller members of a batch
 * are worth more as a whole. */
static int64_t worth_threads(const ac_gemm_call *g) {
    if (ac_gemm_is_thin(g)) return WORTH_THREADS_THIN;
    const ac_micro *micro = ac_micro_for(g->a.round, true);
    if (g->batch > 1 || packs_much(g, micro)) return WORTH_THREADS;
    return ac_least(WORTH_THREADS, 2 * least_work(micro));
}

int ac_gemm_run(const ac_gemm_call *g) {
    if (g->a.lanes == 0 || g->b.lanes == 0) return 0;
    int64_t work = work_of(g);
    int threads = work >= worth_threads(g) && !g->alone ? ac_num_threads() : 1;
    if (work >= worth_threads(g) && ac_gemm_is_deep(g)) return ac_gemm_run_deep(g);
    if (g->batch == 1) return run_one(g, threads);
    if (threads == 1) { /* many small ones: each on one thread */
        AC_WAY(product_batch_dealt);
        batch b = {.call = g};
        ac_for_range(g->batch, work ? ((int64_t)1 << 19) / work : 1024, run_members, &b);
        if (!atomic_load(&b.failed)) return 0;
        return ac_fail(AC_MEMORY, "bmm: not enough memory to pack the operands");
    }
    AC_WAY(product_batch_in_turn);
    for (int64_t i = 0; i < g->batch; i++) {
        ac_gemm_call one = member(g, i);
        AC_TRY(run_one(&one, threads));
    }
    return 0;
}

int ac_gemm_run_any(const ac_gemm_call *g) {
    if (g->a.dtype != AC_float64) return ac_gemm_run(g);
    double *c = (double *)(void *)g->c;
    ac_dgemm d = {.m = g->a.lanes,
                  .n = g->b.lanes,
                  .k = g->a.k,
                  .a = g->a.data,
                  .a_row = g->a.lane_stride,
                  .a_col = g->a.k_stride,
                  .b = g->b.data,
                  .b_row = g->b.k_stride,
                  .b_col = g->b.lane_stride,
                  .c = c,
                  .c_row = g->c_row,
                  .add = g->beta != 0};
    for (int64_t i = 0; d.k == 0 && !d.add && i < d.m; i++) memset(c + i * d.c_row, 0, (size_t)d.n * sizeof *c);
    if (d.k) ac_blas_dgemm(&d);
    return 0;
}

/* -- operands packed once --------------------------------------------------------------------------------------- */

int64_t ac_gemm_panels_bytes(const ac_operand *b) {
    ac_cut cut = ac_cut_of(ac_micro_for(b->round, true)->kind, b->k);
    return ac_panels_bytes(&cut, b->lanes);
}

bool ac_gemm_pack(const ac_operand *b, void *panels) {
    _Atomic bool finite = true;
    plan p = {.cut = ac_cut_of(ac_micro_for(b->round, true)->kind, b->k), .finite = &finite};
    pack_all(&p, b, true, panels);
    return atomic_load(&finite);
}

bool ac_gemm_pack_part(const ac_operand *b, int64_t lane, int64_t lanes, int64_t k, int64_t depth, void *panels) {
    ac_cut cut = ac_cut_of(ac_micro_for(b->round, true)->kind, b->k);
    ac_operand o = *b;
    o.stream = is_large(&cut, b);
    return ac_pack_part(&o, &cut, true, lane / AC_LANES, ac_panels_of(lanes), k / cut.depth,
                        ac_ceil_div(depth, cut.depth), panels);
}
