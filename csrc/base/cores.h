/* How many cores this process may use. */
#ifndef AC_BASE_CORES_H
#define AC_BASE_CORES_H

/* The affinity mask's cores, less where the control group's quota (cgroup v1 or v2) is smaller. */
int ac_usable_cores(void);
/* The quota in a cpu.max file ("max 100000" or "150000 100000"), rounded up to cores; 0: none. */
int ac_quota_in(const char *cpu_max);

#endif
