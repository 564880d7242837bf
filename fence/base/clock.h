/* SPDX-License-Identifier: Apache-2.0 */
/* Time and chance come in through these two small interfaces, so that a test or a simulator can
 * hold them still. Nothing in Stockade that decides about a lease reads the wall clock. */
#ifndef STOCKADE_BASE_CLOCK_H
#define STOCKADE_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

#define CLOCK_BOOT_SIZE 40

struct clock {
    /* Milliseconds since some fixed moment; never goes back (CLOCK_MONOTONIC or a virtual one). */
    int64_t (*now_ms)(const struct clock *clock);
    void *context;
    /* Microseconds since 1970, to show to people: it may be set at any time. NULL: there is no wall
     * clock. */
    int64_t (*wall_us)(const struct clock *clock);
    /* Names the boot of the machine from which now_ms counts; "" where that is not known, as where
     * this is NULL. */
    void (*boot)(const struct clock *clock, char id[CLOCK_BOOT_SIZE]);
};

struct chance {
    /* Fills with bytes nobody can guess (getrandom), or a seeded stream in a test. */
    void (*fill)(const struct chance *chance, void *bytes, size_t len);
    void *context;
};

extern const struct clock clock_monotonic;
extern const struct chance chance_system;

static inline int64_t clock_now_ms(const struct clock *clock)
{
    return clock->now_ms(clock);
}

static inline void clock_boot(const struct clock *clock, char id[CLOCK_BOOT_SIZE])
{
    id[0] = '\0';
    if (clock->boot != NULL)
        clock->boot(clock, id);
}

#endif
