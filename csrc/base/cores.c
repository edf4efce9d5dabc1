#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "cores.h"

#include "system.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int cores_of(double quota, double period) {
    if (quota <= 0 || period <= 0) return 0;
    int whole = (int)(quota / period);
    return whole < quota / period ? whole + 1 : whole;
}

int ac_quota_in(const char *cpu_max) {
    char *rest;
    double quota = strtod(cpu_max, &rest);
    return rest == cpu_max ? 0 : cores_of(quota, strtod(rest, NULL));
}

static int read_file(const char *path, char *text, size_t size) {
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    size_t n = fread(text, 1, size - 1, f);
    (void)fclose(f);
    text[n] = '\0';
    return n > 0;
}

/* The tightest quota from the process's own group up to the root (version 2 of the interface). */
static int quota_v2(void) {
    char groups[2048], path[2400], text[64];
    if (!read_file("/proc/self/cgroup", groups, sizeof groups)) return 0;
    char *own = strstr(groups, "0::");
    if (!own) return 0;
    own += 3;
    own[strcspn(own, "\n")] = '\0';
    int least = 0;
    for (char *end = own + strlen(own);; *end = '\0') {
        (void)snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", own);
        int cores = read_file(path, text, sizeof text) ? ac_quota_in(text) : 0;
        if (cores && (!least || cores < least)) least = cores;
        end = strrchr(own, '/');
        if (!end) return least;
    }
}

static int quota_v1(void) {
    char quota[64], period[64];
    if (!read_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota, sizeof quota)) return 0;
    if (!read_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us", period, sizeof period)) return 0;
    return cores_of(strtod(quota, NULL), strtod(period, NULL));
}

int ac_usable_cores(void) {
    int cores = ac_system_cores();
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
    int quota = quota_v2();
    if (!quota) quota = quota_v1();
    if (quota && quota < cores) cores = quota;
#endif
    return cores;
}
