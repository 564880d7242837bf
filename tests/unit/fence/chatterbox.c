/* SPDX-License-Identifier: Apache-2.0 */
/* See chatterbox.h. */
#include "tests/unit/fence/chatterbox.h"

#include <netinet/in.h>

#include "fence/base/mem.h"
#include "tests/unit/test.h"

struct visitor {
    uv_tcp_t tcp;
    uv_write_t write;
};

static void on_visitor_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void on_visitor_read(uv_stream_t *stream, ssize_t len, const uv_buf_t *buf)
{
    (void)buf;
    if (len < 0)
        uv_close((uv_handle_t *)stream, on_visitor_closed);
}

static void on_visitor_alloc(uv_handle_t *handle, size_t size, uv_buf_t *buf)
{
    static char sink[65536];

    (void)handle;
    (void)size;
    *buf = uv_buf_init(sink, sizeof sink);
}

static void on_visitor(uv_stream_t *listener, int status)
{
    struct chatterbox *box = listener->data;
    struct visitor *visitor = mem_zalloc(sizeof *visitor);
    uv_buf_t says = uv_buf_init((char *)(uintptr_t)box->says, (unsigned)box->len);

    assert_int_equal(status, 0);
    uv_tcp_init(listener->loop, &visitor->tcp);
    visitor->tcp.data = visitor;
    assert_int_equal(uv_accept(listener, (uv_stream_t *)&visitor->tcp), 0);
    box->visitors++;
    if (box->len == 0) {
        uv_close((uv_handle_t *)&visitor->tcp, on_visitor_closed);
        return;
    }
    uv_write(&visitor->write, (uv_stream_t *)&visitor->tcp, &says, 1, NULL);
    uv_read_start((uv_stream_t *)&visitor->tcp, on_visitor_alloc, on_visitor_read);
}

void chatterbox_open(struct chatterbox *box, struct rig *rig, const char *says, size_t len)
{
    struct sockaddr_in address;
    struct sockaddr_storage bound;
    int size = sizeof bound;

    *box = (struct chatterbox){.says = says, .len = len};
    uv_tcp_init(&rig->loop, &box->listener);
    box->listener.data = box;
    uv_ip4_addr("127.0.0.1", 0, &address);
    assert_int_equal(uv_tcp_bind(&box->listener, (struct sockaddr *)&address, 0), 0);
    assert_int_equal(uv_listen((uv_stream_t *)&box->listener, 16, on_visitor), 0);
    uv_tcp_getsockname(&box->listener, (struct sockaddr *)&bound, &size);
    box->port = ntohs(((struct sockaddr_in *)&bound)->sin_port);
}

void chatterbox_close(struct chatterbox *box, struct rig *rig)
{
    uv_close((uv_handle_t *)&box->listener, NULL);
    rig_turn(rig);
}
