/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a session, for the engine's own files. Its outside is in engine.h, its rules are in
 * session.c. */
#ifndef STOCKADE_ENGINE_SESSION_H
#define STOCKADE_ENGINE_SESSION_H

#include "fence/base/list.h"
#include "proxy/engine/acl/acl.h"
#include "proxy/engine/audit.h"
#include "proxy/engine/history/history.h"
#include "proxy/engine/internal.h"
#include "proxy/engine/session/account.h"
#include "proxy/engine/session/request.h"
#include "proxy/engine/session/strangers.h"

#define SESSION_REQUESTS_MAX      256         /* under way on one connection */
#define SESSION_REQUEST_BYTES_MAX (32 << 20)  /* their arguments */
#define SESSION_INPUT_MAX         (64 << 10)  /* bytes kept unparsed while it may not start more */
#define SESSION_OUTPUT_MAX        (256 << 10) /* unsent bytes beyond which no command is started */
#define SESSION_NAME_MAX          64

/* The client of a request whose connection is gone. */
struct request_client {
    char user[ACL_USER_MAX + 1], name[SESSION_NAME_MAX + 1], peer[64];
};

/* A request that waits can look for another one that stands behind it on its connection. That one
 * begins only when the waiting request has ended. */
struct behind {
    bool (*is_sought)(struct behind *behind, struct request *request);
    void (*on_found)(struct behind *behind); /* called once; then the search is over */
};

/* How long a session lasts. It only ever goes on to the next of these. */
enum session_life {
    SESSION_OPEN,
    SESSION_ENDING,  /* it takes no more commands, and closes once all is replied and sent */
    SESSION_KILLED,  /* it is to be closed now */
    SESSION_CUT_OFF, /* so, and nothing is sent any more: an event did not get into the audit */
};

enum session_seat {
    SEAT_NONE,     /* it does not count: it has to log in */
    SEAT_COUNTED,  /* it counts as one of its account's connections */
    SEAT_TOO_MANY, /* it is one too many of them: it gets BUSY */
};

/* Where it is between MULTI and EXEC. */
enum session_transaction {
    TRANSACTION_NONE,
    TRANSACTION_QUEUES,  /* `multi` has what has come so far */
    TRANSACTION_REFUSED, /* so, but a command could not be queued: EXEC will be refused */
};

struct session {
    struct list link;    /* engine->sessions */
    struct list changed; /* engine->changed or engine->deferred, where there is news of it */
    struct engine *engine;
    void *connection; /* the host's */
    uint64_t id;
    char peer[64], name[SESSION_NAME_MAX + 1], lib_name[SESSION_NAME_MAX + 1],
        lib_version[SESSION_NAME_MAX + 1];
    char *certified;               /* the user that its certificate names; NULL: none */
    const struct acl_user *rights; /* of engine->acl; NULL: it has to log in */
    struct account *account;       /* its user's */
    enum session_seat seat;        /* among its account's connections */
    bool logged_in;                /* by a password, or a certificate that names a user */
    struct request *login; /* its password is being checked, and nothing is parsed; or NULL */
    int64_t opened_ms, active_ms;
    const char *last_command; /* its name, or with its subcommand: "client|list"; NULL: none yet */
    bool trusted, resp3;
    bool notified; /* its client has said RENEW ... NOTIFY */
    enum session_life life;
    bool input_ended; /* the client sends no more */

    struct resp_parser *parser;
    struct buf in;                   /* arrived, not parsed yet */
    struct request *next;            /* parsed, not started yet */
    struct behind *behind;           /* the search through what is held back; or NULL */
    struct resp_parser *reader;      /* reads `in` for the search, without starting anything */
    size_t read_ahead;               /* how far it has read */
    const struct request *next_read; /* the `next` that was searched already */
    struct list pending;             /* started, in order of arrival, not replied yet */
    size_t pending_count, pending_bytes;
    size_t running_count;             /* of the pending ones that have not finished */
    enum command_order running_order; /* the class of those under way, but for ORDER_NOW */
    size_t reply_peak; /* a decaying maximum of the replies' bytes: what one more read may weigh */
    struct buf out;
    struct request *awaited; /* its reply is waited for, so that all goes in one packet; or NULL */
    bool deferred;           /* the last output waited for reads, so this one does not */
    struct list stranger;    /* engine->strangers.all; unlinked: it need not log in */
    size_t strange_bytes;    /* what it counts for there */
    size_t host_bytes;       /* what the host holds for it: session_set_host_bytes */
    struct audit_wait unaudited; /* nothing is sent before its ticket is on disk */
    size_t unsent;               /* bytes taken from `out` that have not left the host yet */
    size_t share; /* its part of the room for replies: `out` and unsent, where these are large */
    size_t bytes; /* what it counts for in its account: requests, queued ones, that share */

