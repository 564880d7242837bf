/* SPDX-License-Identifier: Apache-2.0 */
/* Replies of the admin address: all of them have the same headers, by which a browser keeps other
 * sites away from them. */
#ifndef STOCKADE_SERVER_HTTP_H
#define STOCKADE_SERVER_HTTP_H

#include <microhttpd.h>
#include <stdbool.h>

#include "fence/base/bytes.h"

#define HTTP_JSON "application/json"
#define HTTP_TEXT "text/plain; charset=utf-8"

/* Queue a reply; the body is copied. */
enum MHD_Result http_reply(struct MHD_Connection *connection, unsigned status, const char *type,
                           struct bytes body);
/* Queue a refusal: {"error":"..."} for scripts, or a line for people. Some have a header that
 * follows from the status: what is allowed (`allow`, of 405), how to log in, when to ask again. */
enum MHD_Result http_refuse(struct MHD_Connection *connection, unsigned status, bool json,
                            const char *allow, const char *reason);
/* Queue a response of the caller's, who keeps it. */
enum MHD_Result http_queue(struct MHD_Connection *connection, unsigned status, const char *type,
                           struct MHD_Response *response);
/* Has libmicrohttpd run soon, as has to be asked for where it did not call. */
struct waker {
    void (*wake)(void *context);
    void *context;
};
/* Go on with a connection that was suspended. */
void http_resume(struct MHD_Connection *connection, const struct waker *waker);
/* Return a header of the request, or NULL. */
const char *http_header(struct MHD_Connection *connection, const char *name);

#endif
