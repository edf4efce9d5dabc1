/* Errors. A function that can fail returns 0 or -1, or a pointer or NULL, and leaves the reason in a thread-local
 * slot. NULL always means failure; absence is told another way. */
#ifndef AC_BASE_ERROR_H
#define AC_BASE_ERROR_H

#define AC_CHECKED __attribute__((warn_unused_result))
#define AC_PRINTF(f, a) __attribute__((format(printf, f, a)))

typedef enum {
    AC_OK = 0,
#define ERROR(code, exception) AC_##code,
#include "base/errors.def"
#undef ERROR
    AC_N_ERRORS
} ac_error;

/* Records the failure and returns -1, so that `return ac_fail(...)` reads as one step. */
int ac_fail(ac_error code, const char *format, ...) AC_PRINTF(2, 3);
/* The same for functions that return a pointer. */
void *ac_fail_null(ac_error code, const char *format, ...) AC_PRINTF(2, 3);

/* Puts "what: " before the message recorded, unless it begins so; returns -1. */
int ac_fail_in(const char *what);
/* Puts "what: " in place of the operator that the message recorded begins with, "inner: "; returns -1. */
int ac_fail_as(const char *what);

ac_error ac_error_code(void);
const char *ac_error_message(void);
void ac_error_clear(void);

/* Tells the user something: a UserWarning for the script's line, where Python is. Fails when that is an error there.
 * NULL: nobody listens. */
extern int (*ac_warn)(const char *text);

#define AC_TRY(call)                                                                                                   \
    do {                                                                                                               \
        if ((call) < 0) return -1;                                                                                     \
    } while (0)

#endif
