/* SPDX-License-Identifier: Apache-2.0 */
/* `stockade check`: one line for each finding, and one at the end; or the same as JSON. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#include "fence/base/json.h"
#include "tools/store/store_command.h"

static const struct option_row rows[] = {
    STORE_OPTION_ROW,
    {"json", OPTION_FLAG, offsetof(struct store_settings, json), 0, 0, NULL,
     "one JSON object instead of lines", NULL},
};
static const struct option_table table = {
    .command = "stockade check",
    .usage = "stockade check [options]",
    .about = "Looks for damage in a store: SQLite's pages, indexes and foreign keys, Stockade's\n"
             "tables, the guards' triggers, fences, values and receipts against each other. A\n"
             "daemon may be at work on the store meanwhile. It changes nothing.\n\n"
             "Exit code 0: nothing found. 1: something was, or the store could not be read.",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
};

struct check_run {
    struct store_command command; /* first: the watch's context is this */
    int64_t told;
};

static void print_finding(void *context, const char *kind, const char *text)
{
    struct check_run *check = context;
    struct buf json = {0};

    if (!check->command.settings.json) {
        term_line(&check->command.term, "%s: %s", kind, text);
        return;
    }
    printf("%s\n  {\"kind\": \"%s\", \"text\": ", check->told++ > 0 ? "," : "{\"findings\": [",
           kind);
    json_string(&json, bytes_of(text));
    (void)fwrite(json.data, 1, json.len, stdout);
    (void)putchar('}');
    buf_free(&json);
}

static void print_end(struct check_run *check, const struct audit_call *call)
{
    char resources[TERM_NUMBER_MAX], values[TERM_NUMBER_MAX], receipts[TERM_NUMBER_MAX],
        guards[TERM_NUMBER_MAX], findings[TERM_NUMBER_MAX];

    if (check->command.settings.json) {
        printf("%s], \"ok\": %s, \"findings_count\": %" PRId64 ", \"resources\": %" PRId64
               ", \"values\": %" PRId64 ", \"receipts\": %" PRId64 ", \"guards\": %" PRId64 "}\n",
               check->told > 0 ? "\n" : "{\"findings\": [", call->findings == 0 ? "true" : "false",
               call->findings, call->resources, call->values, call->receipts, call->guards);
        return;
    }
    term_line(&check->command.term, "%s%s: %s resources, %s values, %s receipts, %s guards",
              call->findings == 0 ? "ok" : term_number(call->findings, findings),
              call->findings == 0   ? ""
              : call->findings == 1 ? " finding"
                                    : " findings",
              term_number(call->resources, resources), term_number(call->values, values),
              term_number(call->receipts, receipts), term_number(call->guards, guards));
}

int check_run(const struct cli *cli, int argc, char **argv)
{
    struct check_run check = {.told = 0};
    struct store_command *command = &check.command;
    char why[MAINTENANCE_WHY_MAX];
    int exit_code;

    (void)cli;
    if (!store_command_open(command, &table, argc, argv, &exit_code)) {
        return exit_code;
    }
    command->quiet = command->settings.json;
    struct audit_call call = {
        .store = command->path, .found = print_finding, .watch = store_command_watch(command)};
    if (!store_audit(&call, why, sizeof why)) {
        return store_command_close(command, why);
    }
    print_end(&check, &call);
    exit_code = store_command_close(command, NULL);
    return call.findings == 0 ? exit_code : CLI_FAILED;
}
