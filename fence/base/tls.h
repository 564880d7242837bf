/* SPDX-License-Identifier: Apache-2.0 */
/* TLS 1.2 and 1.3 by OpenSSL, for either end of a connection, without I/O: its owner moves the
 * bytes.
 *
 *   from the socket ──▶ tls_receive ──▶ plaintext          plaintext ──▶ tls_send ──▶ to the socket
 *                            └──▶ to the socket: handshakes, alerts, new keys
 *
 * What is to be sent is appended to a buffer of the caller's, who sends it whatever the state is: a
 * handshake that failed ends with an alert that tells the other end why. Nothing is kept here but
 * the part of a record that has not arrived whole.
 *
 * A client always verifies the server's certificate and its name. Peers cannot renegotiate. A
 * context and its connections belong to one thread. */
#ifndef STOCKADE_BASE_TLS_H
#define STOCKADE_BASE_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fence/base/bytes.h"

#define TLS_WHY_MAX     320
#define TLS_RECORD_MAX  16384            /* bytes of plaintext in one */
#define TLS_ENDS_SOON_S (14 * 24 * 3600) /* so long before its end a certificate is warned of */

/* Whom a server asks for a certificate. */
enum tls_clients {
    TLS_CLIENTS_NO,
    TLS_CLIENTS_OPTIONAL, /* one that is not good fails the handshake all the same */
    TLS_CLIENTS_REQUIRED,
};

/* Which name in a client's certificate is its user's. */
enum tls_user { TLS_USER_NO, TLS_USER_CN, TLS_USER_URI };

/* PEM files; NULL or empty: none. */
struct tls_files {
    const char *cert, *key; /* what this end shows. The chain begins with its own certificate; a
                               key that is in the same file need not be named */
    const char *ca; /* whom to believe; a client without it believes whom the system believes */
};

/* Certificates and rules, for any number of connections. */
struct tls_context;
/* NULL: `why` has one line, which names the file. The files are read now and not again. */
struct tls_context *tls_server(const struct tls_files *files, enum tls_clients clients,
                               char why[TLS_WHY_MAX]);
struct tls_context *tls_client(const struct tls_files *files, char why[TLS_WHY_MAX]);
/* The same context, for one more owner. */
struct tls_context *tls_context_share(struct tls_context *context);
/* When the first of the certificates that this end shows is good no longer, in seconds since 1970;
 * 0: it shows none. */
int64_t tls_context_ends_s(const struct tls_context *context);
/* Give it back. Connections that were opened with it live on. NULL is ignored. */
void tls_context_free(struct tls_context *context);

enum tls_state {
    TLS_HANDSHAKE,
    TLS_OPEN,
    TLS_ENDED,  /* the peer has said that nothing more comes; sending is still possible */
    TLS_FAILED, /* tls_why() says why. Send what there is to send, and close */
};

/* One connection. */
struct tls;
/* `name`: a client's; the name or address that the server's certificate has to have. */
struct tls *tls_open(struct tls_context *context, const char *name);
/* NULL is ignored. */
void tls_free(struct tls *tls);
/* Take what has arrived; nothing, to begin a client's handshake. Appends to `plain` at most
 * as many bytes as have arrived, and what was there already of a record (TLS_RECORD_MAX). */
enum tls_state tls_receive(struct tls *tls, struct bytes arrived, struct buf *plain,
                           struct buf *to_send);
/* Only in TLS_OPEN and TLS_ENDED. */
void tls_send(struct tls *tls, struct bytes plain, struct buf *to_send);
/* Say that nothing more comes. Once, in any state. */
void tls_end(struct tls *tls, struct buf *to_send);
enum tls_state tls_state(const struct tls *tls);
/* One line, for people; never what the peer has sent. */
const char *tls_why(const struct tls *tls);
/* For people: "TLSv1.3". */
const char *tls_version(const struct tls *tls);
/* Was the handshake a short one, with what was agreed on earlier? */
bool tls_was_resumed(const struct tls *tls);

/* The name in the peer's certificate, which was verified: its common name, or its one URI. False:
 * there is no certificate, no such name, more than one, or one with a zero in it or longer than
 * fits. */
bool tls_peer_common_name(const struct tls *tls, char *out, size_t size);
bool tls_peer_uri(const struct tls *tls, char *out, size_t size);
/* The user whom the certificate names in the way of this kind: a word of printable characters. */
bool tls_peer_user(const struct tls *tls, enum tls_user kind, char *out, size_t size);

#endif
