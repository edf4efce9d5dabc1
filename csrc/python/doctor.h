/* The doctor's part of the observer of operators. */
#ifndef AC_PYTHON_DOCTOR_H
#define AC_PYTHON_DOCTOR_H

#include "python/state.h"

#include "dispatch/observer.h"

/* A watcher is a callable, or a doctor's tuple, whose first item is one. */
bool ac_is_doctor(PyObject *watcher);
/* Of a doctor: whether it awaits what becomes of a value. */
bool ac_doctor_awaits(PyObject *watcher);
/* Enters a call. 1: done; 0: Python is to see it; -1 with an exception. */
int ac_doctor_saw(PyObject *watcher, const ac_seen *s);

#endif
