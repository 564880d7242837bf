/* SPDX-License-Identifier: Apache-2.0 */
/* A session's inside, for the engine's own files: what they may know of a connection. Its outside
 * is in engine.h, its rules are in session.c. */
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

/* Who has sent a request whose connection is gone. */
struct request_client {
    char user[ACL_USER_MAX + 1], name[SESSION_NAME_MAX + 1], peer[64];
};

/* A request that waits for others looks for one that stands behind it on its connection, and begins
 * only once it has ended. */
struct behind {
    bool (*is_sought)(struct behind *behind, struct request *request);
    void (*on_found)(struct behind *behind); /* once, and it looks for no more */
};

struct session {
    struct list link;    /* engine->sessions */
    struct list changed; /* where there is news: engine->changed, or engine->deferred */
    struct engine *engine;
    void *connection; /* the host's */
    uint64_t id;
    char peer[64], name[SESSION_NAME_MAX + 1], lib_name[SESSION_NAME_MAX + 1],
        lib_version[SESSION_NAME_MAX + 1];
    char *certified;               /* the user whom its certificate names; NULL: nobody */
    const struct acl_user *rights; /* in engine->acl: what it may do; NULL: it has to log in */
    struct account *account;       /* whose it is */
    bool counted;                  /* as one of the account's connections */
    bool crowded;                  /* and is one too many of them: gets BUSY */
    bool logged_in;                /* by a password, or a certificate that names a user */
    bool logging_in;               /* its password is being checked: nothing is parsed meanwhile */
    int64_t opened_ms, active_ms;
    const char *last_command; /* its name, or with its subcommand: "client|list"; NULL: none yet */
    bool trusted, resp3;
    bool notified;    /* has said RENEW ... NOTIFY */
    bool ending;      /* no more commands; close once all is replied and sent */
    bool input_ended; /* the client sends no more */
    bool killed;      /* close now */

    struct resp_parser *parser;
    struct buf in;              /* arrived, not parsed yet */
    struct request *next;       /* parsed, not started yet */
    struct behind *behind;      /* who looks at what is held back; or NULL */
    struct resp_parser *reader; /* reads `in` for it, without starting anything, */
    size_t read_ahead;          /* up to here; and `next`: */
    const struct request *next_read;
    struct list pending; /* started, in order of arrival, not replied yet */
    size_t pending_count, pending_bytes;
    size_t running_count;             /* of the pending ones: not finished */
    enum command_order running_order; /* the class of those under way, ORDER_NOW aside */
    size_t reply_peak;                /* a decaying maximum: how much one more read may weigh */
    struct buf out;
    struct request *awaited; /* nothing is sent before its reply: one packet, not two; or NULL */
    bool deferred;           /* the last output waited for reads: not twice in a row */
    struct list stranger;    /* engine->strangers.all; unlinked: it need not log in */
    size_t strange_bytes;    /* that are counted there */
    size_t host_bytes;       /* that the host has for it: session_set_host_bytes */
    struct audit_wait unaudited; /* nothing is sent before its ticket is on disk */
    bool untold;   /* its event did not get into the audit: nothing is sent any more */
    size_t unsent; /* bytes that were taken from `out` and are held until they have left */
    size_t share;  /* of the room for replies: what is in `out` and unsent, where that is much */
    size_t bytes;  /* that are counted in its account: of requests, queued ones, that share */

    struct multi *multi; /* between MULTI and EXEC; or NULL */
    size_t queued_bytes; /* of the arguments there */
    /* A command for the transaction has arrived. False: ask again in the next turn. */
    bool (*on_queued)(struct request *request);
    bool exec_refused;             /* one could not be queued */
    const struct command *refused; /* to which what follows belongs, so that it is refused, too: a
                                      MULTI, or a login that was refused as BUSY; or NULL */
    struct subscriber *subscriber; /* pubsub.c; NULL: listens to nothing */
    struct list held;              /* lease/held.c: granted to this connection */
    struct list places;            /* lease/queue.c: it asked last for these */
};

/* Does it have to log in? */
static inline bool session_is_stranger(const struct session *session)
{
    return !list_empty(&session->stranger);
}

/* There is news for the host, which hears of it at the end of the turn. */
static inline void session_mark_changed(struct session *session)
{
    if (list_empty(&session->changed))
        list_append(&session->engine->changed, &session->changed);
}

/* No more commands; close once all is replied and sent. */
static inline void session_end(struct session *session)
{
    session->ending = true;
    session_mark_changed(session);
}

/* Close now, whatever has not been sent. */
static inline void session_kill(struct session *session)
{
    session->killed = true;
    session_end(session);
}

/* Strangers hold too much: close now, with BUSY as the last word where it can be told, and drop
 * what it has sent. */
void session_make_room(struct session *session);
bool session_is_admin(const struct session *session);
/* Remember for ACL LOG what was denied; `reason` is a constant. */
void session_log_denial(struct session *session, const char *reason, struct bytes object,
                        struct bytes user);
/* Append what CLIENT LIST says of it: a line. */
void session_describe(const struct session *session, struct buf *text);
/* Send a reply that is complete, in its place in the order of replies. */
void session_answer(struct session *session, struct bytes reply);
/* So many bytes of arguments are queued between MULTI and EXEC now. */
void session_count_queued(struct session *session, size_t bytes);
/* They are this request's from now on, which is EXEC. */
void session_hand_over_queued(struct session *session, struct request *exec);
/* Something was written to `out` that answers no request: sends it. */
void session_pushed(struct session *session);

/* The name of who has logged in, or has shown a certificate. NULL: a client that is gone. */
static inline const char *session_user(const struct session *session)
{
    return session == NULL ? ACL_DEFAULT_USER : account_name(session->account);
}

/* Note an event in the audit, with the session's user and address. If it is a durable one, what the
 * session sends from now on waits until it is on disk. */
void session_audit(struct session *session, struct audit_note note);
/* The same for what a request has done, whose connection may be gone. */
void request_audit(const struct request *request, struct audit_note note);
/* May a command begin that may cause one of these events? False: the event would have to be on
 * disk, and the audit cannot be written; the request has failed. */
bool request_may_audit(struct request *request, uint32_t events);

/* For the history. NULL: a client that is gone. */
static inline struct history_client session_client(const struct session *session)
{
    if (session == NULL)
        return (struct history_client){BYTES_LITERAL(ACL_DEFAULT_USER), {"", 0}, {"", 0}};
    return (struct history_client){bytes_of(session_user(session)), bytes_of(session->name),
                                   bytes_of(session->peer)};
}

/* The same for who has sent a request. */
static inline struct history_client request_client(const struct request *request)
{
    const struct request_client *gone = request->client;

    if (request->session != NULL || gone == NULL)
        return session_client(request->session);
    return (struct history_client){bytes_of(gone->user), bytes_of(gone->name),
                                   bytes_of(gone->peer)};
}

/* 10.0.0.7 lib=redis-py(5.0.1) name=till: all connections of one program have that in common, and
 * those of its like on that machine. */
#define SESSION_LIKE_SIZE 320
void session_describe_like(const struct session *session, char text[SESSION_LIKE_SIZE]);
bool session_is_like(const struct session *session, const struct session *other);

/* A RESP2 connection that has subscribed may only do what concerns that. */
static inline bool session_only_listens(const struct session *session)
{
    return session->subscriber != NULL && !session->resp3;
}

#endif
