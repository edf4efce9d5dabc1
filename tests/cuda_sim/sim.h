/* What the parts of the simulator know of each other. */
#pragma once

#include "shim.h"

enum { MOST_THREADS = 1024, WARP = 32, MOST_SHARED = 256 << 10 }; /* of a block */

/* Runs `blocks` blocks of `threads` threads of a kernel; 0, or a message of what was wrong in it. */
const char *sim_run_kernel(void (*kernel)(void **), void **params, unsigned blocks, unsigned threads, size_t shared);

/* What a kernel does wrong that lets it go on: its launch fails with the first. */
void sim_report(const char *wrong);

/* Blocks that began before this one, of all launches; and the shared memory that this one's launch asked for. */
extern uint64_t sim_blocks_run;
extern size_t sim_shared_size;

/* Bytes of the GPU's memory that the running kernel reads and writes, in sectors of 32: tests/cuda_ptx counts those
 * that a block touches between two of its barriers, each once. */
struct sim_traffic {
    uint64_t read, written;
};
extern sim_traffic sim_moved;
extern bool sim_counts; /* whether anybody asks */
bool sim_is_device(uint64_t address);

/* The order in which threads of a block, and blocks, take their turns. */
enum { SIM_FORWARD, SIM_REVERSE, SIM_RANDOM };
void sim_set_order(int order, uint64_t seed);

/* Queued work that a library stand-in adds to a stream: 0, or a message of what was wrong in it, or sim_waits() where
 * it is to be called again because another process has not done its part. */
typedef const char *(*sim_work)(void *context);
extern "C" int sim_enqueue(void *stream, sim_work work, void (*drop)(void *), void *context);
extern "C" const char *sim_waits(void);
extern "C" void sim_advance(void *stream); /* does what can be done now of a stream of the current device */
extern "C" int sim_owner(uint64_t address, size_t bytes); /* the device of live memory, -1: it is none */
extern "C" int sim_device(void);                          /* the thread's current one, -1: none */
