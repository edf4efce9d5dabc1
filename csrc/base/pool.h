/* One pool of threads for the whole process. Work is a number of chunks taken dynamically; chunk
 * borders are the caller's and depend on sizes alone, so results do not depend on threads. The
 * caller works too. A second caller at the same time does its chunks itself. Rebuilt after fork. */
#ifndef AC_BASE_POOL_H
#define AC_BASE_POOL_H

#include <stdint.h>

typedef void (*ac_chunk_fn)(void *context, int64_t chunk);

/* Calls fn(context, 0..chunks-1), each once, and returns when all are done. */
void ac_parallel(int64_t chunks, ac_chunk_fn fn, void *context);

int ac_num_threads(void);
void ac_set_num_threads(int n);

#endif
