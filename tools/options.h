/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a command as one table: getopt_long, the checks of the values and the text of
 * `--help` all come from it. */
#ifndef STOCKADE_TOOLS_OPTIONS_H
#define STOCKADE_TOOLS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fence/base/nearest.h"
#include "tools/failure.h"

struct cli;
struct option; /* getopt's */

enum option_kind {
    OPTION_FLAG,   /* bool; takes no value */
    OPTION_NUMBER, /* int64_t within min..max */
    OPTION_MS,     /* int64_t of milliseconds within min..max: 200, 200ms, 30s, 5m, 24h */
    OPTION_TEXT,   /* const char *, borrowed from argv */
    OPTION_CALL,   /* what `set` makes of it */
};

struct option_row {
    const char *name; /* without the two dashes */
    enum option_kind kind;
    size_t offset;     /* of the field in the command's settings */
    int64_t min, max;  /* NUMBER and MS */
    const char *value; /* what the value is called in the help, such as "MS" */
    const char *help;  /* one line */
    bool (*set)(void *settings, const char *text, struct failure *failure); /* CALL */
};

struct option_table {
    const char *command; /* "stockade replay": in front of messages */
    const char *usage;   /* the line after "usage: " */
    const char *about;   /* a paragraph above the options */
    const struct option_row *rows;
    size_t count;
    /* Words beside the options, such as "FILE"; NULL: none. Each goes to its const char *, borrowed
     * from argv. */
    struct option_operand {
        const char *name;
        size_t offset;
    } operands[3];
    bool operand_is_optional;                       /* the last one */
    bool uri_is_store;                              /* -u is another word for --store */
    void (*more)(void *settings, const char *word); /* takes words beyond these; NULL: none */
    const char *too_many; /* what to do where there is a word too many; NULL: nothing */
};

/* A table's members `rows` and `count`. */
#define OPTION_ROWS(array) .rows = (array), .count = sizeof(array) / sizeof *(array)

enum options_result { OPTIONS_RUN, OPTIONS_HELPED, OPTIONS_WRONG };

/* Fill the settings, which hold the defaults already, from argv[1..], and `cli`, whose options
 * every command of `stockade` takes (NULL: the program is another). OPTIONS_HELPED: --help was
 * asked for and printed. OPTIONS_WRONG: the reason was printed on stderr. */
enum options_result options_parse(const struct option_table *table, void *settings, struct cli *cli,
                                  int argc, char **argv);

/* Which of getopt's `longs` may have been meant by `word`, as --tokne or --tokne=1? Without slips:
 * that one, and its value is wrong. Of any other word nothing is said. */
struct nearest options_nearest(const struct option *longs, const char *word);

/* Read "200", "200ms", "30s", "5m" or "24h" as milliseconds; false for anything else. */
bool options_ms(const char *text, int64_t *ms);

#endif
