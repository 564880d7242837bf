/* SPDX-License-Identifier: Apache-2.0 */
/* The log's lines about refused commands and REVOKEs. A program that goes wrong is refused
 * thousands of times a second, so only LINES_MAX lines of each kind are written within a second,
 * then one that says how many were left out. Accepted commands never come here. */
#include "proxy/engine/session/notes.h"

#include <stdio.h>
#include <stdlib.h>

#include "fence/base/log.h"
#include "fence/base/mem.h"
#include "proxy/engine/history/history.h"
#include "proxy/engine/internal.h"
#include "proxy/engine/session/facts.h"
#include "proxy/engine/session/session.h"

enum { LINES_MAX = 20, LINES_MS = 1000, NAME_SIZE = 160 };

enum note_kind { NOTE_REFUSED, NOTE_REVOKED, NOTES };

struct note_limit {
    struct timer timer; /* runs while lines are left out */
    struct engine *engine;
    const char *what;
    int64_t from_ms; /* when this second began */
    unsigned lines;  /* in it */
    uint64_t left_out;
};

struct notes {
    struct note_limit limits[NOTES];
};

static void say_left_out(struct note_limit *limit)
{
    if (limit->left_out > 0)
        log_info(limit->engine->options.log, "%llu more %s within a second, not shown",
                 (unsigned long long)limit->left_out, limit->what);
    limit->left_out = 0;
}

static void on_timer(struct timer *timer)
{
    say_left_out(list_entry(timer, struct note_limit, timer));
}

struct notes *notes_new(struct engine *engine)
{
    static const char *const what[NOTES] = {
        [NOTE_REFUSED] = "commands were refused", [NOTE_REVOKED] = "REVOKEs came"};
    struct notes *notes = mem_zalloc(sizeof *notes);

    for (int i = 0; i < NOTES; i++)
        notes->limits[i] = (struct note_limit){
            .engine = engine, .what = what[i], .timer = {.fire = on_timer}, .from_ms = INT64_MIN};
    return notes;
}

void notes_free(struct notes *notes)
{
    for (int i = 0; i < NOTES; i++) {
        timer_stop(notes->limits[i].engine, &notes->limits[i].timer);
        say_left_out(&notes->limits[i]);
    }
    free(notes);
}

/* May one more line of this kind be written? */
static bool take_line(struct engine *engine, enum note_kind kind)
{
    struct note_limit *limit = &engine->notes->limits[kind];
    int64_t now_ms = engine_now_ms(engine);

    if (!log_takes(engine->options.log, LOG_INFO_LEVEL))
        return false;
    if (limit->from_ms == INT64_MIN || now_ms - limit->from_ms >= LINES_MS) {
        say_left_out(limit);
        limit->from_ms = now_ms;
        limit->lines = 0;
    }
    if (limit->lines < LINES_MAX) {
        limit->lines++;
        return true;
    }
    if (limit->left_out++ == 0)
        timer_set(engine, &limit->timer, limit->from_ms + LINES_MS);
    return false;
}

/* 127.0.0.1:5123 "till 3". Addresses and names hold nothing that would have to be escaped. */
static void print_client(const struct request *request, struct buf *line)
{
    const struct session *session = request->session;

    if (session == NULL)
        buf_append_text(line, "a client that is gone");
    else if (session->name[0] == '\0')
        buf_append_text(line, session->peer);
    else
        buf_printf(line, "%s \"%s\"", session->peer, session->name);
}

static void print_name(struct bytes name, struct buf *line)
{
    char quoted[NAME_SIZE];
    buf_append_text(line, log_quoted(name, quoted, sizeof quoted));
}

static void write_line(struct engine *engine, struct buf *line)
{
    log_info(engine->options.log, "%.*s", (int)line->len, line->data);
    buf_free(line);
}

void note_refused(struct engine *engine, const struct fact *fact,
                  const struct history_refusal *refusal)
{
    const struct request *request = fact->by.request;
    struct buf line = {0}, members = {0};

    if (!take_line(engine, NOTE_REFUSED))
        return;
    buf_printf(&line, "refused, %s: %s", stk_error_code(refusal->code), refusal->command);
    if (history_refusal_name(refusal).len > 0) {
        buf_append_text(&line, " of ");
        print_name(history_refusal_name(refusal), &line);
    }
    if (request != NULL ? request->refused_claim != NULL : refusal->token > 0)
        buf_printf(&line, " under token %lld, the newest is %lld", (long long)refusal->token,
                   (long long)refusal->newest);
    if (refusal->late_ms >= 0)
        buf_printf(&line, ", %lld ms after its lease ended", (long long)refusal->late_ms);
    if (request == NULL) {
        buf_append_text(&line, "; from a program's own SQL");
    } else {
        if (refusal->code == STK_GUARDED && request->reply.len > 3) {
            buf_append_text(&line, ", ");
            print_name((struct bytes){request->reply.data + 1, request->reply.len - 3}, &line);
        }
        buf_append_text(&line, "; from ");
        print_client(request, &line);
    }
    buf_append_text(&members, "\"event\":\"refused\",");
    history_refusal_json(&members, refusal);
    log_fields(engine->options.log, LOG_INFO_LEVEL, buf_bytes(&members), "%.*s", (int)line.len,
               line.data);
    buf_free(&members);
    buf_free(&line);
}

void note_revoked(struct engine *engine, const struct fact *fact)
{
    struct buf line = {0};

    if (!take_line(engine, NOTE_REVOKED))
        return;
    buf_append_text(&line, "REVOKE of ");
    print_name(fact->resource, &line);
    buf_printf(&line, ": token %lld is retired; from ", (long long)fact->token);
    if (fact->by.request != NULL) {
        print_client(fact->by.request, &line);
    } else {
        buf_append_text(&line, "the page, ");
        print_name(fact->by.address, &line);
        buf_append_text(&line, ", reason: ");
        print_name(fact->reason, &line);
    }
    write_line(engine, &line);
}

void note_revoked_nothing(const struct request *request, struct bytes resource)
{
    struct buf line = {0};

    if (!take_line(request->engine, NOTE_REVOKED))
        return;
    buf_append_text(&line, "REVOKE of ");
    print_name(resource, &line);
    buf_append_text(&line, ": nobody held it; from ");
    print_client(request, &line);
    write_line(request->engine, &line);
}
