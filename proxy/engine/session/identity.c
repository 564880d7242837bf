/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/engine/session/identity.h"

#include <stdio.h>
#include <string.h>

#include "proxy/engine/acl/log.h"
#include "proxy/engine/internal.h"
#include "proxy/engine/scope.h"

bool identity_has_room(const struct session *session, const char *name, char why[ACCOUNT_WHY_SIZE])
{
    struct account *account = account_of(session->engine, name);
    bool is_counted = session->seat != SEAT_NONE && account == session->account;
    bool has_room = is_counted && session->seat != SEAT_TOO_MANY;

    if (is_counted) /* one that was too many is not in its own way */
        account_give(account, ACCOUNT_CONNECTIONS);
    has_room = has_room || account_has_room(account, ACCOUNT_CONNECTIONS, 1, why);
    if (is_counted)
        account_add(account, ACCOUNT_CONNECTIONS);
    account_drop(account);
    return has_room;
}

void identity_take(struct session *session, const struct acl_user *rights, const char *name,
                   bool logged_in)
{
    struct account *account = account_of(session->engine, name);

    identity_end(session);
    session->rights = rights;
    session->logged_in = logged_in;
    session->account = account;
    if (rights != NULL) {
        strangers_leave(session);
        account_add(account, ACCOUNT_CONNECTIONS);
        session->seat = SEAT_COUNTED;
    } else {
        replies_count(&session->engine->replies, &session->share, 0);
        strangers_enter(session);
    }
}

/* A new connection that is one too many gets BUSY for its first command. */
static void take_newcomer(struct session *session, const struct acl_user *rights, const char *name,
                          bool logged_in)
{
    char why[ACCOUNT_WHY_SIZE];
    bool crowded = rights != NULL && !identity_has_room(session, name, why);

    identity_take(session, rights, name, logged_in);
    if (crowded)
        session->seat = SEAT_TOO_MANY;
}

/* A certificate that names a user of the file logs that user in. One that names nobody there does
 * not even let `default` in. Without a file of users the name is only shown. */
void identity_forget(struct session *session)
{
    const struct acl *acl = session->engine->acl;
    const struct acl_user *user = acl_newcomer(acl, session->trusted);

    if (session->certified == NULL) {
        take_newcomer(session, user, ACL_DEFAULT_USER, false);
    } else if (!acl_has_file(acl)) {
        take_newcomer(session, user, session->certified, false);
    } else {
        user = acl_find(acl, bytes_of(session->certified));
        take_newcomer(session, user != NULL && user->on ? user : NULL, session->certified, true);
    }
}

void identity_end(struct session *session)
{
    if (session->seat != SEAT_NONE)
        account_give(session->account, ACCOUNT_CONNECTIONS);
    session->seat = SEAT_NONE;
    if (session->account != NULL)
        account_count_bytes(session->account, &session->bytes, 0);
    account_drop(session->account);
    session->account = NULL;
}

struct bytes identity_scope(const struct session *session, struct bytes name, struct buf *out)
{
    const char *user = session_user(session);
    size_t at = out->len;

    if (strcmp(user, ACL_DEFAULT_USER) == 0 &&
        (name.len == 0 || memchr(name.data, SCOPE_MARK, name.len) == NULL))
        return name;
    buf_append_bytes(out, name);
    buf_append(out, &(char){SCOPE_MARK}, 1);
    buf_append_text(out, user);
    return (struct bytes){out->data + at, out->len - at};
}

/* As others are told of it. */

bool session_is_admin(const struct session *session)
{
    return session->rights != NULL && session->rights->admin;
}

void session_describe(const struct session *session, struct buf *text)
{
    int64_t now_ms = engine_now_ms(session->engine);
    char lower[COMMAND_LOWER_SIZE];

    buf_printf(text,
               "id=%llu addr=%s name=%s age=%lld idle=%lld db=0 pending=%zu in=%zu out=%zu cmd=%s "
               "resp=%d lib-name=%s lib-ver=%s user=%s\n",
               (unsigned long long)session->id, session->peer, session->name,
               (long long)(now_ms - session->opened_ms) / 1000,
               (long long)(now_ms - session->active_ms) / 1000, session->pending_count,
               session->in.len, session->out.len + session->unsent,
               session->last_command == NULL ? "NULL" : command_lower(session->last_command, lower),
               session->resp3 ? 3 : 2, session->lib_name, session->lib_version,
               session_user(session));
}

void session_describe_like(const struct session *session, char text[SESSION_LIKE_SIZE])
{
    const char *colon = strrchr(session->peer, ':');
    size_t host = colon == NULL ? strlen(session->peer) : (size_t)(colon - session->peer);
    int len = snprintf(text, SESSION_LIKE_SIZE, "%.*s", (int)host, session->peer);

    if (session->lib_name[0] != '\0')
        len += snprintf(text + len, SESSION_LIKE_SIZE - (size_t)len, " lib=%s(%s)",
                        session->lib_name, session->lib_version);
    if (session->name[0] != '\0')
        snprintf(text + len, SESSION_LIKE_SIZE - (size_t)len, " name=%s", session->name);
}

bool session_is_like(const struct session *session, const struct session *other)
{
    char mine[SESSION_LIKE_SIZE], theirs[SESSION_LIKE_SIZE];

    session_describe_like(session, mine);
    session_describe_like(other, theirs);
    return session->account == other->account && strcmp(mine, theirs) == 0;
}

void session_log_denial(struct session *session, const char *reason, struct bytes object,
                        struct bytes user)
{
    int64_t now_ms = clock_wall_us(session->engine->options.clock) / 1000;
    struct buf client = {0};

    session_describe(session, &client);
    acl_log_add(session->engine->acl_log,
                &(struct acl_log_entry){.reason = reason,
                                        .context = session->multi != NULL ? "multi" : "toplevel",
                                        .created_ms = now_ms,
                                        .updated_ms = now_ms},
                object, user, (struct bytes){client.data, client.len - 1});
    buf_free(&client);
}
