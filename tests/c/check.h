/* CHECK counts, and says where and why one failed. */
#include <stdio.h>

static int passed, failed;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (condition) passed++;                                                                                       \
        else {                                                                                                         \
            failed++;                                                                                                  \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, ac_error_message());                   \
        }                                                                                                              \
    } while (0)
