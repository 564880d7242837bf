/* SPDX-License-Identifier: Apache-2.0 */
/* A call to libpq goes wrong, at every place where it can, in every operation: what is answered is
 * right, or it is an error that says why and nothing has been done; nobody waits for ever, and the
 * store goes on by itself. tests/system/test_postgresql_libpq.py runs this with a server.
 *
 * Each operation has resources of its own, which are furnished before. What the database then has
 * of them is compared with what it has where nothing goes wrong. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/maintenance.h"
#include "store/postgresql/pg.h"
#include "store/postgresql/uri.h"
#include "tests/libpq/fault_libpq.h"
#include "tests/unit/deadline.h"
#include "tests/unit/store/rig.h"

enum {
    ANSWER_MS_MAX = PG_TIMEOUT_MS - 100, /* of an operation: nobody waits where nothing will come */
    DONE_MS_MAX = 20000,                 /* until it is done, and of maintenance */
    HEAL_MS = 300,                       /* of a fault that lasts */
    PLACES_MAX = 4000,
    FAILURES_MAX = 30,
};

#define ANY_TIME_MS (INT64_C(1) << 50) /* later than all there is */

/* A run of an operation. */
struct run {
    char name[32], other[32], table[32];
    char seen[256]; /* by a read */
};

struct operation {
    const char *name;
    bool reads;
    const char *furnish_sql; /* with %s for the name, and for the table */
    enum stk_error (*furnish)(struct store_txn *txn, struct run *run); /* may be NULL */
    enum stk_error (*run)(struct store_txn *txn, struct run *run);
    const char *cut; /* connections that are cut before, a pattern; NULL: none */
};

/* What operations do. Each passes on what fails, as those of the engine do. */

static enum stk_error find_or_make(struct store_txn *txn, const char *name, struct resource *row)
{
    enum stk_error error = txn_resource(txn, bytes_of(name), row);
    return error != STK_OK ? error : txn_resource_make(txn, bytes_of(name), row);
}

static enum stk_error acquire_one(struct store_txn *txn, const char *name)
{
    enum stk_error error;
    struct resource row;
    struct lease lease;

    if (txn_failed(error = find_or_make(txn, name, &row)) ||
        txn_failed(error = txn_lease(txn, &row, &lease)))
        return error;
    lease.owner = bytes_of("somebody");
    lease.holds = 1;
    lease.ttl_ms = 60000;
    row.fence.token = row.fence.floor + 1;
    row.fence.state = FENCE_LIVE;
    return txn_fence_put(txn, &row, &lease);
}

static enum stk_error acquire(struct store_txn *txn, struct run *run)
{
    return acquire_one(txn, run->name);
}

static enum stk_error acquire_both(struct store_txn *txn, struct run *run)
{
    enum stk_error error = acquire_one(txn, run->name);
    return error != STK_OK ? error : acquire_one(txn, run->other);
}

static enum stk_error renew(struct store_txn *txn, struct run *run)
{
    enum stk_error error;
    struct resource row;
    struct lease lease;

    if (txn_failed(error = txn_resource(txn, bytes_of(run->name), &row)) ||
        txn_failed(error = txn_lease(txn, &row, &lease)))
        return error;
    lease.ttl_ms += 1000;
    return txn_fence_put(txn, &row, &lease);
}

static enum stk_error end_lease(struct store_txn *txn, struct run *run, enum fence_state state)
{
    enum stk_error error;
    struct resource row;
    struct lease lease;

    if (txn_failed(error = txn_resource(txn, bytes_of(run->name), &row)) ||
        txn_failed(error = txn_lease(txn, &row, &lease)))
        return error;
    lease.holds = 0;
    row.fence.state = state;
    return txn_fence_put(txn, &row, &lease);
}

static enum stk_error release(struct store_txn *txn, struct run *run)
{
    return end_lease(txn, run, FENCE_RELEASED);
}

static enum stk_error revoke_it(struct store_txn *txn, struct run *run)
{
    return end_lease(txn, run, FENCE_REVOKED);
}

/* Once more, so that one which is applied twice is seen. */
static enum stk_error count_up(struct store_txn *txn, const char *name)
{
    enum stk_error error;
    struct resource row;
    struct bytes value;
    char text[16] = "0";
    bool found;

