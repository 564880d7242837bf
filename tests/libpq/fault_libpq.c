/* SPDX-License-Identifier: Apache-2.0 */
/* See fault_libpq.h. A struct of pointers stands before libpq's own, and each connection has a
 * state here. What libpq is asked about a connection comes from the thread that owns it. */
#include "tests/libpq/fault_libpq.h"

#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "fence/base/clock.h"
#include "store/postgresql/pg.h"

bool __real_libpq_load(struct libpq *pq, char *why, size_t why_size);
bool __wrap_libpq_load(struct libpq *pq, char *why, size_t why_size);

enum where {
    AT_CONNECT = 1,
    AT_STATEMENT = 2, /* that is sent */
    AT_SYNC = 4,      /* so is the end of a trip, */
    AT_RESULT = 8,    /* that is waited for */
    AT_DATA = 16,     /* of COPY: that is waited for, or taken */
    AT_PUT = 32,      /* of COPY, that is sent */
    AT_SEND = AT_STATEMENT | AT_SYNC | AT_PUT,
    AT_READ = AT_RESULT | AT_DATA,
    AT_ALL = AT_CONNECT | AT_SEND | AT_READ,
};

enum { CONNECTIONS_MAX = 32, SILENT_MS = 10, HELD_TRIES = 3 };

/* What a connection suffers from until its end. */
enum suffering { WELL, SILENT, UNSENT, UNREAD, NO_MEMORY };

struct connection {
    PGconn *conn; /* NULL: there is none here */
    bool ours;    /* of the code under test */
    bool counted; /* its calls are */
    bool asked;   /* the wait for this has begun */
    int held;     /* so many tries until the end of its trip leaves; 0: it has */
    enum suffering suffering;
    PQnoticeReceiver receiver;
    void *context; /* the struct pg, by the way that pg.c uses it */
};

/* Notices of ours: nothing but their fields is asked for. */
static const char warning, standby_warning;

static struct {
    pthread_mutex_t lock;
    struct libpq real;
    struct connection connections[CONNECTIONS_MAX];
    bool is_set, lasts, sprung;
    enum libpq_fault fault;
    int left;  /* calls that go well first */
    int trips; /* since it has sprung */
    int results, others;
    int never;  /* a file descriptor that nothing comes from; */
    int always; /* one that can be read */
} shim = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const struct {
    enum where where;
    const char *words;
} faults[] = {
#define X(name, at, text) {at, text},
    LIBPQ_FAULTS(X)
#undef X
};

const char *libpq_fault_words(enum libpq_fault fault)
{
    return faults[fault].words;
}

/* Read one of the counts. */
static int counted(const int *count)
{
    pthread_mutex_lock(&shim.lock);
    int value = *count;
    pthread_mutex_unlock(&shim.lock);
    return value;
}

void fault_libpq_set(enum libpq_fault fault, int n, bool lasts)
{
    pthread_mutex_lock(&shim.lock);
    shim.is_set = true;
    shim.sprung = false;
    shim.trips = 0;
    shim.fault = fault;
    shim.left = n - 1;
    shim.lasts = lasts;
    pthread_mutex_unlock(&shim.lock);
}

bool fault_libpq_clear(void)
{
    pthread_mutex_lock(&shim.lock);
    bool sprung = shim.sprung;
    shim.is_set = shim.sprung = false;
    pthread_mutex_unlock(&shim.lock);
    return sprung;
}

int fault_libpq_trips(void)
{
    return counted(&shim.trips);
}

static void hold(int results, int others)
{
    pthread_mutex_lock(&shim.lock);
    shim.results += results;
    shim.others += others;
    pthread_mutex_unlock(&shim.lock);
}

int fault_libpq_held(void)
{
    return counted(&shim.results) + counted(&shim.others);
}

int fault_libpq_results(void)
{
    return counted(&shim.results);
}

/* NULL: a place for a new one. The lock is held. */
static struct connection *find_unlocked(const PGconn *conn)
{
    struct connection *found = NULL;

    for (size_t i = 0; i < CONNECTIONS_MAX && found == NULL; i++)
        if (shim.connections[i].conn == conn)
            found = &shim.connections[i];
    check(found != NULL);
    return found;
}

static struct connection *find(const PGconn *conn)
{
    pthread_mutex_lock(&shim.lock);
    struct connection *found = find_unlocked(conn);
    pthread_mutex_unlock(&shim.lock);
    return found;
}

