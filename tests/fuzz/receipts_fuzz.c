/* SPDX-License-Identifier: Apache-2.0 */
/* Writes that carry an ID, repeated, with replies lost, tokens retired, commits failing and daemons
 * killed, over the memory store and over SQLite, beside a model that knows what was applied (P6):
 *
 * - A repeat gets the first reply and has no second effect, whatever its token; reused for another
 *   command an ID is refused. A refused write leaves no trace.
 * - RECEIPT tells what was applied; after [0, null] it never will be.
 * - Only the newest, unretired token writes. What several resources share is applied to all or
 * none.
 * - Receipts stay for as long as was promised.
 *
 * An input is bytes: the first chooses the store, then come steps of an operation and its operands,
 * all taken modulo what there is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/lasting.h"
#include "tests/fuzz/replies.h"
#include "tests/fuzz/snapshot.h"
#include "tests/twins/world.h"

enum {
    RESOURCES = 2,
    IDS = 3,
    KINDS = 10,
    STEPS_MAX = 48,
    KEEP_MS = 10000,
    LINE_MAX = 256,
};

/* What the model knows of an ID on a resource. */
struct entry {
    bool applied, vague; /* vague: its receipt may have been removed, and it was tried since */
    int kind;            /* of the command that was applied */
    int64_t token;
    int64_t retired_ms; /* when its token was; 0: not yet */
    struct buf reply;
};

struct run {
    struct world *world;
    bool on_sqlite, resp3;
    char names[RESOURCES][16];
    unsigned number;          /* in the names: one file serves many inputs */
    int64_t token[RESOURCES]; /* granted last */
    bool live[RESOURCES];
    struct entry entries[RESOURCES][IDS];
};

/* A write: which resources it is about, and under which tokens. */
struct attempt {
    int kind, id;
    bool uses[RESOURCES];
    int64_t token[RESOURCES];
    const char *const *lines; /* up to 4 formats: id, token of a, of b, number in the names */
};

/* Kinds of commands. The first one that is about both resources is 7. */
static const char *const kinds[KINDS][4] = {
    {"FENCED %2$lld ID i%1$d INCRBY a%4$u 1"},
    {"FENCED %2$lld ID i%1$d SET a%4$u x%1$d GET"},
    {"FENCED %2$lld ID i%1$d HINCRBY a%4$u f 1"}, /* WRONGTYPE at times */
    {"FENCED %2$lld ID i%1$d GETDEL a%4$u"},
    {"FENCED %3$lld ID i%1$d INCRBY b%4$u 1 MAX 2"}, /* RANGE at times */
    {"FENCED %3$lld ID i%1$d GET b%4$u"},
    {"FENCED %3$lld ID i%1$d HGETALL b%4$u"},
    {"FENCEDALL 2 a%4$u %2$lld b%4$u %3$lld ID i%1$d MSET a%4$u 1 b%4$u 2"},
    {"MULTI", "FENCED %2$lld ID i%1$d INCRBY a%4$u 5", "FENCED %3$lld INCRBY b%4$u -1 MIN -3",
     "EXEC"},
    {"FENCEDALL 2 b%4$u %3$lld a%4$u %2$lld ID i%1$d DEL a%4$u b%4$u"},
};

/* Send a line, and return the last reply, owned by the caller. */
static struct buf ask(struct run *run, const char *line)
{
    struct buf *received = &run->world->clients[0].received, last = {0};
    struct reply reply;

    world_send(run->world, 0, line);
    struct bytes rest = buf_bytes(received);
    while (reply_next(&rest, &reply))
        if (reply.type != '>') {
            buf_clear(&last);
            buf_append_bytes(&last, reply.whole);
        }
    check(last.len > 0);
    buf_clear(received);
    return last;
}

static bool is_error(const struct buf *reply)
{
    return reply->data[0] == '-';
}

static bool starts(const struct buf *reply, const char *text)
{
    return reply->len >= strlen(text) && memcmp(reply->data, text, strlen(text)) == 0;
}