    if (txn_failed(error = find_or_make(txn, name, &row)) ||
        txn_failed(error = txn_string(txn, &row, &found, &value)))
        return error;
    if (found)
        snprintf(text, sizeof text, "%.*s", (int)value.len, value.data);
    int len = snprintf(text, sizeof text, "%d", atoi(text) + 1);
    return txn_string_put(txn, &row, (struct bytes){text, (size_t)len});
}

static enum stk_error write_plainly(struct store_txn *txn, struct run *run)
{
    return count_up(txn, run->name);
}

static enum stk_error write_fenced(struct store_txn *txn, struct run *run)
{
    struct receipt receipt = {.reply = bytes_of("+OK\r\n")};
    enum stk_error error;
    struct resource row;
    bool found;

    if (txn_failed(error = txn_resource(txn, bytes_of(run->name), &row)) ||
        txn_failed(error = txn_receipt(txn, &row, bytes_of("id"), &found, &receipt)) || found)
        return error;
    receipt.token = row.fence.token;
    if (txn_failed(error = count_up(txn, run->name)))
        return error;
    return txn_receipt_put(txn, &row, bytes_of("id"), &receipt);
}

/* Both, or none. */
static enum stk_error transact(struct store_txn *txn, struct run *run)
{
    enum stk_error error;

    if (txn_failed(error = txn_savepoint(txn)) || txn_failed(error = count_up(txn, run->name)) ||
        txn_failed(error = txn_savepoint_keep(txn)) ||
        txn_failed(error = count_up(txn, run->other)) || txn_failed(error = txn_savepoint(txn)) ||
        txn_failed(error = count_up(txn, run->name)))
        return error;
    return txn_savepoint_undo(txn);
}

static enum stk_error put_fields(struct store_txn *txn, struct run *run)
{
    enum stk_error error;
    struct resource row;

    if (txn_failed(error = find_or_make(txn, run->name, &row)) ||
        txn_failed(error = txn_field_put(txn, &row, bytes_of("f"), bytes_of("1"))))
        return error;
    return txn_field_put(txn, &row, bytes_of("g"), bytes_of("1"));
}

static bool each_field(void *context, struct bytes field, struct bytes value)
{
    char *seen = context;
    size_t used = strlen(seen);

    snprintf(seen + used, 64, "%.*s=%.*s ", (int)field.len, field.data, (int)value.len, value.data);
    return true;
}

static enum stk_error change_fields(struct store_txn *txn, struct run *run)
{
    enum stk_error error;
    struct resource row;
    int64_t count;
    bool found;

    run->seen[0] = '\0';
    if (txn_failed(error = txn_resource(txn, bytes_of(run->name), &row)) ||
        txn_failed(error = txn_field_remove(txn, &row, bytes_of("f"), &found)) ||
        txn_failed(error = txn_count_fields(txn, &row, &count)) ||
        txn_failed(error = txn_each_field_from(txn, &row, bytes_of(""), each_field, run->seen)))
        return error;
    return txn_field_put(txn, &row, bytes_of("h"), bytes_of("2"));
}

static enum stk_error read_string(struct store_txn *txn, struct run *run)
{
    enum stk_error error;
    struct resource row;
    struct bytes value;
    bool found;

    if (txn_failed(error = txn_resource(txn, bytes_of(run->name), &row)) ||
        txn_failed(error = txn_string(txn, &row, &found, &value)))
        return error;
    snprintf(run->seen, sizeof run->seen, "%d %.*s", found, found ? (int)value.len : 0,
             found ? value.data : "");
    return STK_OK;
}

static enum stk_error read_fields(struct store_txn *txn, struct run *run)
{
    enum stk_error error;
    struct resource row;

    run->seen[0] = '\0';
    if (txn_failed(error = txn_resource(txn, bytes_of(run->name), &row)))
        return error;
    return txn_each_field_from(txn, &row, bytes_of(""), each_field, run->seen);
}

static bool each_name(void *context, int64_t id, struct bytes name, enum value_type type)
{
    (void)context, (void)id, (void)name, (void)type;
    return true;
}

static enum stk_error list(struct store_txn *txn, struct run *run)
{
    enum stk_error error;
    int64_t live, keys;

    (void)run;
    if (txn_failed(error = txn_each_live(txn, 0, each_name, NULL)) ||
        txn_failed(error = txn_each_key(txn, 0, each_name, NULL)) ||
        txn_failed(error = txn_count_live(txn, &live)))
        return error;
    return txn_count_keys(txn, &keys);
}

static void on_columns(void *context, const char *const *names, size_t count)
{
    (void)context, (void)names, (void)count;
}

