/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/server/handshake.h"

#include "fence/base/check.h"

enum {
    HANDSHAKES_MAX = 256,
    HANDSHAKE_MS = 10000,
    TURN_MS = 1000,
    LOGGED_MS = 1000, /* one that failed is logged, others within this are not */
};

void handshakes_init(struct handshakes *handshakes)
{
    list_init(&handshakes->to_come);
    list_init(&handshakes->under_way);
}

void handshakes_set_tls(struct handshakes *handshakes, struct tls_context *context,
                        enum tls_user user)
{
    tls_context_free(handshakes->context);
    handshakes->context = context;
    handshakes->user = user;
}

/* The oldest come first, and all of them have the same time. */
static void end_late(struct handshakes *handshakes, struct list *list)
{
    while (!list_empty(list)) {
        struct handshake *handshake = list_entry(list->next, struct handshake, link);
        if (handshake->until_ms > uv_now(handshakes->loop))
            return;
        handshakes->late(handshake);
    }
}

/* Each that is late lets the next one begin. */
static void end_long_turns(struct handshakes *handshakes)
{
    while (!list_empty(&handshakes->to_come)) {
        struct handshake *handshake =
            list_entry(handshakes->under_way.next, struct handshake, link);
        if (handshake->turn_ms > uv_now(handshakes->loop))
            return;
        handshakes->late(handshake);
    }
}

void handshakes_tick(struct handshakes *handshakes)
{
    end_late(handshakes, &handshakes->to_come);
    end_late(handshakes, &handshakes->under_way);
    end_long_turns(handshakes);
}

bool handshakes_are_over(const struct handshakes *handshakes)
{
    return list_empty(&handshakes->under_way) && list_empty(&handshakes->to_come);
}

void handshakes_free(struct handshakes *handshakes)
{
    check(handshakes_are_over(handshakes));
    check_nought("handshakes under way", handshakes->count);
    tls_context_free(handshakes->context);
}

void handshake_init(struct handshake *handshake)
{
    list_init(&handshake->link);
}

bool handshake_goes_on(const struct handshake *handshake)
{
    return !list_empty(&handshake->link);
}

/* Begin those for which there is room, the oldest first. */
static void begin(struct handshakes *handshakes)
{
    struct list *link;

    while (handshakes->count < HANDSHAKES_MAX && (link = list_pop(&handshakes->to_come)) != NULL) {
        struct handshake *handshake = list_entry(link, struct handshake, link);
        handshake->turn_ms = uv_now(handshakes->loop) + TURN_MS;
        list_append(&handshakes->under_way, &handshake->link);
        handshakes->count++;
        handshakes->begin(handshake, tls_open(handshakes->context, NULL));
    }
}

void handshake_wait(struct handshakes *handshakes, struct handshake *handshake)
{
    handshake->until_ms = uv_now(handshakes->loop) + HANDSHAKE_MS;
    list_append(&handshakes->to_come, &handshake->link);
    begin(handshakes);
}

void handshake_end(struct handshakes *handshakes, struct handshake *handshake)
{
    list_remove(&handshake->link);
    if (handshake->turn_ms == 0)
        return;
    handshakes->count--;
    begin(handshakes);
}

const char *handshake_user(const struct handshakes *handshakes, const struct tls *tls,
                           char name[USER_NAME_MAX + 1])
{
    return tls_peer_user(tls, handshakes->user, name, USER_NAME_MAX + 1) ? name : NULL;
}

void handshake_log_failed(struct handshakes *handshakes, const union socket *socket,
                          const char *why)
{
    uint64_t now_ms = uv_now(handshakes->loop);
    char peer[ADDRESS_TEXT_MAX];

    if (handshakes->logged_ms != 0 && now_ms - handshakes->logged_ms < LOGGED_MS)
        return;
    handshakes->logged_ms = now_ms;
    socket_peer(socket, false, peer);
    log_info(handshakes->log, "%sthe TLS handshake with %s failed: %s", handshakes->door, peer,
             why);
}

bool handshake_is_tls(struct bytes first)
{
    return first.len > 1 && first.data[0] == 0x16 && first.data[1] == 3;
}

bool handshake_is_text(struct bytes first)
{
    return first.data[0] >= ' ';
}
