/* SPDX-License-Identifier: Apache-2.0 */
/* EVAL, EVALSHA and SCRIPT, for the scripts of lock libraries. They are known by the SHA1 of their
 * text; a text that differs from a known one in nothing but whitespace, quotes and case is known,
 * too, and from then on by its own SHA1. */
#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"
#include "fence/base/plain.h"
#include "proxy/engine/lockkeys/lock_keys.h"
#include "proxy/engine/lockkeys/time.h"
#include "proxy/engine/session/arguments.h"
#include "proxy/engine/session/pubsub.h"
#include "proxy/engine/session/rights.h"
#include "proxy/engine/session/session.h"

/* A longer text is no lock library's, and is not hashed: that takes the loop's time. */
enum { TEXTS_MAX = 256, TEXT_MAX = 64 << 10 };

#define OFF                                                                                        \
    "no Lua runs here; the scripts of lock libraries work on lock keys: start stockaded with "     \
    "--lock-keys PATTERN"
#define NOT_KNOWN                                                                                  \
    "no Lua runs here, and this text is of no lock library that is known: take the lease itself "  \
    "(ACQUIRE resource ttl_ms, RENEW, RELEASE), or tell Stockade's makers the library and version"

struct lock_text {
    char sha1[LOCK_SHA1_SIZE];
    const struct lock_script *script;
};

struct lock_texts {
    struct lock_text all[TEXTS_MAX]; /* the oldest one is replaced */
    size_t next;
};

struct lock_texts *lock_texts_new(void)
{
    return mem_zalloc(sizeof(struct lock_texts));
}

void lock_texts_free(struct lock_texts *texts)
{
    free(texts);
}

/* Find a script by its SHA1, in upper or lower case; NULL: not known. */
static const struct lock_script *find(const struct engine *engine, struct bytes sha1)
{
    const struct lock_texts *texts = engine->lock_keys->texts;
    char lower[LOCK_SHA1_SIZE] = {0};

    if (sha1.len != LOCK_SHA1_SIZE - 1)
        return NULL;
    for (size_t i = 0; i < sha1.len; i++)
        lower[i] = plain_lower(sha1.data[i]);
    const struct lock_script *script = lock_script_find(lower);
    for (size_t i = 0; i < TEXTS_MAX && script == NULL; i++)
        if (strcmp(texts->all[i].sha1, lower) == 0)
            script = texts->all[i].script;
    return script;
}

/* Find a script by its text, and write the text's SHA1; NULL: not known. */
static const struct lock_script *find_text(struct engine *engine, struct bytes text,
                                           char sha1[LOCK_SHA1_SIZE])
{
    struct lock_texts *texts = engine->lock_keys->texts;
    char plain[LOCK_SHA1_SIZE];

    if (text.len > TEXT_MAX)
        return NULL;
    lock_sha1(text, sha1);
    const struct lock_script *script = find(engine, bytes_of(sha1));
    if (script != NULL)
        return script;
    lock_plain_sha1(text, plain);
    script = lock_script_find_plain(plain);
    if (script == NULL)
        return NULL;
    struct lock_text *known = &texts->all[texts->next++ % TEXTS_MAX];
    memcpy(known->sha1, sha1, LOCK_SHA1_SIZE);
    known->script = script;
    return script;
}

/* The script that EVAL or EVALSHA names; NULL: not known, or off. Looked for once. */
static const struct lock_script *script_of(struct request *request)
{
    char sha1[LOCK_SHA1_SIZE];

    if (request->engine->lock_keys == NULL || request->script != NULL)
        return request->script;
    return request->script = request_is_word(request, 0, "EVAL")
                                 ? find_text(request->engine, request->argv[1], sha1)
                                 : find(request->engine, request->argv[1]);
}

/* What each verb of a script does: a verb without a deed is no script's. */
static const enum deed deeds[] = {
    [LOCK_LOOK] = DEED_LOOK,    [LOCK_TAKE] = DEED_ACQUIRE,  [LOCK_EXTEND] = DEED_RENEW,
    [LOCK_GIVE] = DEED_RELEASE, [LOCK_REVOKE] = DEED_REVOKE,
};

/* May the user do anything that a script does? Before that is known no text is looked at. */
static bool may_any(const struct acl_user *user, const struct request *request)
{
    for (size_t i = 0; i < sizeof deeds / sizeof *deeds; i++)
        if (deeds[i] != DEED_NOT_SAID &&
            rights_permit_deed(user, request->engine, request->command, deeds[i]))
            return true;
    return false;
}

