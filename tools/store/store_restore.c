/* SPDX-License-Identifier: Apache-2.0 */
/* `stockade restore`: words and numbers; the work is store/maintenance.h's. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#include "tools/store/store_command.h"

static const struct option_row rows[] = {STORE_OPTION_ROW};
static const struct option_table table = {
    .command = "stockade restore",
    .usage = "stockade restore FILE [options]",
    .about =
        "Puts the backup FILE in the store's place: data, receipts, your own tables, guards.\n"
        "Every lease ends, and new tokens are larger than any that was ever given out, so\n"
        "nobody who still holds one can write with it.\n\n"
        "A daemon may be at work on the store: it sees the old state, then the restored one,\n"
        "and writes wait meanwhile (longer than 5 s: STORE). Who asks for a lease that was\n"
        "held before the restore may have to wait for what is left of its TTL.\n\n"
        "Where there is no store, one is made. One that is too damaged to be opened, or is no\n"
        "store at all, is left alone: stop the daemon and move it, with its -wal and -shm,\n"
        "away first.",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
    .operand = "FILE",
    .operand_offset = offsetof(struct store_settings, file),
};

int restore_run(const struct cli *cli, int argc, char **argv)
{
    struct store_command command;
    char why[MAINTENANCE_WHY_MAX], revoked[TERM_NUMBER_MAX];
    int exit_code;

    (void)cli;
    if (!store_command_open(&command, &table, argc, argv, &exit_code)) {
        return exit_code;
    }
    struct restore_call call = {.store = command.path,
                                .file = command.settings.file,
                                .watch = store_command_watch(&command)};
    if (!store_restore(&call, why, sizeof why)) {
        return store_command_close(&command, why);
    }
    if (call.present_forgotten) {
        term_line(&command.term, "(the tokens of the damaged store that was there are unknown)");
    }
    term_line(&command.term, "restored %s from %s: leases ended: %s; tokens go on above %" PRId64,
              call.store, call.file, term_number(call.revoked, revoked), call.floor);
    return store_command_close(&command, NULL);
}
