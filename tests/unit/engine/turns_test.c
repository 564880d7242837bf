/* SPDX-License-Identifier: Apache-2.0 */
/* No command holds the loop for long, however large its arguments: beyond receiving its bytes and
 * copying them once, no turn takes more than TURN_MS of the thread's processor time. Each row of
 * the table of commands has a case here, or several. A case is measured against a command of the
 * same words that does nothing. What runs on the store's threads does not count.
 * STOCKADE_TURNS=full: at full size, as the slow suite has it; else a fraction of that. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fence/base/mem.h"
#include "fence/lease/provider.h"
#include "proxy/engine/acl/acl.h"
#include "proxy/engine/engine.h"
#include "proxy/engine/internal.h"
#include "tests/twins/memory_lease.h"
#include "tests/twins/memory_store.h"
#include "tests/unit/test.h"

enum {
    TURN_MS = 20,
    QUICK_PART = 8,
    REPEATS = 4,
    CHUNK = 64 << 10, /* what a read of a socket brings */
    WORDS_MAX = 1 << 20,
    REQUEST_MAX = 17 << 20,
    VALUE_MAX = 16 << 20,
    CLIENTS_MAX = 10000,
};

struct rig;

struct client {
    struct rig *rig;
    struct session *session;
    char said[64]; /* how its latest output begins */
    size_t bytes;  /* of all its output */
};

struct rig {
    struct store *store;
    struct lease_service *service;
    struct lease_provider *provider;
    struct engine *engine;
    struct client clients[CLIENTS_MAX + 1];
    int64_t longest_us;
};

static bool is_full(void)
{
    const char *asked = getenv("STOCKADE_TURNS");
    return asked != NULL && strcmp(asked, "full") == 0;
}

/* So much of a full size as is used. */
static size_t part_of(size_t full)
{
    return is_full() ? full : full / QUICK_PART;
}

static int64_t cpu_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void count_turn(struct rig *rig, int64_t start_us)
{
    int64_t took_us = cpu_us() - start_us;

    if (took_us > rig->longest_us)
        rig->longest_us = took_us;
}

/* A host's `changed`: it sends all at once. */
static void changed(void *context)
{
    struct client *client = context;
    struct buf out = {0};

    session_take_output(client->session, &out);
    session_set_unsent(client->session, 0);
    if (out.len > 0) {
        size_t len = out.len < sizeof client->said - 1 ? out.len : sizeof client->said - 1;
        memcpy(client->said, out.data, len);
        client->said[len] = '\0';
        client->bytes += out.len;
    }
    buf_free(&out);
    if (session_ended(client->session)) {
        session_close(client->session);
        client->session = NULL;
    }
}

static void shutdown_asked(void *context)
{
    (void)context;
}

static void connect_client(struct rig *rig, size_t i)
{
    struct buf refusal = {0};

    rig->clients[i].rig = rig;
    rig->clients[i].session =
        session_open(rig->engine, "127.0.0.1:12345", true, &rig->clients[i], &refusal);
    assert_non_null(rig->clients[i].session);
}

static struct rig *rig_new(bool with_lock_keys, struct acl *acl)
{
    static const char *const patterns[] = {"lock:*"};
    struct rig *rig = mem_zalloc(sizeof *rig);

    rig->store = store_memory_new(&(struct store_options){
        .queue_ops_max = 1000, .batch_ops_max = 100, .clock = &clock_monotonic});
    rig->service = lease_service_new(&clock_monotonic);
    rig->provider = lease_memory_new(rig->service);
    rig->engine = engine_new(&(struct engine_options){
        .host = {.changed = changed, .shutdown = shutdown_asked, .context = rig},
        .store = rig->store,
        .provider = rig->provider,
        .clock = &clock_monotonic,
        .chance = &chance_system,
        .acl = acl,
        .unfenced_writes = true,
        .sessions_max = CLIENTS_MAX + 1,
        .limits = {.things = {[ACCOUNT_WAITERS] = 100000}},
        .history_max = 100000,
        .replies_max = 256 << 20,
        .lock_keys = patterns,
        .lock_keys_count = with_lock_keys});
    connect_client(rig, 0);
    return rig;
}