static bool on_row(void *context, const struct sql_value *values, size_t count)
{
    snprintf(context, 32, "%zu %lld", count, (long long)values[0].integer);
    return true;
}

static enum stk_error use_sql(struct store_txn *txn, struct run *run, enum sql_right right,
                              const char *statement)
{
    const struct sql_value param = {.type = SQL_TEXT, .bytes = bytes_of(run->name)};
    struct sql_call call = {.statement = bytes_of(statement),
                            .params = &param,
                            .params_count = 1,
                            .right = right,
                            .time_limit_ms = 5000,
                            .columns = on_columns,
                            .row = on_row,
                            .context = run->seen};

    run->seen[0] = '\0';
    return txn_sql(txn, &call);
}

static enum stk_error read_sql(struct store_txn *txn, struct run *run)
{
    return use_sql(txn, run, SQL_MAY_READ, "SELECT n FROM public.sales WHERE sku = $1");
}

static enum stk_error write_sql(struct store_txn *txn, struct run *run)
{
    enum stk_error error;
    struct resource row;

    if (txn_failed(error = txn_resource(txn, bytes_of(run->name), &row)))
        return error;
    const struct claim claim = {.resource = bytes_of(run->name), .token = row.fence.token};
    txn_present(txn, &claim, 1);
    if (txn_failed(error = use_sql(txn, run, SQL_MAY_WRITE,
                                   "UPDATE public.sales SET n = n + 1 WHERE sku = $1")))
        return error;
    return count_up(txn, run->name);
}

static enum stk_error put_guard(struct store_txn *txn, struct run *run)
{
    char why[SQL_WHY_MAX] = "";
    return txn_guard_create(txn,
                            &(struct table_guard){.table = bytes_of(run->table),
                                                  .column = bytes_of("sku"),
                                                  .prefix = bytes_of("sku:")},
                            why);
}

static enum stk_error drop_guard(struct store_txn *txn, struct run *run)
{
    char why[SQL_WHY_MAX] = "";
    return txn_guard_drop(txn, bytes_of(run->table), why);
}

static void each_guard(void *context, const struct table_guard *guard, struct bytes flaw)
{
    (void)context, (void)guard, (void)flaw;
}

static enum stk_error list_guards(struct store_txn *txn, struct run *run)
{
    (void)run;
    return txn_guards(txn, each_guard, NULL);
}

static enum stk_error acquire_and_release(struct store_txn *txn, struct run *run)
{
    enum stk_error error;

    if (txn_failed(error = acquire(txn, run)) || txn_failed(error = write_fenced(txn, run)))
        return error;
    return release(txn, run);
}

static enum stk_error be_through(struct store_txn *txn, struct run *run)
{
    enum stk_error error = acquire(txn, run);
    return error != STK_OK ? error : release(txn, run);
}

static enum stk_error forget_receipts(struct store_txn *txn, struct run *run)
{
    size_t removed;
    bool more;

    (void)run;
    return txn_sweep_receipts(txn, ANY_TIME_MS, 100000, &removed, &more);
}

static enum stk_error forget_resources(struct store_txn *txn, struct run *run)
{
    int64_t after = 0;
    size_t removed;
    bool more;

    (void)run;
    return txn_sweep_resources(txn, ANY_TIME_MS, INT64_MIN, 100000, &after, &removed, &more);
}

static enum stk_error flush(struct store_txn *txn, struct run *run)
{
    struct flush_walk walk = {0};

    (void)run;
    return txn_flush(txn, 1000000, &walk);
}

static enum stk_error keep_head(struct store_txn *txn, struct run *run)
{
    bool restored;
    return txn_audit_head(txn, bytes_of(run->name), 7, bytes_of("hash"), &restored);
}

/* A line to wait in: who waits at another daemon wants to be told. */
static enum stk_error wait_for(struct store_txn *txn, struct run *run)
{
    enum stk_error error;
    struct resource row;

    if (txn_failed(error = txn_resource(txn, bytes_of(run->name), &row)))
        return error;
    return txn_await(txn, &row);
}

static enum stk_error read_field(struct store_txn *txn, struct run *run)
{
    enum stk_error error;
    struct resource row;
    struct bytes value;
    bool found;

    if (txn_failed(error = txn_resource(txn, bytes_of(run->name), &row)) ||
        txn_failed(error = txn_field(txn, &row, bytes_of("f"), &found, &value)))
        return error;
    snprintf(run->seen, sizeof run->seen, "%d %.*s", found, found ? (int)value.len : 0,
             found ? value.data : "");
    return STK_OK;
}

