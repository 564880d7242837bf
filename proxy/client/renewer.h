/* SPDX-License-Identifier: Apache-2.0 */
/* What keeps a client's leases alive: one thread that renews them, and calls `lost`.
 *
 * The client's lock is held in all of these but renewer_free. */
#ifndef STOCKADE_CLIENT_RENEWER_H
#define STOCKADE_CLIENT_RENEWER_H

#include "proxy/client/lease.h"

/* Append one RENEW for each of the lease's resources. `notify`: the daemon shall report their loss
 * on this connection. */
void lease_compose_renewal(const stk_lease *lease, int64_t ttl_ms, bool notify, struct buf *out);
/* Let the lease last remaining_ms, as the server said, but ttl_ms at most, from asked_ms on. Later
 * renewals ask for ttl_ms. */
void lease_extend(stk_lease *lease, int64_t asked_ms, int64_t ttl_ms, int64_t remaining_ms);

/* Keep the lease alive from here on. False, and fail(): no threads or descriptors are left. */
bool renewer_add(stk_lease *lease);
/* Never renew it again, nor call its `lost`, but for one that is being called. */
void renewer_forget(stk_lease *lease);
/* Wait until `lost` of this lease has returned, where another thread than this one calls it. */
void renewer_await(stk_lease *lease);
/* The lease's times or its state have changed. */
void renewer_reschedule(stk_lease *lease);
/* End the thread. NULL is fine. */
void renewer_free(struct renewer *renewer);
/* Let go of descriptors in a forked child, where there is no such thread. */
void renewer_drop(struct renewer *renewer);

#endif
