/* SPDX-License-Identifier: Apache-2.0 */
/* A request: one command of one connection, from its last byte in to its reply out. One allocation
 * holds it and its arguments.
 *
 *   parsed ─▶ (held back by order or back-pressure) ─▶ started ─▶ finished ─▶ replied, freed
 *
 * The session owns it until it is started. From then on its command owns it and calls
 * request_finish exactly once; the session only keeps its place in the order of replies. Where the
 * connection goes first, `session` turns NULL, and the request is freed when it has finished. */
#ifndef STOCKADE_ENGINE_REQUEST_H
#define STOCKADE_ENGINE_REQUEST_H

#include "fence/base/err.h"
#include "fence/base/list.h"
#include "proxy/engine/acl/acl.h"
#include "proxy/engine/write/plan.h"
#include "proxy/resp/resp.h"
#include "store/store.h"

struct engine;
struct lock_script;
struct session;
struct request_client;

/* Where a request stands. */
enum request_stage {
    REQUEST_PARSED,   /* it waits for its turn */
    REQUEST_QUEUED,   /* so it does between MULTI and EXEC, to become a part of the transaction */
    REQUEST_STARTED,  /* its reply has a place in the order */
    REQUEST_FINISHED, /* its reply is complete */
};

struct request {
    /* The loop's. */
    struct list link;              /* in session->pending, in order of arrival */
    struct session *session;       /* NULL: the connection is gone */
    struct request_client *client; /* whose it was, for the history and the audit; else NULL */
    struct engine *engine;
    const struct command *command;
    void (*on_finished)(struct request *); /* the reply is complete; who gets this owns it */
    void *state;                           /* the command's own (a lease command's steps) */
    void (*free_state)(void *state);       /* NULL: with free() */
    size_t size;                           /* bytes of its arguments, for the session's bound */
    size_t weight;                         /* of a read under way, in engine->reads_weight */
    enum command_order order;
    enum request_stage stage;
    bool waited; /* in line, for others */
    int64_t started_us;
    bool usual_size;            /* it may be used again */
    struct request *next_spare; /* in engine->spares */

    /* Set before the store's thread sees it, read-only there. */
    bool resp3;
    size_t argc;
    struct bytes *argv;
    struct buf scoped;                /* names that are its user's own: request_scope */
    struct plan plan;                 /* of a data command */
    const struct lock_script *script; /* of EVAL and EVALSHA, once it was found */
    /* Which names may be shown, where not all may: acl_may_touch. `acl` is kept. */
    const struct acl_user *rights;
    struct acl *acl;
    size_t looked; /* so many of its names `rights` permit: rights_look */

    /* The store's between submit and done, then the loop's. */
    struct buf reply;
    size_t share;     /* of the room for replies */
    size_t left_at;   /* where the reply, which ends with it, tells what is left of a lease, */
    int64_t until_ms; /* which ends then; 0: it does not */
    int64_t then;     /* a number behind that; 0: none */
    enum stk_error verdict;            /* what the token rule said; STK_OK: accepted */
    const struct claim *refused_claim; /* which claim of the plan was refused; or NULL */
    int64_t newest;                    /* the newest token of its resource */
    struct bytes refused_name;         /* of the resource; borrowed from the arguments */
    bool replayed;                     /* the reply is a receipt's */
    struct store_op op;
};

/* Make a request with a copy of the arguments. Who starts it sets on_finished. */
struct request *request_new(struct session *session, const struct command *command,
                            const struct bytes *argv, size_t argc);
void request_free(struct request *request);
/* Free those that are kept to be used again, when the engine ends. */
void requests_free_spares(struct engine *engine);

/* It is its user's from now on, by the users in force. */
void request_take_rights(struct request *request, const struct acl_user *user);
/* Its connection closes: keep who has sent it. */
void request_orphan(struct request *request);

/* Bring engine->times up to date. */
void requests_count_times(struct engine *engine);

/* Finish the request, whose reply is complete: hand it to on_finished. */
void request_finish(struct request *request);
/* The same for a command that has changed nothing and whose reply may be large: where there is no
 * room for it the reply is BUSY. */
void request_show(struct request *request);
/* End the reply with what is left of a lease, in milliseconds: a reply that has to wait before it
 * leaves tells what is left by then; one that has more to tell than that is null where nothing is.
 */
void request_tell_left(struct request *request, int64_t left_ms);
/* The same, with one more number behind it, which is not 0. */
void request_tell_left_then(struct request *request, int64_t left_ms, int64_t then);
/* It leaves now. */
void request_leaves(struct request *request);
/* Take room for a reply of so many bytes, before it is made. False: the request has failed. */
bool request_room(struct request *request, size_t bytes);
/* Finish the request with an error as the whole reply; `format` NULL: with the code's usual text,
 * and for STK_STORE with what request->op says of why. */
void request_fail(struct request *request, enum stk_error error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Hand request->op to the store: `run` runs on its thread, then `done` on the loop's. STK_BUSY:
 * the queue is full, and neither will be called. */
enum stk_error request_submit(struct request *request, bool writes, store_run *run,
                              store_done *done);
/* The same, but the request fails where the queue is full. */
void request_run(struct request *request, bool writes, store_run *run, store_done *done);
/* For `done`: where the store failed or the token rule refused, fails the request, counts it, and
 * returns true. */
bool request_refused(struct request *request);
/* As a `done`: finishes the request with the reply that `run` has made, unless that failed. The
 * second one is for a large reply, as request_show. */
void request_done(struct store_op *op);
void request_show_done(struct store_op *op);
/* Count the verdict, where it is a refusal by the token rule. */
void engine_count_verdict(struct engine *engine, enum stk_error verdict);

static inline struct request *request_of_op(struct store_op *op)
{
    return list_entry(op, struct request, op);
}

#endif
