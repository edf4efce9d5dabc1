/* The moments around a fork, for the owners of locks. A lock is taken before the fork and released after it, so that
 * what it guards is whole in the child. Or it is made anew in the child, where what it guards starts afresh or is
 * never used. dispatch/fork.c lists all owners. */
#ifndef AC_BASE_FORK_H
#define AC_BASE_FORK_H

typedef enum { AC_FORK_BEFORE, AC_FORK_PARENT, AC_FORK_CHILD } ac_fork_moment;

#endif
