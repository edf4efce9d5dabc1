/* What is wrong in an access of memory, races in shared memory above all: for each byte it is known who wrote it last
 * and who has read it since the last barrier. Two threads race where they reach a byte between the same two barriers of
 * the block, one of them to write it, and no barrier of their warp lies between. A shuffle orders no memory. */
#include "runtime.h"

#include <stdio.h>

#include <unordered_map>
#include <vector>

namespace {

enum { ROUND_BITS = 32 };

/* Where a thread is. Numbers of rounds are never used again: the upper half counts blocks, the lower one barriers. */
struct Thread {
    u64 round; /* between two barriers of the block, */
    u32 step;  /* and of the warp */
};
Thread threads[MOST_THREADS];

struct Write {
    u64 round;
    u32 step;
    u16 thread;
    bool atomic;
};
/* The warps that have read in a round, and of the last one its step and lanes. The lanes of a warp are forgotten when
 * another reads; from then on every writer races with one of the two. */
struct Reads {
    u64 round;
    u32 warps, lanes, step, warp;
};
struct Byte {
    Write write;
    Reads reads;
    u64 filled_in; /* the block of which a copy that nobody has waited for writes here, or 0 */
};
Byte bytes_[MOST_SHARED];
u8 spare[64];

/* One that a thread has begun, and the group that it is in. */
struct Copy {
    u64 to;
    u32 size, group;
    u8 data[16];
};
std::vector<Copy> copies[MOST_THREADS];
u32 groups[MOST_THREADS]; /* how many a thread has closed */

const Thread &here() { return threads[sim_thread.x]; }

void report(const char *format, const char *what, size_t a, size_t b) {
    char text[200];
    snprintf(text, sizeof text, format, what, a, b);
    sim_report(text);
}

bool races_with_write(const Write &w, Access access) {
    u32 mine = sim_thread.x;
    if (w.round != here().round || w.thread == mine || (w.atomic && access == ATOMIC)) return false;
    return w.thread / WARP != mine / WARP || w.step == here().step;
}

bool races_with_reads(const Reads &r) {
    u32 mine = sim_thread.x, own = mine / WARP;
    if (r.round != here().round) return false;
    if (r.warps & ~(1u << own)) return true;
    return r.warp == own && r.step == here().step && (r.lanes & ~(1u << mine % WARP));
}

void note_read(Reads &r) {
    u32 mine = sim_thread.x, own = mine / WARP;
    if (r.round != here().round) r = {here().round, 0, 0, 0, own};
    if (r.warp != own || r.step != here().step) r.warp = own, r.step = here().step, r.lanes = 0;
    r.warps |= 1u << own, r.lanes |= 1u << mine % WARP;
}

/* Whether it races with what came before. */
bool touch(Byte &b, Access access) {
    bool races = races_with_write(b.write, access);
    if (access == READ) {
        note_read(b.reads);
        return races;
    }
    races = races || races_with_reads(b.reads);
    b.write = {here().round, here().step, (u16)sim_thread.x, access == ATOMIC};
    return races;
}

} // namespace

void begin_thread(void) {
    threads[sim_thread.x] = {(sim_blocks_run + 1) << ROUND_BITS, 0};
    copies[sim_thread.x].clear(), groups[sim_thread.x] = 0;
}
void block_barrier(void) {
    sim_sync_block();
    threads[sim_thread.x].round++;
}
void warp_barrier(void) {
    sim_sync_warp();
    threads[sim_thread.x].step++;
}

void report_misaligned(u64 address, size_t bytes, const char *what) {
    report("%s is misaligned: %zu bytes at an address that is %zu beyond a multiple of them", what, bytes,
           (size_t)address % bytes);
}

void no_return(void) { sim_report("a function ends without a return: nvcc found no way on"); }

void count_traffic(u64 address, size_t bytes, Access access) {
    enum { SECTOR = 32 };
    static std::unordered_map<u64, u64> touched[2]; /* the round in which a sector was read last, and written */
    if (!sim_is_device(address)) return;
    for (u64 sector = address / SECTOR; sector <= (address + bytes - 1) / SECTOR; sector++)
        for (int written = 0; written < 2; written++) {
            if (access != ATOMIC && (access == WRITE) != (written == 1)) continue;
            u64 &round = touched[written][sector];
            if (round != here().round) (written ? sim_moved.written : sim_moved.read) += SECTOR;
            round = here().round;
        }
}

u8 *checked_shared(u64 offset, size_t bytes, Access access, const char *what) {
    if (offset + bytes > sim_shared_size) {
        report("%s is outside the shared memory of the launch: byte %zu of %zu", what, offset, sim_shared_size);
        return spare;
    }
    bool races = false, early = false;
    for (size_t i = 0; i < bytes; i++) {
        races |= touch(bytes_[offset + i], access);
        early |= bytes_[offset + i].filled_in == here().round >> ROUND_BITS;
    }
    if (early)
        report("%s at byte %zu of shared memory comes before a copy that writes there was waited for, thread %zu", what,
               offset, sim_thread.x);
    else if (races)
        report("%s at byte %zu of shared memory races with another thread: no barrier between them, thread %zu", what,
               offset, sim_thread.x);
    return (u8 *)ac_shared_memory + offset;
}

/* Until it is waited for, nan stands where it writes. */
void copy_begins(u64 to, u64 from, u32 size, u32 given, const char *what) {
    Copy c = {to, size, groups[sim_thread.x], {0}};
    if (size > sizeof c.data || given > size) sim_report("a copy of a size that there is none of");
    if (to % size || from % size) report_misaligned(to % size ? to : from, size, what);
    if (given) {
        if (sim_counts) count_traffic(from, given, READ);
        memcpy(c.data, (const u8 *)from, given);
    }
    memset(checked_shared((u32)to, size, WRITE, what), 0xFF, size);
    for (u32 i = 0; i < size; i++) bytes_[(u32)to + i].filled_in = here().round >> ROUND_BITS;
    copies[sim_thread.x].push_back(c);
}
void copies_grouped(void) { groups[sim_thread.x]++; }
void copies_done(u32 left) {
    std::vector<Copy> &mine = copies[sim_thread.x];
    size_t done = 0;
    for (; done < mine.size() && mine[done].group + left < groups[sim_thread.x]; done++) {
        const Copy &c = mine[done];
        for (u32 i = 0; i < c.size; i++) bytes_[(u32)c.to + i].filled_in = 0;
        memcpy(checked_shared((u32)c.to, c.size, WRITE, "a copy"), c.data, c.size);
    }
    mine.erase(mine.begin(), mine.begin() + (long)done);
}
