/* What becomes of the core's locks when the process forks while other threads are inside it. A lock is taken before and
 * let go after, so that what it guards is whole in the child; or it is made anew in the child, where what it guards is
 * begun anew or never used. dispatch/fork.c lists them all. */
#ifndef AC_BASE_FORK_H
#define AC_BASE_FORK_H

typedef enum { AC_FORK_BEFORE, AC_FORK_PARENT, AC_FORK_CHILD } ac_fork_moment;

#endif
