/* SPDX-License-Identifier: Apache-2.0 */
/* The ways in which the store can come to differ from what a connection knows of it. Each
 * transaction asks for them. Where the store differs, the connection is made anew (connection.c),
 * and the store is looked at again (identity.h). If that does not help, the reason is told. */
#ifndef STOCKADE_STORE_POSTGRESQL_DIFFERS_H
#define STOCKADE_STORE_POSTGRESQL_DIFFERS_H

/* A name; SQL on stockade.meta that finds it out; what has happened, and what to do if it goes on.
 * The last row has no SQL: connections compare clocks by themselves. */
#define PG_DIFFERS_MAP(X)                                                                          \
    X(MOVED, "move_part IN (1, 3)",                                                                \
      "a `stockade move` keeps this store closed: start the daemon on the new one")                \
    X(TABLES, "split_part(identity, '/', 3) <> 'stockade.resource'::regclass::oid::text",          \
      "the store's tables have been put in anew beneath the daemon (pg_restore): writes go on "    \
      "once that is over")                                                                         \
    X(SERVER, "server IS DISTINCT FROM stockade.server()",                                         \
      "this server was started anew or promoted, or another one has taken its place: see in the "  \
      "servers' logs why that goes on")                                                            \
    X(REPLICATION, "replicated <> stockade.is_replicated()",                                       \
      "synchronous_standby_names was set or emptied: see who keeps changing it")                   \
    X(CLOCK, "false", "the clock of the database's machine was set: see what keeps setting it")

enum pg_differs {
    PG_SAME,
#define X(name, sql, text) PG_##name##_DIFFERS,
    PG_DIFFERS_MAP(X)
#undef X
};

#endif
