/* SPDX-License-Identifier: Apache-2.0 */
/* Sweeps and their points. A sweep calls sweep_point before each of its points and, where that says
 * so, tries it and reports. It runs in a process of its own: where a point ends the process (which
 * is a failure of the point), another process goes on behind it. */
#ifndef STOCKADE_TESTS_CRASH_SWEEP_H
#define STOCKADE_TESTS_CRASH_SWEEP_H

#include <stdbool.h>
#include <stddef.h>

#include "tests/crash/check.h"

enum { SWEEP_KINDS_MAX = 24, SWEEP_NAME_MAX = 80 };

/* Shared with the parent. */
struct sweep_tally {
    char point[SWEEP_NAME_MAX]; /* under way; empty: none */
    size_t seen, tried, failed; /* seen: also what the sample leaves out */
    int kinds;
    struct {
        char name[24];
        size_t count;
    } kind[SWEEP_KINDS_MAX];
};

struct sweep {
    struct machine *machine;
    bool every;       /* also points that are much like others */
    uint64_t seed;    /* of what the clients do; 0: the usual one */
    size_t sample;    /* one of so many points */
    const char *only; /* this point alone; NULL: all */
    size_t skip;      /* points that an earlier process has seen */
    bool prints;      /* what goes on, for one point */
    struct sweep_tally *tally;
};

/* Return whether to try this point, which is counted under `kind`. */
bool sweep_point(struct sweep *sweep, const char *kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Report how the point under way ended: well where `why` is NULL or empty. */
void sweep_report(struct sweep *sweep, const char *why);

/* The sweeps. */
void sweep_write(struct sweep *sweep);   /* power loss during each write and sync */
void sweep_again(struct sweep *sweep);   /* a second one during recovery */
void sweep_migrate(struct sweep *sweep); /* power loss while an old file is brought up to date */
void sweep_io(struct sweep *sweep);      /* every call of the VFS fails: once, or from then on */
void sweep_memory(struct sweep *sweep);  /* so does every allocation of SQLite's */

#endif
