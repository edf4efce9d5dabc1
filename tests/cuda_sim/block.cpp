/* A block of threads, each on a fiber. A thread runs until it waits: for its warp (a shuffle) or for the block. Then
 * another gets its turn, in the order that was set. A barrier that some threads never reach is an error. */
#include "sim.h"

#include "cuda/args.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

sim_index sim_thread, sim_block, sim_block_size, sim_grid_size;
char *ac_shared_memory;
uint64_t sim_blocks_run;
size_t sim_shared_size;

namespace {

enum { GUARD = 64 };
/* With a power of two, the tops of all stacks would share a few lines of the caches. */
enum { STACK = (68 << 10) + 5 * 64 };
enum State { READY, AT_WARP, AT_BLOCK, DONE };

struct Fiber {
    void *sp;
    State state;
    unsigned index;
};

Fiber fibers[MOST_THREADS];
char *stacks;
Fiber *current;
void *scheduler_sp;
void (*entry)(void **);
void **entry_params;
unsigned n_threads, n_done;
char slots[MOST_THREADS][32];
int order_kind = SIM_FORWARD;
uint64_t order_seed = 1;
char reported[256]; /* the first thing wrong in the launch that runs */
/* Shared memory lies as the kernels' declaration promises, and no better. */
enum { SHARED_ALIGNMENT = AC_GPU_SHARED_ALIGNMENT };
alignas(2 * SHARED_ALIGNMENT) char shared_pages[SHARED_ALIGNMENT + MOST_SHARED + GUARD];
char *const shared_room = shared_pages + SHARED_ALIGNMENT;

uint64_t next_random() { /* Vigna's xorshift64* */
    order_seed ^= order_seed >> 12, order_seed ^= order_seed << 25, order_seed ^= order_seed >> 27;
    return order_seed * 0x2545F4914F6CDD1DULL;
}

} // namespace

/* Saves the callee-saved registers on this stack and goes on where the other left off. By a jump: a CPU predicts that a
 * return goes to the last call, which is wrong here each time. */
extern "C" void sim_switch(void **save, void *to);
#if defined(__x86_64__)
__asm__(".text\n.globl sim_switch\n.hidden sim_switch\n.type sim_switch,@function\nsim_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\npop %rcx\njmp *%rcx\n");
enum { SAVED_WORDS = 6 };
#elif defined(__aarch64__)
__asm__(".text\n.globl sim_switch\n.hidden sim_switch\n.type sim_switch,%function\nsim_switch:\n"
        "sub sp, sp, #160\nstp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\n"
        "stp x25, x26, [sp, #48]\nstp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\nstp d8, d9, [sp, #96]\n"
        "stp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\n"
        "mov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
        "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\nldp x25, x26, [sp, #48]\n"
        "ldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\nldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\n"
        "ldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\nadd sp, sp, #160\nret\n");
#else
#error "the simulator's fibers are written for x86-64 and AArch64"
#endif