/* One turn: what the store's threads have done comes in. False: nothing moved. */
static bool turn(struct rig *rig)
{
    int64_t next_ms = engine_next_ms(rig->engine);
    bool moved = store_step(rig->store);

    int64_t start_us = cpu_us();
    store_collect(rig->store);
    moved |= lease_service_step(rig->service) > 0;
    engine_turn(rig->engine);
    count_turn(rig, start_us);
    return moved || engine_wants_turn(rig->engine) ||
           (next_ms >= 0 && next_ms <= clock_now_ms(&clock_monotonic));
}

static void settle(struct rig *rig)
{
    for (int quiet = 0; quiet < 2;)
        quiet = turn(rig) ? 0 : quiet + 1;
}

static void ignore(void *context)
{
    (void)context;
}

static void rig_free(struct rig *rig)
{
    for (size_t i = 0; i <= CLIENTS_MAX; i++)
        if (rig->clients[i].session != NULL)
            session_close(rig->clients[i].session);
    settle(rig);
    engine_free(rig->engine);
    lease_provider_close(rig->provider, ignore, NULL);
    store_close(rig->store);
    lease_service_free(rig->service);
    free(rig);
}

/* Send the bytes as they would come from a socket. */
static void send_bytes(struct rig *rig, size_t client, struct bytes all)
{
    for (size_t at = 0; at < all.len && rig->clients[client].session != NULL;) {
        size_t len = all.len - at < CHUNK ? all.len - at : CHUNK;
        int64_t start_us = cpu_us();
        if (session_wants_input(rig->clients[client].session)) {
            session_input(rig->clients[client].session, all.data + at, len);
            at += len;
        }
        engine_turn(rig->engine);
        count_turn(rig, start_us);
        (void)turn(rig);
    }
}

static void say(struct rig *rig, size_t client, const char *line)
{
    if (rig->clients[client].session == NULL)
        connect_client(rig, client);
    send_bytes(rig, client, bytes_of(line));
    send_bytes(rig, client, bytes_of("\r\n"));
    settle(rig);
}

/* What is sent. */

struct turn_case {
    const char *words; /* with blanks between them; %L: a word of `large` bytes */
    const char *more;  /* words that follow again and again, %zu being the turn; NULL: none */
    size_t times;      /* so often; 0: as often as there is room for */
    const char *last;  /* behind them; NULL: nothing */
    const char *fill;  /* at the end, as often as there is room for; NULL: nothing */
    size_t large;      /* 0: VALUE_MAX */
    bool over;         /* more words than the command may have */
};

/* Append one word. False: the request would be too large, and it is not. */
static bool add_word(struct buf *body, size_t *count, size_t *weight, struct bytes word)
{
    if (*count + 1 > WORDS_MAX || *weight + word.len > REQUEST_MAX)
        return false;
    buf_printf(body, "$%zu\r\n", word.len);
    buf_append_bytes(body, word);
    buf_append_text(body, "\r\n");
    *weight += word.len;
    ++*count;
    return true;
}

static bool add_words(struct buf *body, size_t *count, size_t *weight, const char *words,
                      size_t number, size_t large)
{
    while (words != NULL && *words != '\0') {
        char word[1100];
        size_t len = strcspn(words, " ");
        struct bytes text = {words, len};
        if (len == 2 && memcmp(words, "%L", 2) == 0) {
            char *big = mem_alloc(large);
            memset(big, 'x', large);
            bool fits = add_word(body, count, weight, (struct bytes){big, large});
            free(big);
            if (!fits)
                return false;
        } else {
            const char *mark = memmem(words, len, "%zu", 3);
            if (mark != NULL) {
                int size = snprintf(word, sizeof word, "%.*s%zu%.*s", (int)(mark - words), words,
                                    number, (int)(len - 3 - (size_t)(mark - words)), mark + 3);
                text = (struct bytes){word, (size_t)size};
            }
            if (!add_word(body, count, weight, text))
                return false;
        }
        words += len + (words[len] == ' ');
    }
    return true;
}

