/* SPDX-License-Identifier: Apache-2.0 */
/* Who takes locks by lock keys, and whether they present the tokens: a client that locks and writes
 * without its token is not fenced, and that is where a shop still oversells. It stands in INFO, and
 * in the log when it is seen for the first time.
 *
 * What is counted is presented to this daemon, or was asked for (LEASE resource OWNER value), to be
 * checked in another database. Where a guarded table's rows belong to the resource nothing is
 * counted: programs present its tokens in SQL of their own, or change no row. */
#ifndef STOCKADE_ENGINE_LOCK_CLIENTS_H
#define STOCKADE_ENGINE_LOCK_CLIENTS_H

#include <stdbool.h>

#include "fence/base/bytes.h"

struct engine;
struct session;
struct lock_client;
struct lock_clients;

struct lock_clients *lock_clients_new(struct engine *engine);
void lock_clients_free(struct lock_clients *clients);

/* All connections of one name, library and host are one client. It lives as long as the engine. */
struct lock_client *lock_client_of(struct session *session);
/* A lease that it took has begun. */
void lock_client_took(struct lock_client *client);
/* It has ended, and its token was presented or not. Counted at once, or when the store has said
 * what is guarded. */
void lock_client_ended(struct lock_client *client, struct bytes resource, bool presented);
/* Append INFO's lines. */
void lock_clients_print(const struct lock_clients *clients, struct buf *out);

#endif