namespace {

void yield_as(State state) {
    current->state = state;
    sim_switch(&current->sp, scheduler_sp);
}

void fiber_main() {
    entry(entry_params);
    n_done++;
    yield_as(DONE);
    __builtin_trap(); /* a finished thread got a turn */
}

void start(Fiber *f, unsigned index) {
    char *top = stacks + (size_t)(index + 1) * STACK;
    void **sp = (void **)((uintptr_t)top & ~(uintptr_t)15);
    void (*first)() = fiber_main;
#if defined(__x86_64__)
    *--sp = nullptr; /* alignment at a function's entry */
    memcpy(--sp, &first, sizeof first);
    sp -= SAVED_WORDS;
    memset(sp, 0, SAVED_WORDS * sizeof *sp);
#else
    sp -= 20;
    memset(sp, 0, 20 * sizeof *sp);
    memcpy(&sp[11], &first, sizeof first);
#endif
    *f = {sp, READY, index};
}

void resume(Fiber *f) {
    current = f;
    sim_thread = {f->index, 0, 0};
    f->state = READY;
    sim_switch(&scheduler_sp, f->sp);
}

/* When all of a group wait at its barrier, they may go on. */
bool release(unsigned begin, unsigned end, State at) {
    for (unsigned i = begin; i < end; i++)
        if (fibers[i].state != at) return false;
    for (unsigned i = begin; i < end; i++) fibers[i].state = READY;
    return true;
}

bool release_some() {
    bool any = release(0, n_threads, AT_BLOCK);
    for (unsigned w = 0; w < n_threads; w += WARP)
        any |= release(w, w + WARP < n_threads ? w + WARP : n_threads, AT_WARP);
    return any;
}

void make_order(unsigned *order, unsigned n) {
    for (unsigned i = 0; i < n; i++) order[i] = order_kind == SIM_REVERSE ? n - 1 - i : i;
    if (order_kind != SIM_RANDOM) return;
    for (unsigned i = n; i > 1; i--) {
        unsigned j = (unsigned)(next_random() % i), keep = order[i - 1];
        order[i - 1] = order[j], order[j] = keep;
    }
}

const char *run_block() {
    unsigned order[MOST_THREADS];
    memset(shared_room, 0xFF, sim_shared_size + GUARD); /* nan, -1: what was not written is seen */
    for (unsigned i = 0; i < n_threads; i++) start(&fibers[i], i);
    make_order(order, n_threads);
    n_done = 0;
    for (;;) {
        bool ran = false;
        for (unsigned i = 0; i < n_threads; i++) {
            Fiber *f = &fibers[order[i]];
            if (f->state != READY) continue;
            resume(f);
            ran = true;
        }
        if (n_done == n_threads) break;
        if (!release_some() && !ran) return "threads wait at a barrier that others never reach";
        if (order_kind == SIM_RANDOM) make_order(order, n_threads); /* the other orders are the same each time */
    }
    sim_blocks_run++;
    for (int i = 0; i < GUARD; i++)
        if (shared_room[sim_shared_size + (size_t)i] != (char)0xFF)
            return "shared memory was written beyond what the launch asked for";
    return *reported ? reported : nullptr;
}

} // namespace

void sim_sync_block(void) { yield_as(AT_BLOCK); }
void sim_sync_warp(void) { yield_as(AT_WARP); }
int sim_lane(void) { return (int)(current->index % WARP); }
void *sim_warp_slot(int lane) { return slots[current->index / WARP * WARP + (unsigned)lane]; }

void sim_report(const char *wrong) {
    if (!*reported) snprintf(reported, sizeof reported, "%s", wrong);
}

void sim_set_order(int order, uint64_t seed) {
    order_kind = order;
    order_seed = seed ? seed : 1;
}

const char *sim_run_kernel(void (*kernel)(void **), void **params, unsigned blocks, unsigned threads, size_t shared) {
    if (threads == 0 || threads > MOST_THREADS || blocks == 0 || shared > 227 << 10)
        return "a launch of impossible size";
    if (!stacks) {
        void *p = mmap(nullptr, (size_t)MOST_THREADS * STACK, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) return "no memory for the simulator's stacks";
        stacks = (char *)p;
    }
    entry = kernel, entry_params = params, n_threads = threads;
    ac_shared_memory = shared_room, sim_shared_size = shared, *reported = 0;
    sim_block_size = {threads, 1, 1}, sim_grid_size = {blocks, 1, 1};
    uint64_t first = order_kind == SIM_RANDOM ? next_random() % blocks : 0;
    for (unsigned b = 0; b < blocks; b++) {
        unsigned at = order_kind == SIM_REVERSE ? blocks - 1 - b : (unsigned)((b + first) % blocks);
        sim_block = {at, 0, 0};
        const char *wrong = run_block();
        if (wrong) return wrong;
    }
    return nullptr;
}
