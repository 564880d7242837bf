/* SPDX-License-Identifier: Apache-2.0 */
/* Where the daemon listens: 127.0.0.1:7379, [::1]:7379, localhost:7379, tls:HOST:PORT, unix:PATH.
 */
#ifndef STOCKADE_SERVER_ADDRESS_H
#define STOCKADE_SERVER_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "fence/base/uri.h"

/* Long enough for every text below: a unix path, or tls:, an IPv6 address, brackets and port. */
#define ADDRESS_TEXT_MAX 128

enum address_kind { ADDRESS_TCP, ADDRESS_TLS, ADDRESS_UNIX };

struct address {
    enum address_kind kind;
    char path[108];       /* ADDRESS_UNIX: a sun_path with its zero */
    struct uri_host host; /* else; port 0: any free one */
};

/* False: `why` says what is right. Nothing is resolved yet. */
bool address_parse(const char *text, struct address *address, char *why, size_t why_size);
/* Resolve the host (blocking): its first IPv4 address, or else the first of all. */
bool address_resolve(const struct address *address, struct sockaddr_storage *resolved, char *why,
                     size_t why_size);
/* "127.0.0.1:7379", "[::1]:7379", or "unix" for what is neither IPv4 nor IPv6. Returns `out`. */
const char *address_text(const struct sockaddr_storage *resolved, char out[ADDRESS_TEXT_MAX]);
/* Return whether it never leaves this machine: 127/8, ::1, ::ffff:127/104. */
bool address_is_loopback(const struct sockaddr_storage *resolved);

#endif
