/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgresql/pg.h"

#include <arpa/inet.h>
#include <endian.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/clock.h"
#include "fence/base/mem.h"
#include "store/postgresql/uri.h"

#define CONNECT_SECONDS "3"
#define NO_STATEMENT    "26000" /* invalid_sql_statement_name */
#define WRONG_PASSWORD  "28P01" /* or none */

enum { GO_ON_EVERY_MS = 100, CONNECT_MS = 3000 };

/* Failures. */

/* Keep a text as one line: libpq's have several. */
static void say(struct pg *pg, const char *text)
{
    size_t len = 0;

    for (; *text != '\0' && len + 1 < sizeof pg->why; text++)
        if (*text == '\t') {
            continue;
        } else if (*text != '\n') {
            pg->why[len++] = *text;
        } else if (text[1] != '\0' && len + 3 < sizeof pg->why) {
            pg->why[len++] = ';';
            pg->why[len++] = ' ';
        }
    pg->why[len] = '\0';
}

static void fail(struct pg *pg, const char *text)
{
    pg->failed = true;
    pg->sqlstate[0] = '\0';
    say(pg, text);
    pg_drop(pg);
}

/* Give the connection up, for the reason that libpq gives. */
static void fail_connection(struct pg *pg)
{
    fail(pg, pg->pq.PQerrorMessage(pg->conn));
}

/* Does a warning say that a commit no longer waits for its standby? We go by the server's source
 * file, since other warnings have the same SQLSTATE, and the text is in any language. (Near
 * transaction wrap-around each new transaction warns.) A warning that names no file counts as one.
 */
static bool is_of_standby(const struct pg *pg, const PGresult *notice)
{
    const char *file = pg->pq.PQresultErrorField(notice, PG_DIAG_SOURCE_FILE);
    const char *name = file != NULL ? strrchr(file, '/') : NULL;

    return file == NULL || strcmp(name != NULL ? name + 1 : file, "syncrep.c") == 0;
}

static void on_notice(void *context, const PGresult *notice)
{
    struct pg *pg = context;
    const char *severity = pg->pq.PQresultErrorField(notice, PG_DIAG_SEVERITY_NONLOCALIZED);

    if (severity != NULL && strcmp(severity, "WARNING") == 0 && is_of_standby(pg, notice)) {
        pg->doubtful = true;
        say(pg, pg->pq.PQresultErrorField(notice, PG_DIAG_MESSAGE_PRIMARY));
    }
}

/* Parameters. */

static void add(struct pg_params *params, const void *value, size_t len)
{
    check(params->count < PG_PARAMS_MAX);
    params->values[params->count] = value;
    params->lengths[params->count] = (int)len;
    params->formats[params->count++] = 1;
}

void pg_param_int64(struct pg_params *params, int64_t value)
{
    uint64_t *number = &params->numbers[params->count];
    *number = htobe64((uint64_t)value);
    add(params, number, sizeof *number);
}

void pg_param_bytes(struct pg_params *params, struct bytes value)
{
    add(params, value.data != NULL ? value.data : "", value.len);
}

static void put32(struct buf *buf, uint32_t value)
{
    value = htonl(value);
    buf_append(buf, &value, sizeof value);
}

/* Begin an array of one dimension, whose length is filled in later; elements may be null. */
void pg_array_start(struct pg_array *array, enum pg_type type)
{
    *array = (struct pg_array){0};
    put32(&array->buf, 1);
    put32(&array->buf, 1);
    put32(&array->buf, type);
    put32(&array->buf, 0);
    put32(&array->buf, 1);
}

void pg_array_int64(struct pg_array *array, int64_t value)
{
    uint64_t number = htobe64((uint64_t)value);
    put32(&array->buf, sizeof number);
    buf_append(&array->buf, &number, sizeof number);
    array->count++;
}

void pg_array_bool(struct pg_array *array, bool value)
{
    char byte = value;
    put32(&array->buf, 1);
    buf_append(&array->buf, &byte, 1);
    array->count++;
}

void pg_array_bytes(struct pg_array *array, struct bytes value)
{
    put32(&array->buf, (uint32_t)value.len);
    buf_append_bytes(&array->buf, value);
    array->count++;
}

void pg_array_null(struct pg_array *array)
{
    put32(&array->buf, UINT32_MAX);
    array->count++;
}