/* Does this call go wrong? Then `*fault` says how. */
static bool strikes(const struct connection *connection, enum where where, enum libpq_fault *fault)
{
    bool now = false;

    pthread_mutex_lock(&shim.lock);
    if (shim.is_set && (faults[shim.fault].where & where) != 0 &&
        (connection->counted || (connection->ours && shim.lasts && shim.sprung))) {
        now = shim.left <= 0 && (shim.lasts || !shim.sprung);
        shim.left--;
        shim.sprung |= now;
        *fault = shim.fault;
    }
    pthread_mutex_unlock(&shim.lock);
    return now;
}

static void cut(PGconn *conn)
{
    int fd = shim.real.PQsocket(conn);

    if (fd >= 0)
        (void)shutdown(fd, SHUT_RDWR);
}

/* As without memory: what libpq says then has no SQLSTATE. */
static PGresult *empty_result(PGconn *conn)
{
    PGresult *(*make)(PGconn *, ExecStatusType);
    void *symbol = dlsym(dlopen("libpq.so.5", RTLD_NOW | RTLD_NOLOAD), "PQmakeEmptyPGresult");

    check(symbol != NULL);
    memcpy(&make, &symbol, sizeof make);
    return make(conn, PGRES_FATAL_ERROR);
}

/* Sending. */

struct sending {
    PGconn *conn;
    bool struck;
    enum libpq_fault fault;
    int done; /* what it returns */
};

static const char *refusal(enum libpq_fault fault)
{
    return fault == LIBPQ_REFUSED
               ? "DO $$BEGIN RAISE 'canceled by the test' USING ERRCODE = '57014'; END$$"
               : "DO $$BEGIN RAISE 'deadlock of the test' USING ERRCODE = '40P01'; END$$";
}

/* Begin a call, which returns `failed` where it fails. True: it ends here, with sending->done; what
 * comes before it is done. */
static bool ends_here(struct sending *sending, PGconn *conn, enum where where, int failed)
{
    struct connection *connection = conn != NULL ? find(conn) : NULL;

    *sending = (struct sending){.conn = conn, .done = failed};
    sending->struck = connection != NULL && strikes(connection, where, &sending->fault);
    if (!sending->struck)
        return false;
    switch (sending->fault) {
    case LIBPQ_FAILS: return true;
    case LIBPQ_CUT: cut(conn); return false;
    case LIBPQ_HELD:
        connection->held = HELD_TRIES;
        sending->done = 1;
        return true;
    case LIBPQ_REFUSED:
    case LIBPQ_PASSING:
        sending->done = shim.real.PQsendQueryParams(conn, refusal(sending->fault), 0, NULL, NULL,
                                                    NULL, NULL, 1);
        return true;
    default: return false;
    }
}

/* It was `done`. */
static int end(const struct sending *sending, int done)
{
    struct pollfd writable = {.events = POLLOUT};

    if (sending->struck && sending->fault == LIBPQ_CUT_BEHIND) {
        writable.fd = shim.real.PQsocket(sending->conn);
        while (shim.real.PQflush(sending->conn) > 0)
            (void)poll(&writable, 1, SILENT_MS);
        cut(sending->conn);
    }
    return done;
}

static int send_params(PGconn *conn, const char *text, int count, const Oid *types,
                       const char *const *values, const int *lengths, const int *formats,
                       int format)
{
    struct sending sending;

    if (ends_here(&sending, conn, AT_STATEMENT, 0))
        return sending.done;
    return end(&sending, shim.real.PQsendQueryParams(conn, text, count, types, values, lengths,
                                                     formats, format));
}

static int send_prepared(PGconn *conn, const char *name, int count, const char *const *values,
                         const int *lengths, const int *formats, int format)
{
    struct sending sending;

    if (ends_here(&sending, conn, AT_STATEMENT, 0))
        return sending.done;
    return end(&sending,
               shim.real.PQsendQueryPrepared(conn, name, count, values, lengths, formats, format));
}

static int send_prepare(PGconn *conn, const char *name, const char *text, int count,
                        const Oid *types)
{
    struct sending sending;

    if (ends_here(&sending, conn, AT_STATEMENT, 0))
        return sending.done;
    return end(&sending, shim.real.PQsendPrepare(conn, name, text, count, types));
}

static int send_describe(PGconn *conn, const char *portal)
{
    struct sending sending;

    if (ends_here(&sending, conn, AT_STATEMENT, 0))
        return sending.done;
    return end(&sending, shim.real.PQsendDescribePortal(conn, portal));
}

static int send_query(PGconn *conn, const char *text)
{
    struct sending sending;

    if (ends_here(&sending, conn, AT_STATEMENT, 0))
        return sending.done;
    return end(&sending, shim.real.PQsendQuery(conn, text));
}

