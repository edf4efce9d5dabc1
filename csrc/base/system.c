#include "system.h"

#if defined(_WIN32)

#include <malloc.h>
#define WIN32_LEAN_AND_MEAN
#include <string.h>
#include <windows.h>

void *ac_system_alloc(size_t alignment, size_t size) { return _aligned_malloc(size, alignment); }
void ac_system_free(void *p) { _aligned_free(p); }

void *ac_open_library(const char *path) { return (void *)LoadLibraryA(path); }

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

#else

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

void *ac_system_alloc(size_t alignment, size_t size) {
    void *p;
    return posix_memalign(&p, alignment, size) == 0 ? p : NULL; /* aligned_alloc takes whole alignments only */
}
void ac_system_free(void *p) { free(p); }

void *ac_open_library(const char *path) { return dlopen(path, RTLD_NOW | RTLD_LOCAL); }
void *ac_library_symbol(void *library, const char *name) { return dlsym(library, name); }

int ac_system_cores(void) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

#endif
