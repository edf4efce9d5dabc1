/* The calling thread's error: its code and its message. */
#include "base/error.h"

#include "base/system.h"

#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

int (*ac_warn)(const char *text);

enum { MESSAGE_BYTES = 1024 };

static _Thread_local struct {
    ac_error code;
    char message[MESSAGE_BYTES];
} current;

static void record(ac_error code, const char *format, va_list args) {
    current.code = code;
    ac_system_format(current.message, sizeof current.message, format, args);
}

int ac_fail(ac_error code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    record(code, format, args);
    va_end(args);
    return -1;
}

void *ac_fail_null(ac_error code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    record(code, format, args);
    va_end(args);
    return NULL;
}

/* Puts "what: " in place of the message's first bytes. What Python raised has its own words. */
static int begin_with(const char *what, size_t replaced) {
    size_t n = strlen(what), rest = strlen(current.message) - replaced;
    if (current.code == AC_OK || current.code == AC_PYTHON || n + 2 + rest >= MESSAGE_BYTES) return -1;
    memmove(current.message + n + 2, current.message + replaced, rest + 1);
    memcpy(current.message, what, n);
    memcpy(current.message + n, ": ", 2);
    return -1;
}

int ac_fail_in(const char *what) {
    size_t n = strlen(what);
    bool said = strncmp(current.message, what, n) == 0 && current.message[n] == ':';
    return said ? -1 : begin_with(what, 0);
}

int ac_fail_as(const char *what) {
    size_t inner = strspn(current.message, "abcdefghijklmnopqrstuvwxyz0123456789_.");
    bool named = inner > 0 && strncmp(current.message + inner, ": ", 2) == 0;
    return named ? begin_with(what, inner + 2) : -1;
}

ac_error ac_error_code(void) { return current.code; }

const char *ac_error_message(void) { return current.message; }

void ac_error_clear(void) {
    current.code = AC_OK;
    current.message[0] = '\0';
}
