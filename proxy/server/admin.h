/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP for operators, on the daemon's own loop: the page and what it asks for (/api/...), /health
 * (JSON; 200, or 503 where the store does not take writes), /ready (503 where no lease can be
 * granted) and /metrics. Who may ask for what is in doors.h. */
#ifndef STOCKADE_SERVER_ADMIN_H
#define STOCKADE_SERVER_ADMIN_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "fence/base/log.h"
#include "fence/base/tls.h"
#include "proxy/engine/engine.h"

struct admin;

/* All borrowed; names live as long as the admin. */
struct admin_options {
    const char *address;      /* address.h, no unix sockets */
    int inherited;            /* a socket that is bound already, which is owned; -1: none */
    const char *service_uri;  /* the lease service, without a password; copied */
    const char *const *names; /* --admin-name */
    size_t names_count;
    bool show_values;        /* --page-values show */
    struct tls_context *tls; /* shared, of a tls: address; else NULL */
    enum tls_user tls_user;
    const struct log *log;
};

/* Return whether the address makes sense, and in `exposed` whether other machines reach it. False:
 * `why` is one line. */
bool admin_look(const char *address, bool *exposed, char *why, size_t why_size);
/* The same of a socket that is bound. */
bool admin_socket_is_exposed(int fd);
/* Return a socket that is bound to it, for `inherited`, or -1: `why` is one line. */
int admin_bind(const char *address, char *why, size_t why_size);
/* Listen. Loop and engine are borrowed. NULL: `why` is one line. */
struct admin *admin_open(uv_loop_t *loop, struct engine *engine,
                         const struct admin_options *options, char *why, size_t why_size);
/* New TLS connections use this context, which is shared. */
void admin_set_tls(struct admin *admin, struct tls_context *tls, enum tls_user user);
/* Return the address with the port it got. */
const char *admin_address(const struct admin *admin);
/* Stop serving; the engine is not asked any more. The memory goes when the loop has closed the
 * handles. */
void admin_close(struct admin *admin);

#endif