static size_t words_in(const char *words)
{
    size_t count = 1;

    for (; *words != '\0'; words++)
        count += *words == ' ';
    return count;
}

static bool may_be_many(struct bytes name)
{
    for (size_t i = 0; i < commands_count; i++)
        if (bytes_equal(name, bytes_of(commands[i].name)))
            return commands[i].flags & COMMAND_MANY;
    return false;
}

/* The request of a case; `name` stands in place of its first word where it is not NULL. */
static struct buf request_of(const struct turn_case *one, const char *name)
{
    struct buf body = {0}, all = {0};
    size_t count = 0, weight = 0, large = one->large == 0 ? part_of(VALUE_MAX) : one->large;
    size_t first = strcspn(one->words, " ");
    struct bytes own = {one->words, first};
    bool many = may_be_many(own) || one->over;
    size_t most = many ? part_of(WORDS_MAX) : COMMAND_WORDS_MAX;
    size_t weight_max = part_of(REQUEST_MAX);
    size_t last = one->last == NULL ? 0 : 2;

    add_word(&body, &count, &weight, name != NULL ? bytes_of(name) : own);
    assert_true(add_words(&body, &count, &weight, one->words + first + (one->words[first] == ' '),
                          0, large));
    for (size_t i = 0; one->more != NULL && (one->times == 0 || i < one->times); i++) {
        size_t was = body.len, words = count, room = weight;
        if (count + words_in(one->more) + last > most || weight + 2048 > weight_max ||
            !add_words(&body, &count, &weight, one->more, i, large)) {
            body.len = was;
            count = words;
            weight = room;
            break;
        }
    }
    assert_true(add_words(&body, &count, &weight, one->last, 0, large));
    while (one->fill != NULL && count + words_in(one->fill) <= most && weight + 2048 <= weight_max)
        assert_true(add_words(&body, &count, &weight, one->fill, 0, large));
    buf_printf(&all, "*%zu\r\n", count);
    buf_append_bytes(&all, buf_bytes(&body));
    buf_free(&body);
    return all;
}

/* The longest turn that a request takes, in microseconds. */
static int64_t longest_turn(struct rig *rig, const struct buf *request)
{
    if (rig->clients[0].session == NULL)
        connect_client(rig, 0);
    rig->longest_us = 0;
    rig->clients[0].said[0] = '\0';
    send_bytes(rig, 0, buf_bytes(request));
    settle(rig);
    return rig->longest_us;
}

/* How long a turn takes for a command of the same words that is refused when it is started. */
static int64_t least_turn(const struct turn_case *one)
{
    struct rig *rig = rig_new(false, NULL);
    struct buf request = request_of(one, "WATCH");
    int64_t least_us = INT64_MAX;

    for (int i = 0; i < 3; i++) {
        int64_t took_us = longest_turn(rig, &request);
        least_us = took_us < least_us ? took_us : least_us;
    }
    buf_free(&request);
    rig_free(rig);
    return least_us;
}

#ifndef __has_feature /* gcc */
#define __has_feature(feature) 0
#endif

static int64_t limit_us(void)
{
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    return 20 * TURN_MS * 1000;
#elif !defined __OPTIMIZE__
    return 3 * TURN_MS * 1000;
#else
    return TURN_MS * 1000;
#endif
}

/* Nought where the case keeps within the limit, else what its turn took beyond the least. A machine
 * that is slow for once is given more tries. */