void lock_eval_prepare(struct request *request)
{
    const struct acl_user *user = request->session->rights;
    const struct lock_script *script =
        user != NULL && (user->all || may_any(user, request)) ? script_of(request) : NULL;

    if (script != NULL && script->form->verb == LOCK_TAKE)
        request->order = ORDER_LEASE;
}

/* Where KEYS and ARGV are among the request's words. Their places count from 1, as in Lua. */
struct call {
    struct request *request;
    size_t keys, args;
};

static struct bytes key_at(const struct call *call, size_t place)
{
    return place >= 1 && place <= call->keys ? call->request->argv[2 + place] : (struct bytes){0};
}

static size_t word_of_arg(const struct call *call, size_t place)
{
    return 2 + call->keys + place;
}

static struct bytes arg_at(const struct call *call, size_t place)
{
    return place >= 1 && place <= call->args ? call->request->argv[word_of_arg(call, place)]
                                             : (struct bytes){0};
}

/* Read numkeys. False: the request has failed, in Redis's words. */
static bool take_numkeys(struct call *call)
{
    struct request *request = call->request;
    int64_t keys;

    if (!bytes_to_int64(request->argv[2], &keys)) {
        request_fail(request, STK_ERR, "value is not an integer or out of range");
    } else if (keys > (int64_t)request->argc - 3) {
        request_fail(request, STK_ERR, "Number of keys can't be greater than number of args");
    } else if (keys < 0) {
        request_fail(request, STK_ERR, "Number of keys can't be negative");
    } else {
        call->keys = (size_t)keys;
        call->args = request->argc - 3 - call->keys;
        return true;
    }
    return false;
}

