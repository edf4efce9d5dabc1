/* The tables by which a kernel finds the tensors of a list (foreach.cu). */
#ifndef AC_CUDA_TABLES_H
#define AC_CUDA_TABLES_H

#include "cuda/gpu.h"

typedef struct ac_gpu_table ac_gpu_table;

/* A list's table: built on the host, on the device from ac_gpu_list_send on. */
typedef struct {
    ac_device device;
    ac_gpu_item *items; /* on the host */
    int n;
    int64_t pieces;
    ac_gpu_table *table; /* on the device */
} ac_gpu_sent_list;

int ac_gpu_list_new(ac_gpu_sent_list *l, ac_device d, int n) AC_CHECKED; /* the items are zeros */
/* For launches on the current stream. A table that lies there already is not sent again: the lists of a training loop
 * stay the same from step to step. */
int ac_gpu_list_send(ac_gpu_sent_list *l) AC_CHECKED;
ac_gpu_list ac_gpu_list_arguments(const ac_gpu_sent_list *l);
void ac_gpu_list_free(ac_gpu_sent_list *l);
void ac_gpu_lists_forget(ac_device d); /* lets go of the tables that are kept there */

#endif
