/* SPDX-License-Identifier: Apache-2.0 */
/* Values of options, from the command line, the environment and the table's defaults (the file:
 * options_file.c). Each value is checked where it is read, also one that a higher source overrides:
 * what stands somewhere should be right. */
#include "proxy/server/options.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/log.h"
#include "fence/base/mem.h"
#include "fence/base/uri.h"
#include "proxy/server/options_load.h"
#include "proxy/server/options_valid.h"

#ifndef STOCKADE_VERSION
#define STOCKADE_VERSION "0.1.0"
#endif

enum taken { START, SIGHUP_TOO };

struct option_row {
    const char *name;
    enum option_kind kind;
    enum taken taken;
    const char *value, *fallback;
    int64_t min, max;
    bool (*valid)(const char *text, char *why, size_t why_size);
    const char *help;
};

static const struct option_row rows[OPTIONS] = {
#define X(id, name, kind, value, fallback, min, max, valid, taken, help)                           \
    [OPTION_##id] = {name, kind, taken, value, fallback, min, max, valid, help},
    OPTION_MAP(X)
#undef X
};

struct option_value {
    char **texts; /* one, but for a list */
    size_t count;
    enum option_source source;
    char *origin; /* of the last text */
};

struct options {
    struct option_value values[OPTIONS];
    struct buf shown;
    int argc; /* where they came from; borrowed */
    char *const *argv;
    char *const *env;
};

enum option option_find(struct bytes name)
{
    for (int i = 0; i < OPTIONS; i++)
        if (bytes_equal(name, bytes_of(rows[i].name)))
            return (enum option)i;
    return OPTIONS;
}

static bool valid(const struct option_row *row, const char *text, char *why, size_t why_size)
{
    int64_t number;

    if (*text == '\0') {
        snprintf(why, why_size, "expected %s", row->value);
        return false;
    }
    if (row->kind == OPTION_CHOICE)
        return valid_choice(row->value, text, why, why_size);
    if (row->kind != OPTION_NUMBER)
        return row->valid == NULL || row->valid(text, why, why_size);
    if (bytes_to_int64(bytes_of(text), &number) && number >= row->min && number <= row->max)
        return true;
    snprintf(why, why_size, "expected a number from %lld to %lld", (long long)row->min,
             (long long)row->max);
    return false;
}

static void clear(struct option_value *value)
{
    for (size_t i = 0; i < value->count; i++)
        free(value->texts[i]);
    value->count = 0;
}

static void append_shown(struct buf *out, enum option option, const char *text)
{
    if (option == OPTION_LEASE)
        uri_append_masked(out, text);
    else
        buf_append_text(out, text);
}

bool option_set(struct options *options, enum option option, enum option_source source,
                const char *origin, const char *text, struct buf *message)
{
    const struct option_row *row = &rows[option];
    struct option_value *value = &options->values[option];
    char why[256], quoted[200];

    if (!valid(row, text, why, sizeof why)) {
        struct buf given = {0};
        append_shown(&given, option, text);
        buf_printf(message, "%s %s: %s", origin,
                   log_quoted(buf_bytes(&given), quoted, sizeof quoted), why);
        buf_free(&given);
        return false;
    }
    if (source < value->source)
        return true;
    if (source > value->source || row->kind != OPTION_LIST)
        clear(value);
    value->texts = mem_realloc(value->texts, (value->count + 1) * sizeof *value->texts);
    value->texts[value->count++] = mem_strdup(text);
    value->source = source;
    free(value->origin);
    value->origin = mem_strdup(origin);
    return true;
}

static bool load_flags(struct options *options, int argc, char *const *argv, struct buf *message)
{
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i], *equals = strchr(arg, '=');
        char origin[64], quoted[200];
        size_t len = equals == NULL ? strlen(arg) : (size_t)(equals - arg);
        enum option option = len < 2 || strncmp(arg, "--", 2) != 0
                                 ? OPTIONS
                                 : option_find((struct bytes){arg + 2, len - 2});

        if (option == OPTIONS) {
            buf_printf(message, "%s: no such option; stockaded --help lists them",
                       log_quoted((struct bytes){arg, len}, quoted, sizeof quoted));
            return false;
        }
        snprintf(origin, sizeof origin, "--%s", rows[option].name);
        const char *text = equals != NULL ? equals + 1 : argv[++i];
        if (text == NULL) {
            buf_printf(message, "%s: expected %s behind it", origin, rows[option].value);
            return false;
        }
        if (!option_set(options, option, SOURCE_FLAG, origin, text, message))
            return false;
    }
    return true;
}

/* The value of STOCKADE_<NAME>, whose name goes to `variable`; NULL where it is not set or empty.
 */
