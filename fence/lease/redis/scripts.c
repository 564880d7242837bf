/* SPDX-License-Identifier: Apache-2.0 */
/* The Lua scripts. Each is one atomic step, and none of them trusts what it finds in the two keys.
 *
 * A lock that cannot be read (another type, another form) counts as held by somebody else. One
 * without a time limit (someone wrote it by hand) is held for a second at a time, so that waiters
 * ask again. Lua's numbers are doubles: tokens stay below 2^53 and are written with '%.0f', because
 * 1e14 would be written as that. Every script answers {word, token, ttl_ms}; the answer "free" to a
 * release has the token of the lock that it ended. */
#include "fence/lease/redis/scripts.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/lease/provider_impl.h"
#include "fence/token.h"

#define KEYS_PER_SCRIPT "2"
#define SCRIPT_MARK_LEN 16              /* hexadecimal digits of an attempt */
#define HELD_MAX_MS     (INT64_MAX / 4) /* of a lock written by hand: no sum with it overflows */

/* Sets value (as stored; false: there is no lock), token, holder (nil: it cannot be read) and
 * marks: " <attempt>" for each attempt. A call of Redis from Lua takes a microsecond of its one
 * thread, so the scripts make as few as possible. */
#define LOOK                                                                                       \
    "local lock, counter = KEYS[1], KEYS[2]\n"                                                     \
    "local value, token, holder, marks = redis.pcall('GET', lock), '0', nil, ''\n"                 \
    "if value then\n"                                                                              \
    "  if type(value) == 'string' then\n"                                                          \
    "    token, holder, marks = string.match(value, '^([1-9]%d*) (%S+)([ %x]*)$')\n"               \
    "  end\n"                                                                                      \
    "  if not holder or tonumber(token) > 9007199254740991 then token, holder = '0', nil end\n"    \
    "end\n"

/* Ends a block: somebody else holds the lock. */
#define HELD                                                                                       \
    "  local left = redis.call('PTTL', lock)\n"                                                    \
    "  if left < 0 then left = 1000 elseif left == 0 then left = 1 end\n"                          \
    "  return {'held', token, left}\n"

/* nonce, ttl_ms, floor, void token, only to enter again?, attempt, up to where the counter is
 * believed. Tokens are minted by the rule of token_next. There are at most eight marks, of 17 bytes
 * each. Entering again never shortens the lease: the request may have been delayed on its way, and
 * its owner told of a longer lease since.
 */
static const char grant_text[] =
    LOOK "local nonce, ttl, newest = ARGV[1], ARGV[2], tonumber(ARGV[3])\n"
         "local void = holder == nonce and token == ARGV[4]\n"
         "if value and holder ~= nonce then\n" HELD "end\n"
         "if value and not void then\n"
         "  if marks ~= '' then marks = #marks < 136 and marks .. ' ' .. ARGV[6] or "
         "'' end\n"
         "  local left = redis.call('PTTL', lock)\n"
         "  if left < tonumber(ttl) then left = ttl end\n"
         "  redis.call('SET', lock, token .. ' ' .. nonce .. marks, 'PX', left)\n"
         "  return {'own', token, tonumber(ttl)}\n"
         "end\n"
         "if ARGV[5] == '1' then return {'free', '0', 0} end\n"
         "local last = redis.pcall('GET', counter)\n"
         "if type(last) == 'string' and string.match(last, '^[1-9]%d*$') then\n"
         "  last = tonumber(last)\n"
         "  if last > newest and last <= tonumber(ARGV[7]) then newest = last end\n"
         "end\n"
         "if newest >= 9007199254740991 then return {'spent', '0', 0} end\n"
         "local minted = string.format('%.0f', newest + 1)\n"
         "redis.call('SET', counter, minted, 'PX', 604800000)\n"
         "if void then redis.call('DEL', lock) end\n"
         "redis.call('SET', lock, minted .. ' ' .. nonce .. ' ' .. ARGV[6], 'NX', 'PX', ttl)\n"
         "return {'granted', minted, tonumber(ttl)}\n";

/* nonce, ttl_ms, token */
static const char renew_text[] = LOOK "local mine, ttl = ARGV[3] .. ' ' .. ARGV[1], ARGV[2]\n"
                                      "if value and (token ~= ARGV[3] or holder ~= ARGV[1]) "
                                      "then\n" HELD "end\n"
                                      "if value and marks == '' then\n"
                                      "  redis.call('PEXPIRE', lock, ttl)\n"
                                      "else\n"
                                      "  redis.call('SET', lock, mine, 'PX', ttl)\n"
                                      "end\n"
                                      "return {'granted', ARGV[3], tonumber(ttl)}\n";

