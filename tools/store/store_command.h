/* SPDX-License-Identifier: Apache-2.0 */
/* What `stockade backup`, `restore` and `check` share: which store is meant, and how people see and
 * stop the work. They work on files, not through a server: -u means nothing to them. */
#ifndef STOCKADE_TOOLS_STORE_STORE_COMMAND_H
#define STOCKADE_TOOLS_STORE_STORE_COMMAND_H

#include "store/maintenance.h"
#include "tools/cli.h"
#include "tools/options.h"
#include "tools/signals.h"
#include "tools/term.h"

struct store_settings {
    const char *file;  /* the operand */
    const char *store; /* as the daemon's --store; NULL until store_command_open */
    bool force, json;
};

struct store_command {
    const char *name; /* "stockade backup": in front of messages */
    struct store_settings settings;
    const char *path; /* of the store */
    struct signals signals;
    struct term term;
    bool quiet; /* no progress line */
    int64_t shown_ms;
};

/* The row of --store, for the option tables. */
#define STORE_OPTION_ROW                                                                           \
    {                                                                                              \
        "store", OPTION_TEXT, offsetof(struct store_settings, store), 0, 0, "sqlite:PATH",         \
            "the store (STOCKADE_STORE, or sqlite:./stockade.db)", NULL                            \
    }

/* Reads the options and gets ready to work. False: `exit_code` is what is left to return. */
bool store_command_open(struct store_command *command, const struct option_table *table, int argc,
                        char **argv, int *exit_code);
/* What the work calls meanwhile: shows how far it is, and ends it where a signal came. */
struct maintenance_watch store_command_watch(struct store_command *command);
/* Ends; returns the exit code. `why` NULL: the work was done. */
int store_command_close(struct store_command *command, const char *why);

#endif
