/* SPDX-License-Identifier: Apache-2.0 */
/* The page's JSON: /api/leases, /api/resource, /api/refusals, and POST /api/revoke. Who may ask has
 * been decided before. A request may have to wait for the store, or for its turn; its connection is
 * suspended meanwhile. */
#ifndef STOCKADE_SERVER_API_H
#define STOCKADE_SERVER_API_H

#include <microhttpd.h>
#include <stdbool.h>
#include <uv.h>

#include "proxy/engine/engine.h"
#include "proxy/engine/show/show.h"
#include "proxy/server/http.h"

struct api;
struct exchange; /* one request and its answer */

enum api_call { API_LEASES, API_RESOURCE, API_REFUSALS, API_REVOKE };

/* Loop and engine are borrowed. `show_values`: those of keys, too. */
struct api *api_new(uv_loop_t *loop, struct engine *engine, bool show_values, struct waker waker);
/* Begin. `body` is borrowed until api_forget(); `peer`, for the log, and `user` are copied. */
struct exchange *api_begin(struct api *api, struct MHD_Connection *connection, enum api_call call,
                           struct bytes body, const char *peer, struct reader reader,
                           const char *user);
/* Queue the answer, or suspend the connection until it is there. */
enum MHD_Result api_go_on(struct exchange *exchange);
/* The request is over, however it ended. */
void api_forget(struct exchange *exchange);
/* Wake what is suspended, before the HTTP server stops: the engine must be idle. */
void api_end(struct api *api);
/* Free it, once no exchange is left. `closed` is called when the loop has closed its timer. */
void api_close(struct api *api, void (*closed)(void *context), void *context);

#endif