static int64_t excess_us(struct rig *rig, const struct turn_case *one)
{
    struct buf request = request_of(one, NULL);
    int64_t least_us = INT64_MAX;

    for (int i = 0; i < REPEATS && least_us > limit_us(); i++) {
        int64_t took_us = longest_turn(rig, &request);
        least_us = took_us < least_us ? took_us : least_us;
    }
    if (least_us > limit_us())
        least_us -= least_turn(one);
    size_t length = request.len;
    buf_free(&request);
    if (getenv("TURNS") != NULL)
        printf("%8lld us %zu bytes  %.60s %s %zu: %.60s\n", (long long)least_us, length, one->words,
               one->more == NULL ? "" : one->more, one->times, rig->clients[0].said);
    return least_us > limit_us() ? least_us : 0;
}

static void assert_quick(struct rig *rig, const struct turn_case *all, size_t count)
{
    size_t slow = 0;

    for (size_t i = 0; i < count; i++) {
        int64_t us = excess_us(rig, &all[i]);
        if (us > 0)
            print_message("%s %s takes %lld us\n", all[i].words,
                          all[i].more == NULL ? "" : all[i].more, (long long)us);
        slow += us > 0;
    }
    assert_int_equal(slow, 0);
}

/* Each row whose number of words is free has a case in `cases`. */
static const struct turn_case cases[] = {
    {.words = "ACQUIRE k 1000 OWNER %L"},
    {.words = "ACQUIREALL 10000 256", .more = "b%zu", .times = 256},
    {.words = "RENEW k 1 1000", .more = "NOTIFY"},
    {.words = "RELEASE k 1", .more = "ID i"},
    {.words = "LEASE k", .more = "OWNER o"},
    {.words = "LEASES COUNT 100000", .more = "MATCH *"},
    {.words = "LEASES COUNT 100000"},
    {.words = "WAITERS k", .more = "COUNT 1"},
    {.words = "HISTORY k", .more = "COUNT 1"},
    {.words = "REFUSALS", .more = "COUNT 1"},
    {.words = "FENCED 1 HSET h", .more = "f v"},
    {.words = "FENCED 1 ID i SET k %L"},
    {.words = "FENCEDALL 1 k 1 ID i MSET", .more = "k v"},
    {.words = "WATCH", .more = "k"},
    {.words = "SQL SELECT~1", .more = "p"},
    {.words = "SQL %L"},
    {.words = "GUARD CREATE t c %L"},
    {.words = "GUARD LIST", .more = "x"},
    {.words = "MGET", .more = "k"},
    {.words = "MGET", .more = "lock:%zu"},
    {.words = "MGET k", .more = "lock:%zu"},
    {.words = "SET k v", .more = "GET"},
    {.words = "SET lock:k v", .more = "NX PX 1000"},
    {.words = "MSET", .more = "k v"},
    {.words = "MSET", .more = "lock:%zu v"},
    {.words = "INCRBY n 1", .more = "MIN 0"},
    {.words = "DECRBY n 1", .more = "MIN 0"},
    {.words = "DEL", .more = "k"},
    {.words = "DEL", .more = "lock:%zu"},
    {.words = "DEL", .more = "lock:%zu", .times = 256},
    {.words = "UNLINK", .more = "k"},
    {.words = "UNLINK", .more = "lock:%zu"},
    {.words = "EXISTS", .more = "k"},
    {.words = "EXISTS", .more = "lock:%zu"},
    {.words = "EXISTS", .more = "lock:%zu", .times = 256},
    {.words = "SCAN 0", .more = "COUNT 1000000"},
    {.words = "HMGET h", .more = "f"},
    {.words = "HSCAN h 0", .more = "COUNT 1000000"},
    {.words = "HSET h", .more = "f v"},
    {.words = "HMSET h", .more = "f v"},
    {.words = "HDEL h", .more = "f"},
    {.words = "HINCRBY h n 1", .more = "MIN 0"},
    {.words = "EVAL %L 1 lock:k v"},
    {.words = "EVAL %L 1 lock:k v", .large = 64 << 10},
    {.words = "EVALSHA 96da70f7716f27d278a5218544df37fd8b0a5e4c 256",
     .more = "lock:%zu",
     .times = 256,
     .last = "v-1 1000"},
    {.words = "EVALSHA 0f0f23b9048b36752b5be114f357ba083449f908 256",
     .more = "lock:%zu",
     .times = 256,
     .last = "v-1"},
    {.words = "EVALSHA 0f0f23b9048b36752b5be114f357ba083449f908 4000",
     .more = "lock:%zu",
     .times = 4000,
     .last = "v-1"},
    {.words = "DELIFEQ lock:k %L"},
    {.words = "DELEX lock:k IFEQ %L"},
    {.words = "DELEX lock:k", .more = "IFEQ v"},
    {.words = "BLPOP", .more = "lock-signal:%zu"},
    {.words = "SCRIPT EXISTS", .more = "c3f8721cbb97f72bc19e972846bd7aaf91901658"},
    {.words = "SCRIPT LOAD %L"},
    {.words = "SUBSCRIBE", .more = "c%zu"},
    {.words = "SUBSCRIBE", .more = "c%zu", .times = 1024},
    {.words = "UNSUBSCRIBE", .more = "c%zu"},
    {.words = "PSUBSCRIBE", .more = "c%zu*"},
    {.words = "PSUBSCRIBE", .more = "c%zu*", .times = 1024},
    {.words = "PUNSUBSCRIBE", .more = "c%zu*"},
    {.words = "PUBSUB NUMSUB", .more = "c%zu"},
    {.words = "PUBLISH c %L", .large = 1 << 20},
    {.words = "PING %L"},
    {.words = "PING", .more = "x"},
    {.words = "HELLO 2", .more = "SETNAME n"},
    {.words = "AUTH default %L"},
    {.words = "CLIENT KILL", .more = "ID 999999"},
    {.words = "CLIENT SETNAME %L"},
    {.words = "INFO", .more = "stats"},
    {.words = "COMMAND DOCS", .more = "get"},
    {.words = "COMMAND INFO", .more = "get"},
    {.words = "ACL DRYRUN default MGET", .more = "k"},
    {.words = "ACL DRYRUN default EVAL %L 1 lock:k"},
    {.words = "ACL CAT", .more = "read"},
    {.words = "CONFIG GET", .more = "*"},
    {.words = "CONFIG GET",
     .more = "*a*b*c*d*e*f*g*h*i*j*k*l*m*n*o*p*q*r*s*t*u*v*w*x*y*z*",
     .times = 64},
    {.words = "FLUSHALL", .more = "SYNC"},
    {.words = "FLUSHDB", .more = "SYNC"},
    {.words = "SHUTDOWN", .more = "NOSAVE"},
    {.words = "EXISTS", .more = "k", .over = true},
    {.words = "FENCEDALL 1 k 1 DEL", .more = "k"},
    {.words = "FENCEDALL 1024", .more = "f%zu 1", .times = 1024, .last = "MSET", .fill = "f1023 v"},
    {.words = "FENCEDALL 1024", .more = "f%zu 1", .times = 1024, .last = "SET k v"},
    {.words = "LEASES", .more = "MATCH *a*b*c*d*e*f*g*h*i*j*k*l*m*n*o*p*q*r*s*t*u*v*w*x*y*z*"},
    {.words = "REFUSALS", .more = "MATCH *a*b*c*d*e*f*g*h*i*j*k*l*m*n*o*p*q*r*s*t*u*v*w*x*y*z*"},
    {.words = "COMMAND DOCS", .more = "get"},
    {.words = "COMMAND INFO", .more = "get"},
    {.words = "COMMAND DOCS"},
    {.words = "SCRIPT EXISTS", .more = "00000000000000000000000000000000000000ff"},
    {.words = "PUBSUB NUMSUB", .more = "c%zu"},
    {.words = "INFO", .more = "nosuch"},
    {.words = "QUIT", .more = "now"},
    {.words = "ACL LOG", .more = "1"},
    {.words = "COMMAND"},
};

