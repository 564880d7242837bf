/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/server/http.h"

#include <string.h>

#include "fence/base/json.h"
#include "proxy/server/page/page.h"

#define RETRY_SECONDS "2"

const char *http_header(struct MHD_Connection *connection, const char *name)
{
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

void http_resume(struct MHD_Connection *connection, const struct waker *waker)
{
    MHD_resume_connection(connection);
    waker->wake(waker->context);
}

enum MHD_Result http_queue(struct MHD_Connection *connection, unsigned status, const char *type,
                           struct MHD_Response *response)
{
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    MHD_add_response_header(response, "Content-Security-Policy", PAGE_POLICY);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    MHD_add_response_header(response, "Cross-Origin-Resource-Policy", "same-origin");
    return MHD_queue_response(connection, status, response);
}

static struct MHD_Response *response_of(struct bytes body)
{
    return MHD_create_response_from_buffer(body.len, (void *)(uintptr_t)body.data,
                                           MHD_RESPMEM_MUST_COPY);
}

enum MHD_Result http_reply(struct MHD_Connection *connection, unsigned status, const char *type,
                           struct bytes body)
{
    struct MHD_Response *response = response_of(body);

    if (response == NULL)
        return MHD_NO;
    enum MHD_Result queued = http_queue(connection, status, type, response);
    MHD_destroy_response(response);
    return queued;
}

enum MHD_Result http_refuse(struct MHD_Connection *connection, unsigned status, bool json,
                            const char *allow, const char *reason)
{
    struct buf body = {0};

    buf_append_text(&body, json ? "{\"error\":" : reason);
    if (json) {
        json_string(&body, bytes_of(reason));
        buf_append_text(&body, "}");
    }
    buf_append_text(&body, "\n");
    struct MHD_Response *response = response_of(buf_bytes(&body));
    buf_free(&body);
    if (response == NULL)
        return MHD_NO;
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, allow);
    else if (status == MHD_HTTP_UNAUTHORIZED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE,
                                "Basic realm=\"Stockade\", charset=\"UTF-8\"");
    else if (status == MHD_HTTP_SERVICE_UNAVAILABLE)
        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, RETRY_SECONDS);
    enum MHD_Result queued = http_queue(connection, status, json ? HTTP_JSON : HTTP_TEXT, response);
    MHD_destroy_response(response);
    return queued;
}