/* The same in both protocols: nulls and maps differ. */
static void normalise(struct buf *reply)
{
    struct buf out = {0};
    struct bytes rest = buf_bytes(reply);

    while (rest.len > 0) {
        struct bytes line = fuzz_cut(&rest, '\n');
        int64_t pairs;
        if (bytes_equal(line, bytes_of("_\r")) || bytes_equal(line, bytes_of("*-1\r"))) {
            buf_append_text(&out, "$-1\r");
        } else if (line.data[0] == '%') {
            check(bytes_to_int64((struct bytes){line.data + 1, line.len - 2}, &pairs));
            buf_printf(&out, "*%lld\r", (long long)pairs * 2);
        } else {
            buf_append_bytes(&out, line);
        }
        buf_append_text(&out, "\n");
    }
    buf_free(reply);
    *reply = out;
}

static void retire(struct run *run, int at)
{
    for (int id = 0; id < IDS; id++)
        if (run->entries[at][id].applied && run->entries[at][id].retired_ms == 0)
            run->entries[at][id].retired_ms = run->world->now_ms;
    run->live[at] = false;
}

/* May the receipt have been removed by now? */
static bool may_be_gone(const struct run *run, const struct entry *entry)
{
    return entry->applied && entry->retired_ms > 0 &&
           run->world->now_ms - entry->retired_ms >= KEEP_MS;
}

static void forget(struct entry *entry)
{
    buf_free(&entry->reply);
    *entry = (struct entry){.applied = false};
}

static void acquire(struct run *run, int at, bool by_owner)
{
    char line[LINE_MAX];
    int64_t token;

    snprintf(line, sizeof line, "ACQUIRE %s 5000%s", run->names[at], by_owner ? " OWNER o" : "");
    struct buf reply = ask(run, line);
    if (starts(&reply, "*2\r\n:")) {
        struct bytes rest = {reply.data + 5, reply.len - 5};
        check(bytes_to_int64(fuzz_cut(&rest, '\r'), &token));
        check(token >= run->token[at]);
        check(token > run->token[at] || run->live[at]);
        if (token > run->token[at])
            retire(run, at);
        run->token[at] = token;
        run->live[at] = true;
    }
    buf_free(&reply);
}

static void release(struct run *run, int at, bool by_force)
{
    char line[LINE_MAX];

    if (by_force)
        snprintf(line, sizeof line, "REVOKE %s", run->names[at]);
    else
        snprintf(line, sizeof line, "RELEASE %s %lld", run->names[at],
                 (long long)(run->token[at] > 0 ? run->token[at] : 1));
    struct buf reply = ask(run, line);
    if (by_force ? reply.data[0] == ':' : starts(&reply, ":0\r\n"))
        retire(run, at);
    buf_free(&reply);
}

static struct attempt choose(const struct run *run, unsigned kind, unsigned id, unsigned older)
{
    struct attempt attempt = {.kind = (int)(kind % KINDS), .id = (int)(id % IDS)};

    attempt.uses[0] = attempt.kind < 4 || attempt.kind >= 7;
    attempt.uses[1] = attempt.kind >= 4;
    for (int i = 0; i < RESOURCES; i++) {
        bool is_older = older % 8 == 6 + (unsigned)i && run->token[i] > 1;
        attempt.token[i] = run->token[i] > 0 ? run->token[i] - is_older : 1;
    }
    attempt.lines = kinds[attempt.kind];
    return attempt;
}

static void format(const struct run *run, const struct attempt *attempt, int i, char line[LINE_MAX])
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(line, LINE_MAX, attempt->lines[i], attempt->id, (long long)attempt->token[0],
             (long long)attempt->token[1], run->number);
#pragma GCC diagnostic pop
}

static bool equal(const struct snapshot *a, const struct snapshot *b)
{
    for (size_t i = 0; i < b->count; i++) {
        const struct seen *was = snapshot_find(a, b->all[i].name, b->all[i].name_len);
        if ((was == NULL ? 0 : was->value) != b->all[i].value)
            return false;
    }
    return true;
}

/* The reply to RECEIPT for one of the attempt's resources. */
static struct buf receipt(struct run *run, int at, int id, int64_t token)
{
    char line[LINE_MAX];

    snprintf(line, sizeof line, "RECEIPT %s %lld i%d", run->names[at], (long long)token, id);
    struct buf reply = ask(run, line);
    normalise(&reply);
    return reply;
}