void pg_param_array(struct pg_params *params, struct pg_array *array)
{
    uint32_t count = htonl(array->count);
    memcpy(array->buf.data + 12, &count, sizeof count);
    add(params, array->buf.data, array->buf.len);
}

/* A trip. */

/* Called for each statement. Where the connection has broken, the rest of its trip goes nowhere,
 * and the reason stays. */
static void begin_trip(struct pg *pg)
{
    if (pg->conn == NULL) {
        pg->failed = true;
        pg->decision = PG_UNDECIDED;
    } else if (pg->expected == 0) {
        pg->failed = pg->doubtful = pg->end_decides = false;
        pg->decision = PG_UNDECIDED;
        pg->deciding = 0;
        pg->why[0] = pg->sqlstate[0] = '\0';
        pg->sent_ms = clock_now_ms(&clock_monotonic);
    }
}

/* From now on the server has so much time for its answer. */
static void start_limit(struct pg *pg, int limit_ms)
{
    pg->limit_ms = limit_ms;
    pg->deadline_ms = clock_now_ms(&clock_monotonic) + limit_ms;
}

static void sent(struct pg *pg, int done)
{
    if (done == 1)
        pg->expected++;
    else
        fail_connection(pg);
}

void pg_send(struct pg *pg, size_t statement, const struct pg_params *params)
{
    static const struct pg_params none;

    if (params == NULL)
        params = &none;
    begin_trip(pg);
    if (pg->conn != NULL)
        sent(pg, pg->pq.PQsendQueryPrepared(pg->conn, pg->names[statement], params->count,
                                            params->values, params->lengths, params->formats, 1));
}

void pg_send_deciding(struct pg *pg, size_t statement, const struct pg_params *params)
{
    pg_send(pg, statement, params);
    pg->decision = PG_UNDECIDED;
    pg->deciding = pg->expected;
}

void pg_send_text(struct pg *pg, const char *text)
{
    begin_trip(pg);
    if (pg->conn != NULL)
        sent(pg, pg->pq.PQsendQueryParams(pg->conn, text, 0, NULL, NULL, NULL, NULL, 1));
}

static void send_prepare(struct pg *pg, const char *name, const char *text)
{
    begin_trip(pg);
    if (pg->conn != NULL)
        sent(pg, pg->pq.PQsendPrepare(pg->conn, name, text, 0, NULL));
}

void pg_send_parse(struct pg *pg, const char *text)
{
    send_prepare(pg, "", text);
}

void pg_send_describe(struct pg *pg, const char *portal)
{
    begin_trip(pg);
    if (pg->conn != NULL)
        sent(pg, pg->pq.PQsendDescribePortal(pg->conn, portal));
}

void pg_sync_within(struct pg *pg, int limit_ms)
{
    start_limit(pg, limit_ms > pg->timeout_ms ? limit_ms : pg->timeout_ms);
    if (pg->conn != NULL && pg->pq.PQpipelineSync(pg->conn) != 1)
        fail_connection(pg);
}

void pg_sync(struct pg *pg)
{
    pg_sync_within(pg, pg->timeout_ms);
}

void pg_sync_deciding(struct pg *pg)
{
    pg->decision = PG_UNDECIDED;
    pg->end_decides = true;
    pg_sync(pg);
}

/* Wait until there is something to read, and send meanwhile. False: the connection is dropped. */
static bool wait(struct pg *pg)
{
    struct pollfd poll_fd = {.fd = pg->pq.PQsocket(pg->conn), .events = POLLIN};
    int left_ms = (int)(pg->deadline_ms - clock_now_ms(&clock_monotonic));
    int unsent = pg->pq.PQflush(pg->conn);
    char text[96];

    if (unsent < 0) {
        fail_connection(pg);
        return false;
    }
    if (unsent > 0)
        poll_fd.events |= POLLOUT;
    bool in_slices = pg->go_on != NULL && left_ms > GO_ON_EVERY_MS;
    if (in_slices && !pg->go_on(pg->go_on_context)) {
        fail(pg, "interrupted");
        return false;
    }
    if (left_ms <= 0 ||
        (poll(&poll_fd, 1, in_slices ? GO_ON_EVERY_MS : left_ms) == 0 && !in_slices)) {
        text_print(text, sizeof text, "PostgreSQL has not answered for %d ms", pg->limit_ms);
        pg->silent_pid = pg->pq.PQbackendPID(pg->conn);
        fail(pg, text);
        pg->timed_out = true;
        return false;
    }
    if ((poll_fd.revents & ~POLLOUT) != 0 && pg->pq.PQconsumeInput(pg->conn) == 0) {
        fail_connection(pg);
        return false;
    }
    return true;
}

