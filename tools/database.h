/* SPDX-License-Identifier: Apache-2.0 */
/* A connection of the command line to PostgreSQL: libpq, one statement at a time, with a limit on
 * every wait. */
#ifndef STOCKADE_TOOLS_DATABASE_H
#define STOCKADE_TOOLS_DATABASE_H

#include <stdint.h>

#include "store/postgresql/libpq.h"
#include "tools/failure.h"

enum { DATABASE_LIMIT_MS = 60000, DATABASE_NUMBERS = 2 };

struct database {
    struct libpq pq;
    PGconn *conn; /* NULL: not connected */
    /* How long it was in use, from a transaction's first statement to its end, in microseconds. In
     * the time between, a pool could have given it to others. */
    int64_t used_us, since_us;
    char state[6]; /* the SQLSTATE of the last statement; empty: it went well */
    struct failure failure;
};

struct database_answer {
    int64_t rows; /* of the result, or changed */
    /* The first columns of the first row; 0 where there are none. */
    int64_t numbers[DATABASE_NUMBERS];
};

/* Connect by a libpq URI. */
bool database_open(struct database *database, const char *uri);
void database_close(struct database *database);

/* Run one statement with its parameters, texts that a NULL ends; `params` and `answer` may be NULL.
 * False: `state` and `failure` say what went wrong. A transaction is then to be rolled back. */
bool database_do(struct database *database, struct database_answer *answer, const char *sql,
                 const char *const *params);

#endif
