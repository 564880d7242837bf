/* SPDX-License-Identifier: Apache-2.0 */
/* getopt_long and the help text from an option table. Every message names the option, what
 * was given and what would be accepted. */
#include "tools/options.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "fence/base/bytes.h"
#include "fence/base/check.h"

enum { ROWS_MAX = 30, HELP_COLUMN = 26, HELP_LETTER = 'h', ROW_FIRST = 256 };
enum { OPERAND = 1 }; /* getopt's code for a word that is no option */
enum { OPERANDS = sizeof((struct option_table *)NULL)->operands / sizeof(struct option_operand) };

static void options_help(const struct option_table *table)
{
    printf("usage: %s\n\n%s\n\noptions:\n", table->usage, table->about);
    for (size_t i = 0; i < table->count; i++) {
        const struct option_row *row = &table->rows[i];
        char left[64];

        (void)snprintf(left, sizeof left, "  --%s%s%s", row->name, row->value ? " " : "",
                       row->value ? row->value : "");
        printf("%-*s %s\n", HELP_COLUMN, left, row->help);
    }
    printf("%-*s this text\n", HELP_COLUMN, "  --help, -h");
}

bool options_ms(const char *text, int64_t *ms)
{
    static const struct {
        const char *suffix;
        int64_t ms;
    } units[] = {{"", 1}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};
    size_t digits = strspn(text, "0123456789");
    int64_t count;

    if (!bytes_to_int64((struct bytes){text, digits}, &count)) {
        return false;
    }
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(text + digits, units[i].suffix) == 0 && count <= INT64_MAX / units[i].ms) {
            *ms = count * units[i].ms;
            return true;
        }
    }
    return false;
}

static bool option_set_number(const struct option_row *row, const char *text, int64_t *field,
                              struct failure *failure)
{
    bool is_ms = row->kind == OPTION_MS;
    int64_t value;
    bool read = is_ms ? options_ms(text, &value) : bytes_to_int64(bytes_of(text), &value);

    if (!read || value < row->min || value > row->max) {
        return failure_set(failure, "takes %s from %" PRId64 " to %" PRId64 ", not \"%s\"",
                           is_ms ? "milliseconds (or 2s, 5m)" : "a whole number", row->min,
                           row->max, text);
    }
    *field = value;
    return true;
}

static bool option_set(const struct option_row *row, void *settings, const char *text,
                       struct failure *failure)
{
    void *field = (char *)settings + row->offset;

    switch (row->kind) {
    case OPTION_FLAG: *(bool *)field = true; return true;
    case OPTION_TEXT: *(const char **)field = text; return true;
    case OPTION_NUMBER:
    case OPTION_MS: return option_set_number(row, text, field, failure);
    case OPTION_CALL: return row->set(settings, text, failure);
    }
    check(false);
}

static enum options_result options_wrong(const struct option_table *table, const char *option,
                                         const char *why)
{
    fprintf(stderr, "%s: %s%s; see %s --help\n", table->command, option, why, table->command);
    return OPTIONS_WRONG;
}

/* Return the first operand that was not given yet; NULL: there is none. */
static const struct option_operand *operand_next(const struct option_table *table, void *settings,
                                                 const char ***field)
{
    for (size_t i = 0; i < OPERANDS && table->operands[i].name != NULL; i++) {
        *field = (const char **)(void *)((char *)settings + table->operands[i].offset);
        if (**field == NULL) {
            return &table->operands[i];
        }
    }
    return NULL;
}

/* Take a word that is no option. False: there is no place for it. */
static bool operand_take(const struct option_table *table, void *settings, const char *word)
{
    const char **field;
    bool wanted = operand_next(table, settings, &field) != NULL;

    if (wanted) {
        *field = word;
    }
    return wanted;
}

static enum options_result options_end(const struct option_table *table, void *settings, int argc,
                                       char **argv)
{
    for (int i = optind; i < argc; i++) { /* behind "--" */
        if (!operand_take(table, settings, argv[i])) {
            return options_wrong(table, argv[i], " is one word too many");
        }
    }
    const char **field;
    const struct option_operand *missing = operand_next(table, settings, &field);
    return missing == NULL || table->operand_is_optional
               ? OPTIONS_RUN
               : options_wrong(table, missing->name, " is missing");
}

enum options_result options_parse(const struct option_table *table, void *settings, int argc,
                                  char **argv)
{
    struct option longs[ROWS_MAX + 2] = {{"help", no_argument, NULL, HELP_LETTER}};
    struct failure failure = {.text = ""};
    char name[64];
    int got;

    check(table->count <= ROWS_MAX);
    for (size_t i = 0; i < table->count; i++) {
        int takes = table->rows[i].kind == OPTION_FLAG ? no_argument : required_argument;
        longs[i + 1] = (struct option){table->rows[i].name, takes, NULL, (int)(ROW_FIRST + i)};
    }
    opterr = 0;
    optind = 0; /* glibc: start over, main has used getopt before */
    while ((got = getopt_long(argc, argv, "-:h", longs, NULL)) != -1) {
        if (got == HELP_LETTER) {
            options_help(table);
            return OPTIONS_HELPED;
        }
        if (got == OPERAND) {
            if (!operand_take(table, settings, optarg)) {
                return options_wrong(table, optarg, " is one word too many");
            }
            continue;
        }
        if (got == '?') {
            return options_wrong(table, argv[optind - 1], " is not an option here");
        }
        if (got == ':') {
            return options_wrong(table, argv[optind - 1], " needs a value");
        }
        const struct option_row *row = &table->rows[got - ROW_FIRST];
        if (!option_set(row, settings, optarg, &failure)) {
            (void)snprintf(name, sizeof name, "--%s ", row->name);
            return options_wrong(table, name, failure.text);
        }
    }
    return options_end(table, settings, argc, argv);
}
