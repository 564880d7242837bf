/* SPDX-License-Identifier: Apache-2.0 */
/* A reader answers batches of reads, each batch from one snapshot. It tells nothing that might be
 * lost in a failover: behind the snapshot it commits something (PG_BARRIER) and waits until that is
 * replicated. Where there is no replication, this costs nothing. Most batches take one trip. */
#ifndef STOCKADE_STORE_POSTGRESQL_READER_H
#define STOCKADE_STORE_POSTGRESQL_READER_H

#include "store/postgresql/connection.h"
#include "store/worker.h"

struct pg_reader {
    struct pg_connection connection;
    struct worker worker;
    struct finished *finished;
};

/* The worker's work; its context is the struct pg_reader. */
enum work_result pg_reader_work(void *context, struct list *batch, size_t count, bool inlined);

#endif