static void check_receipt(struct run *run, int at, int id, int64_t token)
{
    static const char applied[] = "*2\r\n:1\r\n", never[] = "*2\r\n:0\r\n$-1\r\n";
    const struct entry *entry = &run->entries[at][id];
    struct buf due = {0};

    if (entry->vague)
        return;
    token = token > 0 ? token : 1;
    struct buf reply = receipt(run, at, id, token);

    if (entry->applied) {
        buf_append_text(&due, applied);
        buf_append_bytes(&due, buf_bytes(&entry->reply));
    }
    bool is_due = entry->applied && bytes_equal(buf_bytes(&reply), buf_bytes(&due));
    bool is_gone = may_be_gone(run, entry) && (token != entry->token || starts(&reply, "-EXPIRED"));
    bool is_open = !entry->applied && token == run->token[at] && run->live[at];
    bool is_past = !entry->applied && !is_open;
    if (!is_due && !is_gone && !(is_open && starts(&reply, "$-1\r\n")) &&
        !(is_past &&
          (starts(&reply, never) || starts(&reply, "-EXPIRED") ||
           (starts(&reply, "-UNKNOWN") && token > run->token[at]) || run->token[at] == 0)))
        fuzz_wrong("RECEIPT %s %lld i%d (%s) got %.*s", run->names[at], (long long)token, id,
                   entry->applied ? "applied" : "not applied", (int)reply.len, reply.data);
    buf_free(&reply);
    buf_free(&due);
}

/* The reply to the attempt; empty where it was lost. */
static struct buf perform(struct run *run, const struct attempt *attempt, bool loses,
                          unsigned steps)
{
    char line[LINE_MAX];
    struct buf reply = {0};

    for (int i = 0; i < 4 && attempt->lines[i] != NULL; i++) {
        format(run, attempt, i, line);
        if (loses) {
            world_send_only(run->world, 0, line);
            continue;
        }
        buf_free(&reply);
        reply = ask(run, line);
    }
    if (loses) {
        for (unsigned i = 0; i < steps % 4; i++) {
            (void)store_step(run->world->store);
            if (i % 2 == 1)
                store_collect(run->world->store);
        }
        world_disconnect(run->world, 0);
        world_settle(run->world);
        run->resp3 = false;
    } else {
        normalise(&reply);
    }
    return reply;
}

/* Ask by RECEIPT what became of it. */
static void find_out(struct run *run, const struct attempt *attempt, struct buf *reply)
{
    for (int at = 0, found = 0; at < RESOURCES; at++) {
        if (!attempt->uses[at])
            continue;
        struct buf answer = receipt(run, at, attempt->id, attempt->token[at]);
        bool applied = starts(&answer, "*2\r\n:1\r\n");
        if (applied && found == 0)
            buf_append(reply, answer.data + 8, answer.len - 8);
        if (found++ > 0 && applied != (reply->len > 0))
            fuzz_wrong("applied to one resource, not to the other");
        buf_free(&answer);
    }
    if (reply->len == 0)
        buf_append_text(reply, "-LOST\r\n");
}

/* It was not applied before. */
static void judge_first(struct run *run, const struct attempt *attempt, const struct buf *reply,
                        bool unchanged)
{
    bool current = true;

    for (int at = 0; at < RESOURCES; at++)
        current &= !attempt->uses[at] || (run->live[at] && run->token[at] == attempt->token[at]);
    if (is_error(reply)) {
        if (!unchanged)
            fuzz_wrong("a refused write has left a trace: %.*s", (int)reply->len, reply->data);
        if (current && (starts(reply, "-STALE") || starts(reply, "-UNKNOWN")))
            fuzz_wrong("a holder was refused: %.*s", (int)reply->len, reply->data);
        return;
    }
    if (!current)
        fuzz_wrong("kind %d was accepted without its tokens", attempt->kind);
    for (int at = 0; at < RESOURCES; at++) {
        if (!attempt->uses[at])
            continue;
        struct entry *entry = &run->entries[at][attempt->id];
        *entry =
            (struct entry){.applied = true, .kind = attempt->kind, .token = attempt->token[at]};
        buf_append_bytes(&entry->reply, buf_bytes(reply));
    }
}

