/* The parts of the stage record, for calls that write into a tensor: edges are taken before the write, the rest after.
 */
#ifndef AC_DISPATCH_RECORD_H
#define AC_DISPATCH_RECORD_H

#include "dispatch/call.h"
#include "dispatch/write.h"

/* Whether backward through `node`, whose edges are set, needs the value of `input`. */
bool ac_call_saves(const ac_op_call *c, const ac_node *node, int input);
/* new: a node with its edges; what it saves comes after the kernel has run. */
ac_node *ac_call_node(const ac_op_call *c, int n_out) AC_CHECKED;
/* Notes the results, and saves what the table says. */
int ac_call_save(const ac_op_call *c, ac_node *node) AC_CHECKED;

#endif