/* nonce, token or 0, channel, word, origin, resource, attempt or nothing. A revocation is published
 * even where the lease had run out, because its holder does not know that. */
static const char release_text[] = LOOK
    "if value and (holder ~= ARGV[1] or (ARGV[2] ~= '0' and ARGV[2] ~= token)) then\n" HELD "end\n"
    "if value and ARGV[7] ~= '' then\n"
    "  local rest, found = string.gsub(marks, ' ' .. ARGV[7], '')\n"
    "  local left = redis.call('PTTL', lock)\n"
    "  if found > 0 and rest ~= '' and left > 0 then\n"
    "    redis.call('SET', lock, token .. ' ' .. holder .. rest, 'PX', left)\n"
    "  end\n"
    "  if found == 0 or rest ~= '' then\n" HELD "end\n"
    "end\n"
    "if value then redis.call('DEL', lock) end\n"
    "if value or ARGV[4] == 'revoked' then\n"
    "  local ended = value and token or ARGV[2]\n"
    "  redis.pcall('PUBLISH', ARGV[3], table.concat({ARGV[4], ARGV[5], ended, ARGV[6]}, ' '))\n"
    "end\n"
    "return {'free', token, 0}\n";

static const char query_text[] = LOOK "if value then\n" HELD "end\n"
                                      "return {'free', '0', 0}\n";

static const char word_released[] = "released", word_revoked[] = "revoked";

static const char *const texts[SCRIPTS] = {
    [LEASE_GRANT] = grant_text,
    [LEASE_RENEW] = renew_text,
    [LEASE_RELEASE] = release_text,
    [LEASE_QUERY] = query_text,
};

const char *script_text(enum lease_verb verb)
{
    return texts[verb];
}

/* The arguments go into one buffer, one after the other. It may move while it grows, so `at` is
 * filled in when all of them are there. */
static void add(struct script_args *args, size_t start)
{
    check(args->count < SCRIPT_ARGS_MAX);
    args->lens[args->count++] = args->text.len - start;
}

static void add_text(struct script_args *args, const char *text)
{
    size_t start = args->text.len;
    buf_append_text(&args->text, text);
    add(args, start);
}

static void add_bytes(struct script_args *args, struct bytes bytes)
{
    size_t start = args->text.len;
    buf_append_bytes(&args->text, bytes);
    add(args, start);
}

static void add_number(struct script_args *args, int64_t number)
{
    size_t start = args->text.len;
    char text[INT64_TEXT_MAX];
    buf_append_bytes(&args->text, bytes_of_int64(number, text));
    add(args, start);
}

static void add_attempt(struct script_args *args, uint64_t attempt)
{
    size_t start = args->text.len;
    if (attempt != 0)
        buf_printf(&args->text, "%0*llx", SCRIPT_MARK_LEN, (unsigned long long)attempt);
    add(args, start);
}

static bool has_tag(struct bytes resource)
{
    return resource.len > 0 && resource.data[0] != '}';
}

struct bytes script_slot_tag(struct bytes resource)
{
    const char *brace;

    if (!has_tag(resource))
        return BYTES_LITERAL("#");
    brace = memchr(resource.data, '}', resource.len);
    return brace == NULL ? resource
                         : (struct bytes){resource.data, (size_t)(brace - resource.data)};
}

static void add_key(struct script_args *args, const struct script_self *self, struct bytes resource,
                    const char *last)
{
    size_t start = args->text.len;
    buf_append_text(&args->text, self->prefix);
    buf_append_text(&args->text, self->clustered && !has_tag(resource) ? ":#{#}" : ":{");
    buf_append_bytes(&args->text, resource);
    buf_append_text(&args->text, last);
    add(args, start);
}

