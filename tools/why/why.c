/* SPDX-License-Identifier: Apache-2.0 */
/* `stockade why`: who held a resource, who was refused and how late, from the daemon's history, its
 * log or its audit. */
#include <inttypes.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "fence/base/json.h"
#include "tools/answer.h"
#include "tools/cli.h"
#include "tools/options.h"
#include "tools/term.h"
#include "tools/why/audit.h"
#include "tools/why/lane.h"
#include "tools/why/log.h"
#include "tools/why/story.h"
#include "tools/why/tell.h"
#include "tools/why/wire.h"

enum { COUNT_MAX = 10000 }; /* the daemon's limit, too */

struct settings {
    const char *resource, *log, *audit;
    int64_t count;
    bool json;
};

static const struct option_row rows[] = {
    {"log", OPTION_TEXT, offsetof(struct settings, log), 0, 0, "FILE",
     "read a daemon's log (--log-format json) instead; -: stdin", NULL},
    {"audit", OPTION_TEXT, offsetof(struct settings, audit), 0, 0, "FILE",
     "read a daemon's audit (stockaded --audit) instead; -: stdin", NULL},
    {"count", OPTION_NUMBER, offsetof(struct settings, count), 1, COUNT_MAX, "N",
     "the newest N leases, and N refused commands (100)", NULL},
    {"json", OPTION_FLAG, offsetof(struct settings, json), 0, 0, NULL,
     "one JSON object instead of text", NULL},
};
static const struct option_table table = {
    .command = "stockade why",
    .usage = "stockade why [RESOURCE] [--log FILE | --audit FILE] [options]",
    .about = "Tells who held the lease on a resource, for how long and how each hold ended, who\n"
             "was refused, with which command and how late, and who had overtaken; and who waits\n"
             "for it now. The daemon remembers its last leases while it runs; its log and\n"
             "its audit tell of the nights before.\n\n"
             "exit codes: 0 told, 1 refused, or the file cannot be read, 2 wrong usage, 3 nothing\n"
             "is known, 69 the server cannot be reached",
    OPTION_ROWS(rows),
    .operands = {{"RESOURCE", offsetof(struct settings, resource)}},
    .operand_is_optional = true,
};

static void append_lease(struct buf *out, const struct story *story)
{
    if (!story->is_leased) {
        buf_append_text(out, "null");
        return;
    }
    answer_text(out, "{", "state", bytes_of(story->is_held ? "held" : "free"));
    answer_number(out, "token", story->token);
    if (story->is_held)
        answer_text(out, ", ", "owner", buf_bytes(&story->owner));
    else
        buf_append_text(out, ", \"owner\": null");
    answer_number(out, "ttl_ms", story->left_ms);
    answer_number(out, "holds", story->entered);
    answer_number(out, "waiters", story->waiters);
    buf_append_text(out, "}");
}

static void append_json(struct buf *out, const struct story *story)
{
    if (story->resource != NULL)
        answer_text(out, "{", "resource", bytes_of(story->resource));
    else
        buf_append_text(out, "{\"resource\": null");
    if (story->log != NULL) {
        answer_text(out, ", ", story->is_audit ? "audit" : "log", bytes_of(story->log));
        answer_number(out, "bad_lines", story->bad_lines);
        answer_number(out, "left_out", story->left_out);
        if (story->is_audit) {
            buf_append_text(out, ", \"history\": ");
            story_append_holds(out, story);
        }
    } else {
        answer_number(out, "time_ms", story->now_ms);
        buf_append_text(out, ", \"lease\": ");
        append_lease(out, story);
        buf_append_text(out, ", \"history\": ");
        story_append_holds(out, story);
        buf_append_text(out, ", \"waiters\": ");
        story_append_waiters(out, story);
    }
    buf_append_text(out, ", \"refusals\": ");
    story_append_refusals(out, story);
    buf_append_text(out, "}\n");
}

