/* SPDX-License-Identifier: Apache-2.0 */
/* A reader: answers batches of reads, each from one snapshot, and tells nothing that the operator's
 * replication does not hold: behind the snapshot there is a replicated commit (PG_BARRIER), which
 * costs nothing where nothing is replicated. Most batches take one trip. */
#ifndef STOCKADE_STORE_POSTGRESQL_READER_H
#define STOCKADE_STORE_POSTGRESQL_READER_H

#include "store/postgresql/connection.h"
#include "store/worker.h"

struct pg_reader {
    struct pg_connection connection;
    struct worker worker;
    struct finished *finished;
};

/* A worker's work: context is the struct pg_reader. */
enum work_result pg_reader_work(void *context, struct list *batch, size_t count, bool inlined);

#endif
