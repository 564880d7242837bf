/* SPDX-License-Identifier: Apache-2.0 */
/* A memory of leases, for the cache of resources: what a grant, a renewal or a release reads of the
 * row, the one after it need not read again. It is a table of fixed size in which each resource has
 * one place, by its id: who comes to a place that is taken has it. Owners of up to 57 bytes only.
 *
 * - It holds all columns of the row that struct lease tells of. Whatever writes one of them puts
 *   the lease anew, or forgets it.
 * - Beside that, and whether or not the lease is known, it remembers a token under which the
 *   resource has no receipts: so its end need not look for any. */
#ifndef STOCKADE_STORE_SQLITE_LEASES_H
#define STOCKADE_STORE_SQLITE_LEASES_H

#include <stdbool.h>
#include <stdint.h>

#include "store/txn.h"

struct leases;

/* It takes up to 1 MB, as it fills. */
struct leases *leases_new(void);
void leases_free(struct leases *leases);
/* Fill in `lease` but for age_ms, which is -1. The owner is borrowed until the next put. */
bool leases_find(const struct leases *leases, int64_t id, struct lease *lease);
/* Remember the lease. One with a long owner is forgotten. */
void leases_put(struct leases *leases, int64_t id, const struct lease *lease);
/* Forget both. */
void leases_forget(struct leases *leases, int64_t id);
/* Remember that the resource has no receipts under the token; forget it, for it may have; ask. */
void leases_no_receipts_put(struct leases *leases, int64_t id, int64_t token);
void leases_no_receipts_forget(struct leases *leases, int64_t id);
bool leases_has_no_receipts(const struct leases *leases, int64_t id, int64_t token);
/* Forget all of them, in no time to speak of. */
void leases_clear(struct leases *leases);

#endif