void script_args(const struct lease_call *call, const struct script_self *self,
                 struct script_args *args)
{
    args->count = 0;
    buf_clear(&args->text);
    add_text(args, KEYS_PER_SCRIPT);
    add_key(args, self, call->resource, "}:lock");
    add_key(args, self, call->resource, "}:token");
    switch (call->verb) {
    case LEASE_GRANT:
        add_text(args, call->nonce);
        add_number(args, call->ttl_ms);
        add_number(args, call->floor);
        add_number(args, call->void_token);
        add_number(args, call->reentry_only);
        add_attempt(args, call->attempt);
        add_number(args, call->believed_max);
        break;
    case LEASE_RENEW:
        add_text(args, call->nonce);
        add_number(args, call->ttl_ms);
        add_number(args, call->token);
        break;
    case LEASE_RELEASE:
        add_text(args, call->nonce);
        add_number(args, call->token);
        add_text(args, self->channel);
        add_text(args, call->revoked ? word_revoked : word_released);
        add_text(args, self->origin);
        add_bytes(args, call->resource);
        add_attempt(args, call->attempt);
        break;
    case LEASE_QUERY:
    case LEASE_INHERIT: break; /* never asked of Redis */
    }
    const char *at = args->text.data;
    for (int i = 0; i < args->count; at += args->lens[i++])
        args->at[i] = at;
}

static bool is_word(const redisReply *word, const char *text)
{
    return word->len == strlen(text) && memcmp(word->str, text, word->len) == 0;
}

/* Believe a grant only if its token can be right, and its time is what was asked for. */
static bool granted(struct lease_call *call, int64_t token, int64_t ttl_ms)
{
    bool due = call->verb == LEASE_GRANT   ? token_follows(token, call->floor, call->believed_max)
               : call->verb == LEASE_RENEW ? token == call->token
                                           : false;
    return due && ttl_ms == call->ttl_ms && lease_answer(call, LEASE_GRANTED, token, ttl_ms);
}

static bool is_answer(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
           reply->element[0]->type == REDIS_REPLY_STRING &&
           reply->element[1]->type == REDIS_REPLY_STRING &&
           reply->element[2]->type == REDIS_REPLY_INTEGER;
}

bool script_wrote(const struct redisReply *reply)
{
    const redisReply *word;

    if (!is_answer(reply))
        return false;
    word = reply->element[0];
    return is_word(word, "granted") || is_word(word, "own") ||
           (is_word(word, "free") && !is_word(reply->element[1], "0"));
}

bool script_answer(struct lease_call *call, const struct redisReply *reply)
{
    int64_t token = 0;

    if (!is_answer(reply))
        return false;
    const redisReply *word = reply->element[0], *number = reply->element[1];
    int64_t ttl_ms = reply->element[2]->integer;
    bool known = token_parse((struct bytes){number->str, number->len}, &token);

    if (is_word(word, "held"))
        return ttl_ms >= 1 &&
               lease_answer(call, LEASE_HELD, token, ttl_ms < HELD_MAX_MS ? ttl_ms : HELD_MAX_MS);
    if (is_word(word, "free"))
        return lease_answer(call, LEASE_FREE, 0, 0);
    if (is_word(word, "granted"))
        return known && granted(call, token, ttl_ms);
    if (is_word(word, "own"))
        return known && call->verb == LEASE_GRANT && ttl_ms == call->ttl_ms &&
               lease_answer(call, LEASE_OWN, token, ttl_ms);
    if (is_word(word, "spent"))
        return lease_answer_down(call, "the tokens of this resource are used up");
    return false;
}

struct bytes script_word(struct bytes *text)
{
    const char *end = text->len == 0 ? NULL : memchr(text->data, ' ', text->len);
    struct bytes word = {text->data, end == NULL ? text->len : (size_t)(end - text->data)};
    size_t used = end == NULL ? word.len : word.len + 1;

    text->data += used;
    text->len -= used;
    return word;
}

bool script_news(struct bytes message, const struct script_self *self, struct lease_news *news)
{
    struct bytes word = script_word(&message), origin = script_word(&message),
                 token = script_word(&message);

    news->revoked = bytes_equal(word, bytes_of(word_revoked));
    news->resource = message;
    return (news->revoked || bytes_equal(word, bytes_of(word_released))) &&
           !bytes_equal(origin, bytes_of(self->origin)) && token_parse(token, &news->token) &&
           message.len > 0;
}

void script_error(const struct redisReply *reply, char out[SCRIPT_ERROR_MAX])
{
    snprintf(out, SCRIPT_ERROR_MAX, "%.*s", (int)(reply->len < 4096 ? reply->len : 4096),
             reply->str);
    char *added = strstr(out, " script: ");
    if (added != NULL)
        *added = '\0';
    size_t len = strlen(out);
    if (len > 0 && out[len - 1] == '.')
        out[len - 1] = '\0';
    if (out[0] == '\0') /* an empty reason would be none */
        snprintf(out, SCRIPT_ERROR_MAX, "an error without a word (is it Redis?)");
}
