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
#include "fence/base/uri.h"
#include "tools/cli.h"
#include "tools/term.h"

enum { ROWS_MAX = 30, HELP_COLUMN = 26, ROW_FIRST = 256 };
enum { HELP_LETTER = 'h', URI_LETTER = 'u', PASSWORD_LETTER = 255 };
enum { OPERAND = 1 }; /* getopt's code for a word that is no option */
enum { OPERANDS = sizeof((struct option_table *)NULL)->operands / sizeof(struct option_operand) };

static void options_help(const struct option_table *table, bool cli)
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
    if (cli)
        printf("%-*s %s\n", HELP_COLUMN, "  -u URI",
               table->uri_is_store ? "the same as --store"
                                   : "which server or store: see stockade --help");
}

bool options_ms(const char *text, int64_t *ms)
{
    static const struct {
        const char *suffix;
        int64_t ms;
    } units[] = {{"", 1}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};
    size_t digits = strspn(text, "0123456789");
    int64_t count;

    if (!bytes_to_int64((struct bytes){text, digits}, &count))
        return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(text + digits, units[i].suffix) == 0 && count <= INT64_MAX / units[i].ms) {
            *ms = count * units[i].ms;
            return true;
        }
    return false;
}

static bool option_set_number(const struct option_row *row, const char *text, int64_t *field,
                              struct failure *failure)
{
    bool is_ms = row->kind == OPTION_MS;
    int64_t value;
    bool read = is_ms ? options_ms(text, &value) : bytes_to_int64(bytes_of(text), &value);

    if (!read || value < row->min || value > row->max)
        return failure_set(failure, "takes %s from %" PRId64 " to %" PRId64 ", not \"%s\"",
                           is_ms ? "milliseconds (or 2s, 5m)" : "a whole number", row->min,
                           row->max, text);
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
    term_error("%s: %s%s; see %s --help", table->command, option, why, table->command);
    return OPTIONS_WRONG;
}

/* Return the first operand that was not given yet; NULL: there is none. */
static const struct option_operand *operand_next(const struct option_table *table, void *settings,
                                                 const char ***field)
{
    for (size_t i = 0; i < OPERANDS && table->operands[i].name != NULL; i++) {
        *field = (const char **)(void *)((char *)settings + table->operands[i].offset);
        if (**field == NULL)
            return &table->operands[i];
    }
    return NULL;
}

/* Take a word that is no option. False: there is no place for it. */
static bool operand_take(const struct option_table *table, void *settings, const char *word)
{
    const char **field;
    bool wanted = operand_next(table, settings, &field) != NULL;

    if (wanted)
        *field = word;
    else if (table->more != NULL)
        table->more(settings, word);
    return wanted || table->more != NULL;
}

static enum options_result refuse_extra(const struct option_table *table, const char *word)
{
    char why[128];

    (void)snprintf(why, sizeof why, " is one word too many%s%s",
                   table->too_many != NULL ? ": " : "",
                   table->too_many != NULL ? table->too_many : "");
    return options_wrong(table, word, why);
}

static enum options_result options_end(const struct option_table *table, void *settings, int argc,
                                       char **argv)
{
    for (int i = optind; i < argc; i++) /* behind "--" */
        if (!operand_take(table, settings, argv[i]))
            return refuse_extra(table, argv[i]);
    const char **field;
    const struct option_operand *missing = operand_next(table, settings, &field);
    return missing == NULL || table->operand_is_optional
               ? OPTIONS_RUN
               : options_wrong(table, missing->name, " is missing");
}

/* Return the word that getopt_long did not know. Of short options in one word it stops at the
 * first, and has not gone past the word. */
static const char *unknown_word(int argc, char **argv)
{
    const char *last = argv[optind - 1];
    bool is_whole = optopt == 0 || strncmp(last, "--", 2) == 0 ||
                    (last[0] == '-' && last[1] == (char)optopt && last[2] == '\0');

    return is_whole || optind >= argc ? last : argv[optind];
}