static int send_sync(PGconn *conn)
{
    struct sending sending;
    bool ends = ends_here(&sending, conn, AT_SYNC, 0);

    pthread_mutex_lock(&shim.lock);
    shim.trips += shim.sprung && conn != NULL && find_unlocked(conn)->counted;
    pthread_mutex_unlock(&shim.lock);
    return ends ? sending.done : end(&sending, shim.real.PQpipelineSync(conn));
}

static int put_data(PGconn *conn, const char *data, int len)
{
    struct sending sending;

    if (ends_here(&sending, conn, AT_PUT, -1))
        return sending.done;
    return end(&sending, shim.real.PQputCopyData(conn, data, len));
}

static int put_end(PGconn *conn, const char *failure)
{
    struct sending sending;

    if (ends_here(&sending, conn, AT_PUT, -1))
        return sending.done;
    return end(&sending, shim.real.PQputCopyEnd(conn, failure));
}

/* Reading. */

static void suffer(struct connection *connection, enum libpq_fault fault)
{
    switch (fault) {
    case LIBPQ_FAILS: connection->suffering = NO_MEMORY; break;
    case LIBPQ_CUT: cut(connection->conn); break;
    case LIBPQ_UNSENT: connection->suffering = UNSENT; break;
    case LIBPQ_UNREAD: connection->suffering = UNREAD; break;
    case LIBPQ_SILENT: connection->suffering = SILENT; break;
    case LIBPQ_WARNED:
    case LIBPQ_UNCONFIRMED:
        connection->receiver(connection->context, fault == LIBPQ_WARNED
                                                      ? (const PGresult *)&warning
                                                      : (const PGresult *)&standby_warning);
        break;
    default: check(false);
    }
}

/* The wait for something begins, unless it has. Return whether nothing comes for now. */
static bool waits(struct connection *connection, enum where where)
{
    enum libpq_fault fault = LIBPQ_FAILS;

    if (!connection->asked && strikes(connection, where, &fault))
        suffer(connection, fault);
    connection->asked = true;
    if (connection->suffering == SILENT)
        ((struct pg *)connection->context)->deadline_ms =
            clock_now_ms(&clock_monotonic) + SILENT_MS;
    return connection->suffering == SILENT || connection->suffering == UNSENT ||
           connection->suffering == UNREAD;
}

static int is_busy(PGconn *conn)
{
    return waits(find(conn), AT_RESULT) || shim.real.PQisBusy(conn);
}

static int flush(PGconn *conn)
{
    struct connection *connection = find(conn);

    if (connection->suffering == UNSENT)
        return -1;
    if (connection->held > 1)
        return connection->held-- > 0;
    if (connection->held == 1 && shim.real.PQpipelineSync(conn) != 1)
        return -1;
    connection->held = 0;
    return shim.real.PQflush(conn);
}

static int socket_of(const PGconn *conn)
{
    switch (find(conn)->suffering) {
    case SILENT: return shim.never;
    case UNREAD: return shim.always;
    default: return shim.real.PQsocket(conn);
    }
}

static int consume_input(PGconn *conn)
{
    return find(conn)->suffering == UNREAD ? 0 : shim.real.PQconsumeInput(conn);
}

/* The beginning of a COPY is never lacking memory: libpq would read it again. */
static PGresult *get_result(PGconn *conn)
{
    struct connection *connection = find(conn);
    PGresult *result = shim.real.PQgetResult(conn);
    ExecStatusType status = shim.real.PQresultStatus(result);

    connection->asked = false;
    if (connection->suffering == NO_MEMORY && result != NULL && status != PGRES_COPY_IN &&
        status != PGRES_COPY_OUT) {
        shim.real.PQclear(result);
        result = empty_result(conn);
        connection->suffering = WELL;
    }
    hold(result != NULL, 0);
    return result;
}

static int get_data(PGconn *conn, char **data, int async)
{
    struct connection *connection = find(conn);

    if (waits(connection, AT_DATA))
        return 0;
    if (connection->suffering == NO_MEMORY)
        return -2;
    int len = shim.real.PQgetCopyData(conn, data, async);
    connection->asked = len == 0;
    hold(0, len > 0);
    return len;
}

/* What is given out, and given back. */

static PGconn *connect_to(const char *const *keys, const char *const *values, int expand)
{
    static const char *const nowhere_keys[] = {"host", NULL}, *const nowhere[] = {"/nowhere", NULL};
    size_t at = 0;
    while (strcmp(keys[at], "application_name") != 0)
        check(keys[++at] != NULL);
    bool ours = strncmp(values[at], "stockade", 8) == 0;
    struct connection made = {.ours = ours,
                              .counted = ours && strcmp(values[at], "stockade watch") != 0};
    enum libpq_fault fault;

    made.conn = strikes(&made, AT_CONNECT, &fault)
                    ? shim.real.PQconnectdbParams(nowhere_keys, nowhere, 0)
                    : shim.real.PQconnectdbParams(keys, values, expand);
    pthread_mutex_lock(&shim.lock);
    *find_unlocked(NULL) = made;
    pthread_mutex_unlock(&shim.lock);
    hold(0, 1);
    return made.conn;
}

