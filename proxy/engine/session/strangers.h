/* SPDX-License-Identifier: Apache-2.0 */
/* Strangers: connections that have to log in, and have not. Anybody can open one, and send what he
 * likes, so what all of them hold together is bounded: their state, input, requests, replies and
 * TLS. Over the bound the oldest are closed, for who knows a password logs in at once. Nothing of a
 * stranger counts in what is bounded for others: no user's bytes, no room for replies. */
#ifndef STOCKADE_ENGINE_STRANGERS_H
#define STOCKADE_ENGINE_STRANGERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fence/base/list.h"
#include "proxy/engine/session/replies.h"

/* As counted. What it costs is up to half more: malloc's holes, a chain of certificates in a
 * handshake, connections that are being closed. */
#define STRANGERS_BYTES_MAX   (40 << 20)
#define STRANGER_INPUT_MAX    (16 << 10)  /* of one: bytes kept unparsed, and read at once */
#define STRANGER_OUTPUT_MAX   REPLY_SMALL /* unsent bytes beyond which no command is started */
#define STRANGER_REQUESTS_MAX 16          /* whose replies have to wait, for the audit */

struct engine;
struct session;

struct strangers {
    struct list all; /* the sessions, the oldest first */
    size_t bytes;    /* that they hold */
    size_t bytes_max;
    int64_t said_ms; /* when one that was closed was logged last */
    /* All hold too much: this one is to close, and gives back its memory at once. */
    void (*on_too_much)(struct session *session);
};

/* The session has to log in: closes nobody as yet, for its input may be in use. */
void strangers_enter(struct session *session);
/* It need not any more, or ends. */
void strangers_leave(struct session *session);
/* It may hold more or less now, and is not in the middle of its input. Closes the oldest ones,
 * itself or others, as long as all hold too much: they end with this turn. */
void strangers_count(struct session *session);

#endif
