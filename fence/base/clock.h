/* SPDX-License-Identifier: Apache-2.0 */
/* Time and chance come in through these two small interfaces, so that a test or a simulator can
 * set them. Nothing in Stockade that decides about a lease reads the wall clock. */
#ifndef STOCKADE_BASE_CLOCK_H
#define STOCKADE_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

#define CLOCK_BOOT_SIZE 40

struct clock {
    /* Milliseconds since some fixed moment; never goes back (CLOCK_MONOTONIC or a virtual one). */
    int64_t (*now_ms)(const struct clock *clock);
    void *context;
    /* Microseconds since 1970, to show to people: it may jump at any time. NULL: there is no wall
     * clock. */
    int64_t (*wall_us)(const struct clock *clock);
    /* The id of the boot of the machine from which now_ms counts; "" where it is not known. NULL:
     * it never is. */
    void (*boot)(const struct clock *clock, char id[CLOCK_BOOT_SIZE]);
    /* The same time as now_ms, in microseconds, to measure how long something takes. NULL: it does
     * not know better than now_ms. */
    int64_t (*now_us)(const struct clock *clock);
};

struct chance {
    /* Fill with bytes that nobody can guess (getrandom), or from a seeded stream in a test. */
    void (*fill)(const struct chance *chance, void *bytes, size_t len);
    void *context;
};

/* The machine's own. */
extern const struct clock clock_monotonic;
extern const struct chance chance_system;

/* Return the time on this clock. */
static inline int64_t clock_now_ms(const struct clock *clock)
{
    return clock->now_ms(clock);
}

/* Return the same in microseconds. */
static inline int64_t clock_now_us(const struct clock *clock)
{
    return clock->now_us != NULL ? clock->now_us(clock) : clock_now_ms(clock) * 1000;
}

/* Return microseconds since 1970, or, where there is no wall clock, of this clock. */
static inline int64_t clock_wall_us(const struct clock *clock)
{
    return clock->wall_us != NULL ? clock->wall_us(clock) : clock_now_ms(clock) * 1000;
}

/* Write `digits` random hexadecimal digits, an even number up to 64, and a zero. */
void chance_hex(const struct chance *chance, char *out, size_t digits);

/* Write the boot's id, or "". */
static inline void clock_boot(const struct clock *clock, char id[CLOCK_BOOT_SIZE])
{
    id[0] = '\0';
    if (clock->boot != NULL)
        clock->boot(clock, id);
}

#endif
