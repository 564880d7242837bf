/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing and printing of addresses. */
#include "proxy/server/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "fence/base/plain.h"

static bool parse_unix(const char *path, struct address *address, char *why, size_t why_size)
{
    size_t len = strlen(path);

    if (len == 0 || len >= sizeof address->path) {
        snprintf(why, why_size, "a socket's path has 1 to %zu bytes", sizeof address->path - 1);
        return false;
    }
    address->kind = ADDRESS_UNIX;
    memcpy(address->path, path, len + 1);
    return true;
}

bool address_parse(const char *text, struct address *address, char *why, size_t why_size)
{
    struct uri_reader reader = {.at = text};
    struct uri_host *host = &address->host;

    *address = (struct address){0};
    if (uri_skip(&reader, "unix:"))
        return parse_unix(reader.at, address, why, why_size);
    if (uri_skip(&reader, "tls:"))
        address->kind = ADDRESS_TLS;
    if (!uri_take_host_name(&reader, host) || !uri_skip(&reader, ":")) {
        snprintf(why, why_size, "expected HOST:PORT, [IPV6]:PORT, tls:HOST:PORT or unix:PATH");
        return false;
    }
    if (!uri_take_number(&reader, strlen(reader.at), 0, 65535, &host->port, "port")) {
        snprintf(why, why_size, "a port is a number from 0 (any free one) to 65535");
        return false;
    }
    return true;
}

bool address_resolve(const struct address *address, struct sockaddr_storage *resolved, char *why,
                     size_t why_size)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *found;
    char port[16];

    snprintf(port, sizeof port, "%d", address->host.port);
    int failed = getaddrinfo(address->host.name, port, &hints, &found);
    if (failed != 0) {
        snprintf(why, why_size, "%s", plain_host_error(failed));
        return false;
    }
    const struct addrinfo *best = found;
    while (best->ai_family != AF_INET && best->ai_next != NULL)
        best = best->ai_next;
    if (best->ai_family != AF_INET)
        best = found;
    memset(resolved, 0, sizeof *resolved);
    memcpy(resolved, best->ai_addr, best->ai_addrlen);
    freeaddrinfo(found);
    return true;
}

const char *address_text(const struct sockaddr_storage *resolved, char out[ADDRESS_TEXT_MAX])
{
    char host[INET6_ADDRSTRLEN] = "";

    if (resolved->ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)resolved;
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
        snprintf(out, ADDRESS_TEXT_MAX, "%s:%d", host, ntohs(v4->sin_port));
    } else if (resolved->ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const void *)resolved;
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
        snprintf(out, ADDRESS_TEXT_MAX, "[%s]:%d", host, ntohs(v6->sin6_port));
    } else {
        snprintf(out, ADDRESS_TEXT_MAX, "unix");
    }
    return out;
}

bool address_is_loopback(const struct sockaddr_storage *resolved)
{
    if (resolved->ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)resolved;
        return ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    if (resolved->ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const void *)resolved;
        return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) ||
               (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) &&
                v6->sin6_addr.s6_addr[12] == IN_LOOPBACKNET);
    }
    return false;
}