struct nearest options_nearest(const struct option *longs, const char *word)
{
    const char *name = uri_after(word, "--");
    struct nearest nearest =
        nearest_to(name != NULL ? (struct bytes){name, strcspn(name, "=")} : bytes_of(""));

    for (; longs->name != NULL; longs++)
        nearest_offer(&nearest, longs->name);
    return nearest;
}

/* Say that a word is no option, and what of `longs` may have been meant. */
static enum options_result refuse_unknown(const struct option_table *table, void *settings,
                                          const struct option *longs, const char *word)
{
    struct nearest nearest = options_nearest(longs, word);
    struct buf why = {0};
    const char **field;

    buf_append_text(&why, " is not an option here");
    if (strncmp(word, "--", 2) == 0) {
        if (nearest.word != NULL && nearest.slips > 0) {
            buf_printf(&why, "; did you mean --%s?", nearest.word);
        } else if (nearest.word != NULL && strchr(word, '=') != NULL) {
            buf_clear(&why); /* getopt refuses the value only */
            buf_printf(&why, " has a value, and --%s takes none", nearest.word);
        }
    } else if (operand_next(table, settings, &field) != NULL) {
        bool negative = word[1] >= '0' && word[1] <= '9';
        buf_printf(&why, "; for %s: %s", negative ? "negatives" : "a value like that",
                   table->command);
        for (size_t i = 0; i < OPERANDS && table->operands[i].name != NULL; i++) {
            field = (const char **)(void *)((char *)settings + table->operands[i].offset);
            if (*field != NULL)
                buf_printf(&why, " %s", *field);
        }
        buf_printf(&why, " -- %s", word);
    }
    buf_append(&why, "", 1);
    enum options_result result = options_wrong(table, word, why.data);
    buf_free(&why);
    return result;
}

/* Put the options of every command, and then those of this one, into getopt's table. */
static void fill_longs(struct option *longs, const struct option_table *table, bool cli)
{
    size_t used = 0;

    longs[used++] = (struct option){"help", no_argument, NULL, HELP_LETTER};
    if (cli) {
        longs[used++] = (struct option){"uri", required_argument, NULL, URI_LETTER};
        longs[used++] = (struct option){"password-file", required_argument, NULL, PASSWORD_LETTER};
    }
    for (size_t i = 0; i < table->count; i++) {
        int takes = table->rows[i].kind == OPTION_FLAG ? no_argument : required_argument;
        longs[used++] = (struct option){table->rows[i].name, takes, NULL, (int)(ROW_FIRST + i)};
    }
}

enum options_result options_parse(const struct option_table *table, void *settings, struct cli *cli,
                                  int argc, char **argv)
{
    struct option longs[ROWS_MAX + 4] = {{0}};
    struct failure failure = {.text = ""};
    char name[64];
    int got;

    check(table->count <= ROWS_MAX);
    fill_longs(longs, table, cli != NULL);
    opterr = 0;
    optind = 0; /* glibc: start over, main has used getopt before */
    while ((got = getopt_long(argc, argv, cli != NULL ? "-:hu:" : "-:h", longs, NULL)) != -1) {
        const struct option_row *row;
        switch (got) {
        case HELP_LETTER: options_help(table, cli != NULL); return OPTIONS_HELPED;
        case URI_LETTER:
            check(cli != NULL);
            cli->uri = optarg;
            break;
        case PASSWORD_LETTER:
            check(cli != NULL);
            cli->password_file = optarg;
            break;
        case OPERAND:
            if (!operand_take(table, settings, optarg))
                return refuse_extra(table, optarg);
            break;
        case '?': return refuse_unknown(table, settings, longs, unknown_word(argc, argv));
        case ':': return options_wrong(table, argv[optind - 1], " needs a value");
        default:
            row = &table->rows[got - ROW_FIRST];
            if (!option_set(row, settings, optarg, &failure)) {
                (void)snprintf(name, sizeof name, "--%s ", row->name);
                return options_wrong(table, name, failure.text);
            }
        }
    }
    return options_end(table, settings, argc, argv);
}
