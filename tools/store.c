/* SPDX-License-Identifier: Apache-2.0 */
/* `stockade backup`, `restore`, `check` and `move`. What they share comes first: choosing the
 * store, showing progress, stopping on a signal; then the options and the output of each. The work
 * itself is done by store/maintenance.h, on the store, not through a server.
 *
 * The store is chosen as the daemon chooses it, but for its config file: flag, environment,
 * default; or by -u, where that is a store's. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/clock.h"
#include "fence/base/json.h"
#include "store/kinds.h"
#include "store/maintenance.h"
#include "tools/cli.h"
#include "tools/options.h"
#include "tools/signals.h"
#include "tools/term.h"

#define DEFAULT_STORE "sqlite:./stockade.db"

enum { SHOW_EVERY_MS = 100, BAR_WIDTH = 30 };

struct store_settings {
    const char *file;  /* the operand */
    const char *store; /* as the daemon's --store; NULL until store_command_open */
    const char *from, *to;
    bool force, json;
};

struct store_command {
    const char *name; /* "stockade backup": in front of messages */
    struct store_settings settings;
    struct buf label; /* of the store, for people: a path, or a URI without its password */
    struct signals signals;
    struct term term;
    bool quiet; /* no progress line */
    int64_t shown_ms;
};

/* The row of --store, for the option tables. */
#define STORE_OPTION_ROW                                                                           \
    {                                                                                              \
        "store", OPTION_TEXT, offsetof(struct store_settings, store), 0, 0, "URI",                 \
            "sqlite:PATH or postgresql://... (STOCKADE_STORE, or sqlite:./stockade.db)", NULL      \
    }

/* Return whether that is a store's URI; complain if not. */
static bool check_store(const struct store_command *command, const char *uri, const char *origin)
{
    char why[MAINTENANCE_WHY_MAX];
    struct buf shown = {0};

    if (store_uri_is_valid(uri, why, sizeof why))
        return true;
    bool says = store_is_in_network(uri) || store_uri_is_memory(uri);
    if (says) { /* what is wrong, as libpq does */
        buf_append_text(&shown, why);
    } else {
        buf_append_text(&shown, "takes sqlite:PATH or postgresql://..., not \"");
        uri_append_masked(&shown, uri);
        buf_append_text(&shown, "\"");
        if (strchr(uri, ':') == NULL)
            buf_printf(&shown, " (did you mean \"sqlite:%s\"?)", uri);
    }
    term_error("%s: %s%s %.*s; see %s --help", command->name, origin, says ? ":" : "",
               (int)shown.len, shown.data, command->name);
    buf_free(&shown);
    return false;
}

static bool choose_store(struct store_command *command, struct cli *cli)
{
    const char *said = command->settings.store, *origin = "--store";

    if (said == NULL)
        said = cli_store(cli, &origin);
    if (said == NULL)
        said = DEFAULT_STORE;
    if (!check_store(command, said, origin))
        return false;
    const char *path = uri_after(said, "sqlite:");
    if (path != NULL)
        buf_append_text(&command->label, path);
    else
        uri_append_masked(&command->label, said);
    buf_append(&command->label, "", 1);
    command->settings.store = said;
    return true;
}

