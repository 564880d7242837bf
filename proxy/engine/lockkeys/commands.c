/* SPDX-License-Identifier: Apache-2.0 */
/* Redis's commands as lock libraries use them on lock keys. */
#include "proxy/engine/lockkeys/lock_keys.h"
#include "proxy/engine/lockkeys/time.h"
#include "proxy/engine/session/arguments.h"

/* What SET says behind its value. */
struct set_options {
    bool nx, has_time, has_equal;
    int64_t ttl_ms;
    struct bytes equal; /* IFEQ: what the key holds now */
};

/* What a lock needs, and nothing else. False: the request has failed. */
static bool take_options(struct request *request, struct set_options *options)
{
    for (size_t i = 3; i < request->argc; i++) {
        bool has_more = i + 1 < request->argc, seconds = request_is_word(request, i, "EX");
        if (request_is_word(request, i, "NX")) {
            options->nx = true;
        } else if (request_is_word(request, i, "IFEQ") && !options->has_equal && has_more) {
            options->has_equal = true;
            options->equal = request->argv[++i];
        } else if ((seconds || request_is_word(request, i, "PX")) && !options->has_time &&
                   has_more) {
            if (!lock_time(request, ++i, seconds, &options->ttl_ms))
                return false;
            options->has_time = true;
        } else {
            request_fail(request, STK_ERR,
                         "syntax error: a lock is taken by SET key value NX PX ms "
                         "(or EX seconds), kept by SET key value IFEQ value PX ms, and by nothing "
                         "else");
            return false;
        }
    }
    return true;
}

/* Why a lock is not set so; NULL: it may be. */
static const char *set_refused(const struct set_options *options, struct bytes value)
{
    if (options->nx && options->has_equal)
        return "syntax error: a lock is free (NX) or is its holder's (IFEQ), not both";
    if (!options->nx && !options->has_equal)
        return "a lock is taken by SET key value NX PX ms (or EX seconds): without NX it would be "
               "taken from its holder";
    if (!options->has_time)
        return "a lock is taken by SET key value NX PX ms (or EX seconds): without a time it could "
               "be held for ever by a client that has died";
    if (options->has_equal && !bytes_equal(options->equal, value))
        return "a lock keeps its value: SET key value IFEQ value PX ms, the same one twice";
    return NULL;
}

/* SET key value NX PX ms | EX seconds, which takes; SET key value IFEQ value PX ms | EX seconds,
 * by which its holder keeps it. */
void lock_set(struct request *request)
{
    struct set_options options = {0};

    if (!take_options(request, &options))
        return;
    const char *why = set_refused(&options, request->argv[2]);
    if (why != NULL) {
        request_fail(request, STK_ERR, "%s", why);
        return;
    }
    lock_run_start(request,
                   &(struct lock_ask){.form = options.nx ? &lock_form_set : &lock_form_set_again,
                                      .keys = request->argv + 1,
                                      .count = 1,
                                      .value = request->argv[2],
                                      .ttl_ms = options.ttl_ms});
}

static void start(struct request *request, const struct lock_form *form, size_t count,
                  struct bytes value)
{
    lock_run_start(request,
                   &(struct lock_ask){
                       .form = form, .keys = request->argv + 1, .count = count, .value = value});
}

/* GET key */
void lock_get(struct request *request)
{
    start(request, &lock_form_get, 1, (struct bytes){0});
}

/* PTTL key */
void lock_pttl(struct request *request)
{
    start(request, &lock_form_pttl, 1, (struct bytes){0});
}

/* TTL key */
void lock_ttl(struct request *request)
{
    start(request, &lock_form_ttl, 1, (struct bytes){0});
}

/* EXISTS key ... */
void lock_exists(struct request *request)
{
    start(request, &lock_form_exists, request->argc - 1, (struct bytes){0});
}

/* DEL key ... */
void lock_del(struct request *request)
{
    start(request, &lock_form_del, request->argc - 1, (struct bytes){0});
}

/* A release by value, of a key that has to be a lock key. */
static void give_back(struct request *request, struct bytes value)
{
    if (request->engine->lock_keys != NULL)
        start(request, &lock_form_del_own, 1, value);
    else
        request_fail(request, STK_ERR,
                     "%.*s works on lock keys: start stockaded with --lock-keys PATTERN",
                     BYTES_CUT(request->argv[0], 32));
}

/* DELIFEQ key value: Valkey's */
void lock_delifeq(struct request *request)
{
    give_back(request, request->argv[2]);
}

/* DELEX key IFEQ value: Redis's */
void lock_delex(struct request *request)
{
    if (request->argc == 4 && request_is_word(request, 2, "IFEQ"))
        give_back(request, request->argv[3]);
    else
        request_fail(request, STK_ERR, "a lock is given back by DELEX key IFEQ value");
}

/* HEXISTS key value: Redisson asks so whether it is held by the current thread. */
void lock_hexists(struct request *request)
{
    start(request, &lock_form_hexists, 1, request->argv[2]);
}

/* HGET key value: and so, how often it was entered. */
void lock_hget(struct request *request)
{
    start(request, &lock_form_hget, 1, request->argv[2]);
}

/* Any other command with a lock key in place of a resource. */
void lock_refuse(struct request *request)
{
    request_fail(request, STK_ERR,
                 "%.*s takes the resource, not its lock key: what the * of --lock-keys stands for",
                 BYTES_CUT(request->argv[0], 32));
}
