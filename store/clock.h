/* SPDX-License-Identifier: Apache-2.0 */
/* The store's own time, by which receipts, resources and leases in it grow old.
 *
 * It counts milliseconds. It begins at the wall clock's time when the store is first used, and from
 * then on advances by measured time alone: the machine's monotonic clock plus an offset, which is
 * kept with the data. Setting the wall clock changes nothing.
 *
 * - All processes on one store that belong to one boot of one machine have the same time.
 * - Time in which no process had the store open counts if two clocks say that it passed: the
 *   monotonic one, and the wall clock since the time was noted last. The one that says less is
 *   believed.
 * - After a reboot, or on another machine, the time goes on where it was noted last. Whoever dates
 *   something notes the time with it, unless it was noted within NOTED_EVERY_MS: so no date lies
 *   further ahead than that. It is then of age 0.
 * - What was dated before the first use (by an earlier version, with the wall clock) counts from
 *   the first use.
 *
 * So whatever clocks do, things are kept too long, and nothing is forgotten too early. */
#ifndef STOCKADE_STORE_CLOCK_H
#define STOCKADE_STORE_CLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fence/base/clock.h"

#define NOTED_EVERY_MS (60 * 1000)

/* What is kept with the data; all 0 in a store that was never used. */
struct store_clock_note {
    char boot[CLOCK_BOOT_SIZE]; /* whose count the offset is for */
    int64_t offset_ms;          /* the store's time less the machine's count */
    int64_t reached_ms;         /* the store's time when it was noted */
    int64_t wall_ms;            /* the wall clock's then */
    int64_t start_ms;           /* the store's time at its first use */
};

/* One process's. */
struct store_clock {
    const struct clock *machine; /* borrowed */
    /* For all threads. */
    atomic_int_least64_t offset_ms, start_ms;
    /* The writer's: as it was committed last, or read. */
    struct store_clock_note note;
};

/* `machine` NULL: the system's. */
void store_clock_init(struct store_clock *clock, const struct clock *machine);
/* When the store is opened: go on from the note that is kept with it. True: clock->note has
 * changed; keep it. */
bool store_clock_resume(struct store_clock *clock, const struct store_clock_note *kept);
/* When another process has committed: follow the note that is kept now. As store_clock_resume. */
bool store_clock_follow(struct store_clock *clock, const struct store_clock_note *kept);
/* Is this another boot, or another machine, than the one of the note? True also where no boot is
 * known; false for a store that was never used. */
bool store_clock_is_other_boot(const struct store_clock *clock,
                               const struct store_clock_note *kept);
int64_t store_clock_now_ms(const struct store_clock *clock);
/* The machine's own count, to measure how long something takes. */
int64_t store_clock_machine_us(const struct store_clock *clock);
/* When something is dated. True: keep `note` with it, and when that is done make it clock->note. */
bool store_clock_due(const struct store_clock *clock, struct store_clock_note *note);
/* Return the date before which things are older than `before_ms`: that itself, or INT64_MIN where
 * it lies before the first use, since nothing can be known to be so old. */
int64_t store_clock_before_ms(const struct store_clock *clock, int64_t before_ms);
/* Return the wall clock's time, for dates that people see; the count where there is no such clock.
 */
int64_t store_clock_wall_ms(const struct clock *machine);

#endif