static size_t max_of(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Where in ARGV the time is; 0: nowhere. */
static size_t place_of_ttl(const struct call *call, const struct lock_form *form)
{
    return form->flags & LOCK_TTL_LAST ? call->args : form->ttl;
}

/* Are there as many as the script reads? */
static bool has_enough(const struct call *call, const struct lock_form *form)
{
    size_t values = form->flags & LOCK_VALUES ? form->value + call->keys - 1 : form->value;
    size_t args = max_of(max_of(values, form->ttl), max_of(form->adds, form->if_yes));

    if (form->flags & LOCK_TTL_LAST)
        args = values + 1;
    args = max_of(args, max_of(form->channel, form->message));
    return call->keys >= max_of(max_of(form->keys, form->channel_key), 1) && call->args >= args;
}

static struct bytes part(struct bytes whole, size_t from, size_t len)
{
    return (struct bytes){whole.data + from, len};
}

/* Is it the channel for news of this lock? Redisson's is redisson_lock__channel:{KEY}, without the
 * braces where the key has its own; Spring's is REGISTRY-channel:NAME, where the lock key is
 * REGISTRY:NAME. */
static bool is_of_lock(struct bytes channel, struct bytes key)
{
    static const struct bytes redisson = BYTES_LITERAL("redisson_lock__channel:"),
                              spring = BYTES_LITERAL("-channel");
    size_t start = redisson.len;

    if (channel.len > start && bytes_equal(part(channel, 0, start), redisson)) {
        size_t braces = channel.data[start] == '{' && channel.len == start + key.len + 2;
        return bytes_equal(part(channel, start + braces, channel.len - start - 2 * braces), key);
    }
    if (channel.len != key.len + spring.len)
        return false;
    for (size_t i = 0; i < key.len; i++)
        if (key.data[i] == ':' && bytes_equal(part(channel, 0, i), part(key, 0, i)) &&
            bytes_equal(part(channel, i, spring.len), spring) &&
            bytes_equal(part(channel, i + spring.len, key.len - i), part(key, i, key.len - i)))
            return true;
    return false;
}

/* Where a script publishes: empty, nowhere. */
static struct bytes channel_of(const struct call *call, const struct lock_form *form)
{
    return form->channel > 0 ? arg_at(call, form->channel) : key_at(call, form->channel_key);
}

/* A script tells on what channel it publishes. On any but the lock's own its user needs the right
 * to that, as for PUBLISH. */
struct act lock_eval_act(const struct acl_user *user, struct request *request,
                         const struct bytes *argv, size_t argc)
{
    struct act act = {.deed = request->command->deed};
    struct call call = {.request = request};
    int64_t keys;

    const struct lock_script *script = may_any(user, request) ? script_of(request) : NULL;
    if (script == NULL || script->form->refused != NULL)
        return act;
    act.deed = deeds[script->form->verb];
    if (!bytes_to_int64(argv[2], &keys) || keys < 1 || (uint64_t)keys > argc - 3)
        return act; /* refused once it starts */
    call.keys = (size_t)keys;
    call.args = argc - 3 - call.keys;
    struct bytes channel = channel_of(&call, script->form);
    if (!is_of_lock(channel, argv[3]))
        act.channel = channel;
    return act;
}

/* Read what else a script asks for. False: the request has failed, in Redis's words. */
static bool take_conditions(const struct call *call, const struct lock_form *form,
                            struct lock_ask *ask)
{
    struct bytes db = arg_at(call, form->db);

    if (form->db > 0 && !bytes_equal(db, bytes_of("0")))
        request_fail(call->request, STK_ERR, "DB index is out of range: there is database 0 only");
    else if (form->least > 0 && !bytes_to_int64(arg_at(call, form->least), &ask->least_ms))
        request_fail(call->request, STK_ERR, "value is not an integer or out of range");
    else
        return true;
    return false;
}

static void run(struct call *call, const struct lock_script *script)
{
    struct request *request = call->request;
    const struct lock_form *form = script->form;

    if (!has_enough(call, form)) {
        request_fail(request, STK_ERR, "this script of %s takes more keys and arguments",
                     script->library);
        return;
    }
    struct lock_ask ask = {.form = form,
                           .keys = request->argv + 3,
                           .count = form->keys > 0 ? form->keys : call->keys,
                           .value = arg_at(call, form->value),
                           .channel = channel_of(call, form),
                           .message =
                               form->message > 0 ? arg_at(call, form->message) : key_at(call, 1)};
    if (form->flags & LOCK_VALUES)
        ask.values = request->argv + word_of_arg(call, form->value);
    size_t ttl = place_of_ttl(call, form);
    if (ttl > 0 &&
        !lock_time(request, word_of_arg(call, ttl), form->flags & LOCK_SECONDS, &ask.ttl_ms))
        return;
    if (!take_conditions(call, form, &ask))
        return;
    if (!pubsub_admits(request, ask.channel, ask.channel.len > 0 ? ask.message : ask.channel))
        return;
    ask.adds = form->adds > 0 && bytes_equal(arg_at(call, form->adds), bytes_of("0"));
    ask.extends_only =
        form->if_yes > 0 && !bytes_equal(arg_at(call, form->if_yes), bytes_of("yes"));
    lock_run_start(request, &ask);
}

/* A script that is known and not done: what it is for, and what to do instead. */
static void refuse(struct request *request, const struct lock_script *script)
{
    static const char *const purposes[] = {
        [LOCK_LOOK] = "looks at locks",  [LOCK_TAKE] = "acquires locks",
        [LOCK_EXTEND] = "extends locks", [LOCK_GIVE] = "gives locks back",
        [LOCK_REVOKE] = "ends locks",
    };

    request_fail(request, STK_ERR, "the script of %s that %s is not done: %s", script->library,
                 purposes[script->form->verb], script->form->refused);
}

static void eval(struct request *request, bool by_sha1)
{
    const struct lock_script *script = script_of(request);
    struct call call = {.request = request};

    if (script == NULL && by_sha1)
        request_fail(request, STK_NOSCRIPT, NULL);
    else if (script == NULL)
        request_fail(request, STK_ERR, "%s", request->engine->lock_keys == NULL ? OFF : NOT_KNOWN);
    else if (script->form->refused != NULL)
        refuse(request, script);
    else if (take_numkeys(&call))
        run(&call, script);
}

/* EVAL text numkeys key ... arg ... */
void lock_eval(struct request *request)
{
    eval(request, false);
}

/* EVALSHA sha1 numkeys key ... arg ... */
void lock_evalsha(struct request *request)
{
    eval(request, true);
}

static void load(struct request *request)
{
    char sha1[LOCK_SHA1_SIZE];

    if (request->engine->lock_keys == NULL) {
        request_fail(request, STK_ERR, OFF);
    } else if (find_text(request->engine, request->argv[2], sha1) == NULL) {
        request_fail(request, STK_ERR, NOT_KNOWN);
    } else {
        resp_bulk_text(&request->reply, sha1);
        request_finish(request);
    }
}

static void exists(struct request *request)
{
    resp_array(&request->reply, request->argc - 2);
    for (size_t i = 2; i < request->argc; i++)
        resp_int(&request->reply, request->engine->lock_keys != NULL &&
                                      find(request->engine, request->argv[i]) != NULL);
    request_finish(request);
}

const struct subcommand lock_script_subcommands[] = {
    {"script|load", 3, load, DEED_ACQUIRE},
    {"script|exists", -3, exists, DEED_ACQUIRE},
    {"script|help", 2, request_help, DEED_ACQUIRE},
    {.name = NULL},
};
