/* SPDX-License-Identifier: Apache-2.0 */
/* Who may come in at the admin address: not the pages of other sites, which a browser on this
 * machine may have open, nor names that their owners have pointed at this address (DNS rebinding).
 * Only rules here; the requests are admin.c's. */
#ifndef STOCKADE_SERVER_DOORS_H
#define STOCKADE_SERVER_DOORS_H

#include <stdbool.h>
#include <stddef.h>

/* What is known of a request. NULL: it does not have that header. */
struct visitor {
    const char *host, *origin, *fetch_site, *content_type;
    bool needs_login;
    bool has_rights;     /* as a user's; else only administrators may do things */
    bool by_password;    /* it has given one, of HTTP Basic, that is right */
    bool by_certificate; /* its certificate names a user */
    bool may;            /* its user has the right that the request needs */
    bool forwarded;      /* it has Forwarded or X-Forwarded-... */
    bool loopback;       /* its connection never left this machine */
    bool tls;            /* nobody on the way could read it */
};

struct doors {
    const char *const *names; /* of --admin-name; borrowed */
    size_t names_count;
};

enum door {
    DOOR_OPEN,
    DOOR_HOST,     /* the Host header is no name of this server */
    DOOR_SITE,     /* the request comes from another site's page */
    DOOR_FAR,      /* a password is only taken over loopback or TLS */
    DOOR_PASSWORD, /* there is one, and this is not it */
    DOOR_RIGHTS,   /* not an administrator */
    DOOR_USER,     /* a user without the right */
    DOOR_TYPE,     /* its body is not said to be JSON */
};

/* May a page be shown to this visitor? */
enum door doors_page(const struct doors *doors, const struct visitor *visitor);
/* The same for what scripts ask for: the page's own, and those on the command line. */
enum door doors_read(const struct doors *doors, const struct visitor *visitor);
/* The same for what changes something. */
enum door doors_change(const struct doors *doors, const struct visitor *visitor);
/* What is wrong, for people. */
const char *doors_reason(enum door door);

/* Is this a name that --admin-name takes? */
bool doors_name_is_valid(const char *name);
/* Does a Host header name this server: by an address, as localhost, or by one of its names? */
bool doors_host_is_known(const struct doors *doors, const char *host);

#endif