static enum stk_error write_both(struct store_txn *txn, struct run *run)
{
    enum stk_error error = acquire(txn, run);
    return error != STK_OK ? error : write_fenced(txn, run);
}

static bool each_receipt(void *context, struct bytes id, const struct receipt *receipt)
{
    snprintf(context, 32, "%.*s %.*s", (int)id.len, id.data, (int)receipt->reply.len - 2,
             receipt->reply.data);
    return true;
}

static enum stk_error read_receipts(struct store_txn *txn, struct run *run)
{
    enum stk_error error;
    struct resource row;

    run->seen[0] = '\0';
    if (txn_failed(error = txn_resource(txn, bytes_of(run->name), &row)))
        return error;
    return txn_each_receipt(txn, &row, each_receipt, run->seen);
}

static enum stk_error take_back(struct store_txn *txn, struct run *run)
{
    enum stk_error error;
    struct resource row;

    if (txn_failed(error = txn_resource(txn, bytes_of(run->name), &row)) ||
        txn_failed(error = txn_value_clear(txn, &row)))
        return error;
    return txn_receipt_remove(txn, &row, bytes_of("id"));
}

static enum stk_error look_for_old(struct store_txn *txn, struct run *run)
{
    enum stk_error error;
    int64_t after = 0;
    bool due, more;

    (void)run;
    if (txn_failed(error = txn_receipts_due(txn, ANY_TIME_MS, &due)))
        return error;
    return txn_resources_due(txn, ANY_TIME_MS, INT64_MIN, 1000, &after, &due, &more);
}

#define SALES  "INSERT INTO public.sales VALUES('%s', 5)"
#define WARES  "SELECT '%s'; CREATE TABLE public.%s(sku text PRIMARY KEY, n int)"
#define ENDING "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE "

static const struct operation operations[] = {
    {.name = "acquire a new name", .run = acquire},
    {.name = "acquire", .furnish = acquire_and_release, .run = acquire},
    {.name = "renew", .furnish = acquire, .run = renew},
    {.name = "release", .furnish = acquire, .run = release},
    {.name = "revoke", .furnish = acquire, .run = revoke_it},
    {.name = "wait for a lease", .furnish = acquire, .run = wait_for},
    {.name = "take back a value and a receipt", .furnish = write_both, .run = take_back},
    {.name = "write under a token", .furnish = acquire, .run = write_fenced},
    {.name = "write", .furnish = write_plainly, .run = write_plainly},
    {.name = "a transaction", .furnish = acquire_both, .run = transact},
    {.name = "change fields", .furnish = put_fields, .run = change_fields},
    {.name = "read a string", .reads = true, .furnish = write_plainly, .run = read_string},
    {.name = "read fields", .reads = true, .furnish = put_fields, .run = read_fields},
    {.name = "read a field", .reads = true, .furnish = put_fields, .run = read_field},
    {.name = "read receipts", .reads = true, .furnish = write_both, .run = read_receipts},
    {.name = "look for what is old", .reads = true, .run = look_for_old},
    {.name = "list", .reads = true, .run = list},
    {.name = "read by SQL", .reads = true, .furnish_sql = SALES, .run = read_sql},
    {.name = "write by SQL", .furnish_sql = SALES, .furnish = acquire, .run = write_sql},
    {.name = "put a guard", .furnish_sql = WARES, .run = put_guard},
    {.name = "drop a guard", .furnish_sql = WARES, .furnish = put_guard, .run = drop_guard},
    {.name = "list guards", .reads = true, .run = list_guards},
    {.name = "forget receipts", .furnish = acquire_and_release, .run = forget_receipts},
    {.name = "forget resources", .furnish = be_through, .run = forget_resources},
    {.name = "remove all", .furnish = acquire_both, .run = flush},
    {.name = "keep an audit's head", .run = keep_head},
    {.name = "write on a new connection",
     .furnish = acquire,
     .run = write_fenced,
     .cut = "stockade writer%"},
    {.name = "read on a new connection",
     .reads = true,
     .furnish = write_plainly,
     .run = read_string,
     .cut = "stockade reader"},
};

/* What the database has. */

struct sweep {
    struct rig *rig;
    struct pg inspector; /* a connection of its own, which nothing goes wrong with */
    int serial;
    uint64_t chance;
    int runs, failures;
    int64_t begun_ms;
    char what[160]; /* goes wrong just now */
};