TEST(no_command_holds_the_loop_however_large_its_arguments)
{
    struct rig *rig = rig_new(true, NULL);

    say(rig, 0, "MSET k v n 1");
    say(rig, 0, "HSET h f v n 1");
    assert_quick(rig, cases, sizeof cases / sizeof *cases);
    rig_free(rig);
}

/* The same where there is much to tell. */
static const struct turn_case lists[] = {
    {.words = "CLIENT LIST"},
    {.words = "CLIENT KILL USER nobody SKIPME yes"},
    {.words = "HISTORY k COUNT 10000"},
    {.words = "REFUSALS COUNT 10000"},
    {.words = "REFUSALS COUNT 10000 MATCH *a*b*c*d*e*f*g*h*i*j*k*l*m*n*o*p*q*r*s*t*u*v*w*x*y*"},
    {.words = "WAITERS w COUNT 10000"},
    {.words = "LEASES"},
    {.words = "PUBSUB CHANNELS"},
    {.words = "PUBSUB CHANNELS *a*b*c*d*e*f*g*h*i*j*k*l*m*n*o*p*q*r*s*t*u*v*w*x*y*z*"},
    {.words = "ACL LIST"},
    {.words = "ACL USERS"},
    {.words = "ACL LOG 10000"},
    {.words = "PUBLISH c1 hello"},
    {.words = "PUBLISH nobody hello"},
};

