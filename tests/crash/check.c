/* SPDX-License-Identifier: Apache-2.0 */
/* See check.h. The content is read through a plain SQLite connection, which knows nothing of
 * Stockade, and sorted into slots by the last character of each resource's name. */
#include "tests/crash/check.h"

#include <inttypes.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "store/maintenance.h"

enum { ROWS = 4, PARTS };

static const char *const parts[PARTS] = {
    "SELECT resource, 'fence '||resource||' '||token||' '||state||' '||owner||' '||holds"
    " FROM stockade_fences ORDER BY resource",
    "SELECT key, 'value '||key||' '||value FROM stockade_values ORDER BY key",
    "SELECT key, 'field '||key||' '||field||' '||CASE length(value) > 64 WHEN 1 THEN"
    " length(value)||' bytes' ELSE value END FROM stockade_fields ORDER BY key, field",
    "SELECT resource, 'receipt '||resource||' '||id||' '||token||' '||CASE substr(id, 1, 1)"
    " WHEN 'w' THEN replace(replace(reply, char(13), '|'), char(10), '|') ELSE '' END"
    " FROM stockade_receipts ORDER BY resource, CAST(substr(id, 2) AS INTEGER)",
    "SELECT 'x:'||sku, 'row '||sku||' '||n FROM stock ORDER BY sku",
};

struct content {
    struct buf slots[MODEL_SLOTS];
};

struct session_state {
    struct check *check;
    struct host *host;
    struct bytes reply; /* the last one */
    struct buf replies;
    int replies_count;
};

__attribute__((format(printf, 2, 3))) static bool wrong(struct check *check, const char *format,
                                                        ...)
{
    va_list args;

    va_start(args, format);
    if (check->why[0] == '\0')
        vsnprintf(check->why, sizeof check->why, format, args);
    va_end(args);
    return false;
}

/* Content. */

/* A connection with a statement for each part of the content. */
struct reading {
    sqlite3 *db;
    sqlite3_stmt *parts[PARTS];
};

