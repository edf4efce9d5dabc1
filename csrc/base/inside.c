/* The thread's visit to the core. */
#include "base/inside.h"

_Thread_local ac_inside_state ac_inside;
