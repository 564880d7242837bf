/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP for operators, on the daemon's own loop: GET /health (JSON; 200, or 503 where the store does
 * not take writes) and GET /metrics (Prometheus text). No secrets, no changes, hence no password.
 */
#ifndef STOCKADE_SERVER_ADMIN_H
#define STOCKADE_SERVER_ADMIN_H

#include <stddef.h>
#include <uv.h>

#include "proxy/engine/engine.h"

struct admin;

/* Listen on `address` (address.h, no unix sockets), or on `inherited`, a socket that listens
 * already, and own that; -1: there is none. Loop and engine are borrowed. NULL: `why` is one line.
 */
struct admin *admin_open(uv_loop_t *loop, struct engine *engine, const char *address, int inherited,
                         char *why, size_t why_size);
/* Return the address with the port it got. */
const char *admin_address(const struct admin *admin);
/* Stop serving; the engine is not asked any more. The memory goes when the loop has closed the
 * handles. */
void admin_close(struct admin *admin);

#endif
