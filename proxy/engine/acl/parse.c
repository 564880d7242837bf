/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a file of users. Words of Redis's whose promise Stockade cannot keep are refused by name.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/glob.h"
#include "fence/base/plain.h"
#include "proxy/engine/acl/acl_impl.h"

struct parser {
    struct acl *acl;
    struct acl_user *user; /* of this line */
    unsigned line;
    char *why; /* ACL_WHY_SIZE bytes */
};

/* Say what is wrong, and in which line. Return false. */
static __attribute__((format(printf, 2, 3))) bool wrong(struct parser *parser, const char *format,
                                                        ...)
{
    va_list args;
    int len = snprintf(parser->why, ACL_WHY_SIZE, "line %u: ", parser->line);

    va_start(args, format);
    vsnprintf(parser->why + len, ACL_WHY_SIZE - (size_t)len, format, args);
    va_end(args);
    for (char *at = parser->why; *at != '\0'; at++)
        if (plain_is_control(*at))
            *at = '?';
    return false;
}

static struct bytes rest(struct bytes word, size_t from)
{
    return (struct bytes){word.data + from, word.len - from};
}

static bool begins(struct bytes word, const char *start)
{
    size_t len = strlen(start);
    return word.len >= len && memcmp(word.data, start, len) == 0;
}

/* Categories. */

static const char *const category_names[CATEGORIES] = {
    [CATEGORY_READ] = "read",   [CATEGORY_WRITE] = "write",
    [CATEGORY_LEASE] = "lease", [CATEGORY_REVOKE] = "revoke",
    [CATEGORY_SQL] = "sql",     [CATEGORY_EVENTS] = "events",
    [CATEGORY_ADMIN] = "admin", [CATEGORY_CONNECTION] = "connection",
};

enum command_category acl_category(struct bytes name)
{
    for (enum command_category i = CATEGORY_NONE + 1; i < CATEGORIES; i++)
        if (bytes_equal_nocase(name, category_names[i]))
            return i;
    return CATEGORY_NONE;
}

const char *acl_category_name(enum command_category category)
{
    check(category > CATEGORY_NONE && category < CATEGORIES);
    return category_names[category];
}

/* The rights that a word gives or takes: +command, -command|subcommand, +@category. */
struct choice {
    struct acl_user *user;
    bool on, every;
    enum command_category category; /* of +@category */
    struct bytes command, subcommand;
    struct nearest nearest; /* to the command */
    bool found;             /* there is such a command */
    bool needless;          /* it needs no right, as MULTI */
};

static void choose(void *context, size_t bit, enum command_category category,
                   const struct command *command, const struct subcommand *subcommand)
{
    struct choice *choice = context;
    uint64_t mask = UINT64_C(1) << bit % 64;

    if (choice->category != CATEGORY_NONE) {
        if (choice->category != category)
            return;
    } else if (!choice->every) {
        nearest_offer(&choice->nearest, command->name);
        if (!bytes_equal_nocase(choice->command, command->name))
            return;
        if (choice->subcommand.len > 0 &&
            (subcommand == NULL ||
             !bytes_equal_nocase(choice->subcommand, strchr(subcommand->name, '|') + 1)))
            return;
    }
    choice->found = true;
    choice->needless |= category == CATEGORY_NONE;
    if (category == CATEGORY_NONE)
        return;
    if (choice->on)
        choice->user->commands[bit / 64] |= mask;
    else
        choice->user->commands[bit / 64] &= ~mask;
}

static bool take_right(struct parser *parser, struct bytes word)
{
    struct choice choice = {.user = parser->user, .on = word.data[0] == '+'};
    struct bytes name = rest(word, 1);
    char hint[NEAREST_HINT_MAX];

    if (begins(name, "@")) {
        name = rest(name, 1);
        choice.every = bytes_equal_nocase(name, "all");
        choice.category = choice.every ? CATEGORY_NONE : acl_category(name);
        if (!choice.every && choice.category == CATEGORY_NONE)
            return wrong(parser,
                         "there is no category @%.*s; there are @read @write @lease @revoke @sql "
                         "@events @admin @connection @all",
                         BYTES_CUT(name, 64));
        acl_each_right(parser->user, choose, &choice);
        return true;
    }
    const char *bar = memchr(name.data, '|', name.len);
    choice.command = name;
    choice.nearest = nearest_to(bar == NULL ? name : BYTES_LITERAL(""));
    if (bar != NULL) {
        choice.command.len = (size_t)(bar - name.data);
        choice.subcommand = rest(name, choice.command.len + 1);
    }
    if (bar == NULL || choice.subcommand.len > 0)
        acl_each_right(parser->user, choose, &choice);
    if (!choice.found)
        return wrong(parser, "there is no command '%.*s' here%s", BYTES_CUT(name, 64),
                     nearest_hint(&choice.nearest, hint));
    if (choice.needless && !choice.on)
        return wrong(parser,
                     "'%.*s' needs no right of its own, so none can be taken: take those of the "
                     "commands that it carries",
                     BYTES_CUT(name, 64));
    return true;
}

