/* SPDX-License-Identifier: Apache-2.0 */
/* `stockade guard create`, `drop` and `list`: the command GUARD, in a store that is opened here or
 * at a daemon. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "fence/base/mem.h"
#include "tools/answer.h"
#include "tools/options.h"
#include "tools/term.h"

enum { TOKEN_COLUMN = 3, COLUMNS = 5 };

struct settings {
    const char *table, *column, *prefix; /* the operands */
    const char *token;                   /* NULL: tokens are presented */
    const char *store;                   /* NULL: -u says where */
    bool json;
};

#define STORE_ROW                                                                                  \
    {                                                                                              \
        "store", OPTION_TEXT, offsetof(struct settings, store), 0, 0, "URI",                       \
            "the store: sqlite:PATH or postgresql://...; without it, a daemon is asked", NULL      \
    }
#define JSON_ROW                                                                                   \
    {                                                                                              \
        "json", OPTION_FLAG, offsetof(struct settings, json), 0, 0, NULL,                          \
            "one JSON value instead of text", NULL                                                 \
    }

static const struct option_row create_rows[] = {
    STORE_ROW,
    {"token-column", OPTION_TEXT, offsetof(struct settings, token), 0, 0, "NAME",
     "a column for tokens, added where there is none: INSERT and UPDATE assign the token to it",
     NULL},
};
static const struct option_row drop_rows[] = {STORE_ROW};
static const struct option_row list_rows[] = {STORE_ROW, JSON_ROW};

static const struct option_table create_table = {
    .command = "stockade guard create",
    .usage = "stockade guard create TABLE COLUMN PREFIX [options]",
    .about =
        "Guards a table: from now on a row changes only in a transaction that presents the\n"
        "token of the resource PREFIX followed by the row's COLUMN. With --token-column an INSERT\n"
        "or UPDATE assigns the token itself, and DELETE presents it. Run it again to restore a\n"
        "guard that was damaged.\n\n" ANSWER_EXITS,
    OPTION_ROWS(create_rows),
    .operands = {{"TABLE", offsetof(struct settings, table)},
                 {"COLUMN", offsetof(struct settings, column)},
                 {"PREFIX", offsetof(struct settings, prefix)}},
};
static const struct option_table drop_table = {
    .command = "stockade guard drop",
    .usage = "stockade guard drop TABLE [options]",
    .about = "Takes the guard off a table.\n\n" ANSWER_EXITS,
    OPTION_ROWS(drop_rows),
    .operands = {{"TABLE", offsetof(struct settings, table)}},
};
static const struct option_table list_table = {
    .command = "stockade guard list",
    .usage = "stockade guard list [options]",
    .about = "Lists the guarded tables, and whether their guards are whole.\n\n" ANSWER_EXITS,
    OPTION_ROWS(list_rows),
};

static int change(struct answer *answer, const struct settings *settings)
{
    const char *create[] = {"GUARD",          "CREATE", settings->table, settings->column,
                            settings->prefix, "TOKEN",  settings->token};
    const char *drop[] = {"GUARD", "DROP", settings->table};
    int code = CLI_OK;

    answer->key = settings->table;
    stk_reply *reply = settings->column != NULL
                           ? answer_ask(answer, create, settings->token != NULL ? 7 : 5, &code)
                           : answer_ask(answer, drop, 3, &code);
    stk_reply_free(reply);
    return code;
}

static const char *const names[COLUMNS] = {"table", "column", "prefix", "token_column", "state"};

static const char *const heads[COLUMNS] = {"TABLE", "COLUMN", "PREFIX", "TOKEN", "STATE"};

static bool any_takes_tokens(const stk_reply *guards)
{
    for (size_t i = 0; i < stk_reply_count(guards); i++)
        if (answer_entry(stk_reply_at(guards, i), names[TOKEN_COLUMN]) != NULL)
            return true;
    return false;
}

static bool is_broken(const stk_reply *guard)
{
    return bytes_equal(answer_entry_text(guard, "state"), bytes_of("broken"));
}

static void list_json(struct buf *out, const stk_reply *guards)
{
    for (size_t i = 0; i < stk_reply_count(guards); i++) {
        buf_append_text(out, i == 0 ? "[\n  " : ",\n  ");
        for (size_t column = 0; column < COLUMNS; column++)
            if (answer_entry(stk_reply_at(guards, i), names[column]) != NULL)
                answer_text(out, column == 0 ? "{" : ", ", names[column],
                            answer_entry_text(stk_reply_at(guards, i), names[column]));
        if (is_broken(stk_reply_at(guards, i)))
            answer_text(out, ", ", "problem",
                        answer_entry_text(stk_reply_at(guards, i), "problem"));
        buf_append_text(out, "}");
    }
    buf_append_text(out, stk_reply_count(guards) == 0 ? "[]\n" : "\n]\n");
}

static void list_table_print(const stk_reply *guards)
{
    size_t rows = stk_reply_count(guards) + 1, shown[COLUMNS], columns = 0;
    struct term term;

    for (size_t column = 0; column < COLUMNS; column++)
        if (column != TOKEN_COLUMN || any_takes_tokens(guards))
            shown[columns++] = column;
    const char **all = mem_zalloc(rows * columns * sizeof *all);
    char(*texts)[TERM_NAME_MAX + 1] = mem_zalloc(rows * columns * sizeof *texts);

    for (size_t i = 0; i < rows * columns; i++) {
        size_t row = i / columns, column = shown[i % columns];
        all[i] = row == 0
                     ? heads[column]
                     : term_name(answer_entry_text(stk_reply_at(guards, row - 1), names[column]),
                                 TERM_NAME_MAX, texts[i]);
    }
    term_open(&term);
    if (rows > 1)
        term_table(&term, all, rows, columns);
    for (size_t i = 0; i + 1 < rows; i++) {
        const stk_reply *guard = stk_reply_at(guards, i);
        struct bytes problem = answer_entry_text(guard, "problem");
        if (is_broken(guard) && problem.len > 0)
            term_line(&term, "%s: %.*s", all[(i + 1) * columns], (int)problem.len, problem.data);
    }
    free(texts);
    free(all);
}

static int list(struct answer *answer, const struct settings *settings)
{
    const char *words[] = {"GUARD", "LIST"};
    int code = CLI_OK;
    stk_reply *reply = answer_ask(answer, words, 2, &code);

    if (reply != NULL && settings->json)
        list_json(&answer->out, reply);
    else if (reply != NULL)
        list_table_print(reply);
    stk_reply_free(reply);
    return code;
}

static int run(int (*function)(struct answer *, const struct settings *),
               const struct option_table *table, struct cli *cli, int argc, char **argv)
{
    struct settings settings = {.table = NULL};

    switch (options_parse(table, &settings, cli, argc, argv)) {
    case OPTIONS_HELPED: return CLI_OK;
    case OPTIONS_WRONG: return CLI_USAGE;
    case OPTIONS_RUN: break;
    }
    if (settings.store != NULL) {
        cli->uri = settings.store;
        cli->uri_is_store = true;
    }
    struct answer answer = {.command = table->command, .json = settings.json, .cli = cli};
    int code = function(&answer, &settings);
    answer_print(&answer);
    answer_close(&answer);
    return code;
}

int guard_create_run(struct cli *cli, int argc, char **argv)
{
    return run(change, &create_table, cli, argc, argv);
}

int guard_drop_run(struct cli *cli, int argc, char **argv)
{
    return run(change, &drop_table, cli, argc, argv);
}

int guard_list_run(struct cli *cli, int argc, char **argv)
{
    return run(list, &list_table, cli, argc, argv);
}
