/* Context managers over the core's state. They enter and leave by a method in C, so no Python instruction lies
 * between the change of state and its record. An exception of a signal or of another thread then finds the old state,
 * or a statement that knows that it has to leave. So all that may fail, or runs Python, is done before the state
 * changes or after it was restored. Restoring needs no memory. */
#ifndef AC_PYTHON_SCOPE_H
#define AC_PYTHON_SCOPE_H

#include "python/state.h"

/* What a region has to put back. The regions of a thread are a list, and one may end before another within it. */
typedef struct ac_scope_frame {
    struct ac_scope_frame *outer;
    PyObject *owner;                           /* owned */
    int (*restore)(struct ac_scope_frame *f);  /* -1 with an error; the state is put back in any case */
    void (*release)(struct ac_scope_frame *f); /* what it owns besides; NULL: nothing */
} ac_scope_frame;

/* new: zeroed, of `bytes`, which begin with an ac_scope_frame; NULL with an error */
void *ac_scope_frame_new(size_t bytes, PyObject *owner, int (*restore)(ac_scope_frame *),
                         void (*release)(ac_scope_frame *));
/* Enters: the frame (stolen) is this thread's innermost. Then the state may change. */
void ac_scope_push(ac_scope_frame *f);
void ac_scope_free(ac_scope_frame *f); /* of one that was not entered */
ac_scope_frame *ac_scope_innermost(void);

/* Calls a class as if its vectorcall were not there. */
PyObject *ac_call_type(PyObject *type, PyObject *const *args, size_t nargsf, PyObject *words);

/* `__exit__` of every scope, METH_FASTCALL. */
PyObject *ac_scope_exit(PyObject *self, PyObject *const *args, Py_ssize_t n);
/* Adds a type ampc._C.<name> whose `__enter__` is given; a subclass in Python has the rest. */
int ac_scope_type(PyObject *module, const char *name, const char *doc, PyCFunction enter);

#endif