/* A sweep tells all that it finds, to a point. */
#define complain(sweep, ...)                                                                       \
    do {                                                                                           \
        print_error(__VA_ARGS__);                                                                  \
        assert_true(++(sweep)->failures < FAILURES_MAX);                                           \
    } while (0)

static void inspect(struct sweep *sweep, const char *sql, char *out, size_t size)
{
    struct pg *pg = &sweep->inspector;

    pg_send_text(pg, sql);
    pg_sync(pg);
    PGresult *result = pg_take(pg);
    if (!pg_end(pg))
        fail_msg("%s: %s", sql, pg->why);
    out[0] = '\0';
    if (pg->pq.PQntuples(result) == 1)
        pg_value_text(pg, result, 0, 0, out, size);
    pg->pq.PQclear(result);
}

static void do_sql(struct sweep *sweep, const char *sql)
{
    if (!pg_run(&sweep->inspector, sql))
        fail_msg("%s: %s", sql, sweep->inspector.why);
}

/* Tokens are told from the floor on. */
static void look(struct sweep *sweep, const struct run *run, char *out, size_t size)
{
    char sql[2048];
    int len = snprintf(
        sql, sizeof sql,
        "WITH mine AS (SELECT resource.*, floor, stockade.state_of(token, state, ended) AS now"
        " FROM stockade.resource, stockade.meta WHERE name IN ('%s', '%s'))"
        " SELECT concat_ws(' | ',"
        " (SELECT string_agg(concat_ws(',', right(name::text, 2), nullif(token, 0) - floor, now, "
        "type, holds,"
        " ttl_ms, fields, owner, value, CASE WHEN waited THEN 'waited' END), ';' ORDER BY name) "
        "FROM mine),"
        " (SELECT string_agg(concat(f.field, '=', f.value), ',' ORDER BY f.field)"
        " FROM mine JOIN stockade.field f ON f.resource = mine.id),"
        " (SELECT string_agg(concat(r.id, '@', r.token - floor, '=', r.reply), ',')"
        " FROM mine JOIN stockade.receipt r ON r.resource = mine.id),"
        " (SELECT concat('sold ', n) FROM public.sales WHERE sku = '%s'),"
        " (SELECT string_agg(concat(key, ' ', prefix), ',') FROM stockade.guard"
        " WHERE guard.name = '%s'),"
        " (SELECT concat('triggers ', count(*)) FROM pg_trigger"
        " WHERE tgrelid = to_regclass('public.%s') AND NOT tgisinternal),"
        " (SELECT concat(lines, hash) FROM stockade.audit WHERE chain = '%s'))",
        run->name, run->other, run->name, run->table, run->table, run->name);

    assert_true((size_t)len < sizeof sql);
    inspect(sweep, sql, out, size);
}

/* One operation in the store. */

struct asked {
    struct rig_op rig;
    const struct operation *operation;
    struct run *run;
    bool furnishes;
    char why[STORE_WHY_MAX];
};

static enum stk_error run_asked(struct store_op *op, struct store_txn *txn)
{
    struct asked *asked = (struct asked *)op;
    const struct operation *operation = asked->operation;

    return (asked->furnishes ? operation->furnish : operation->run)(txn, asked->run);
}

static void asked_done(struct store_op *op)
{
    struct asked *asked = (struct asked *)op;

    snprintf(asked->why, sizeof asked->why, "%s", op->why != NULL ? op->why : "");
    asked->rig.done++;
}

/* Until it is answered. A fault that lasts ends after a while. */
static void ask(struct sweep *sweep, struct asked *asked, bool heals)
{
    struct pollfd woken = {.fd = sweep->rig->woken[0], .events = POLLIN};
    struct deadline deadline = deadline_in(ANSWER_MS_MAX);

    asked->rig = rig_op(!asked->operation->reads || asked->furnishes, NULL, NULL);
    asked->rig.base.run = run_asked;
    asked->rig.base.done = asked_done;
    asked->rig.base.about = bytes_of(asked->run->name);
    rig_submit(sweep->rig, &asked->rig);
    while (asked->rig.done == 0) {
        char bytes[256];
        if (poll(&woken, 1, 1) == 1)
            assert_true(read(woken.fd, bytes, sizeof bytes) > 0);
        store_collect(sweep->rig->store);
        if (heals && deadline_spent_ms(&deadline) > HEAL_MS)
            (void)fault_libpq_clear();
        if (deadline_spent_ms(&deadline) > ANSWER_MS_MAX)
            print_error("%s: no answer to %s\n", sweep->what, asked->operation->name);
        deadline_keep(&deadline);
    }
}