/* Wait for libpq's next result. NULL: a statement's results end here, or the connection is dropped.
 */
static PGresult *next_result(struct pg *pg)
{
    while (pg->conn != NULL) {
        if (pg->pq.PQisBusy(pg->conn)) {
            if (!wait(pg))
                return NULL;
            continue;
        }
        PGresult *result = pg->pq.PQgetResult(pg->conn);
        if (result != NULL || pg->pq.PQstatus(pg->conn) == CONNECTION_OK)
            return result;
        fail_connection(pg);
    }
    return NULL;
}

static bool is_good(const struct pg *pg, const PGresult *result)
{
    ExecStatusType status = pg->pq.PQresultStatus(result);
    return status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK;
}

/* Keep the first error of a trip: the statements behind it were only skipped. */
static void note_error(struct pg *pg, const PGresult *result)
{
    if (pg->pq.PQresultStatus(result) == PGRES_FATAL_ERROR && !pg->failed) {
        const char *state = pg->pq.PQresultErrorField(result, PG_DIAG_SQLSTATE),
                   *text = pg->pq.PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
        text_print(pg->sqlstate, sizeof pg->sqlstate, "%s", state != NULL ? state : "");
        say(pg, text != NULL ? text : pg->pq.PQresultErrorMessage(result));
    }
    pg->failed = true;
}

/* Is it libpq's own error, and not the server's? Those have no SQLSTATE. Where libpq gets no
 * memory, it gives such an error in place of the server's result. */
static bool is_of_libpq(const struct pg *pg, const PGresult *result)
{
    return pg->pq.PQresultStatus(result) == PGRES_FATAL_ERROR &&
           pg->pq.PQresultErrorField(result, PG_DIAG_SQLSTATE) == NULL;
}

/* The COMMIT of a transaction that has failed succeeds, but its tag is ROLLBACK. */
static void decide(struct pg *pg, PGresult *result)
{
    const char *done = pg->pq.PQcmdStatus(result);

    if (is_of_libpq(pg, result))
        pg->decision = PG_UNDECIDED;
    else if (!is_good(pg, result) || strcmp(done, "ROLLBACK") == 0)
        pg->decision = PG_DENIED;
    else
        pg->decision = pg->doubtful ? PG_DOUBTFUL : PG_DECIDED;
}

PGresult *pg_take(struct pg *pg)
{
    PGresult *result = next_result(pg), *end;

    if (pg->conn == NULL) {
        pg->pq.PQclear(result);
        return NULL;
    }
    check(pg->expected > 0 && result != NULL);
    pg->expected--;
    if (pg->deciding > 0 && --pg->deciding == 0)
        decide(pg, result);
    end = next_result(pg);
    check(end == NULL);
    if (is_good(pg, result))
        return result;
    note_error(pg, result);
    pg->pq.PQclear(result);
    /* A user's function may have deallocated our statements: then, too, connect anew. */
    if (pg->conn != NULL &&
        (pg->pq.PQstatus(pg->conn) != CONNECTION_OK || strcmp(pg->sqlstate, NO_STATEMENT) == 0))
        pg_drop(pg);
    return NULL;
}

void pg_skip(struct pg *pg, size_t count)
{
    for (size_t i = 0; i < count; i++)
        pg->pq.PQclear(pg_take(pg));
}

bool pg_end(struct pg *pg)
{
    while (pg->conn != NULL && pg->expected > 0)
        pg_skip(pg, 1);
    PGresult *result = next_result(pg);
    if (pg->conn != NULL && pg->pq.PQresultStatus(result) != PGRES_PIPELINE_SYNC) {
        note_error(pg, result); /* the server has ended the session, as in a shutdown */
        pg_drop(pg);
    }
    if (pg->conn != NULL && pg->end_decides)
        pg->decision = pg->failed ? PG_DENIED : pg->doubtful ? PG_DOUBTFUL : PG_DECIDED;
    pg->pq.PQclear(result);
    return pg->conn != NULL && !pg->failed;
}

