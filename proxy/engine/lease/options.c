/* SPDX-License-Identifier: Apache-2.0 */
/* See options.h. What is read, what holds a command back and what the syntax error says of it come
 * from one table. */
#include "proxy/engine/lease/options.h"

#include "proxy/engine/lease/lease.h"
#include "proxy/engine/session/arguments.h"

static bool take_wait(struct request *request, size_t at, struct lease_options *options)
{
    int64_t wait_ms;

    if (!request_int(request, at, 0, LEASE_WAIT_MAX_MS, "WAIT", &wait_ms))
        return false;
    options->wait_until_ms = wait_ms > 0 ? engine_now_ms(request->engine) + wait_ms : 0;
    return true;
}

static bool take_owner(struct request *request, size_t at, struct lease_options *options)
{
    if (!request_owner(request, at))
        return false;
    options->owner = request->argv[at];
    return true;
}

static bool take_id(struct request *request, size_t at, struct lease_options *options)
{
    if (!request_id(request, at))
        return false;
    options->id = request->argv[at];
    return true;
}

static bool take_ephemeral(struct request *request, size_t at, struct lease_options *options)
{
    (void)request, (void)at;
    options->ephemeral = true;
    return true;
}

static bool take_permits(struct request *request, size_t at, struct lease_options *options)
{
    return request_int(request, at, 1, PERMITS_MAX, "PERMITS", &options->permits);
}

static const struct option {
    const char *word;
    const char *value; /* what stands behind the word, for people; NULL: nothing does */
    unsigned commands; /* that take it */
    /* Read the value, at argv[at]. False: the request has failed. NULL: that it is there is all. */
    bool (*take)(struct request *request, size_t at, struct lease_options *options);
} table[] = {
    [OPTION_WAIT] = {"WAIT", "ms", OF_ACQUIRE | OF_ACQUIREALL, take_wait},
    [OPTION_QUEUE] = {"QUEUE", NULL, OF_ACQUIRE, NULL},
    [OPTION_OWNER] = {"OWNER", "owner", OF_ACQUIRE | OF_ACQUIREALL | OF_LEASE, take_owner},
    [OPTION_TOKEN] = {"TOKEN", NULL, OF_LEASE, NULL},
    [OPTION_ID] = {"ID", "id", OF_ACQUIRE | OF_ACQUIREALL | OF_RELEASE, take_id},
    [OPTION_EPHEMERAL] = {"EPHEMERAL", NULL, OF_ACQUIRE | OF_ACQUIREALL, take_ephemeral},
    [OPTION_NOTIFY] = {"NOTIFY", NULL, OF_RENEW, NULL},
    [OPTION_PERMITS] = {"PERMITS", "n", OF_ACQUIRE, take_permits},
};

enum { OPTIONS = sizeof table / sizeof *table };

static size_t words_of(const struct option *option)
{
    return option->value == NULL ? 1 : 2;
}

/* The option at argv[at]; NULL: none that the command takes, or its value is missing. */
static const struct option *find(const struct bytes *argv, size_t argc, size_t at,
                                 enum lease_command command)
{
    for (const struct option *option = table; option < table + OPTIONS; option++)
        if ((option->commands & command) && at + words_of(option) <= argc &&
            bytes_equal_nocase(argv[at], option->word))
            return option;
    return NULL;
}

static void fail_syntax(struct request *request, enum lease_command command)
{
    struct buf text = {0};

    for (const struct option *option = table; option < table + OPTIONS; option++)
        if (option->commands & command)
            buf_printf(&text, " [%s%s%s]", option->word, option->value == NULL ? "" : " ",
                       option->value == NULL ? "" : option->value);
    request_fail(request, STK_ERR, "syntax error: %s takes%.*s", request->command->name,
                 BYTES_CUT(buf_bytes(&text), 256));
    buf_free(&text);
}

bool lease_options_parse(struct request *request, size_t at, enum lease_command command,
                         struct lease_options *options)
{
    while (at < request->argc) {
        const struct option *option = find(request->argv, request->argc, at, command);
        if (option == NULL) {
            fail_syntax(request, command);
            return false;
        }
        unsigned bit = 1U << (option - table);
        if (options->given & bit) { /* and request_scope has room for one name of each kind */
            request_fail(request, STK_ERR, "syntax error: %s is given twice", option->word);
            return false;
        }
        options->given |= bit;
        if (option->take != NULL && !option->take(request, at + 1, options))
            return false;
        at += words_of(option);
    }
    return true;
}

bool lease_options_have(const struct bytes *argv, size_t argc, size_t at,
                        enum lease_command command, enum lease_option sought)
{
    const struct option *option;

    while (at < argc && (option = find(argv, argc, at, command)) != NULL) {
        if (option == &table[sought])
            return true;
        at += words_of(option);
    }
    return false;
}