/* Nothing goes wrong: by and by, also after what went wrong before. */
static void ask_until_done(struct sweep *sweep, struct asked *asked)
{
    struct deadline deadline = deadline_in(DONE_MS_MAX);

    do {
        ask(sweep, asked, false);
        if (deadline_spent_ms(&deadline) > DONE_MS_MAX)
            print_error("%s: %s refused: %s\n", sweep->what, asked->operation->name, asked->why);
        deadline_keep(&deadline);
    } while (asked->rig.base.error == STK_STORE);
    if (asked->rig.base.error != STK_OK)
        fail_msg("%s: %d %s", asked->operation->name, (int)asked->rig.base.error, asked->why);
}

static void begin_run(struct sweep *sweep, const struct operation *operation, struct run *run)
{
    struct asked asked = {.operation = operation, .run = run, .furnishes = true};
    char sql[512];

    *run = (struct run){.seen = ""};
    sweep->serial++;
    snprintf(run->name, sizeof run->name, "n%d.a", sweep->serial);
    snprintf(run->other, sizeof run->other, "n%d.b", sweep->serial);
    snprintf(run->table, sizeof run->table, "wares_%d", sweep->serial);
    if (operation->furnish_sql != NULL) {
        snprintf(sql, sizeof sql, operation->furnish_sql, run->name, run->table);
        do_sql(sweep, sql);
    }
    if (operation->furnish != NULL)
        ask_until_done(sweep, &asked);
    if (operation->cut != NULL) {
        snprintf(sql, sizeof sql, ENDING "'%s'", operation->cut);
        do_sql(sweep, sql);
    }
}

static void expect_no_results(const char *what)
{
    struct deadline deadline = deadline_in(2000); /* it is taken at once */

    while (fault_libpq_results() != 0) { /* the watch may have one */
        struct timespec moment = {.tv_nsec = 200000};
        if (deadline_spent_ms(&deadline) > 1900)
            fail_msg("%s: %d results are leaked", what, fault_libpq_results());
        (void)nanosleep(&moment, NULL); /* between two looks */
    }
}

enum { LOOK_SIZE = 1024 };

struct expected {
    char before[LOOK_SIZE], after[LOOK_SIZE], seen[256];
};

/* It goes on by itself: both threads' connections are there again. */
static void expect_good(struct sweep *sweep)
{
    static const struct operation any[] = {{.name = "any write", .run = write_plainly},
                                           {.name = "any read", .reads = true, .run = list}};

    for (size_t i = 0; i < COUNT(any); i++) {
        struct run run = {.name = "any"};
        struct asked asked = {.operation = &any[i], .run = &run};
        ask_until_done(sweep, &asked);
    }
}

/* Run it once with the fault at this place. False: there is no such place. */
static bool strike(struct sweep *sweep, const struct operation *operation,
                   const struct expected *expected, enum libpq_fault fault, int n, bool lasts)
{
    struct run run;
    struct asked asked = {.operation = operation, .run = &run};
    char *what = sweep->what, now[LOOK_SIZE];

    snprintf(what, sizeof sweep->what, "%s, call %d%s: %s", operation->name, n,
             lasts ? " and on" : "", libpq_fault_words(fault));
    begin_run(sweep, operation, &run);
    fault_libpq_set(fault, n, lasts);
    ask(sweep, &asked, lasts);
    int trips = fault_libpq_trips();
    bool sprung = fault_libpq_clear();
    look(sweep, &run, now, sizeof now);
    if (asked.rig.base.error == STK_STORE && asked.why[0] == '\0')
        complain(sweep, "%s: %s, and nothing says why (%d)\n", what,
                 stk_error_code(asked.rig.base.error), sprung);
    if (strstr(asked.why, "NULL") != NULL)
        complain(sweep, "%s: the reason is libpq's of no connection: %s\n", what, asked.why);
    if (strcmp(now, asked.rig.base.error == STK_OK ? expected->after : expected->before) != 0)
        complain(sweep, "%s: answered %d (%s)\nhas    %s\nbefore %s\nafter  %s\n", what,
                 (int)asked.rig.base.error, asked.why, now, expected->before, expected->after);
    if (asked.rig.base.error == STK_OK && strcmp(run.seen, expected->seen) != 0)
        complain(sweep, "%s: a read has seen %s instead of %s\n", what, run.seen, expected->seen);
    if (fault == LIBPQ_HELD && asked.rig.base.error != STK_OK)
        complain(sweep, "%s: it is refused: %s\n", what, asked.why);
    if (sprung && fault == LIBPQ_UNCONFIRMED && operation->reads &&
        asked.rig.base.error == STK_OK && trips == 0)
        complain(sweep, "%s: a read is answered that no standby may have\n", what);
    expect_no_results(what);
    expect_good(sweep);
    sweep->runs++;
    return sprung;
}