bool pg_listens(struct pg *pg)
{
    if (pg->pq.PQconsumeInput(pg->conn) != 0 && pg->pq.PQstatus(pg->conn) == CONNECTION_OK)
        return true;
    fail_connection(pg);
    return false;
}

bool pg_news(struct pg *pg, void (*each)(void *context, const char *payload), void *context,
             size_t *count)
{
    PGnotify *news;

    if (!pg_listens(pg))
        return false;
    while ((news = pg->pq.PQnotifies(pg->conn)) != NULL) {
        if (news->be_pid != pg->pq.PQbackendPID(pg->conn)) {
            each(context, news->extra);
            (*count)++;
        }
        pg->pq.PQfreemem(news);
    }
    return true;
}

/* Connecting. */

/* Send commands outside a pipeline. */
static bool send_commands(struct pg *pg, const char *commands)
{
    begin_trip(pg);
    start_limit(pg, pg->timeout_ms);
    if (pg->pq.PQsendQuery(pg->conn, commands) != 1)
        fail_connection(pg);
    return pg->conn != NULL;
}

/* Run commands outside a pipeline and return the result of the last one. NULL: one failed. */
static PGresult *run_commands(struct pg *pg, const char *commands)
{
    PGresult *last = NULL, *result;

    if (!send_commands(pg, commands))
        return NULL;
    while ((result = next_result(pg)) != NULL) {
        pg->pq.PQclear(last);
        last = result;
        if (!is_good(pg, result))
            note_error(pg, result);
    }
    if (pg->conn != NULL && !pg->failed)
        return last;
    pg->pq.PQclear(last);
    return NULL;
}

/* Do we speak to the primary itself? A pool in between may give each transaction another backend.
 */
static bool is_direct(struct pg *pg)
{
    PGresult *result = run_commands(pg, "SELECT pg_backend_pid(), pg_is_in_recovery()");
    bool good = false;

    if (result == NULL)
        return false;
    pg->lasts = atoi(pg->pq.PQgetvalue(result, 0, 0)) != pg->pq.PQbackendPID(pg->conn);
    if (pg->lasts)
        fail(pg, "a connection pool stands between this daemon and PostgreSQL: name the server "
                 "itself");
    else if (pg->pq.PQgetvalue(result, 0, 1)[0] == 't')
        fail(pg, "this server is a standby, which is read-only: name the primary, or all hosts");
    else
        good = true;
    pg->pq.PQclear(result);
    return good;
}

/* End the backend that did not answer. One that waits for a standby does not see that its client
 * has gone: it would stay, and so would the next one. Its transaction is committed locally, as it
 * is when the server stops. */
static bool end_silent(struct pg *pg)
{
    char text[256];

    if (pg->silent_pid == 0)
        return true;
    text_print(text, sizeof text,
               "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %d"
               " AND usename = current_user AND application_name = '%s'",
               pg->silent_pid, pg->name);
    pg->silent_pid = 0;
    return pg_run(pg, text);
}

/* Have libpq connect, at once or by PQconnectPoll. The URI (dbname) overrides the keys before it.
 * The name behind it is ours: others know by it what the connection is (blockers.h, kept_out.h). */
static PGconn *connect_by(const struct pg *pg,
                          PGconn *(*connect)(const char *const *keys, const char *const *values,
                                             int expand_dbname))
{
    const char *const keys[] = {"connect_timeout",
                                "keepalives_idle",
                                "keepalives_interval",
                                "keepalives_count",
                                "tcp_user_timeout",
                                "target_session_attrs",
                                "dbname",
                                "client_encoding",
                                "application_name",
                                NULL};
    char *uri = pg_uri_of_libpq(pg->uri);
    const char *const values[] = {CONNECT_SECONDS,
                                  "5",
                                  "2",
                                  "3",
                                  "3000",
                                  strchr(uri, ',') != NULL ? "read-write" : "any",
                                  uri,
                                  "UTF8",
                                  pg->name,
                                  NULL};

    PGconn *conn = connect(keys, values, 1);
    mem_free_secret(uri);
    return conn;
}

