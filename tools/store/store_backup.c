/* SPDX-License-Identifier: Apache-2.0 */
/* `stockade backup`: words and numbers; the work is store/maintenance.h's. */
#include <stddef.h>
#include <stdio.h>

#include "tools/store/store_command.h"

static const struct option_row rows[] = {
    STORE_OPTION_ROW,
    {"force", OPTION_FLAG, offsetof(struct store_settings, force), 0, 0, NULL,
     "replace FILE where it is there already", NULL},
};
static const struct option_table table = {
    .command = "stockade backup",
    .usage = "stockade backup FILE [options]",
    .about =
        "Copies the store as it is at one moment into FILE, and checks the copy. A daemon may\n"
        "be at work on the store: its writes go on. FILE appears when it is whole and on disk.\n"
        "\n"
        "FILE is an ordinary SQLite file. Bring it back with `stockade restore`: copied into\n"
        "place by hand it would give out tokens that have been given out before.",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
    .operand = "FILE",
    .operand_offset = offsetof(struct store_settings, file),
};

int backup_run(const struct cli *cli, int argc, char **argv)
{
    struct store_command command;
    char why[MAINTENANCE_WHY_MAX], size[TERM_NUMBER_MAX];
    int exit_code;

    (void)cli;
    if (!store_command_open(&command, &table, argc, argv, &exit_code)) {
        return exit_code;
    }
    struct backup_call call = {.store = command.path,
                               .file = command.settings.file,
                               .replace = command.settings.force,
                               .watch = store_command_watch(&command)};
    if (!store_backup(&call, why, sizeof why)) {
        return store_command_close(&command, why);
    }
    term_line(&command.term, "backup of %s: %s, %s bytes", call.store, call.file,
              term_number(call.size_bytes, size));
    return store_command_close(&command, NULL);
}
