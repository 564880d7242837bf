/* SPDX-License-Identifier: Apache-2.0 */
/* What the page shows without being asked: the state of all, its last minutes, and the streams
 * (server-sent events) over which browsers are told. */
#ifndef STOCKADE_SERVER_LIVE_H
#define STOCKADE_SERVER_LIVE_H

#include <microhttpd.h>
#include <stdbool.h>
#include <uv.h>

#include "proxy/engine/engine.h"
#include "proxy/engine/show/show.h"
#include "proxy/server/http.h"

#define LIVE_STREAMS_MAX 128

struct live;

/* Loop and engine are borrowed; `service_uri`, without a password, is copied. */
struct live *live_new(uv_loop_t *loop, struct engine *engine, const char *service_uri,
                      struct waker waker);
/* Append the state as /api/state has it. */
void live_state(struct live *live, struct reader reader, bool may_revoke, struct buf *json);
/* Queue a stream as the reply; it ends when the users change. False: there is no room for another
 * one (LIVE_STREAMS_MAX), or the page is closing. */
bool live_stream(struct live *live, struct MHD_Connection *connection, struct reader reader,
                 bool may_revoke, enum MHD_Result *queued);
/* Wake what is suspended, before the HTTP server stops: no stream lasts. */
void live_end(struct live *live);
/* Free it, once no stream is left. `closed` is called when the loop has closed its timer. */
void live_close(struct live *live, void (*closed)(void *context), void *context);

#endif
