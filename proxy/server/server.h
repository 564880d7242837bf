/* SPDX-License-Identifier: Apache-2.0 */
/* The sockets of the RESP side: listeners and connections on a libuv loop. It moves bytes between
 * sockets and the engine's sessions and knows nothing of what they mean.
 *
 *   server_new ─▶ server_bind ... ─▶ server_open ─▶ server_stop_listening ─▶ server_hang_up
 *              ─▶ server_close ─▶ (the loop runs dry) ─▶ server_free
 *
 * Calls may skip steps forward, as a start that failed half-way does. One thread, the loop's. */
#ifndef STOCKADE_SERVER_SERVER_H
#define STOCKADE_SERVER_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "fence/base/log.h"
#include "fence/base/tls.h"
#include "proxy/engine/engine.h"

struct server;

/* Make a server; loop and log are borrowed. */
struct server *server_new(uv_loop_t *loop, const struct log *log);
/* Take one address (address.h); nobody can connect yet. False: `why` is one line. */
bool server_bind(struct server *server, const char *address, char *why, size_t why_size);
/* From here on server_bind only looks whether an address makes sense: a daemon may have it. */
void server_only_look(struct server *server);
/* Take a listening socket that was inherited, and own it; its file stays. False: `why` is one line.
 */
bool server_take(struct server *server, int fd, char *why, size_t why_size);
/* Accept from here on; sessions are opened in `engine`. False: `why` is one line. */
bool server_open(struct server *server, struct engine *engine, char *why, size_t why_size);
/* Return the i-th address it is bound to, with the port it got ("127.0.0.1:41233",
 * "tls:127.0.0.1:41234", "unix:PATH"), or NULL behind the last. */
const char *server_address(const struct server *server, size_t i);
/* Return whether it is bound to a tls: address. */
bool server_needs_tls(const struct server *server);
/* TLS connections that come from here on use these certificates. The context is taken over; it has
 * to be there before the first comes. */
void server_set_tls(struct server *server, struct tls_context *context, enum tls_user user);
/* Return an address that can be reached from other machines, or NULL. `tls_too`: tls:
 * addresses count as well. */
const char *server_exposed(const struct server *server, bool tls_too);

/* Close the listeners; socket files are removed. */
void server_stop_listening(struct server *server);
/* Return whether all replies have left. */
bool server_is_flushed(const struct server *server);
/* End every session, and close its connection, at once or when its client has what was sent. */
void server_hang_up(struct server *server);
/* Return whether all connections have closed. */
bool server_is_empty(const struct server *server);
/* Close what is left. */
void server_close(struct server *server);
/* Free it, once the loop has run dry. */
void server_free(struct server *server);

#endif
