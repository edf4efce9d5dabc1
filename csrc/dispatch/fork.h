/* Installs the handlers that make a fork safe while other threads compute. */
#ifndef AC_DISPATCH_FORK_H
#define AC_DISPATCH_FORK_H

#include "base/error.h"

/* From here on the process may fork while other threads are inside the core. */
int ac_fork_init(void) AC_CHECKED;

#endif