enum { MANY_USERS = 9000, MANY_GRANTS = 10000, MANY_CHANNELS = 90 };

static struct acl *many_users(void)
{
    struct buf text = {0};
    char why[ACL_WHY_SIZE];

    buf_append_text(&text, "user default on nopass ~* &* +@all\n");
    for (int i = 0; i < (int)part_of(MANY_USERS); i++)
        buf_printf(&text, "user u%d on #%064d ~sku:* +@read\n", i, i);
    struct acl *acl = acl_parse(buf_bytes(&text), commands, commands_count, why);
    buf_free(&text);
    assert_non_null(acl);
    return acl;
}

TEST(no_command_holds_the_loop_however_much_there_is_to_tell)
{
    struct rig *rig = rig_new(true, many_users());
    size_t clients = part_of(CLIENTS_MAX);

    for (size_t i = 1; i < clients; i++)
        connect_client(rig, i);
    for (size_t i = 0; i < part_of(MANY_GRANTS); i++) {
        say(rig, 0, "ACQUIRE k 60000");
        say(rig, 0, "REVOKE k");
        say(rig, 0, "FENCED 1 SET k v");
    }
    say(rig, 0, "ACQUIRE w 600000");
    for (size_t i = 1; i < clients / 2; i++)
        send_bytes(rig, i, bytes_of("ACQUIRE w 60000 WAIT 600000\r\n"));
    for (size_t i = clients / 2; i < clients; i++) {
        struct buf line = {0};
        buf_append_text(&line, "SUBSCRIBE");
        for (int j = 0; j < 18; j++)
            buf_printf(&line, " some-name-of-some-length-of-%zu-%d", i, j);
        buf_append_text(&line, " c1\r\n");
        send_bytes(rig, i, buf_bytes(&line));
        buf_free(&line);
    }
    settle(rig);
    assert_quick(rig, lists, sizeof lists / sizeof *lists);
    rig_free(rig);
}

/* The same for one whose rights are by name, with many patterns. */
static const struct turn_case by_name[] = {
    {.words = "MGET", .more = "sku:%zu"},
    {.words = "MGET", .more = "a99:%zu"},
    {.words = "MSET", .more = "a99:%zu v"},
    {.words = "MSET", .more = "a99:%zu v", .last = "foreign v"},
    {.words = "FENCEDALL 1 a99:1 1 MSET", .more = "a99:%zu v"},
    {.words = "SUBSCRIBE", .more = "a99:%zu"},
};
static const struct turn_case queued = {.words = "MSET", .more = "a99:%zu v", .times = 300000};

static struct acl *many_patterns(void)
{
    struct buf text = {0};
    char why[ACL_WHY_SIZE];

