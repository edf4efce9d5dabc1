/* What differs between operating systems, written for POSIX and for Windows. */
#include "base/system.h"

#if defined(_WIN32)

#include <locale.h>
#include <malloc.h>
#define WIN32_LEAN_AND_MEAN
#include <stdio.h>
#include <string.h>
#include <windows.h>

void *ac_system_alloc(size_t alignment, size_t size) { return _aligned_malloc(size, alignment); }
void ac_system_free(void *p) { _aligned_free(p); }

void *ac_open_library(const char *path) { return (void *)LoadLibraryA(path); }
const char *ac_library_failure(void) { return NULL; }

void *ac_library_symbol(void *library, const char *name) {
    FARPROC found = GetProcAddress((HMODULE)library, name);
    void *symbol;
    memcpy(&symbol, &found, sizeof symbol); /* ISO C has no cast from function to data */
    return symbol;
}

int ac_system_cores(void) {
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return info.dwNumberOfProcessors > 0 ? (int)info.dwNumberOfProcessors : 1;
}

void ac_system_format(char *to, size_t size, const char *format, va_list args) {
    _locale_t point = _create_locale(LC_NUMERIC, "C");
    (void)_vsnprintf_l(to, size - 1, format, point, args);
    to[size - 1] = '\0';
    _free_locale(point);
}

#else

#include <dlfcn.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#if defined(__APPLE__)
#include <xlocale.h>
#endif

void *ac_system_alloc(size_t alignment, size_t size) {
    void *p;
    return posix_memalign(&p, alignment, size) == 0 ? p : NULL; /* aligned_alloc takes whole alignments only */
}
void ac_system_free(void *p) { free(p); }

void *ac_open_library(const char *path) { return dlopen(path, RTLD_NOW | RTLD_LOCAL); }
const char *ac_library_failure(void) { return dlerror(); }
void *ac_library_symbol(void *library, const char *name) { return dlsym(library, name); }

int ac_system_cores(void) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

void ac_system_format(char *to, size_t size, const char *format, va_list args) {
    locale_t point = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0), own = point ? uselocale(point) : (locale_t)0;
    (void)vsnprintf(to, size, format, args);
    if (!point) return; /* no memory */
    uselocale(own);
    freelocale(point);
}

#endif