/* Of a connection that asks why the one before was refused: it sends nothing. */
static PGconn *begin_to_connect(const char *const *keys, const char *const *values, int expand)
{
    struct connection made = {.conn = shim.real.PQconnectStartParams(keys, values, expand)};

    pthread_mutex_lock(&shim.lock);
    *find_unlocked(NULL) = made;
    pthread_mutex_unlock(&shim.lock);
    hold(0, 1);
    return made.conn;
}

static void finish(PGconn *conn)
{
    struct connection *connection = find(conn);

    pthread_mutex_lock(&shim.lock);
    *connection = (struct connection){.conn = NULL};
    pthread_mutex_unlock(&shim.lock);
    shim.real.PQfinish(conn);
    hold(0, -1);
}

static PQnoticeReceiver set_receiver(PGconn *conn, PQnoticeReceiver receiver, void *context)
{
    struct connection *connection = find(conn);

    connection->receiver = receiver;
    connection->context = context;
    return shim.real.PQsetNoticeReceiver(conn, receiver, context);
}

static char *error_field(const PGresult *result, int field)
{
    static char severity[] = "WARNING", text[] = "a warning of the test's", standby[] = "syncrep.c",
                other[] = "varsup.c";
    bool is_of_standby = result == (const PGresult *)&standby_warning;

    if (!is_of_standby && result != (const PGresult *)&warning)
        return shim.real.PQresultErrorField(result, field);
    switch (field) {
    case PG_DIAG_SEVERITY_NONLOCALIZED: return severity;
    case PG_DIAG_MESSAGE_PRIMARY: return text;
    case PG_DIAG_SOURCE_FILE: return is_of_standby ? standby : other;
    default: return NULL;
    }
}

static char *or_ours(char *text)
{
    static char ours[] = "the test has made this call fail";
    return text[0] != '\0' ? text : ours;
}

static char *error_message(const PGconn *conn)
{
    return or_ours(shim.real.PQerrorMessage(conn));
}

static char *result_message(const PGresult *result)
{
    return or_ours(shim.real.PQresultErrorMessage(result));
}

static void clear(PGresult *result)
{
    hold(-(result != NULL), 0);
    shim.real.PQclear(result);
}

static PGnotify *notifies(PGconn *conn)
{
    PGnotify *news = shim.real.PQnotifies(conn);

    hold(0, news != NULL);
    return news;
}

static PQconninfoOption *parse_uri(const char *uri, char **error)
{
    PQconninfoOption *options = shim.real.PQconninfoParse(uri, error);

    hold(0, *error != NULL);
    return options;
}

static void free_memory(void *memory)
{
    hold(0, -(memory != NULL));
    shim.real.PQfreemem(memory);
}

bool __wrap_libpq_load(struct libpq *pq, char *why, size_t why_size)
{
    bool loaded = __real_libpq_load(pq, why, why_size);

    pthread_mutex_lock(&shim.lock);
    if (loaded && shim.real.PQclear == NULL) {
        shim.real = *pq;
        shim.never = eventfd(0, EFD_CLOEXEC);
        shim.always = eventfd(1, EFD_CLOEXEC);
    }
    pthread_mutex_unlock(&shim.lock);
    pq->PQclear = clear;
    pq->PQconnectdbParams = connect_to;
    pq->PQconnectStartParams = begin_to_connect;
    pq->PQconninfoParse = parse_uri;
    pq->PQconsumeInput = consume_input;
    pq->PQerrorMessage = error_message;
    pq->PQfinish = finish;
    pq->PQflush = flush;
    pq->PQfreemem = free_memory;
    pq->PQgetCopyData = get_data;
    pq->PQgetResult = get_result;
    pq->PQisBusy = is_busy;
    pq->PQnotifies = notifies;
    pq->PQpipelineSync = send_sync;
    pq->PQputCopyData = put_data;
    pq->PQputCopyEnd = put_end;
    pq->PQresultErrorField = error_field;
    pq->PQresultErrorMessage = result_message;
    pq->PQsendDescribePortal = send_describe;
    pq->PQsendPrepare = send_prepare;
    pq->PQsendQuery = send_query;
    pq->PQsendQueryParams = send_params;
    pq->PQsendQueryPrepared = send_prepared;
    pq->PQsetNoticeReceiver = set_receiver;
    pq->PQsocket = socket_of;
    return loaded;
}
