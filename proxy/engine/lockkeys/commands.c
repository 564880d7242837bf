/* SPDX-License-Identifier: Apache-2.0 */
/* Redis's commands as lock libraries use them on lock keys. */
#include "proxy/engine/lockkeys/lock_keys.h"
#include "proxy/engine/lockkeys/time.h"
#include "proxy/engine/session/arguments.h"

/* Options of SET: what a lock needs, and nothing else. False: the request has failed. */
static bool take_time(struct request *request, int64_t *ttl_ms)
{
    bool nx = false, has_time = false;

    for (size_t i = 3; i < request->argc; i++) {
        bool seconds = request_is_word(request, i, "EX");
        if (request_is_word(request, i, "NX")) {
            nx = true;
        } else if ((seconds || request_is_word(request, i, "PX")) && !has_time &&
                   i + 1 < request->argc) {
            if (!lock_time(request, ++i, seconds, ttl_ms))
                return false;
            has_time = true;
        } else {
            request_fail(request, STK_ERR,
                         "syntax error: a lock is taken by SET key value NX PX ms "
                         "(or EX seconds), and by nothing else");
            return false;
        }
    }
    if (nx && has_time)
        return true;
    request_fail(request, STK_ERR, "a lock is taken by SET key value NX PX ms (or EX seconds): %s",
                 nx ? "without a time it could be held for ever by a client that has died"
                    : "without NX it would be taken from its holder");
    return false;
}

/* SET key value NX PX ms | EX seconds */
void lock_set(struct request *request)
{
    struct lock_ask ask = {
        .form = &lock_form_set, .keys = request->argv + 1, .count = 1, .value = request->argv[2]};

    if (take_time(request, &ask.ttl_ms))
        lock_run_start(request, &ask);
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