static void judge_repeat(const struct attempt *attempt, const struct entry *entry,
                         const struct buf *reply, bool unchanged)
{
    if (!unchanged)
        fuzz_wrong("a repeat has had an effect");
    if (starts(reply, "-STORE") || starts(reply, "-LOST"))
        return;
    if (entry->kind != attempt->kind ? !starts(reply, "-ERR")
                                     : !bytes_equal(buf_bytes(reply), buf_bytes(&entry->reply)))
        fuzz_wrong("kind %d, applied as %d with %.*s, repeated: %.*s", attempt->kind, entry->kind,
                   (int)entry->reply.len, entry->reply.data, (int)reply->len, reply->data);
}

static void attempt_write(struct run *run, const struct attempt *attempt, bool loses,
                          unsigned steps)
{
    struct snapshot before, after;
    const struct entry *applied = NULL;
    bool gone = false, vague = false;

    for (int at = RESOURCES - 1; at >= 0; at--) {
        struct entry *entry = &run->entries[at][attempt->id];
        gone |= attempt->uses[at] && may_be_gone(run, entry);
        vague |= attempt->uses[at] && entry->vague;
        if (attempt->uses[at] && entry->applied)
            applied = entry;
    }
    snapshot_take(&before, NULL, run->world->store);
    struct buf reply = perform(run, attempt, loses, steps);
    snapshot_take(&after, &before, run->world->store);
    bool unchanged = equal(&before, &after);
    if (loses && applied == NULL)
        find_out(run, attempt, &reply);
    else if (loses)
        buf_append_text(&reply, "-LOST\r\n");
    if (gone || vague) /* nobody can say any more */
        for (int at = 0; at < RESOURCES; at++)
            run->entries[at][attempt->id].vague |= attempt->uses[at];
    else if (applied != NULL)
        judge_repeat(attempt, applied, &reply, unchanged);
    else
        judge_first(run, attempt, &reply, unchanged);
    snapshot_free(&before);
    snapshot_free(&after);
    buf_free(&reply);
}

static void step(struct run *run, struct bytes *rest)
{
    unsigned what = fuzz_byte(rest), first = fuzz_byte(rest), second = fuzz_byte(rest);
    int at = (int)(first % RESOURCES);
    struct attempt attempt = choose(run, first, second, second / 8);
    struct buf reply = {0};

    switch (what % 12) {
    case 0:
    case 1: acquire(run, at, what % 12 == 1); break;
    case 2:
    case 3: release(run, at, what % 12 == 3); break;
    case 4: check_receipt(run, at, (int)(second % IDS), run->token[at] - (second / 8) % 2); break;
    case 5: attempt_write(run, &attempt, true, second / 64); break;
    case 6:
        run->world->now_ms += (int64_t)first * 100;
        world_settle(run->world);
        break;
    case 7:
        if (!run->on_sqlite)
            store_memory_fail(run->world->store, MEMORY_COMMIT_FAILS);
        break;
    case 8:
        world_restart_engine(run->world, 0);
        run->resp3 = false;
        break;
    case 9:
        run->resp3 = first % 2 == 1;
        reply = ask(run, run->resp3 ? "HELLO 3" : "HELLO 2");
        break;
    default: attempt_write(run, &attempt, false, 0); break;
    }
    buf_free(&reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes rest = {(const char *)data, size};
    struct engine_options options = {.receipts_keep_ms = KEEP_MS};
    struct run run = {.on_sqlite = fuzz_byte(&rest) % 8 == 7};

    run.number = run.on_sqlite ? lasting_number() : 0;
    for (int at = 0; at < RESOURCES; at++)
        snprintf(run.names[at], sizeof run.names[at], "%c%u", 'a' + at, run.number);
    if (run.on_sqlite)
        options.store = lasting_open();
    run.world = world_new(&options);
    lasting_set_world(run.world);
    for (int steps = 0; rest.len > 0 && steps < STEPS_MAX; steps++)
        step(&run, &rest);
    /* What was applied is known to the end. */
    for (int at = 0; at < RESOURCES; at++)
        for (int id = 0; id < IDS; id++) {
            check_receipt(&run, at, id, run.token[at]);
            forget(&run.entries[at][id]);
        }
    world_settle(run.world);
    if (run.on_sqlite)
        lasting_end_input();
    lasting_set_world(NULL);
    world_free(run.world);
    return 0;
}