static const char *environment_value(const char *name, char *const *env, char variable[64])
{
    size_t len = (size_t)snprintf(variable, 64, "STOCKADE_%s", name);

    for (char *c = variable; *c != '\0'; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    for (; *env != NULL; env++)
        if (strncmp(*env, variable, len) == 0 && (*env)[len] == '=' && (*env)[len + 1] != '\0')
            return *env + len + 1;
    return NULL;
}

/* A list is separated by blanks. */
static bool load_environment(struct options *options, char *const *env, struct buf *message)
{
    for (int i = 0; i < OPTIONS; i++) {
        char variable[64], *rest = NULL;
        const char *text = environment_value(rows[i].name, env, variable);
        bool right = true;

        if (text == NULL)
            continue;
        char *copy = mem_strdup(text);
        const char *separators = rows[i].kind == OPTION_LIST ? " \t\n" : "";
        for (char *word = strtok_r(copy, separators, &rest); word != NULL && right;
             word = strtok_r(NULL, separators, &rest))
            right =
                option_set(options, (enum option)i, SOURCE_ENVIRONMENT, variable, word, message);
        free(copy);
        if (!right)
            return false;
    }
    return true;
}

static void load_defaults(struct options *options)
{
    struct buf message = {0};

    for (int i = 0; i < OPTIONS; i++) {
        char origin[64];
        snprintf(origin, sizeof origin, "%s (default)", rows[i].name);
        if (*rows[i].fallback != '\0')
            check(option_set(options, (enum option)i, SOURCE_DEFAULT, origin, rows[i].fallback,
                             &message));
    }
}

static void write_help(struct buf *out)
{
    buf_append_text(out, "usage: stockaded [option]...\n"
                         "Grants leases with fencing tokens, and refuses writes whose token is "
                         "not the newest.\n\n");
    for (const struct option_row *row = rows; row < rows + OPTIONS; row++) {
        buf_printf(out, "  --%s %s\n        %s", row->name, row->value, row->help);
        if (*row->fallback != '\0')
            buf_printf(out, " (default %s)", row->fallback);
        if (row->taken == SIGHUP_TOO)
            buf_append_text(out, " [SIGHUP]");
        buf_append_text(out, "\n");
    }
    buf_append_text(out, "  --help, --version\n\n"
                         "Each is also an environment variable (STOCKADE_LISTEN) and a line of the "
                         "config file\n(listen = ...). A flag wins over the environment, that over "
                         "the file.\n"
                         "SIGHUP has them read again: those marked [SIGHUP] change at once, the "
                         "others at the next\nstart, and the log says which.\n");
}

/* --help and --version win over whatever else there is. */
static bool asks_to_show(int argc, char *const *argv, struct buf *message)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            write_help(message);
            return true;
        }
        if (strcmp(argv[i], "--version") == 0) {
            buf_append_text(message, "stockaded " STOCKADE_VERSION "\n");
            return true;
        }
    }
    return false;
}

enum options_outcome options_load(struct options **options, int argc, char *const *argv,
                                  char *const *env, struct buf *message)
{
    if (asks_to_show(argc, argv, message))
        return OPTIONS_SHOW;
    struct options *loaded = mem_zalloc(sizeof *loaded);
    loaded->argc = argc;
    loaded->argv = argv;
    loaded->env = env;
    load_defaults(loaded);
    bool right = load_flags(loaded, argc, argv, message) && load_environment(loaded, env, message);
    const char *file = options_text(loaded, OPTION_CONFIG);
    if (right && *file != '\0')
        right = options_load_file(loaded, file, message);
    if (!right) {
        options_free(loaded);
        return OPTIONS_WRONG;
    }
    *options = loaded;
    return OPTIONS_READY;
}

struct options *options_again(const struct options *options, struct buf *message)
{
    struct options *fresh = NULL;
    enum options_outcome outcome =
        options_load(&fresh, options->argc, options->argv, options->env, message);

    return outcome == OPTIONS_READY ? fresh : NULL;
}

bool options_reloads(enum option option)
{
    return rows[option].taken == SIGHUP_TOO;
}

bool options_differ(const struct options *a, const struct options *b, enum option option)
{
    const struct option_value *one = &a->values[option], *other = &b->values[option];

    for (size_t i = 0; i < one->count && i < other->count; i++)
        if (strcmp(one->texts[i], other->texts[i]) != 0)
            return true;
    return one->count != other->count;
}

void options_take(struct options *options, struct options *from, enum option option)
{
    struct option_value old = options->values[option];

    options->values[option] = from->values[option];
    from->values[option] = old;
}

void options_free(struct options *options)
{
    for (int i = 0; i < OPTIONS; i++) {
        clear(&options->values[i]);
        free(options->values[i].texts);
        free(options->values[i].origin);
    }
    buf_free(&options->shown);
    free(options);
}

const char *options_name(enum option option)
{
    return rows[option].name;
}

const char *options_at(const struct options *options, enum option option, size_t i)
{
    const struct option_value *value = &options->values[option];
    return i < value->count ? value->texts[i] : NULL;
}

const char *options_text(const struct options *options, enum option option)
{
    const char *text = options_at(options, option, 0);
    return text == NULL ? "" : text;
}

int64_t options_number(const struct options *options, enum option option)
{
    int64_t number;
    check(bytes_to_int64(bytes_of(options_text(options, option)), &number));
    return number;
}

bool options_is(const struct options *options, enum option option, const char *choice)
{
    return strcmp(options_text(options, option), choice) == 0;
}

const char *options_origin(const struct options *options, enum option option)
{
    const char *origin = options->values[option].origin;
    return origin == NULL ? rows[option].name : origin;
}

const char *options_shown(struct options *options, enum option option)
{
    const char *text;

    buf_clear(&options->shown);
    for (size_t i = 0; (text = options_at(options, option, i)) != NULL; i++) {
        if (i > 0)
            buf_append_text(&options->shown, " ");
        append_shown(&options->shown, option, text);
    }
    buf_append(&options->shown, "", 1);
    return options->shown.data;
}