/* ~pattern, %R~pattern, %W~pattern, %RW~pattern */
static bool take_keys(struct parser *parser, struct bytes word)
{
    struct acl_user *user = parser->user;
    unsigned needs = ACL_READS | ACL_WRITES;
    size_t at = 1;

    if (word.data[0] == '%') {
        needs = 0;
        for (; at < word.len && word.data[at] != '~'; at++)
            if (word.data[at] == 'R' || word.data[at] == 'r')
                needs |= ACL_READS;
            else if (word.data[at] == 'W' || word.data[at] == 'w')
                needs |= ACL_WRITES;
            else
                needs = 0, at = word.len;
        if (needs == 0 || at >= word.len)
            return wrong(parser, "'%.*s' is no pattern of keys: ~PATTERN, %%R~PATTERN, %%W~PATTERN",
                         BYTES_CUT(word, 64));
        at++;
    }
    if (word.len - at > GLOB_MAX)
        return wrong(parser, GLOB_TOO_LONG);
    acl_add_pattern(&user->keys, &user->keys_count, needs, rest(word, at));
    return true;
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool parse_hash(struct bytes text, unsigned char hash[ACL_HASH_LEN])
{
    if (text.len != 2 * (size_t)ACL_HASH_LEN)
        return false;
    for (size_t i = 0; i < ACL_HASH_LEN; i++) {
        int high = digit(text.data[2 * i]), low = digit(text.data[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        hash[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}

/* >password, #sha256 or crypt:text add one; <password or !sha256 take it away. No error repeats
 * what was given: it may be a password. */
static bool take_password(struct parser *parser, struct bytes word)
{
    struct acl_user *user = parser->user;
    unsigned char hash[ACL_HASH_LEN];
    bool plain = word.data[0] == '>' || word.data[0] == '<';

    if (word.data[0] == 'c') {
        if (!acl_add_crypt(user, rest(word, sizeof "crypt:" - 1)))
            return wrong(parser, "what is behind crypt: is no hash that crypt(3) knows, as "
                                 "mkpasswd makes them");
        user->nopass = false;
        return true;
    }
    if (plain && (word.len == 1 || word.len - 1 > ACL_PASSWORD_MAX))
        return wrong(parser, "a password has 1 to %d bytes", ACL_PASSWORD_MAX);
    if (plain)
        acl_hash(rest(word, 1), hash);
    else if (!parse_hash(rest(word, 1), hash))
        return wrong(parser,
                     "behind %c there have to be the 64 lower-case hexadecimal digits of a "
                     "password's SHA-256",
                     word.data[0]);
    if (word.data[0] == '<' || word.data[0] == '!') {
        acl_remove_password(user, hash);
    } else {
        acl_add_password(user, hash);
        user->nopass = false;
    }
    return true;
}

static bool take_all(struct parser *parser, const char *word)
{
    return take_right(parser, bytes_of(word));
}

/* A word without a value. False: there is no such word. */
static bool take_word(struct parser *parser, struct bytes word)
{
    struct acl_user *user = parser->user;
    static const char *const words[] = {
        "on",
        "off",
        "nopass",
        "resetpass",
        "allkeys",
        "resetkeys",
        "allchannels",
        "resetchannels",
        "allcommands",
        "nocommands",
        "reset",
        "sanitize-payload",
        "skip-sanitize-payload",
        "clearselectors",
    };
    enum {
        ON,
        OFF,
        NOPASS,
        RESETPASS,
        ALLKEYS,
        RESETKEYS,
        ALLCHANNELS,
        RESETCHANNELS,
        ALLCOMMANDS,
        NOCOMMANDS,
        RESET
    };
    size_t i = 0;

    while (i < sizeof words / sizeof *words && !bytes_equal_nocase(word, words[i]))
        i++;
    switch (i) {
    case ON: user->on = true; break;
    case OFF: user->on = false; break;
    case NOPASS:
        acl_clear_passwords(user);
        user->nopass = true;
        break;
    case RESETPASS:
        acl_clear_passwords(user);
        user->nopass = false;
        break;
    case ALLKEYS: return take_keys(parser, BYTES_LITERAL("~*"));
    case RESETKEYS: acl_clear_patterns(&user->keys, &user->keys_count); break;
    case ALLCHANNELS:
        acl_add_pattern(&user->channels, &user->channels_count, 0, BYTES_LITERAL("*"));
        break;
    case RESETCHANNELS: acl_clear_patterns(&user->channels, &user->channels_count); break;
    case ALLCOMMANDS: return take_all(parser, "+@all");
    case NOCOMMANDS: return take_all(parser, "-@all");
    case RESET:
        acl_clear_passwords(user);
        acl_clear_patterns(&user->keys, &user->keys_count);
        acl_clear_patterns(&user->channels, &user->channels_count);
        user->nopass = user->on = false;
        return take_all(parser, "-@all");
    default: return i < sizeof words / sizeof *words; /* those that Redis writes change nothing */
    }
    return true;
}

static bool take_rule(struct parser *parser, struct bytes word)
{
    struct acl_user *user = parser->user;

    switch (word.data[0]) {
    case '+':
    case '-': return take_right(parser, word);
    case '~':
    case '%': return take_keys(parser, word);
    case '&':
        if (word.len - 1 > GLOB_MAX)
            return wrong(parser, GLOB_TOO_LONG);
        acl_add_pattern(&user->channels, &user->channels_count, 0, rest(word, 1));
        return true;
    case '>':
    case '<':
    case '#':
    case '!': return take_password(parser, word);
    case '(':
        return wrong(parser, "selectors, ( ... ), are not supported: give these rights to a "
                             "user of their own");
    default: break;
    }
    if (begins(word, "crypt:"))
        return take_password(parser, word);
    return take_word(parser, word) || wrong(parser, "'%.*s' is no rule", BYTES_CUT(word, 64));
}

/* Take the next word off a line; empty: there are no more. */
static struct bytes take_next(struct bytes *line)
{
    size_t from = 0, to;

    while (from < line->len && (line->data[from] == ' ' || line->data[from] == '\t'))
        from++;
    for (to = from; to < line->len && line->data[to] != ' ' && line->data[to] != '\t';)
        to++;
    struct bytes word = {line->data + from, to - from};
    *line = rest(*line, to);
    return word;
}

static bool is_name(struct bytes name)
{
    for (size_t i = 0; i < name.len; i++)
        if (name.data[i] < '!' || name.data[i] > '~')
            return false;
    return name.len >= 1 && name.len <= ACL_USER_MAX;
}

static bool take_line(struct parser *parser, struct bytes line)
{
    struct bytes word = take_next(&line);

    if (word.len == 0 || word.data[0] == '#')
        return true;
    if (!bytes_equal_nocase(word, "user"))
        return wrong(parser, "a line begins with: user NAME");
    word = take_next(&line);
    if (!is_name(word))
        return wrong(parser, "a user's name is 1 to %d printable characters of ASCII",
                     ACL_USER_MAX);
    if (acl_at(parser->acl, ACL_USERS_MAX - 1) != NULL)
        return wrong(parser, "there are more than %d users", ACL_USERS_MAX);
    parser->user = acl_add(parser->acl, word);
    if (parser->user == NULL)
        return wrong(parser, "user %.*s is there already, further up", BYTES_CUT(word, 64));
    while ((word = take_next(&line)).len > 0)
        if (!take_rule(parser, word))
            return false;
    return true;
}

struct acl *acl_parse(struct bytes text, const struct command *all, size_t count,
                      char why[ACL_WHY_SIZE])
{
    struct parser parser = {.acl = acl_new(all, count, true), .why = why};
    bool fine = true;

    why[0] = '\0';
    if (text.len > ACL_FILE_MAX) {
        snprintf(why, ACL_WHY_SIZE, "it has more than %d bytes", ACL_FILE_MAX);
        fine = false;
    } else if (text.len > 0 && memchr(text.data, '\0', text.len) != NULL) {
        snprintf(why, ACL_WHY_SIZE, "it has a zero byte in it, and is no text");
        fine = false;
    }
    while (fine && text.len > 0) {
        const char *end = memchr(text.data, '\n', text.len);
        struct bytes line = {text.data, end == NULL ? text.len : (size_t)(end - text.data)};
        text = rest(text, line.len + (end != NULL));
        if (line.len > 0 && line.data[line.len - 1] == '\r')
            line.len--;
        parser.line++;
        fine = take_line(&parser, line);
    }
    if (!fine) {
        acl_drop(parser.acl);
        return NULL;
    }
    acl_seal(parser.acl);
    return parser.acl;
}
