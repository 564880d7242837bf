/* SPDX-License-Identifier: Apache-2.0 */
/* Options, from the table to the values in force:
 *
 *   table, checks ─▶ one value ─▶ the sources: defaults, flags, environment, file ─▶ answers
 *
 * Sources may be read in any order: each value remembers where it came from, and only a source of
 * at least that rank replaces it. Every value is checked where it is read, even one that a higher
 * source overrides: what is written down somewhere should be right.
 *
 * How it fails: the first mistake ends the reading, and is one line that says where it is and what
 * would be right. */
#include "proxy/server/options.h"

#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/file.h"
#include "fence/base/log.h"
#include "fence/base/mem.h"
#include "fence/base/nearest.h"
#include "fence/base/plain.h"
#include "fence/base/uri.h"
#include "fence/lease/uri.h"
#include "proxy/engine/lock_pattern.h"
#include "proxy/server/address.h"
#include "proxy/server/audit/chain.h"
#include "proxy/server/doors.h"
#include "store/kinds.h"

#ifndef STOCKADE_VERSION
#define STOCKADE_VERSION "0.1.0"
#endif

enum { FILE_LINE_MAX = 1024, FILE_MAX = 1 << 20 };

/* Checks of values, before anything is opened. They return false and say in `why` what would be
 * right; the caller says what was given. */

static bool valid_listen(const char *text, char *why, size_t why_size)
{
    struct address address;
    return address_parse(text, &address, why, why_size);
}

static bool valid_admin(const char *text, char *why, size_t why_size)
{
    struct address address;

    if (strcmp(text, "off") == 0)
        return true;
    if (address_parse(text, &address, why, why_size) && address.kind != ADDRESS_UNIX)
        return true;
    snprintf(why, why_size, "expected HOST:PORT, [IPV6]:PORT, tls:HOST:PORT or off");
    return false;
}

static bool valid_admin_name(const char *text, char *why, size_t why_size)
{
    if (doors_name_is_valid(text))
        return true;
    snprintf(why, why_size, "expected a host name, without a port");
    return false;
}

static bool valid_store(const char *text, char *why, size_t why_size)
{
    return store_uri_is_memory(text) || store_uri_is_valid(text, why, why_size);
}

static bool valid_lease(const char *text, char *why, size_t why_size)
{
    struct lease_uri uri;
    return lease_uri_parse(text, &uri, why, why_size);
}

static bool valid_audit_events(const char *text, char *why, size_t why_size)
{
    struct bytes wrong;
    uint32_t events;
    char quoted[64];

    if (audit_events_read(text, &events, &wrong))
        return true;
    size_t len = (size_t)snprintf(why, why_size, "%s is no event; expected all, or some of ",
                                  log_quoted(wrong, quoted, sizeof quoted));
    for (int i = 0; i < AUDIT_EVENT_COUNT && len < why_size; i++)
        len += (size_t)snprintf(why + len, why_size - len, "%s%s", i > 0 ? "," : "",
                                audit_event_name((enum audit_event)i));
    return false;
}

/* `choices` as "deny|allow". */
static bool valid_choice(const char *choices, const char *text, char *why, size_t why_size)
{
    size_t len = strlen(text);

    for (const char *at = choices; at != NULL; at = strchr(at, '|')) {
        at += *at == '|';
        if (len > 0 && strncmp(at, text, len) == 0 && (at[len] == '|' || at[len] == '\0'))
            return true;
    }
    snprintf(why, why_size, "expected one of %s", choices);
    return false;
}

/* The table. */

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

/* A higher one wins. */
enum option_source { SOURCE_DEFAULT, SOURCE_FILE, SOURCE_ENVIRONMENT, SOURCE_FLAG };

struct option_value {
    char **texts; /* one, but for a list */
    size_t count;
    enum option_source source;
    char *origin; /* of the last text */
};

struct options {
    struct option_value values[OPTIONS];
    struct buf shown;
    bool only_check;
    int argc; /* where they came from; borrowed */
    char *const *argv;
    char *const *env;
};

