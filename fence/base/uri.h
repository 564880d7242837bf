/* SPDX-License-Identifier: Apache-2.0 */
/* URIs and addresses as people write them: those of lease services, daemons and clients.
 *
 *   scheme://[[user]:password@]host[:port][,host[:port]...][/path][?option=value[&option=value...]]
 *   scheme:path
 *   host:port
 *
 * A reader goes through the text from left to right. Which parts follow each other is its caller's
 * business (fence/lease/uri.c, proxy/client/target.c, proxy/server/address.c); how each part is
 * written is decided here. An IPv6 address stands in brackets; logins, paths and values may have
 * %XX for any byte but zero. Nothing is resolved. No complaint repeats what was written, which
 * could be a password, but for a name that is nearly an option's. */
#ifndef STOCKADE_FENCE_BASE_URI_H
#define STOCKADE_FENCE_BASE_URI_H

#include <stdbool.h>
#include <stddef.h>

#include "fence/base/bytes.h"

struct uri_login {
    char user[128], password[256]; /* empty: none */
};

struct uri_host {
    char name[256]; /* a name or an address, without brackets */
    int port;
};

#define URI_HOST_TEXT_MAX (sizeof(struct uri_host) + 8)

/* Return what follows `scheme`, or any other beginning; NULL: the text begins otherwise. */
const char *uri_after(const char *text, const char *scheme);
bool uri_host_equal(const struct uri_host *a, const struct uri_host *b);
/* "127.0.0.1:7379", "[::1]:7379". Returns `out`. */
const char *uri_host_text(const struct uri_host *host, char out[URI_HOST_TEXT_MAX]);
/* Append the URI with *** for its login and passwords, for logs, even if it is not well-formed. */
void uri_append_masked(struct buf *out, const char *uri);

/* Each uri_take_... reads one part and moves behind it. Where it returns false the text is wrong:
 * `at` is where, and `why` says what is. */
struct uri_reader {
    const char *at;
    char why[160];
};

/* Say what is wrong, and where. Return false. */
bool uri_refuse(struct uri_reader *reader, const char *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Move behind `text`. False, and no complaint: something else is next. */
bool uri_skip(struct uri_reader *reader, const char *text);
/* The next `len` bytes, with %XX decoded. `what` they are is for complaints. */
bool uri_take_text(struct uri_reader *reader, size_t len, char *out, size_t size, const char *what);
bool uri_take_number(struct uri_reader *reader, size_t len, int min, int max, int *number,
                     const char *what);
/* [user]:password up to the '@' at `end`, and the '@'. */
bool uri_take_login(struct uri_reader *reader, const char *end, struct uri_login *login);
bool uri_take_host_name(struct uri_reader *reader, struct uri_host *host);
/* host[:port]. `default_port` 0: the port has to be there. */
bool uri_take_host(struct uri_reader *reader, int default_port, struct uri_host *host);

/* One of the options that a URI may have, and where its value goes: into a field of some struct. */
struct uri_option {
    const char *name, *what; /* `what`: as in uri_take_text */
    size_t offset;           /* of the field */
    size_t size;             /* a text's; 0: an int */
    int min, max;            /* an int's */
};

#define URI_TEXT(type, field)             offsetof(type, field), sizeof((type *)NULL)->field, 0, 0
#define URI_NUMBER(type, field, min, max) offsetof(type, field), 0, min, max

/* Read "name=" and return which of the options it is; -1: refused. Bit i of `allowed` is set
 * where options[i] may be there, and of `seen` where it has been. */
int uri_take_option(struct uri_reader *reader, const struct uri_option *options, int count,
                    unsigned allowed, unsigned *seen);
/* Its value, up to the next '&', into the struct. */
bool uri_take_value(struct uri_reader *reader, const struct uri_option *option, void *into);

#endif
