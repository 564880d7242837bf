/* SPDX-License-Identifier: Apache-2.0 */
/* A connection of the command line to a Stockade or Redis server: hiredis, blocking, with a limit
 * on every wait.
 *
 * A reply belongs to the caller (freeReplyObject). No reply (NULL) means that the connection is of
 * no further use and `failure` says why; an error reply is a reply. */
#ifndef STOCKADE_TOOLS_CLIENT_H
#define STOCKADE_TOOLS_CLIENT_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>

#include "fence/base/uri.h"
#include "tools/failure.h"

enum { CLIENT_LIMIT_MS = 5000 }; /* for a command that waits for nothing */

struct client_uri {
    char text[1536]; /* the whole of it */
    bool is_unix;
    char path[108];
    struct uri_host host;
    struct uri_login login; /* AUTH where it has a password */
    int db;                 /* SELECTed where not 0 */
};

/* Read a URI of the scheme stockade (see proxy/client/target.h; no sqlite:), or of redis:
 * redis://[[user]:password@]host[:6379][/db] or redis+unix:PATH. */
bool client_uri_parse(struct client_uri *uri, const char *scheme, const char *text,
                      struct failure *failure);

struct client {
    redisContext *context; /* NULL: not connected */
    struct failure failure;
};

bool client_open(struct client *client, const struct client_uri *uri);
void client_close(struct client *client);
/* Set how long one reply may take from now on. */
bool client_limit(struct client *client, int64_t limit_ms);

/* Format as redisCommand's: %s, %b, %lld. */
redisReply *client_call(struct client *client, const char *format, ...);
/* A pipeline: append several, then take their replies in order with client_next. */
void client_append(struct client *client, const char *format, ...);
redisReply *client_next(struct client *client);

/* Return whether the reply is an error whose first word is `code`. */
bool client_is_error(const redisReply *reply, const char *code);
/* Read the whole of a string or integer reply as a number. */
bool client_to_int64(const redisReply *reply, int64_t *value);
/* Return what an unexpected reply says, for a message. */
const char *client_text(const redisReply *reply);

/* Call, and drop the reply. False: it was an error. */
bool client_do(struct client *client, const char *format, ...);

struct lease {
    int64_t token;
    int64_t ttl_ms; /* left when the reply was sent */
};

enum acquire_reply {
    ACQUIRE_GRANTED,
    ACQUIRE_HELD,    /* null: another holds it, the wait ran out */
    ACQUIRE_REFUSED, /* an error reply */
};

/* Read the reply to ACQUIRE. */
enum acquire_reply lease_of(const redisReply *reply, struct lease *lease);
/* Return whether RELEASE was answered by OK, by STALE (the lease had run out) or by BUSY (it will
 * run out): none of these delays anybody for long. False for any other error, and for NULL. */
bool lease_released(const redisReply *reply);
/* Take the reply to ACQUIRE and free it; false where there is no grant. */
bool lease_taken(struct client *client, const char *key, redisReply *reply, struct lease *lease);
/* ACQUIRE, FENCED `token` COMMAND KEY [VALUE], RELEASE. `value` NULL: the command has none. */
bool lease_write(struct client *client, const char *command, const char *key, const char *value);

#endif