static bool reading_open(struct check *check, struct reading *reading)
{
    *reading = (struct reading){0};
    if (sqlite3_open_v2(HOST_PATH, &reading->db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK ||
        sqlite3_exec(reading->db, "PRAGMA temp_store = MEMORY", NULL, NULL, NULL) != SQLITE_OK)
        return wrong(check, "it cannot be read: %s", sqlite3_errmsg(reading->db));
    return true;
}

static void reading_close(struct reading *reading)
{
    for (int i = 0; i < PARTS; i++)
        sqlite3_finalize(reading->parts[i]);
    sqlite3_close(reading->db);
}

static bool read_part(struct reading *reading, int part, struct content *content)
{
    sqlite3_stmt **stmt = &reading->parts[part];

    if (*stmt == NULL && sqlite3_prepare_v2(reading->db, parts[part], -1, stmt, NULL) != SQLITE_OK)
        return part == ROWS && sqlite3_errcode(reading->db) == SQLITE_ERROR; /* no table yet */
    while (sqlite3_step(*stmt) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(*stmt, 0);
        int slot = name[strlen(name) - 1] - '0';
        check(slot >= 0 && slot < MODEL_SLOTS);
        buf_printf(&content->slots[slot], "%s\n", sqlite3_column_text(*stmt, 1));
    }
    return sqlite3_reset(*stmt) == SQLITE_OK;
}

static bool content_read(struct check *check, struct reading *reading, struct content *content)
{
    bool read = true;

    for (int i = 0; i < MODEL_SLOTS; i++)
        buf_clear(&content->slots[i]);
    for (int i = 0; read && i < PARTS; i++)
        read = read_part(reading, i, content);
    for (int i = 0; i < MODEL_SLOTS; i++)
        buf_append(&content->slots[i], "", 1);
    return read || wrong(check, "it cannot be read: %s", sqlite3_errmsg(reading->db));
}

/* Tables, index and guard: what was acknowledged is there, and no more than was asked for. */
static bool setup_is_there(struct check *check, struct reading *reading)
{
    const struct expectation *expect = check->expect;
    sqlite3_stmt *stmt = NULL;
    int steps = -1;

    if (sqlite3_prepare_v2(reading->db,
                           "SELECT (SELECT count(*) FROM sqlite_schema WHERE name IN"
                           " ('stock', 'plain', 'stock_by_number'))"
                           " + (SELECT count(*) FROM stockade_guard)",
                           -1, &stmt, NULL) == SQLITE_OK &&
        sqlite3_step(stmt) == SQLITE_ROW)
        steps = sqlite3_column_int(stmt, 0);
    sqlite3_finalize(stmt);
    return (steps >= expect->setup && steps <= expect->setup + expect->setup_sent) ||
           wrong(check, "%d steps of the setup are there, %d were acknowledged%s", steps,
                 expect->setup, expect->setup_sent ? ", one more sent" : "");
}

static bool file_is_sound(struct check *check, struct reading *reading)
{
    sqlite3_stmt *stmt = NULL;
    const char *said = NULL;

    if (sqlite3_prepare_v2(reading->db, "PRAGMA integrity_check(1)", -1, &stmt, NULL) ==
            SQLITE_OK &&
        sqlite3_step(stmt) == SQLITE_ROW)
        said = (const char *)sqlite3_column_text(stmt, 0);
    bool sound =
        (said != NULL && strcmp(said, "ok") == 0) ||
        wrong(check, "the file is damaged: %s", said != NULL ? said : sqlite3_errmsg(reading->db));
    sqlite3_finalize(stmt);
    return sound;
}

/* Do the model's lines fit those that the store has? One that begins with '?' may be missing. */
static bool lines_fit(const char *model, const char *there)
{
    while (*model != '\0' || *there != '\0') {
        bool optional = *model == '?';
        size_t len = strcspn(model += optional, "\n");
        if (len > 0 && len == strcspn(there, "\n") && memcmp(model, there, len) == 0)
            there += len + 1;
        else if (!optional)
            return false;
        model += len + 1;
    }
    return true;
}

static bool slot_fits(const struct model_slot *slot, int64_t now_ms, const char *there,
                      struct buf *lines)
{
    buf_clear(lines);
    model_lines(slot, now_ms, lines);
    buf_append(lines, "", 1);
    return lines_fit(lines->data, there);
}

/* Return the resource's token in the store; 0: none. */
static int64_t token_there(const struct model_slot *slot, int resource, const char *there)
{
    char line[32], name[16];
    int64_t token = 0;

    snprintf(line, sizeof line, "fence %s ", model_name(slot->number, resource, name));
    const char *at = strstr(there, line);
    if (at != NULL)
        (void)sscanf(at + strlen(line), "%" SCNd64, &token);
    return token;
}

/* Return how many of the operations in flight were applied, and the states after each of them; -1:
 * the slot is in a state that it must not be in. */
static int find_applied(struct check *check, const struct outlook *outlook, const char *there,
                        int64_t now_ms, struct model_slot *states)
{
    struct buf lines = {0}, first = {0};
    int applied = -1;
    char expected[MODEL_REPLY_MAX];

    states[0] = outlook->slot;
    model_restart(&states[0], check->opened_ms);
    for (int k = 0; k <= outlook->flight_count; k++) {
        if (k > 0) {
            const struct op *op = &outlook->flight[k - 1];
            states[k] = states[k - 1];
            if (!model_apply(&states[k], op, NULL, token_there(&states[k], op->resource, there),
                             now_ms, expected))
                break;
        }
        if (slot_fits(&states[k], now_ms, there, &lines)) {
            applied = k;
            break;
        }
        if (k == 0)
            buf_append_bytes(&first, buf_bytes(&lines));
    }
    if (applied < 0)
        wrong(check,
              "slot %d is in a state that it may not be in, with %d in flight.\nIt has:\n%s"
              "After what was acknowledged:\n%s",
              outlook->slot.number, outlook->flight_count, there, first.data);
    buf_free(&lines);
    buf_free(&first);
    return applied;
}

/* Requests to the daemon. */

static void on_reply(void *context, int client, struct bytes reply)
{
    struct session_state *state = context;

    (void)client;
    buf_clear(&state->replies);
    buf_append_bytes(&state->replies, reply);
    state->replies_count++;
}

static struct bytes call(struct session_state *state, int client, struct buf *request)
{
    buf_clear(&state->replies);
    host_send(state->host, client, buf_bytes(request));
    host_settle(state->host);
    buf_clear(request);
    return buf_bytes(&state->replies);
}

static bool was_granted_late(const struct op *op, struct bytes reply)
{
    return op->kind == OP_ACQUIRE && reply.len >= 3 && memcmp(reply.data, "*-1", 3) == 0;
}

/* Send what was in flight again, as a client does that has lost the reply. */
static bool repeat(struct session_state *state, const struct outlook *outlook, int applied,
                   struct model_slot *states)
{
    struct check *check = state->check;
    struct buf request = {0};
    bool fine = true;

    for (int k = 0; fine && k < outlook->flight_count; k++) {
        const struct op *op = &outlook->flight[k];
        char expected[MODEL_REPLY_MAX];
        if (k < applied && op->id == 0)
            continue; /* nobody may repeat it */
        for (int tries = 0; tries < 2; tries++) {
            model_request(outlook->slot.number, op, &request);
            struct bytes reply = call(state, outlook->slot.number, &request);
            /* A lease of before the crash is held for its time again. */
            if (tries == 0 && was_granted_late(op, reply)) {
                host_pass(state->host, MODEL_TTL_MS + 1000);
                continue;
            }
            struct model_slot after = states[k];
            fine =
                model_apply(&after, op, &reply, 0, machine_disk(check->machine)->now_ms, expected);
            if (!fine)
                wrong(check,
                      "slot %d: %s request %d in flight, sent again, was answered %.*snot %s",
                      outlook->slot.number, k < applied ? "applied" : "lost", k, (int)reply.len,
                      reply.data, expected);
            if (k >= applied)
                states[k + 1] = after;
            break;
        }
    }
    buf_free(&request);
    return fine;
}

static bool set_up_again(struct session_state *state, const struct expectation *expect)
{
    struct buf request = {0};

    if (!expect->setup_sent)
        return true;
    run_setup_request(expect->setup, &request);
    struct bytes reply = call(state, MODEL_SLOTS, &request);
    buf_free(&request);
    return (reply.len > 0 && reply.data[0] != '-') ||
           memmem(reply.data, reply.len, "is guarded already", 18) != NULL ||
           wrong(state->check, "setup step %d, sent again, was answered %.*s", expect->setup,
                 (int)reply.len, reply.data);
}

/* Grant the resource anew, and write with the token that the grant replaces. */
static bool grant_anew(struct session_state *state, const struct model_slot *slot, int resource)
{
    const struct model_resource *row = &slot->resources[resource];
    struct check *check = state->check;
    struct op acquire = {.kind = OP_ACQUIRE, .resource = resource, .owner = 99999};
    struct op stale = {.kind = OP_STALE, .resource = resource, .token = row->token};
    struct model_slot after = *slot;
    char expected[MODEL_REPLY_MAX];
    struct buf request = {0};

    model_request(slot->number, &acquire, &request);
    struct bytes reply = call(state, slot->number, &request);
    bool fine =
        model_apply(&after, &acquire, &reply, 0, machine_disk(check->machine)->now_ms, expected) ||
        wrong(check, "slot %d: a grant anew was answered %.*snot %s", slot->number, (int)reply.len,
              reply.data, expected);
    if (fine && row->token > 0) {
        model_request(slot->number, &stale, &request);
        reply = call(state, slot->number, &request);
        fine = (reply.len > 6 && memcmp(reply.data, "-STALE", 6) == 0) ||
               wrong(check,
                     "slot %d: a write with token %" PRId64 ", then replaced, was answered"
                     " %.*s",
                     slot->number, row->token, (int)reply.len, reply.data);
    }
    buf_free(&request);
    return fine;
}

static bool go_on(void *context, const char *doing, int64_t done, int64_t total)
{
    (void)context, (void)doing, (void)done, (void)total;
    return true;
}

static void on_finding(void *context, const char *kind, const char *text)
{
    wrong(context, "stockade check finds %s: %s", kind, text);
}

static bool store_is_whole(struct check *check)
{
    char why[MAINTENANCE_WHY_MAX];
    struct check_call call = {
        .store = HOST_PATH, .found = on_finding, .watch = {.step = go_on, .context = check}};

    return (store_sqlite_check(&call, why, sizeof why) || wrong(check, "no check: %s", why)) &&
           call.findings == 0;
}

static bool check_slots(struct session_state *state, struct reading *reading,
                        struct content *content,
                        struct model_slot states[MODEL_SLOTS][RUN_FLIGHT_MAX + 1])
{
    struct check *check = state->check;
    const struct expectation *expect = check->expect;
    const struct ramdisk *disk = machine_disk(check->machine);
    struct buf lines = {0};
    bool fine = content_read(check, reading, content) && setup_is_there(check, reading) &&
                set_up_again(state, expect);

    for (int i = 0; fine && i < MODEL_SLOTS; i++) {
        const struct outlook *outlook = &expect->slots[i];
        int applied = find_applied(check, outlook, content->slots[i].data, disk->now_ms, states[i]);
        fine = applied >= 0 && repeat(state, outlook, applied, states[i]);
    }
    fine = fine && content_read(check, reading, content);
    for (int i = 0; fine && i < MODEL_SLOTS; i++)
        fine = slot_fits(&states[i][expect->slots[i].flight_count], disk->now_ms,
                         content->slots[i].data, &lines) ||
               wrong(check, "slot %d, after all was sent again, has:\n%snot:\n%s", i,
                     content->slots[i].data, lines.data);
    buf_free(&lines);
    return fine;
}

static bool check_opened(struct session_state *state)
{
    struct check *check = state->check;
    const struct expectation *expect = check->expect;
    struct model_slot states[MODEL_SLOTS][RUN_FLIGHT_MAX + 1];
    const struct ramdisk *disk = machine_disk(check->machine);
    struct reading reading;
    struct content content = {0};
    bool fine = reading_open(check, &reading) && check_slots(state, &reading, &content, states);

    host_pass(state->host, MODEL_TTL_MS + 1000);
    for (int i = 0; fine && i < MODEL_SLOTS; i++)
        fine = grant_anew(state, &states[i][expect->slots[i].flight_count],
                          (int)(disk->events_count + (size_t)i) % MODEL_RESOURCES);
    fine = fine && file_is_sound(check, &reading);
    for (int i = 0; i < MODEL_SLOTS; i++)
        buf_free(&content.slots[i]);
    reading_close(&reading);
    return fine && (!check->thorough || store_is_whole(check));
}

bool check_disk(struct check *check, struct ramdisk *disk)
{
    struct session_state state = {.check = check};
    char why[600];

    check->why[0] = '\0';
    machine_mount(check->machine, disk);
    state.host = host_open(check->machine, on_reply, &state, why, sizeof why);
    check->opened_at = disk->events_count;
    check->opened_ms = disk->now_ms;
    if (state.host == NULL)
        return wrong(check, "the store does not open: %s", why);
    bool fine = check_opened(&state);
    if (host_lost(state.host))
        fine = wrong(check, "the store is lost");
    host_close(state.host);
    buf_free(&state.replies);
    machine_mount(check->machine, NULL);
    return fine;
}
