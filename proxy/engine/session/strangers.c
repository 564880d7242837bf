/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/engine/session/strangers.h"

#include "fence/base/log.h"
#include "proxy/engine/internal.h"
#include "proxy/engine/session/session.h"

enum {
    SAID_EVERY_MS = 10000,
    REQUEST_BYTES = sizeof(struct request) + 1024, /* of one that waits, with a short reply */
};

static size_t held_by(const struct session *session)
{
    size_t bytes = sizeof *session + session->host_bytes + session->in.cap + session->out.cap +
                   session->unsent + session->pending_bytes +
                   session->pending_count * REQUEST_BYTES;

    if (session->parser != NULL)
        bytes += resp_parser_bytes(session->parser);
    if (session->next != NULL)
        bytes += sizeof *session->next + session->next->size + session->next->reply.cap;
    return bytes;
}

static void count(struct session *session, size_t bytes)
{
    session->engine->strangers.bytes += bytes - session->strange_bytes;
    session->strange_bytes = bytes;
}

/* What it holds is let go at once, but for what is on its way out. */
static void close_stranger(struct session *session)
{
    struct engine *engine = session->engine;
    struct strangers *strangers = &engine->strangers;
    int64_t now_ms = engine_now_ms(engine);

    engine->counters.strangers_closed++;
    if (strangers->said_ms == 0 || now_ms - strangers->said_ms >= SAID_EVERY_MS) {
        strangers->said_ms = now_ms;
        log_warn(engine->options.log,
                 "closed %s, which has not logged in: such connections held more than %zu KiB",
                 session->peer, strangers->bytes_max >> 10);
    }
    strangers_leave(session);
    strangers->on_too_much(session);
}

void strangers_enter(struct session *session)
{
    if (!session_is_stranger(session))
        list_append(&session->engine->strangers.all, &session->stranger);
    count(session, held_by(session));
}

void strangers_leave(struct session *session)
{
    list_remove(&session->stranger);
    count(session, 0);
}

void strangers_count(struct session *session)
{
    struct strangers *strangers = &session->engine->strangers;

    count(session, held_by(session));
    while (strangers->bytes > strangers->bytes_max && !list_empty(&strangers->all))
        close_stranger(list_entry(strangers->all.next, struct session, stranger));
}
