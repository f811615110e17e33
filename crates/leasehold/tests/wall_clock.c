/* Preloaded into a test's helper process: its wall clock is WALL_CLOCK_OFFSET_S seconds off, all other clocks are right. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    const char *offset = getenv("WALL_CLOCK_OFFSET_S");
    if (offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += atol(offset);
    return result;
}
