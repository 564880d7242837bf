/* SPDX-License-Identifier: Apache-2.0 */
/* What of a store's URI is for us. All else of it is libpq's, which knows no such parameter and
 * would refuse it, so it is taken out before libpq sees the URI. Where it is written wrong, the
 * default holds: pg_uri_is_valid() has said so before. */
#ifndef STOCKADE_STORE_POSTGRESQL_URI_H
#define STOCKADE_STORE_POSTGRESQL_URI_H

#include <stdbool.h>
#include <stddef.h>

#include "fence/base/nearest.h"

/* timeout_ms, of a trip: nobody waits longer for a server that is silent. It has to be longer than
 * a trip takes where the server is far away, or has other work. */
enum { PG_TIMEOUT_MS = 5000, PG_TIMEOUT_MS_MIN = 100, PG_TIMEOUT_MS_MAX = 600 * 1000 };

/* Are our parameters well-formed? False: `why` says what is wrong. */
bool pg_uri_is_valid(const char *uri, char *why, size_t why_size);
int pg_uri_timeout_ms(const char *uri);
/* Return the URI without our parameters. It may have a password: mem_free_secret. */
char *pg_uri_of_libpq(const char *uri);
/* Offer the names of our parameters. */
void pg_uri_offer(struct nearest *nearest);

#endif
