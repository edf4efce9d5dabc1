/* CUDA graphs: the work that a thread queues is captured instead of run, and replayed as often as one likes. */
#ifndef AC_CUDA_GRAPH_H
#define AC_CUDA_GRAPH_H

#include "cuda/gpu.h"

typedef struct ac_gpu_graph ac_gpu_graph;

/* keeps: what is captured stays a graph of the driver's, which others may look at and change. */
ac_gpu_graph *ac_gpu_graph_new(ac_device d, bool keeps) AC_CHECKED;
/* From here to the end, this thread's work on its current stream of the graph's device is captured. Memory comes from
 * the pool of that number. Random numbers count from an offset that each replay sets. */
int ac_gpu_capture_begin(ac_gpu_graph *g, uint64_t pool, CUstreamCaptureMode mode) AC_CHECKED;
/* CaptureError where something in it could not be captured; either way the thread captures no more. */
int ac_gpu_capture_end(ac_gpu_graph *g) AC_CHECKED;
/* Queues what was captured on the current stream. Tensors that it writes are marked as written. */
int ac_gpu_graph_replay(ac_gpu_graph *g) AC_CHECKED;
/* Makes a graph that is kept ready to run, as it is now; the first replay does so where nobody has. */
int ac_gpu_graph_instantiate(ac_gpu_graph *g) AC_CHECKED;
void *ac_gpu_graph_captured(const ac_gpu_graph *g);   /* the driver's CUgraph, if it is kept; or NULL */
void *ac_gpu_graph_executable(const ac_gpu_graph *g); /* and its CUgraphExec, once it is ready; or NULL */
/* Sets the options that optimizer step i of those captured reads from the next replay on. */
int ac_gpu_graph_set_options(ac_gpu_graph *g, int i, const ac_optim_options *options) AC_CHECKED;
int ac_gpu_graph_steps(const ac_gpu_graph *g); /* how many optimizer steps were captured */
/* Replays that are queued still run; the memory is used again after them. */
void ac_gpu_graph_free(ac_gpu_graph *g);

#endif