static void expect(struct sweep *sweep, const struct operation *operation,
                   struct expected *expected)
{
    struct run run;
    struct asked asked = {.operation = operation, .run = &run};

    begin_run(sweep, operation, &run);
    look(sweep, &run, expected->before, sizeof expected->before);
    ask_until_done(sweep, &asked);
    look(sweep, &run, expected->after, sizeof expected->after);
    snprintf(expected->seen, sizeof expected->seen, "%s", run.seen);
    if (operation->reads != (strcmp(expected->before, expected->after) == 0))
        fail_msg("%s: %s", operation->name, expected->after);
}

static int draw(struct sweep *sweep, int below)
{
    sweep->chance ^= sweep->chance << 13;
    sweep->chance ^= sweep->chance >> 7;
    sweep->chance ^= sweep->chance << 17;
    return (int)(sweep->chance % (uint64_t)below);
}

static int number_of(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? atoi(text) : otherwise;
}

static void sweep_begin(struct sweep *sweep, struct rig *rig)
{
    *sweep = (struct sweep){
        .rig = rig, .inspector = {.uri = rig->path, .name = "inspector", .timeout_ms = 20000}};
    sweep->chance = UINT64_C(0x9e3779b97f4a7c15) * (uint64_t)number_of("SEED", 1);
    sweep->begun_ms = clock_now_ms(&clock_monotonic);
    if (!pg_connect(&sweep->inspector))
        fail_msg("%s", sweep->inspector.why);
    do_sql(sweep, "CREATE TABLE IF NOT EXISTS public.sales(sku text PRIMARY KEY, n int);"
                  "GRANT SELECT, UPDATE ON public.sales TO stockade_sql");
}

static void sweep_end(struct sweep *sweep)
{
    printf("# %d runs, %lld ms\n", sweep->runs,
           (long long)(clock_now_ms(&clock_monotonic) - sweep->begun_ms));
    if (sweep->failures > 0) {
        const char *log = rig_log(sweep->rig);
        fputs(log, stderr);
        fail_msg("%d places", sweep->failures);
    }
    pg_drop(&sweep->inspector);
    rig_close(sweep->rig);
    assert_int_equal(fault_libpq_held(), 0);
}

/* At one of so many places, by every fault. */
static void sweep_one(struct sweep *sweep, const struct operation *operation, int every)
{
    struct expected expected;

    expect(sweep, operation, &expected);
    for (int fault = 0; fault < LIBPQ_FAULTS_COUNT; fault++)
        for (int lasts = 0; lasts < 2; lasts++) {
            int step = every * (lasts ? 4 : 1);
            if (lasts && fault != LIBPQ_FAILS && fault != LIBPQ_CUT)
                continue;
            for (int n = 1 + draw(sweep, step); n < PLACES_MAX; n += step)
                if (!strike(sweep, operation, &expected, (enum libpq_fault)fault, n, lasts))
                    break;
        }
}

/* A few, anywhere. */
static void sweep_some(struct sweep *sweep, int runs)
{
    struct expected expected[COUNT(operations)];

    for (size_t i = 0; i < COUNT(operations); i++)
        expect(sweep, &operations[i], &expected[i]);
    while (sweep->runs < runs) {
        int i = draw(sweep, COUNT(operations));
        int places = operations[i].cut != NULL ? 300 : 60;
        (void)strike(sweep, &operations[i], &expected[i],
                     (enum libpq_fault)draw(sweep, LIBPQ_FAULTS_COUNT), 1 + draw(sweep, places),
                     false);
    }
}