/* The option of this name, or OPTIONS. */
static enum option option_find(struct bytes name)
{
    for (int i = 0; i < OPTIONS; i++)
        if (bytes_equal(name, bytes_of(rows[i].name)))
            return (enum option)i;
    return OPTIONS;
}

/* Append that there is no such option, and which one may have been meant, with `dashes` before it.
 */
static void refuse_name(struct buf *message, struct bytes name, const char *dashes)
{
    char quoted[200];
    size_t skip = strlen(dashes);
    struct nearest nearest =
        nearest_to(name.len > skip ? (struct bytes){name.data + skip, name.len - skip} : name);

    for (int i = 0; i < OPTIONS; i++)
        nearest_offer(&nearest, rows[i].name);
    buf_printf(message, "%s: no such option; ", log_quoted(name, quoted, sizeof quoted));
    if (nearest.word != NULL)
        buf_printf(message, "did you mean %s%s?", dashes, nearest.word);
    else
        buf_append_text(message, "stockaded --help lists them");
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

/* One value. */

static void clear(struct option_value *value)
{
    for (size_t i = 0; i < value->count; i++)
        free(value->texts[i]);
    value->count = 0;
}

static void append_shown(struct buf *out, enum option option, const char *text)
{
    if (option == OPTION_LEASE || (option == OPTION_STORE && store_is_in_network(text)))
        uri_append_masked(out, text);
    else
        buf_append_text(out, text);
}

/* Take one value from one source, unless a higher source has given one. `origin` is where it was
 * written, for messages. False: it is wrong, and `message` says why. */
static bool option_set(struct options *options, enum option option, enum option_source source,
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

/* The sources. */

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

static bool load_flags(struct options *options, int argc, char *const *argv, struct buf *message)
{
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i], *equals = strchr(arg, '=');
        char origin[64];
        if (strcmp(arg, "--check") == 0) {
            options->only_check = true;
            continue;
        }
        size_t len = equals == NULL ? strlen(arg) : (size_t)(equals - arg);
        enum option option = len < 2 || strncmp(arg, "--", 2) != 0
                                 ? OPTIONS
                                 : option_find((struct bytes){arg + 2, len - 2});

        if (option == OPTIONS) {
            refuse_name(message, (struct bytes){arg, len}, "--");
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

const char *options_variable(enum option option, char variable[OPTION_VARIABLE_MAX])
{
    snprintf(variable, OPTION_VARIABLE_MAX, "STOCKADE_%s", rows[option].name);
    for (char *c = variable; *c != '\0'; c++)
        *c = *c == '-' ? '_' : plain_upper(*c);
    return variable;
}

/* The value of the option's variable, whose name goes to `variable`; NULL where it is not set or
 * empty. */
static const char *environment_value(enum option option, char *const *env,
                                     char variable[OPTION_VARIABLE_MAX])
{
    size_t len = strlen(options_variable(option, variable));

    for (; *env != NULL; env++)
        if (strncmp(*env, variable, len) == 0 && (*env)[len] == '=' && (*env)[len + 1] != '\0')
            return *env + len + 1;
    return NULL;
}

/* A list is separated by blanks. */
static bool load_environment(struct options *options, char *const *env, struct buf *message)
{
    for (int i = 0; i < OPTIONS; i++) {
        char variable[OPTION_VARIABLE_MAX], *rest = NULL;
        const char *text = environment_value((enum option)i, env, variable);
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

/* The config file, read by inih: lines of name = value; # and ; begin a comment, at the beginning
 * of a line or behind a blank. A line that inih would cut silently is refused instead. */
struct file_reading {
    struct options *options;
    struct bytes text; /* what is left */
    const char *path;  /* as messages show it */
    int line;
    bool failed;
    struct buf *message;
};

static void file_fail(struct file_reading *reading, const char *why)
{
    if (!reading->failed)
        buf_printf(reading->message, "%s:%d: %s", reading->path, reading->line, why);
    reading->failed = true;
}

/* inih also takes a colon for '=', and so "listen 127.0.0.1:7400" for a long name. */
static void file_refuse_name(struct file_reading *reading, const char *name)
{
    if (strpbrk(name, " \t") != NULL) {
        file_fail(reading, "expected name = value");
    } else {
        buf_printf(reading->message, "%s:%d: ", reading->path, reading->line);
        refuse_name(reading->message, bytes_of(name), "");
        reading->failed = true;
    }
}

/* As fgets; blanks in front go, for inih takes an indented line as more of the one before. */
static char *read_line(char *out, int size, void *context)
{
    struct file_reading *reading = context;
    struct bytes *text = &reading->text, line = *text;

    if (reading->failed || text->len == 0)
        return NULL;
    reading->line++;
    const char *end = memchr(text->data, '\n', text->len);
    if (end != NULL)
        line.len = (size_t)(end - text->data) + 1;
    if (line.len >= (size_t)size || memchr(line.data, '\0', line.len) != NULL) {
        file_fail(reading, "the line is too long, or holds a zero byte");
        return NULL;
    }
    *text = (struct bytes){line.data + line.len, text->len - line.len};
    while (line.len > 0 && (*line.data == ' ' || *line.data == '\t'))
        line = (struct bytes){line.data + 1, line.len - 1};
    memcpy(out, line.data, line.len);
    out[line.len] = '\0';
    return out;
}

static int take_setting(void *context, const char *section, const char *name, const char *value)
{
    struct file_reading *reading = context;
    char origin[512];
    enum option option = option_find(bytes_of(name));

    if (reading->failed)
        return 1;
    if (*section != '\0') {
        file_fail(reading, "a config file has no [sections]");
    } else if (option == OPTIONS) {
        file_refuse_name(reading, name);
    } else if (option == OPTION_CONFIG) {
        file_fail(reading, "a config file cannot name another one");
    } else {
        snprintf(origin, sizeof origin, "%s:%d: %s", reading->path, reading->line, name);
        reading->failed =
            !option_set(reading->options, option, SOURCE_FILE, origin, value, reading->message);
    }
    return 1;
}

/* A message is one line, whatever the path holds. Returns `path` or `quoted`. */
static const char *shown_path(const char *path, char *quoted, size_t size)
{
    for (const char *c = path; *c != '\0'; c++)
        if (plain_is_control(*c))
            return log_quoted(bytes_of(path), quoted, size);
    return path;
}

static bool load_file(struct options *options, const char *path, struct buf *message)
{
    char quoted[256], why[FILE_WHY_SIZE];
    struct buf text = {0};
    struct file_reading reading = {
        .options = options, .path = shown_path(path, quoted, sizeof quoted), .message = message};

    if (!file_read(path, FILE_MAX, &text, NULL, why)) {
        buf_printf(message, "%s %s: %s", options_origin(options, OPTION_CONFIG), reading.path, why);
        return false;
    }
    reading.text = buf_bytes(&text);
    ini_use_stack = false;
    ini_max_line = ini_initial_alloc = FILE_LINE_MAX;
    ini_allow_multiline = false;
    ini_inline_comment_prefixes = ini_start_comment_prefixes;
    int wrong_line = ini_parse_stream(read_line, &reading, take_setting, &reading);
    if (wrong_line != 0 && !reading.failed) {
        reading.line = wrong_line;
        file_fail(&reading, "expected name = value");
    }
    buf_free(&text);
    return !reading.failed;
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
    buf_append_text(out, "  --check, --help, --version\n\n"
                         "--check says whether options, users, certificates and addresses are in "
                         "order, and starts\nnothing.\n"
                         "Each is also an environment variable (STOCKADE_LISTEN) and a line of the "
                         "config file\n(listen = ...). A flag wins over the environment, and the "
                         "environment over the file.\n"
                         "On SIGHUP they are read again: those marked [SIGHUP] change at once, the "
                         "others at the\nnext start, and the log says which.\n");
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
        right = load_file(loaded, file, message);
    if (!right) {
        options_free(loaded);
        return OPTIONS_WRONG;
    }
    *options = loaded;
    return OPTIONS_READY;
}

bool options_only_check(const struct options *options)
{
    return options->only_check;
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

const char *const *options_all(const struct options *options, enum option option)
{
    return (const char *const *)options->values[option].texts;
}

size_t options_count(const struct options *options, enum option option)
{
    return options->values[option].count;
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
