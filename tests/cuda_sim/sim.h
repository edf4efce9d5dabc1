/* What the parts of the simulator know of each other. */
#pragma once

#include "shim.h"

/* Runs `blocks` blocks of `threads` threads of a kernel; 0, or a message of what was wrong in it. */
const char *sim_run_kernel(void (*kernel)(void **), void **params, unsigned blocks, unsigned threads, size_t shared);

/* The order in which threads of a block, and blocks, take their turns. */
enum { SIM_FORWARD, SIM_REVERSE, SIM_RANDOM };
void sim_set_order(int order, uint64_t seed);

/* Queued work that a library stand-in adds to a stream: 0, or a message of what was wrong in it. */
typedef const char *(*sim_work)(void *context);
extern "C" int sim_enqueue(void *stream, sim_work work, void (*drop)(void *), void *context);