    buf_append_text(&text, "user default on nopass +@all ~sku:*");
    for (int i = 0; i < 100; i++)
        buf_printf(&text, " ~a%d:* &a%d:*", i, i);
    buf_append_text(&text, "\n");
    struct acl *acl = acl_parse(buf_bytes(&text), commands, commands_count, why);
    buf_free(&text);
    assert_non_null(acl);
    return acl;
}

TEST(no_command_holds_the_loop_however_many_names_are_held_against_patterns)
{
    struct rig *rig = rig_new(true, many_patterns());

    assert_quick(rig, by_name, sizeof by_name / sizeof *by_name);
    rig_free(rig);
}

TEST(neither_does_one_in_a_transaction)
{
    struct rig *rig = rig_new(true, many_patterns());
    struct buf request = request_of(&queued, NULL);
    int64_t queued_us = 0, exec_us = 0;

    for (int i = 0; i < REPEATS && (i == 0 || queued_us > limit_us() || exec_us > limit_us());
         i++) {
        say(rig, 0, "MULTI");
        queued_us = longest_turn(rig, &request);
        assert_string_equal(rig->clients[0].said, "+QUEUED\r\n");
        rig->longest_us = 0;
        say(rig, 0, "EXEC");
        assert_memory_equal(rig->clients[0].said, "*1\r\n", 4);
        exec_us = rig->longest_us;
    }
    buf_free(&request);
    assert_true(queued_us - least_turn(&queued) <= limit_us());
    assert_true(exec_us <= limit_us());
    rig_free(rig);
}

static void assert_denied(const struct rig *rig, const char *name)
{
    char begin[64];

    snprintf(begin, sizeof begin, "-NOPERM user 'default' may not write '%s'", name);
    assert_memory_equal(rig->clients[0].said, begin, strlen(begin));
}

/* Names are looked at in several turns: the last one counts, too, and so do the users in force. */
TEST(a_name_that_is_looked_at_late_is_denied)
{
    struct acl *acl = many_patterns();
    struct rig *rig = rig_new(true, acl);
    struct turn_case good = {.words = "MSET", .more = "a99:%zu v"};
    struct turn_case foreign = {.words = "MSET", .more = "a99:%zu v", .last = "foreign v"};
    struct buf request = request_of(&foreign, NULL);

    (void)longest_turn(rig, &request);
    assert_denied(rig, "foreign");
    buf_free(&request);

    request = request_of(&good, NULL);
    rig->clients[0].said[0] = '\0';
    send_bytes(rig, 0, buf_bytes(&request));
    assert_true(engine_wants_turn(rig->engine));
    char why[ACL_WHY_SIZE];
    acl = acl_parse(BYTES_LITERAL("user default on nopass +@all ~sku:* ~a99:99\n"), commands,
                    commands_count, why);
    assert_non_null(acl);
    engine_set_acl(rig->engine, acl);
    settle(rig);
    assert_denied(rig, "a99:0");
    buf_free(&request);
    rig_free(rig);
}

/* Is there a case of this command? */
static bool has_case(const char *name)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (bytes_equal((struct bytes){cases[i].words, strcspn(cases[i].words, " ")},
                        bytes_of(name)))
            return true;
    return false;
}

/* Of a command with so many words, the last one may be large. */
TEST(each_command_has_a_case)
{
    struct rig *rig = rig_new(true, NULL);

    for (size_t i = 0; i < commands_count; i++) {
        struct buf words = {0};
        if (commands[i].arity < 0) {
            if (!has_case(commands[i].name))
                fail_msg("%s has no case here", commands[i].name);
            continue;
        }
        buf_append_text(&words, commands[i].name);
        for (int at = 1; at < commands[i].arity; at++)
            buf_append_text(&words, at == commands[i].arity - 1 ? " %L" : " 1");
        buf_append(&words, "", 1);
        assert_quick(rig, &(struct turn_case){.words = words.data}, 1);
        buf_free(&words);
    }
    rig_free(rig);
}
