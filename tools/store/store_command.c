/* SPDX-License-Identifier: Apache-2.0 */
/* The store is chosen as the daemon chooses it, but for its config file: flag, environment,
 * default.
 */
#include "tools/store/store_command.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/clock.h"

#define DEFAULT_STORE "sqlite:./stockade.db"
#define SCHEME        "sqlite:"

enum { SHOW_EVERY_MS = 100, BAR_WIDTH = 30 };

static bool choose_store(struct store_command *command)
{
    const char *said = command->settings.store, *origin = "--store";

    if (said == NULL) {
        said = getenv("STOCKADE_STORE");
        origin = "STOCKADE_STORE";
    }
    if (said == NULL || said[0] == '\0') {
        said = DEFAULT_STORE;
    }
    if (strncmp(said, SCHEME, strlen(SCHEME)) != 0 || said[strlen(SCHEME)] == '\0') {
        fprintf(stderr, "%s: %s takes sqlite:PATH, not \"%s\"; see %s --help\n", command->name,
                origin, said, command->name);
        return false;
    }
    command->path = said + strlen(SCHEME);
    return true;
}

bool store_command_open(struct store_command *command, const struct option_table *table, int argc,
                        char **argv, int *exit_code)
{
    *command = (struct store_command){.name = table->command};
    switch (options_parse(table, &command->settings, argc, argv)) {
    case OPTIONS_HELPED: *exit_code = CLI_OK; return false;
    case OPTIONS_WRONG: *exit_code = CLI_USAGE; return false;
    case OPTIONS_RUN: break;
    }
    *exit_code = CLI_USAGE;
    if (!choose_store(command)) {
        return false;
    }
    term_open(&command->term);
    signals_open(&command->signals);
    return true;
}

static bool watch_step(void *context, const char *doing, int64_t done, int64_t total)
{
    struct store_command *command = context;
    int64_t now_ms = clock_now_ms(&clock_monotonic);
    char bar[TERM_BAR_MAX];

    (void)signals_wait(&command->signals, -1, 0);
    if (command->signals.ending != 0) {
        return false;
    }
    if (command->quiet || now_ms - command->shown_ms < SHOW_EVERY_MS) {
        return true;
    }
    command->shown_ms = now_ms;
    if (total > 0) {
        term_progress(&command->term, "%s %s %3" PRId64 " %%", doing,
                      term_bar(done, total, BAR_WIDTH, bar), done * 100 / total);
    } else {
        term_progress(&command->term, "%s", doing);
    }
    return true;
}

struct maintenance_watch store_command_watch(struct store_command *command)
{
    return (struct maintenance_watch){.step = watch_step, .context = command};
}

int store_command_close(struct store_command *command, const char *why)
{
    int ending = command->signals.ending;

    term_clear(&command->term);
    signals_close(&command->signals);
    if (why == NULL) {
        return CLI_OK;
    }
    if (ending != 0) {
        fprintf(stderr, "%s: interrupted; nothing was changed\n", command->name);
        return 128 + ending;
    }
    fprintf(stderr, "%s: %s\n", command->name, why);
    return CLI_FAILED;
}