/* Of one operation with ONLY, at one of EVERY places; otherwise so many RUNS of any. */
TEST_WITH(rig_postgresql, rig_end, struct rig *rig,
          whatever_call_goes_wrong_an_operation_is_done_once_or_refused_and_not_done)
{
    const char *only = getenv("ONLY");
    struct sweep sweep;

    sweep_begin(&sweep, rig);
    for (size_t i = 0; i < COUNT(operations) && only != NULL; i++)
        if (strcmp(only, operations[i].name) == 0)
            sweep_one(&sweep, &operations[i], number_of("EVERY", 1));
    if (only == NULL)
        sweep_some(&sweep, number_of("RUNS", 60));
    sweep_end(&sweep);
}

/* Maintenance, while the store is open. */

struct upkeep {
    const char *name;
    bool (*run)(struct sweep *sweep, const char *file, char *why, size_t why_size);
    bool changes; /* the store: what is there is then what was in the backup */
};

static bool back_up(struct sweep *sweep, const char *file, char *why, size_t why_size)
{
    struct backup_call call = {.store = sweep->rig->path, .file = file, .replace = true};
    return store_postgresql_backup(&call, why, why_size);
}

static bool restore(struct sweep *sweep, const char *file, char *why, size_t why_size)
{
    struct restore_call call = {.store = sweep->rig->path, .file = file};
    return store_postgresql_restore(&call, why, why_size);
}

/* What they find in the store. */
static const struct operation kept = {.name = "keep", .run = write_plainly};

static const struct upkeep upkeeps[] = {{"back up", back_up, false}, {"restore", restore, true}};

/* How often it was written to: once before the backup, twice now. */
static void expect_count(struct sweep *sweep, const char *what, bool restored)
{
    char count[16];

    inspect(sweep, "SELECT convert_from(value, 'UTF8') FROM stockade.resource WHERE name = 'kept'",
            count, sizeof count);
    if (strcmp(count, restored ? "1" : "2") != 0)
        complain(sweep, "%s: %s, and has %s\n", what, restored ? "done" : "refused", count);
}

static bool strike_upkeep(struct sweep *sweep, const struct upkeep *upkeep, const char *file,
                          enum libpq_fault fault, int n)
{
    struct run run = {.name = "kept"};
    struct asked asked = {.operation = &kept, .run = &run};
    char why[MAINTENANCE_WHY_MAX] = "";
    struct deadline deadline = deadline_in(DONE_MS_MAX);

    do_sql(sweep, "UPDATE stockade.resource SET value = '1' WHERE name = 'kept'");
    ask_until_done(sweep, &asked);
    snprintf(sweep->what, sizeof sweep->what, "%s, call %d: %s", upkeep->name, n,
             libpq_fault_words(fault));
    fault_libpq_set(fault, n, false);
    bool done = upkeep->run(sweep, file, why, sizeof why);
    bool sprung = fault_libpq_clear();
    deadline_keep(&deadline);
    if (!done && why[0] == '\0')
        complain(sweep, "%s: nothing says why\n", sweep->what);
    if (fault != LIBPQ_UNCONFIRMED)
        expect_count(sweep, sweep->what, done && upkeep->changes);
    expect_no_results(sweep->what);
    expect_good(sweep);
    sweep->runs++;
    return sprung;
}

TEST_WITH(rig_postgresql, rig_end, struct rig *rig,
          whatever_call_goes_wrong_a_backup_and_a_restore_are_done_or_not_as_they_say)
{
    const char *only = getenv("ONLY");
    char file[128], why[MAINTENANCE_WHY_MAX];
    struct sweep sweep;

    sweep_begin(&sweep, rig);
    snprintf(file, sizeof file, "%s/backup.db", rig->folder);
    for (size_t i = 0; i < COUNT(upkeeps); i++) {
        const struct upkeep *upkeep = &upkeeps[i];
        struct run run = {.name = "kept"};
        struct asked asked = {.operation = &kept, .run = &run};
        int every = only != NULL && strcmp(only, upkeep->name) == 0 ? number_of("EVERY", 1)
                    : only == NULL                                  ? 100
                                                                    : 0;
        ask_until_done(&sweep, &asked);
        do_sql(&sweep, "UPDATE stockade.resource SET value = '1' WHERE name = 'kept'");
        assert_true(back_up(&sweep, file, why, sizeof why));
        for (int fault = 0; fault < LIBPQ_FAULTS_COUNT && every > 0; fault++)
            for (int n = 1 + draw(&sweep, every); n < PLACES_MAX; n += every)
                if (!strike_upkeep(&sweep, upkeep, file, (enum libpq_fault)fault, n))
                    break;
    }
    sweep_end(&sweep);
}