    void (*on_finished)(struct request *request); /* of each that was started */
    enum session_transaction transaction;
    struct multi *multi; /* between MULTI and EXEC; or NULL */
    size_t queued_bytes; /* of the arguments queued there */
    /* Called for a command that arrives for the transaction. False: call again in the next turn. */
    bool (*on_queued)(struct request *request);
    const struct command *refused; /* a MULTI, or a login, that was refused as BUSY: the commands
                                      behind it belong to it, and are refused, too; or NULL */
    struct subscriber *subscriber; /* pubsub.c; NULL: it listens to nothing */
    struct list held;              /* lease/held.c: leases granted to this connection */
    struct list places;            /* lease/queue.c: places that it was the last to ask for */
};

/* Does it have to log in? */
static inline bool session_is_stranger(const struct session *session)
{
    return !list_empty(&session->stranger);
}

/* Its account has to know what it holds. */
static inline void session_count_bytes(struct session *session)
{
    if (!session_is_stranger(session)) /* whose account is another's */
        account_count_bytes(session->account, &session->bytes,
                            session->pending_bytes + session->queued_bytes + session->share);
}

/* Have the host told, at the end of the turn, that there is news of the session. */
static inline void session_mark_changed(struct session *session)
{
    if (list_empty(&session->changed))
        list_append(&session->engine->changed, &session->changed);
}

/* Take no more commands, and close once all is replied and sent. */
static inline void session_end(struct session *session)
{
    if (session->life == SESSION_OPEN)
        session->life = SESSION_ENDING;
    session_mark_changed(session);
}

/* Close now, even if not all has been sent. */
static inline void session_kill(struct session *session)
{
    if (session->life < SESSION_KILLED)
        session->life = SESSION_KILLED;
    session_mark_changed(session);
}

/* Close a stranger now, since strangers hold too much: drop what it has sent, and answer BUSY where
 * that can still be told. */
void session_make_room(struct session *session);
bool session_is_admin(const struct session *session);
/* Remember for ACL LOG what was denied; `reason` is a constant. */
void session_log_denial(struct session *session, const char *reason, struct bytes object,
                        struct bytes user);
/* Append the session's line of CLIENT LIST. */
void session_describe(const struct session *session, struct buf *text);
/* Send a reply that is complete, in its place in the order of replies. */
void session_answer(struct session *session, struct bytes reply);
/* Count the bytes of arguments that are queued between MULTI and EXEC. */
void session_count_queued(struct session *session, size_t bytes);
/* From now on count them as those of the EXEC. */
void session_hand_over_queued(struct session *session, struct request *exec);
/* Send what was written to `out` without being the answer to a request. */
void session_pushed(struct session *session);

/* Return the name of the user that has logged in, or has shown a certificate. `session` NULL: the
 * client is gone. */
static inline const char *session_user(const struct session *session)
{
    return session == NULL ? ACL_DEFAULT_USER : account_name(session->account);
}

/* Note an event in the audit, with the session's user and address. If it is a durable one, what the
 * session sends from now on waits until it is on disk. */
void session_audit(struct session *session, struct audit_note note);
/* Note an event that a request has caused; its connection may be gone. */
void request_audit(const struct request *request, struct audit_note note);
/* May a command begin that may cause one of these events? False: the event would have to be on
 * disk, and the audit cannot be written; the request has failed. */
bool request_may_audit(struct request *request, uint32_t events);

/* Describe the client for the history. `session` NULL: it is gone. */
static inline struct history_client session_client(const struct session *session)
{
    if (session == NULL)
        return (struct history_client){BYTES_LITERAL(ACL_DEFAULT_USER), {"", 0}, {"", 0}};
    return (struct history_client){bytes_of(session_user(session)), bytes_of(session->name),
                                   bytes_of(session->peer)};
}

/* Describe the client that has sent a request. */
static inline struct history_client request_client(const struct request *request)
{
    const struct request_client *gone = request->client;

    if (request->session != NULL || gone == NULL)
        return session_client(request->session);
    return (struct history_client){bytes_of(gone->user), bytes_of(gone->name),
                                   bytes_of(gone->peer)};
}

/* Write, as `10.0.0.7 lib=redis-py(5.0.1) name=till`, what all connections of a program have in
 * common, also with those of programs like it on the same machine. */
#define SESSION_LIKE_SIZE 320
void session_describe_like(const struct session *session, char text[SESSION_LIKE_SIZE]);
bool session_is_like(const struct session *session, const struct session *other);

/* Has it subscribed, in RESP2? Then it may only use commands that concern subscriptions. */
static inline bool session_only_listens(const struct session *session)
{
    return session->subscriber != NULL && !session->resp3;
}

#endif
