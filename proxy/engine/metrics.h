/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine counts: one table gives INFO's fields, the Prometheus names and their help. */
#ifndef STOCKADE_ENGINE_METRICS_H
#define STOCKADE_ENGINE_METRICS_H

#include <stdint.h>

#include "fence/base/durations.h"

#define ENGINE_COUNTERS(X)                                                                         \
    X(connections_received, "Connections accepted since the start")                                \
    X(connections_rejected, "Connections refused because max-connections was reached")             \
    X(tls_handshakes, "TLS handshakes with clients that went well")                                \
    X(tls_handshakes_failed, "TLS handshakes with clients that failed, or took too long")          \
    X(commands_processed, "Commands answered")                                                     \
    X(protocol_errors, "Connections closed for breaking the protocol")                             \
    X(leases_granted, "Leases granted under a new token")                                          \
    X(leases_reentered, "Leases entered again by their owner")                                     \
    X(leases_denied, "ACQUIRE answered null: another holds it")                                    \
    X(leases_waited, "ACQUIRE that had to wait in line")                                           \
    X(leases_released, "Leases given back by their holder")                                        \
    X(leases_revoked, "Leases taken away by REVOKE")                                               \
    X(leases_expired, "Leases that ended unreleased, as far as this daemon knows")                 \
    X(waits_in_vain, "Waits in line that ended without a lease")                                   \
    X(leases_renewed, "Renewals")                                                                  \
    X(locks_taken, "Leases granted by a lock key")                                                 \
    X(locks_unpresented, "Of these, ended without a command that presented their token")           \
    X(leases_given_back, "Grants given back because nobody could receive them in time")            \
    X(lease_service_errors, "Commands answered LEASEDOWN")                                         \
    X(grants_repeated, "Grants minted again above the store's floor: the service had lost state")  \
    X(grants_behind, "First grants in a new store of what the lease service had counted before")   \
    X(fenced_accepted, "Commands accepted with a current token")                                   \
    X(receipts_replayed, "Repeats answered with the first reply")                                  \
    X(sweeps, "Checks for receipts and resources that are too old to keep")                        \
    X(receipts_removed, "Receipts removed because they were old")                                  \
    X(resources_forgotten, "Resources removed because nobody had used them for long")              \
    X(transactions_committed, "Transactions of MULTI and EXEC applied")                            \
    X(refused_stale, "Commands refused with STALE")                                                \
    X(refused_unknown, "Commands refused with UNKNOWN")                                            \
    X(refused_notoken, "Writes refused with NOTOKEN")                                              \
    X(refused_busy, "Commands refused with BUSY: a queue was full")                                \
    X(events_published, "Events of leases, heard or not")                                          \
    X(messages_published, "Messages of PUBLISH, heard or not")                                     \
    X(events_delivered, "Messages sent to subscribers")                                            \
    X(strangers_closed, "Connections closed before their login: such ones took too much memory")   \
    X(subscribers_dropped, "Subscribers disconnected because they did not read")                   \
    X(store_errors, "Commands that failed with STORE")

/* Groups of commands, whose durations are counted apart: X(id, label). */
#define COMMAND_GROUPS(X)                                                                          \
    X(READ, "read")                                                                                \
    X(WRITE, "write") /* and transactions */                                                       \
    X(LEASE, "lease")                                                                              \
    X(WAIT, "wait") /* those for leases that had to wait in line */                                \
    X(SQL, "sql")                                                                                  \
    X(OTHER, "other")

enum command_group {
#define X(id, label) COMMANDS_##id,
    COMMAND_GROUPS(X)
#undef X
        COMMANDS_GROUPS
};

/* How long things took. */
struct engine_times {
    struct durations commands[COMMANDS_GROUPS]; /* from the start of a command to its reply */
    struct durations grants;                    /* until the lease service answered */
    struct durations waits;                     /* in line */
};

struct engine_counters {
#define X(name, help) uint64_t name;
    ENGINE_COUNTERS(X)
#undef X
};

#endif
