/* SPDX-License-Identifier: Apache-2.0 */
/* A second parser goes through what a session holds back, as far as it has arrived. */
#include "proxy/engine/session/behind.h"

#include "proxy/engine/internal.h"

/* As the session will make it of these words; NULL: an error will answer them. */
static struct request *request_of(struct session *session)
{
    struct engine *engine = session->engine;
    size_t argc = resp_argc(session->reader);
    const struct bytes *argv = resp_argv(session->reader);
    const struct command *command = command_find(&engine->index, argv[0]);

    if (command == NULL || !words_fit(command, argc))
        return NULL;
    if (engine->on_parsed != NULL)
        command = engine->on_parsed(engine, command, argv, argc);
    return request_new(session, command, argv, argc);
}

static bool is_next_sought(struct session *session)
{
    if (session->next == NULL || session->next == session->next_read)
        return false;
    session->next_read = session->next;
    return session->behind->is_sought(session->behind, session->next);
}

static bool is_parsed_sought(struct session *session)
{
    struct request *request = request_of(session);
    bool sought = request != NULL && session->behind->is_sought(session->behind, request);

    if (request != NULL)
        request_free(request);
    return sought;
}

static bool is_sought_in_input(struct session *session)
{
    const struct buf *in = &session->in;
    enum resp_status status = RESP_REQUEST;
    size_t used;

    while (status == RESP_REQUEST && session->read_ahead < in->len) {
        status = resp_parse(session->reader, &resp_limits_default, in->data + session->read_ahead,
                            in->len - session->read_ahead, &used);
        session->read_ahead += used;
        if (status == RESP_REQUEST && is_parsed_sought(session))
            return true;
    }
    if (status == RESP_BROKEN) /* nothing more can be read, but by whoever reports that */
        behind_end(session);
    return false;
}

void behind_arrived(struct session *session)
{
    struct behind *behind = session->behind;

    if (behind == NULL || !(is_next_sought(session) || is_sought_in_input(session)))
        return;
    behind_end(session);
    behind->on_found(behind);
}

void behind_look(struct session *session, struct behind *behind)
{
    behind_end(session);
    session->behind = behind;
    session->reader = resp_parser_new();
    behind_arrived(session);
}

void behind_end(struct session *session)
{
    if (session->behind == NULL)
        return;
    resp_parser_free(session->reader);
    session->behind = NULL;
    session->reader = NULL;
    session->next_read = NULL;
    session->read_ahead = 0;
}

void behind_used(struct session *session, size_t bytes)
{
    if (session->behind != NULL)
        session->read_ahead -= bytes;
}
