/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of the store's time. To keep the note is up to each kind of store. */
#include "store/clock.h"

#include <string.h>

/* Clocks are read one after the other, and one of them may be slewed. */
#define DISAGREE_MS 1000

void store_clock_init(struct store_clock *clock, const struct clock *machine)
{
    *clock = (struct store_clock){.machine = machine != NULL ? machine : &clock_monotonic};
}

int64_t store_clock_wall_ms(const struct clock *machine)
{
    return clock_wall_us(machine) / 1000;
}

int64_t store_clock_machine_us(const struct store_clock *clock)
{
    return clock_now_us(clock->machine);
}

int64_t store_clock_now_ms(const struct store_clock *clock)
{
    return clock_now_ms(clock->machine) + atomic_load(&clock->offset_ms);
}

static void set(struct store_clock *clock, const struct store_clock_note *note)
{
    clock->note = *note;
    atomic_store(&clock->offset_ms, note->offset_ms);
    atomic_store(&clock->start_ms, note->start_ms);
}

bool store_clock_resume(struct store_clock *clock, const struct store_clock_note *kept)
{
    struct store_clock_note note = *kept;
    int64_t count_ms = clock_now_ms(clock->machine), wall_ms = store_clock_wall_ms(clock->machine);
    int64_t now_ms = kept->reached_ms;

    clock_boot(clock->machine, note.boot);
    if (kept->start_ms == 0) {
        now_ms = note.start_ms = wall_ms > 0 ? wall_ms : 1;
    } else if (note.boot[0] != '\0' && strcmp(note.boot, kept->boot) == 0) {
        int64_t by_count_ms = count_ms + kept->offset_ms;
        int64_t by_wall_ms = kept->reached_ms + (wall_ms - kept->wall_ms);
        if (by_count_ms >= kept->reached_ms && by_count_ms <= by_wall_ms + DISAGREE_MS) {
            set(clock, kept);
            return false;
        }
        int64_t less_ms = by_count_ms < by_wall_ms ? by_count_ms : by_wall_ms;
        if (less_ms > now_ms)
            now_ms = less_ms;
    }
    note.offset_ms = now_ms - count_ms;
    note.reached_ms = now_ms;
    note.wall_ms = wall_ms;
    set(clock, &note);
    return true;
}

bool store_clock_is_other_boot(const struct store_clock *clock, const struct store_clock_note *kept)
{
    char boot[CLOCK_BOOT_SIZE];

    clock_boot(clock->machine, boot);
    return kept->start_ms != 0 && (boot[0] == '\0' || strcmp(boot, kept->boot) != 0);
}

bool store_clock_follow(struct store_clock *clock, const struct store_clock_note *kept)
{
    if (strcmp(clock->note.boot, kept->boot) != 0)
        return store_clock_resume(clock, kept);
    set(clock, kept);
    return false;
}

bool store_clock_due(const struct store_clock *clock, struct store_clock_note *note)
{
    int64_t now_ms = store_clock_now_ms(clock);

    if (now_ms - clock->note.reached_ms < NOTED_EVERY_MS)
        return false;
    *note = clock->note;
    note->reached_ms = now_ms;
    note->wall_ms = store_clock_wall_ms(clock->machine);
    return true;
}

int64_t store_clock_before_ms(const struct store_clock *clock, int64_t before_ms)
{
    return before_ms > atomic_load(&clock->start_ms) ? before_ms : INT64_MIN;
}
