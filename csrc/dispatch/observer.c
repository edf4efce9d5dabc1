/* Shows a call that has run to the observer, with the time that it took. */
#include "dispatch/observer.h"

#include <time.h>

int (*ac_watch)(const ac_seen *seen);
_Thread_local bool ac_watching;
int (*ac_watch_whole)(const ac_op_call *c);
_Thread_local int ac_composing;

static int64_t nanoseconds(void) {
    struct timespec t;
    (void)timespec_get(&t, TIME_UTC);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int ac_observed(const ac_op_call *c, int (*stages)(const ac_op_call *c)) {
    int64_t begin = nanoseconds();
    AC_TRY(stages(c));
    ac_seen seen = {c->op, c->operands, c->out, c->n_in, c->info->n_out, c->attrs, c->low, false, 0};
    seen.nanoseconds = nanoseconds() - begin;
    int failed = ac_watch(&seen);
    if (failed) ac_release_results(c);
    return failed;
}

int64_t ac_observation_begins(void) { return ac_watching ? nanoseconds() : 0; }

int ac_observe_target(const ac_op_call *c, int64_t begin) {
    if (!ac_watching) return 0;
    int64_t took = begin ? nanoseconds() - begin : 0;
    return ac_watch(&(ac_seen){c->op, c->operands, c->out, c->n_in, 1, c->attrs, c->low, true, took});
}
