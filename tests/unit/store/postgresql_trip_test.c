/* SPDX-License-Identifier: Apache-2.0 */
/* The limit of a trip, to a server that says nothing: libpq is played here. */
#include "store/postgresql/pg.h"

#include <unistd.h>

#include "tests/unit/test.h"

TESTS_HAVE_ONE_THREAD

enum { LIMIT_MS = 20, TIMEOUT_MS = 10 };

static int silence[2]; /* a pipe into which nobody writes */

static int one(PGconn *conn)
{
    (void)conn;
    return 1;
}

static int nothing(PGconn *conn)
{
    (void)conn;
    return 0;
}

static int socket_of(const PGconn *conn)
{
    (void)conn;
    return silence[0];
}

static int pid_of(const PGconn *conn)
{
    (void)conn;
    return 7;
}

static void close_it(PGconn *conn)
{
    (void)conn;
}

static void clear(PGresult *result)
{
    (void)result;
}

/* A connection in mid-trip. */
static struct pg connection(void)
{
    return (struct pg){.timeout_ms = TIMEOUT_MS,
                       .conn = (PGconn *)silence,
                       .pq = {.PQpipelineSync = one,
                              .PQisBusy = one,
                              .PQflush = nothing,
                              .PQsocket = socket_of,
                              .PQbackendPID = pid_of,
                              .PQfinish = close_it,
                              .PQclear = clear}};
}

static void assert_given_up_after(struct pg *pg, int limit_ms)
{
    char text[80];

    snprintf(text, sizeof text, "PostgreSQL has not answered for %d ms", limit_ms);
    assert_false(pg_end(pg));
    assert_string_equal(pg->why, text);
    assert_true(pg->timed_out && pg->conn == NULL && pg->silent_pid == 7);
}

TEST(a_trip_has_its_own_limit_and_the_next_one_the_usual_one_again)
{
    struct pg pg = connection();

    assert_int_equal(pipe(silence), 0);
    pg_sync_within(&pg, LIMIT_MS);
    assert_given_up_after(&pg, LIMIT_MS);
    pg.conn = (PGconn *)silence;
    pg_sync_within(&pg, TIMEOUT_MS - 1); /* never less than that of any trip */
    assert_given_up_after(&pg, TIMEOUT_MS);
    pg.conn = (PGconn *)silence;
    pg_sync(&pg);
    assert_given_up_after(&pg, TIMEOUT_MS);
    close(silence[0]);
    close(silence[1]);
}
