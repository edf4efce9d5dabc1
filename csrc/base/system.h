/* What differs between operating systems: aligned memory, libraries opened by name, the number of cores, locales. */
#ifndef AC_BASE_SYSTEM_H
#define AC_BASE_SYSTEM_H

#include <stdarg.h>
#include <stddef.h>

/* `size` is a multiple of `alignment`, a power of 2; NULL where there is none. */
void *ac_system_alloc(size_t alignment, size_t size);
void ac_system_free(void *p);

/* NULL where it is not found. Never closed. */
void *ac_open_library(const char *path);
const char *ac_library_failure(void); /* why the last one that was asked for was not opened; NULL: nobody says */
void *ac_library_symbol(void *library, const char *name);

/* That are switched on; at least 1. */
int ac_system_cores(void);

/* vsnprintf whose numbers have a point in every locale. */
void ac_system_format(char *to, size_t size, const char *format, va_list args);

#endif