/* Read the options and get ready to work. False: `exit_code` is what is left to return. */
static bool store_command_open(struct store_command *command, const struct option_table *table,
                               bool (*choose)(struct store_command *command, struct cli *cli),
                               struct cli *cli, int argc, char **argv, int *exit_code)
{
    *command = (struct store_command){.name = table->command};
    switch (options_parse(table, &command->settings, cli, argc, argv)) {
    case OPTIONS_HELPED: *exit_code = CLI_OK; return false;
    case OPTIONS_WRONG: *exit_code = CLI_USAGE; return false;
    case OPTIONS_RUN: break;
    }
    *exit_code = CLI_USAGE;
    if (!choose(command, cli)) {
        buf_free(&command->label);
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
    if (command->signals.ending != 0)
        return false;
    if (command->quiet || now_ms - command->shown_ms < SHOW_EVERY_MS)
        return true;
    command->shown_ms = now_ms;
    if (total > 0)
        term_progress(&command->term, "%s %s %3" PRId64 " %%", doing,
                      term_bar(done, total, BAR_WIDTH, bar), done * 100 / total);
    else
        term_progress(&command->term, "%s", doing);
    return true;
}

/* Return what the work calls meanwhile: it shows progress, and gives up after a signal. */
static struct maintenance_watch store_command_watch(struct store_command *command)
{
    return (struct maintenance_watch){.step = watch_step, .context = command};
}

/* End, and return the exit code. `why` NULL: the work was done. */
static int store_command_close(struct store_command *command, const char *why)
{
    int ending = command->signals.ending;

    term_clear(&command->term);
    signals_close(&command->signals);
    buf_free(&command->label);
    if (why == NULL)
        return CLI_OK;
    if (ending != 0) {
        term_error("%s: interrupted; nothing was changed", command->name);
        return CLI_SIGNAL + ending;
    }
    term_error("%s: %s", command->name, why);
    return CLI_FAILED;
}

/* stockade backup */

static const struct option_row backup_rows[] = {
    STORE_OPTION_ROW,
    {"force", OPTION_FLAG, offsetof(struct store_settings, force), 0, 0, NULL,
     "replace FILE if it exists", NULL},
};
static const struct option_table backup_table = {
    .command = "stockade backup",
    .usage = "stockade backup FILE [options]",
    .about =
        "Copies the store as it is at one moment into FILE, and checks the copy. A daemon may\n"
        "be at work on the store: its writes go on. FILE appears when it is whole and on disk.\n"
        "\n"
        "FILE is an ordinary SQLite file, whatever the store is. Bring it back with `stockade\n"
        "restore`: copied into place by hand it would give out tokens that have been given out\n"
        "before.\n"
        "\n"
        "Of a store in PostgreSQL it has all of Stockade's own, and none of your tables.",
    OPTION_ROWS(backup_rows),
    .uri_is_store = true,
    .operands = {{"FILE", offsetof(struct store_settings, file)}},
};

int backup_run(struct cli *cli, int argc, char **argv)
{
    struct store_command command;
    char why[MAINTENANCE_WHY_MAX];
    int exit_code;

    if (!store_command_open(&command, &backup_table, choose_store, cli, argc, argv, &exit_code))
        return exit_code;
    struct backup_call call = {.store = command.settings.store,
                               .file = command.settings.file,
                               .replace = command.settings.force,
                               .watch = store_command_watch(&command)};
    if (!store_backup(&call, why, sizeof why))
        return store_command_close(&command, why);
    term_line(&command.term, "backup of %s: %s, %s bytes", command.label.data, call.file,
              TERM_NUMBER(call.size_bytes));
    return store_command_close(&command, NULL);
}

/* stockade restore */

static const struct option_row restore_rows[] = {STORE_OPTION_ROW};
static const struct option_table restore_table = {
    .command = "stockade restore",
    .usage = "stockade restore FILE [options]",
    .about =
        "Puts the backup FILE in the store's place: data, receipts, your own tables, guards.\n"
        "Every lease ends, and new tokens are larger than any that was ever given out, so\n"
        "nobody who still holds one can write with it.\n\n"
        "A daemon may be at work on the store: it sees the old state, then the restored one,\n"
        "and writes wait meanwhile (longer than 5 s: STORE). A lease that was held before the\n"
        "restore may be granted again only when the rest of its TTL is over.\n\n"
        "In PostgreSQL your own tables, and the guards on them, stay as they are.\n\n"
        "Where there is no store, one is made. One that is too damaged to be opened, or is no\n"
        "store at all, is left alone: stop the daemon and move it, with its -wal and -shm,\n"
        "away first.",
    OPTION_ROWS(restore_rows),
    .uri_is_store = true,
    .operands = {{"FILE", offsetof(struct store_settings, file)}},
};

int restore_run(struct cli *cli, int argc, char **argv)
{
    struct store_command command;
    char why[MAINTENANCE_WHY_MAX];
    int exit_code;

    if (!store_command_open(&command, &restore_table, choose_store, cli, argc, argv, &exit_code))
        return exit_code;
    struct restore_call call = {.store = command.settings.store,
                                .file = command.settings.file,
                                .watch = store_command_watch(&command)};
    if (!store_restore(&call, why, sizeof why))
        return store_command_close(&command, why);
    if (call.present_forgotten)
        term_line(&command.term, "(the tokens of the damaged store that was there are unknown)");
    term_line(&command.term, "restored %s from %s: leases ended: %s; tokens go on above %" PRId64,
              command.label.data, call.file, TERM_NUMBER(call.revoked), call.floor);
    return store_command_close(&command, NULL);
}

/* stockade check: one line for each finding, and one at the end; or the same as JSON. */

static const struct option_row check_rows[] = {
    STORE_OPTION_ROW,
    {"json", OPTION_FLAG, offsetof(struct store_settings, json), 0, 0, NULL,
     "one JSON object instead of lines", NULL},
};
static const struct option_table check_table = {
    .command = "stockade check",
    .usage = "stockade check [options]",
    .about = "Looks for damage in a store: SQLite's pages, indexes and foreign keys, Stockade's\n"
             "tables, the guards' triggers, fences, values and receipts against each other; in\n"
             "PostgreSQL Stockade's schema and rows. A daemon may be at work on the store\n"
             "meanwhile. It changes nothing.\n\n"
             "A warning tells of what is no damage, but endangers what is promised, such as a\n"
             "database without synchronous standbys.\n\n"
             "Exit code 0: nothing was found but warnings. 1: something was, or the store cannot\n"
             "be read.",
    OPTION_ROWS(check_rows),
    .uri_is_store = true,
};

struct check_run {
    struct store_command command; /* first: the watch's context is this */
    int64_t printed;              /* findings, as JSON */
};

static void print_json_text(const char *text)
{
    struct buf json = {0};

    json_string(&json, bytes_of(text));
    (void)fwrite(json.data, 1, json.len, stdout);
    buf_free(&json);
}

static void print_finding(void *context, const char *kind, const char *text)
{
    struct check_run *check = context;

    if (!check->command.settings.json) {
        term_line(&check->command.term, "%s: %s", kind, text);
        return;
    }
    printf("%s\n  {\"kind\": \"%s\", \"text\": ", check->printed++ > 0 ? "," : "{\"findings\": [",
           kind);
    print_json_text(text);
    (void)putchar('}');
}

/* It came to no end: what was begun is an object all the same. */
static void print_broken_off(const struct check_run *check, const char *why)
{
    if (check->printed == 0)
        return;
    (void)fputs("\n], \"ok\": false, \"error\": ", stdout);
    print_json_text(check->command.signals.ending != 0 ? "interrupted" : why);
    (void)fputs("}\n", stdout);
}

static void print_end(struct check_run *check, const struct check_call *call)
{
    if (check->command.settings.json) {
        printf("%s], \"ok\": %s, \"findings_count\": %" PRId64 ", \"resources\": %" PRId64
               ", \"values\": %" PRId64 ", \"receipts\": %" PRId64 ", \"guards\": %" PRId64 "}\n",
               check->printed > 0 ? "\n" : "{\"findings\": [",
               call->findings == 0 ? "true" : "false", call->findings, call->resources,
               call->values, call->receipts, call->guards);
        return;
    }
    term_line(&check->command.term, "%s%s: %s resources, %s values, %s receipts, %s guards",
              call->findings == 0 ? "ok" : TERM_NUMBER(call->findings),
              call->findings == 0   ? ""
              : call->findings == 1 ? " finding"
                                    : " findings",
              TERM_NUMBER(call->resources), TERM_NUMBER(call->values), TERM_NUMBER(call->receipts),
              TERM_NUMBER(call->guards));
}

int check_run(struct cli *cli, int argc, char **argv)
{
    struct check_run check = {.printed = 0};
    struct store_command *command = &check.command;
    char why[MAINTENANCE_WHY_MAX];
    int exit_code;

    if (!store_command_open(command, &check_table, choose_store, cli, argc, argv, &exit_code))
        return exit_code;
    command->quiet = command->settings.json;
    struct check_call call = {.store = command->settings.store,
                              .found = print_finding,
                              .watch = store_command_watch(command)};
    if (!store_check(&call, why, sizeof why)) {
        print_broken_off(&check, why);
        return store_command_close(command, why);
    }
    print_end(&check, &call);
    exit_code = store_command_close(command, NULL);
    return call.findings == 0 ? exit_code : CLI_FAILED;
}

/* stockade move */

static const struct option_row move_rows[] = {
    {"from", OPTION_TEXT, offsetof(struct store_settings, from), 0, 0, "URI",
     "the store as it is: sqlite:PATH or postgresql://...", NULL},
    {"to", OPTION_TEXT, offsetof(struct store_settings, to), 0, 0, "URI",
     "a store of either kind that was never used; made if there is none", NULL},
};
static const struct option_table move_table = {
    .command = "stockade move",
    .usage = "stockade move --from URI --to URI",
    .about =
        "Moves a store: fences with their leases, values, receipts, what is known of audits.\n"
        "From then on the old store takes nothing any more, and says where to. Tokens and\n"
        "leases stay as they are: their holders go on at daemons that are started with the new\n"
        "--store.\n\n"
        "Daemons may be at work on the old store: their writes wait meanwhile (longer than 5 s:\n"
        "STORE), and are refused in the end. If the move fails, or its process ends, the old\n"
        "store is as it was, or the same command does the rest; it says which.\n\n"
        "Your own tables stay where they are, with their guards. To go back, move to a\n"
        "third store; or restore a backup over the old one, which ends its leases.",
    OPTION_ROWS(move_rows),
};

/* Both have to be said: a default would be too much of a surprise here. */
static bool choose_both(struct store_command *command, struct cli *cli)
{
    const struct store_settings *settings = &command->settings;

    (void)cli;
    if (settings->from == NULL || settings->to == NULL) {
        term_error("%s: --%s is missing; see %s --help", command->name,
                   settings->from == NULL ? "from" : "to", command->name);
        return false;
    }
    if (!check_store(command, settings->from, "--from") ||
        !check_store(command, settings->to, "--to"))
        return false;
    uri_append_masked(&command->label, settings->from);
    buf_append_text(&command->label, " to ");
    uri_append_masked(&command->label, settings->to);
    buf_append(&command->label, "", 1);
    return true;
}

int move_run(struct cli *cli, int argc, char **argv)
{
    struct store_command command;
    char why[MAINTENANCE_WHY_MAX];
    int exit_code;

    if (!store_command_open(&command, &move_table, choose_both, cli, argc, argv, &exit_code))
        return exit_code;
    struct move_call call = {.from = command.settings.from,
                             .to = command.settings.to,
                             .watch = store_command_watch(&command)};
    bool moved = store_move(&call, why, sizeof why);
    if (!moved && call.closed) {
        text_print(why + strlen(why), sizeof why - strlen(why),
                   "; the old store may be closed already: run the same command again, it does "
                   "the rest");
        command.signals.ending = 0; /* else it would say that nothing was changed */
    }
    if (!moved)
        return store_command_close(&command, why);
    if (call.left[0] != '\0')
        term_line(&command.term, "(your own tables stay where they are: %s)", call.left);
    if (call.done_before)
        term_line(&command.term, "moved %s, before", command.label.data);
    else
        term_line(&command.term,
                  "moved %s: %s resources, %s leases go on; the old store takes nothing any more",
                  command.label.data, TERM_NUMBER(call.resources), TERM_NUMBER(call.leases));
    return store_command_close(&command, NULL);
}
