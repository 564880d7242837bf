/* SPDX-License-Identifier: Apache-2.0 */
/* From a name to a connection: names are resolved on libuv's threads, hiredis gets addresses only
 * (its own getaddrinfo would block the loop). A name may have several: an attempt tries them in
 * turn, each with the full time limit. */
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"
#include "fence/lease/redis/link_impl.h"

/* A lookup cannot always be stopped; it is left alone then and frees itself. */
struct link_resolving {
    uv_getaddrinfo_t request;
    struct redis_link *link; /* NULL: nobody waits for it any more */
};

static void connect_next(struct redis_link *link)
{
    char why[128];
    bool local = link->uri.kind == LEASE_URI_REDIS_UNIX;
    const char *address = local ? link->uri.path : link->addresses[link->addresses_tried];

    link->addresses_tried++;
    link_enter(link, LINK_CONNECTING);
    link->wire = wire_open(link->env.loop, address, local ? 0 : link->uri.hosts[0].port,
                           &link_wire_events, link, why, sizeof why);
    if (link->wire == NULL)
        link_fail(link, why);
    else
        link->handles++;
}

static void keep_address(struct redis_link *link, int family, const void *address)
{
    if (link->addresses_count < LINK_ADDRESSES_MAX)
        inet_ntop(family, address, link->addresses[link->addresses_count++], INET6_ADDRSTRLEN);
}

static void keep_addresses(struct redis_link *link, const struct addrinfo *found)
{
    for (; found != NULL; found = found->ai_next) {
        const void *address = found->ai_addr;
        if (found->ai_family == AF_INET)
            keep_address(link, AF_INET, &((const struct sockaddr_in *)address)->sin_addr);
        else if (found->ai_family == AF_INET6)
            keep_address(link, AF_INET6, &((const struct sockaddr_in6 *)address)->sin6_addr);
    }
}

static void on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *found)
{
    struct link_resolving *resolving = request->data;
    struct redis_link *link = resolving->link;

    if (link != NULL)
        link->resolving = NULL;
    if (link != NULL && link->state == LINK_RESOLVING) {
        char why[128];
        if (status == 0)
            keep_addresses(link, found);
        if (link->addresses_count > 0) {
            connect_next(link);
        } else {
            snprintf(why, sizeof why, "the name cannot be resolved: %s",
                     status == 0 ? "no address" : uv_strerror(status));
            link_fail(link, why);
        }
    }
    uv_freeaddrinfo(found);
    free(resolving);
}

static void resolve(struct redis_link *link)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    char port[8];

    link_enter(link, LINK_RESOLVING);
    if (link->resolving != NULL) /* an earlier attempt's, still under way: its answer will do */
        return;
    link->resolving = mem_zalloc(sizeof *link->resolving);
    link->resolving->link = link;
    link->resolving->request.data = link->resolving;
    snprintf(port, sizeof port, "%d", link->uri.hosts[0].port);
    int status = uv_getaddrinfo(link->env.loop, &link->resolving->request, on_resolved,
                                link->uri.hosts[0].name, port, &hints);
    if (status != 0) {
        free(link->resolving);
        link->resolving = NULL;
        link_fail(link, uv_strerror(status));
    }
}

void link_reach(struct redis_link *link, bool last)
{
    unsigned char address[sizeof(struct in6_addr)];

    if (link->addresses_tried == link->addresses_count) {
        link->addresses_tried = link->addresses_count = 0;
        if (!link_locate(link, last))
            return;
        if (link->uri.kind == LEASE_URI_REDIS_UNIX)
            link->addresses_count = 1; /* its path */
        else if (inet_pton(AF_INET, link->uri.hosts[0].name, address) == 1)
            keep_address(link, AF_INET, address);
        else if (inet_pton(AF_INET6, link->uri.hosts[0].name, address) == 1)
            keep_address(link, AF_INET6, address);
    }
    if (link->addresses_count > 0)
        connect_next(link);
    else
        resolve(link);
}

void link_stop_resolving(struct redis_link *link)
{
    if (link->resolving == NULL)
        return;
    link->resolving->link = NULL;
    uv_cancel((uv_req_t *)&link->resolving->request);
    link->resolving = NULL;
}