/* Where the history does not begin with the resource's first lease. */
static void append_beginning(struct buf *out, const struct story *story)
{
    int64_t first = story->holds_count > 0 ? story->holds[0].token : 1;

    if (story->left_out > 0)
        buf_printf(out, "\n%" PRId64 " earlier ones are left out; --count N shows more.\n",
                   story->left_out);
    else if (story->is_cut && first > 1)
        buf_printf(out, "\nLeases before token %" PRId64 " are left out; --count N shows more.\n",
                   first);
    else if (first > 1 && story->is_audit)
        buf_printf(out, "\nThe file has nothing before token %" PRId64 ".\n", first);
    else if (first > 1)
        buf_printf(out,
                   "\nThe daemon's history has nothing before token %" PRId64
                   ": it remembers the last leases only,\nand none from before its start.\n",
                   first);
}

static void append_text(struct buf *out, const struct story *story)
{
    bool utf8 = setlocale(LC_CTYPE, "") != NULL && strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    struct term term;
    struct buf lane = {0};

    term_open(&term);
    tell_summary(out, story);
    lane_draw(&lane, story, term.width, utf8);
    if (lane.len > 0) {
        buf_append_text(out, "\n");
        buf_append_bytes(out, buf_bytes(&lane));
        buf_printf(out, "%s\n", utf8 ? "(\u2588 held, \u00d7 refused)" : "(# held, x refused)");
    }
    if (story->holds_count + story->refusals_count > 0) {
        buf_append_text(out, "\n");
        tell_events(out, story);
    }
    tell_waiters(out, story);
    append_beginning(out, story);
    buf_free(&lane);
}

static bool read_log(struct answer *answer, struct story *story, int64_t count, int *code)
{
    struct failure failure;

    if (!(story->is_audit ? audit_read : log_read)(story, count, &failure)) {
        *code = answer_refuse(answer, CLI_FAILED, "ERR", failure.text);
        return false;
    }
    if (story->bad_lines > 0 && !answer->json)
        term_error("%s: %" PRId64 " %s no JSON and %s skipped%s", answer->command, story->bad_lines,
                   story->bad_lines == 1 ? "line is" : "lines are",
                   story->bad_lines == 1 ? "was" : "were",
                   story->is_audit ? "" : " (--log-format json writes it)");
    return true;
}

static int tell(struct answer *answer, const struct story *story)
{
    if (!story->is_leased && story->holds_count + story->refusals_count == 0)
        return answer_refuse(answer, CLI_NOTHING, "NONE",
                             story->is_audit      ? "nothing of it is in the audit"
                             : story->log != NULL ? "nothing was refused, as far as the log tells"
                                                  : "was never leased");
    if (answer->json)
        append_json(&answer->out, story);
    else
        append_text(&answer->out, story);
    return CLI_OK;
}

int why_run(struct cli *cli, int argc, char **argv)
{
    struct settings settings = {.count = 100};

    switch (options_parse(&table, &settings, cli, argc, argv)) {
    case OPTIONS_HELPED: return CLI_OK;
    case OPTIONS_WRONG: return CLI_USAGE;
    case OPTIONS_RUN: break;
    }
    const char *file = settings.audit != NULL ? settings.audit : settings.log;
    if (settings.resource == NULL && file == NULL) {
        term_error("%s: RESOURCE, --log FILE or --audit FILE is missing; see %s --help",
                   table.command, table.command);
        return CLI_USAGE;
    }
    if (settings.audit != NULL && settings.log != NULL) {
        term_error("%s: --log or --audit, not both; see %s --help", table.command, table.command);
        return CLI_USAGE;
    }
    struct answer answer = {
        .command = table.command, .key = settings.resource, .json = settings.json, .cli = cli};
    struct story story = {
        .resource = settings.resource, .log = file, .is_audit = settings.audit != NULL};
    int code = CLI_OK;
    bool is_read = file != NULL ? read_log(&answer, &story, settings.count, &code)
                                : wire_read(&answer, &story, settings.count, &code);
    if (is_read)
        code = tell(&answer, &story);
    answer_print(&answer);
    answer_close(&answer);
    story_free(&story);
    return code;
}