bool pg_connect(struct pg *pg)
{
    pg_drop(pg);
    pg->lasts = pg->reached = false;
    pg->failed = pg->doubtful = pg->timed_out = false;
    pg->why[0] = pg->sqlstate[0] = '\0';
    if (pg->pq.PQclear == NULL && !libpq_load(&pg->pq, pg->why, sizeof pg->why)) {
        pg->pq.PQclear = NULL;
        return false;
    }
    pg->conn = connect_by(pg, pg->pq.PQconnectdbParams);
    check(pg->conn != NULL);
    pg->pq.PQsetNoticeReceiver(pg->conn, on_notice, pg);
    if (pg->pq.PQstatus(pg->conn) != CONNECTION_OK) {
        fail_connection(pg);
        return false;
    }
    check(pg->pq.PQsetnonblocking(pg->conn, 1) == 0);
    if (!pg_run(pg, "SELECT " PG_SETTINGS) || !is_direct(pg) || !end_silent(pg))
        return false;
    check(pg->pq.PQenterPipelineMode(pg->conn) == 1);
    pg->reached = true;
    return true;
}

/* Of a text that ends with an SQLSTATE. */
static void take_code(struct pg *pg, const char *text)
{
    size_t len, code_len = sizeof pg->sqlstate - 1;

    for (const char *line = text; *line != '\0'; line += len + (line[len] != '\0')) {
        len = strcspn(line, "\n");
        const char *code = line + len - code_len;
        if (len > code_len && code[-1] == ' ' &&
            strspn(code, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == code_len)
            text_print(pg->sqlstate, sizeof pg->sqlstate, "%.*s", (int)code_len, code);
    }
}

/* Why a server refuses a connection libpq tells in a text only, and in the server's language. So it
 * is asked once more, for a text that has nothing but the SQLSTATE. */
static void ask_code(struct pg *pg)
{
    int64_t until_ms = clock_now_ms(&clock_monotonic) + CONNECT_MS;
    PostgresPollingStatusType next = PGRES_POLLING_WRITING;
    PGconn *conn = connect_by(pg, pg->pq.PQconnectStartParams);
    int left_ms = CONNECT_MS;

    check(conn != NULL);
    (void)pg->pq.PQsetErrorVerbosity(conn, PQERRORS_SQLSTATE);
    while (pg->pq.PQstatus(conn) != CONNECTION_BAD && next != PGRES_POLLING_OK && left_ms > 0) {
        struct pollfd poll_fd = {.fd = pg->pq.PQsocket(conn),
                                 .events = next == PGRES_POLLING_READING ? POLLIN : POLLOUT};
        (void)poll(&poll_fd, 1, left_ms);
        next = pg->pq.PQconnectPoll(conn);
        left_ms = (int)(until_ms - clock_now_ms(&clock_monotonic));
    }
    if (pg->pq.PQstatus(conn) == CONNECTION_BAD)
        take_code(pg, pg->pq.PQerrorMessage(conn));
    if (pg->pq.PQconnectionNeedsPassword(conn))
        take_code(pg, " " WRONG_PASSWORD);
    pg->pq.PQfinish(conn);
}

const char *pg_remedy(struct pg *pg)
{
    static const struct {
        const char *state; /* or how it begins */
        const char *remedy;
    } lasting[] = {
        {WRONG_PASSWORD, "the password is that of the URI, of PGPASSWORD or of PGPASSFILE"},
        {"28", "the role has to be there, with the right to log in, and pg_hba.conf to let it in"},
        {"3D000", "make the database, or name another one"},
        {"42501", "GRANT that to the daemon's role, or name the role that owns the store"},
    };

    if (pg->lasts || pg->pq.PQclear == NULL)
        return pg->lasts ? "" : NULL;
    if (pg->sqlstate[0] == '\0')
        ask_code(pg);
    for (size_t i = 0; i < sizeof lasting / sizeof *lasting; i++)
        if (strncmp(pg->sqlstate, lasting[i].state, strlen(lasting[i].state)) == 0)
            return lasting[i].remedy;
    return NULL;
}

void pg_drop(struct pg *pg)
{
    if (pg->conn != NULL)
        pg->pq.PQfinish(pg->conn);
    pg->conn = NULL;
    pg->expected = 0;
}

bool pg_run(struct pg *pg, const char *commands)
{
    bool piped = pg->pq.PQpipelineStatus(pg->conn) != PQ_PIPELINE_OFF;

    if (piped)
        check(pg->pq.PQexitPipelineMode(pg->conn) == 1);
    PGresult *result = run_commands(pg, commands);
    bool good = result != NULL;
    pg->pq.PQclear(result);
    if (piped && pg->conn != NULL)
        check(pg->pq.PQenterPipelineMode(pg->conn) == 1);
    return good;
}

bool pg_prepare(struct pg *pg)
{
    for (size_t i = 0; i < pg->statements; i++)
        send_prepare(pg, pg->names[i], pg->texts[i]);
    pg_sync(pg);
    return pg_end(pg);
}

/* COPY. */

/* Take the command's own result, which comes behind the data. */
static bool copy_end(struct pg *pg)
{
    PGresult *result;

    while ((result = next_result(pg)) != NULL) {
        if (!is_good(pg, result))
            note_error(pg, result);
        pg->pq.PQclear(result);
    }
    if (pg->conn != NULL)
        check(pg->pq.PQenterPipelineMode(pg->conn) == 1);
    return pg->conn != NULL && !pg->failed;
}

bool pg_copy_start(struct pg *pg, const char *copy)
{
    if (pg->conn == NULL)
        return false;
    check(pg->pq.PQexitPipelineMode(pg->conn) == 1);
    if (!send_commands(pg, copy))
        return false;
    PGresult *result = next_result(pg);
    ExecStatusType status = pg->pq.PQresultStatus(result);
    bool started = status == PGRES_COPY_OUT || status == PGRES_COPY_IN;
    if (!started && pg->conn != NULL)
        note_error(pg, result);
    pg->pq.PQclear(result);
    if (!started)
        (void)copy_end(pg);
    return started;
}

bool pg_copy_take(struct pg *pg, struct buf *data, bool *more)
{
    char *piece = NULL;
    int len = 0;

    *more = false;
    start_limit(pg, pg->timeout_ms);
    while (pg->conn != NULL && (len = pg->pq.PQgetCopyData(pg->conn, &piece, 1)) == 0)
        if (!wait(pg))
            return false;
    if (pg->conn == NULL)
        return false;
    if (len == -1)
        return copy_end(pg);
    if (len < 0) {
        fail_connection(pg);
        return false;
    }
    buf_append(data, piece, (size_t)len);
    pg->pq.PQfreemem(piece);
    *more = true;
    return true;
}

bool pg_copy_put(struct pg *pg, struct bytes data)
{
    int sent = 0;

    start_limit(pg, pg->timeout_ms);
    while (pg->conn != NULL &&
           (sent = pg->pq.PQputCopyData(pg->conn, data.data, (int)data.len)) == 0)
        if (!wait(pg))
            return false;
    if (pg->conn != NULL && sent < 0)
        fail_connection(pg);
    return pg->conn != NULL;
}

bool pg_copy_put_end(struct pg *pg, const char *failure)
{
    int sent = 0;

    start_limit(pg, pg->timeout_ms);
    while (pg->conn != NULL && (sent = pg->pq.PQputCopyEnd(pg->conn, failure)) == 0)
        if (!wait(pg))
            return false;
    if (pg->conn != NULL && sent < 0)
        fail_connection(pg);
    return copy_end(pg);
}

/* Results. */

int64_t pg_value_int64(const struct pg *pg, const PGresult *result, int row, int column)
{
    uint64_t number;

    check(pg->pq.PQgetlength(result, row, column) == sizeof number);
    memcpy(&number, pg->pq.PQgetvalue(result, row, column), sizeof number);
    return (int64_t)be64toh(number);
}

bool pg_value_bool(const struct pg *pg, const PGresult *result, int row, int column)
{
    return pg->pq.PQgetvalue(result, row, column)[0] != 0;
}

struct bytes pg_value_bytes(const struct pg *pg, const PGresult *result, int row, int column)
{
    return (struct bytes){pg->pq.PQgetvalue(result, row, column),
                          (size_t)pg->pq.PQgetlength(result, row, column)};
}

void pg_value_text(const struct pg *pg, const PGresult *result, int row, int column, char *out,
                   size_t size)
{
    struct bytes text = pg_value_bytes(pg, result, row, column);
    text_print(out, size, "%.*s", (int)text.len, text.data);
}
