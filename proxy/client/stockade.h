/* SPDX-License-Identifier: Apache-2.0 */
/* libstockade: leases with fencing tokens, and writes that are checked against them, from C.
 *
 *   stk_client *shop;
 *   stk_lease *lease;
 *   int64_t left;
 *
 *   stk_client_open("stockade://127.0.0.1:7379", 5000, &shop);
 *   stk_acquire(shop, "sku:1042", &(stk_lease_options){.ttl_ms = 30000, .wait_ms = 5000}, &lease);
 *   stk_take(lease, "sku:1042", 1, &left);       (STK_STALE: the lease passed on, nothing changed)
 *   stk_release(lease);
 *   stk_lease_free(lease);
 *   stk_client_close(shop);
 *
 * Errors. Functions return STK_OK or an error code. stk_message() then says more, for the calling
 * thread, until its next call fails. On an error out parameters are NULL or zero. The library does
 * not print, exit or touch signals. It aborts where memory runs out or it finds a bug of its own.
 *
 * Time. Every wait ends: a call takes at most the client's timeout, and stk_acquire its wait_ms
 * more. A connection that breaks meanwhile is made again, with growing pauses, and the request is
 * sent again. That is harmless: what changes something carries an ID, and the daemon answers a
 * repeat with the first reply. Only what cannot carry one (REVOKE, DDL) is not sent twice.
 * STK_TIMEOUT and STK_UNREACHABLE: nothing was applied. STK_UNSURE: the request was sent, and
 * nobody knows; for a write stk_last_id() and stk_receipt() find out.
 *
 * Cancelling. stk_cancel_on() names a descriptor. When it becomes readable, by a signal, another
 * thread or whatever writes to it, the thread's calls end early.
 *
 * Threads. Any number of threads may use a stk_client or a stk_lease at once, but the call that
 * ends it (stk_client_close, stk_lease_free) has to be the last. A stk_txn, stk_reply or stk_rows
 * is for one thread at a time. A call blocks its own thread only.
 *
 * Fork. A client, its leases and their keep-alive belong to the process that opened the client. In
 * a forked child every call on them fails with STK_FORKED and sends nothing; stk_lease_free and
 * stk_client_close only let go of memory and descriptors there. Open another client.
 *
 * Memory. Strings and structs that you hand in are copied. What the library hands out is freed with
 * the function named there. */
#ifndef STOCKADE_H
#define STOCKADE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The version of this header. stk_version() tells that of the library at work, which may be newer:
 * what was compiled with one goes on to work with all of the same STK_VERSION_MAJOR (of 0.x: of the
 * same libstockade.so.N). */
#define STK_VERSION_MAJOR  0
#define STK_VERSION_MINOR  1
#define STK_VERSION_PATCH  0
#define STK_VERSION        "0.1.0"
#define STK_VERSION_NUMBER (STK_VERSION_MAJOR * 10000 + STK_VERSION_MINOR * 100 + STK_VERSION_PATCH)

#ifdef __GNUC__
#pragma GCC visibility push(default)
/* Before functions whose answer nobody may do without: the compiler warns where it is dropped. */
#define STK_CHECKED __attribute__((warn_unused_result))
#else
#define STK_CHECKED
#endif
#ifdef __cplusplus
extern "C" {
#endif

#ifndef STK_ERROR_DEFINED /* else these are there already */
#define STK_ERROR_DEFINED
enum stk_error {
    STK_OK = 0,
    /* As the daemon replies. */
    STK_STALE = 1,      /* the token is older than the newest, or was released or revoked */
    STK_UNKNOWN = 2,    /* the token was never granted for this resource */
    STK_NOTOKEN = 3,    /* a write to a key whose lease was not given */
    STK_RANGE = 4,      /* the result would leave MIN..MAX: sold out */
    STK_EXPIRED = 5,    /* this receipt may have been removed: ask no more */
    STK_DEADLOCK = 6,   /* this thread holds the lease that it would wait for */
    STK_LEASEDOWN = 7,  /* the lease service cannot be reached or refuses; holders may write */
    STK_BUSY = 8,       /* a queue is full, or the daemon is stopping: try again */
    STK_STORE = 9,      /* the store failed; nothing of this command was applied */
    STK_GUARDED = 10,   /* SQL touched a guarded row whose token was not presented */
    STK_WRONGTYPE = 11, /* the key holds another kind of value */
    STK_NOAUTH = 12,    /* a password is needed */
    STK_WRONGPASS = 13, /* that is not the password */
    STK_NOPERM = 14,    /* this command is for administrators */
    STK_NOPROTO = 15,   /* (not for users of the library) */
    STK_EXECABORT = 16, /* a command of the transaction was refused before EXEC */
    STK_ERR = 17,       /* anything else; the message says what */
    STK_NOSCRIPT = 18,  /* (not for users of the library) */
    /* The library's own. */
    STK_HELD = 100,        /* another holds the lease, until wait_ms ran out */
    STK_TIMEOUT = 101,     /* no answer in time; nothing was applied */
    STK_UNSURE = 102,      /* no answer in time; it may have been applied */
    STK_UNREACHABLE = 103, /* the daemon cannot be reached; nothing was applied */
    STK_ABANDONED = 104,   /* (to the `lost` callback) the thread of the lease has ended */
    STK_RELEASED = 105,    /* this lease was released already */
    STK_FORKED = 106,      /* the client belongs to the process that opened it */
    STK_PROTOCOL = 107,    /* the server's answer makes no sense; is it a Stockade? */
    STK_MISUSE = 108,      /* the call makes no sense */
    STK_CANCELLED = 109,   /* the thread's descriptor ended the call; nothing was applied */
};
#endif

typedef struct stk_client stk_client; /* a way to one store */
typedef struct stk_lease stk_lease;   /* a lease that was granted */
typedef struct stk_txn stk_txn;       /* a transaction in the making */
typedef struct stk_reply stk_reply;   /* what a command replied */
typedef struct stk_rows stk_rows;     /* what an SQL statement replied */

/* Return the error's name, such as "STALE". Static storage. */
const char *stk_error_code(enum stk_error error);
/* Return a sentence about the error. Static storage. */
const char *stk_error_text(enum stk_error error);
/* Return what the calling thread's last failed call has to say; good until its next one fails. */
const char *stk_message(void);
/* Return the ID of this thread's last write, for stk_receipt; "" where it had none. */
const char *stk_last_id(void);
/* Let this thread's next write under a lease, or the next transaction that it begins, carry an ID
 * of your own, such as an order's: a repeat under it is answered as the first one was, and changes
 * nothing, also when another process makes it. 1 to 512 bytes; NULL: none after all. */
enum stk_error stk_use_id(const char *id);
/* Return the version of the library, such as "0.1.0". Static storage. */
const char *stk_version(void);

/* Clients. `uri` is one of
 *
 *   stockade://[user:password@]host[:port]   a daemon; %XX stands for a byte of the password
 *   stockades://...[?tls_ca=FILE&...]        the same by TLS (proxy/client/LIBRARY.md)
 *   stockade+unix:PATH[?password=PASSWORD]   a daemon on this machine
 *   postgresql://...[?lease=URI]             embedded, with a store in PostgreSQL; lease= last
 *   sqlite:PATH[?lease=URI]                  embedded: this process opens the store, no daemon
 *
 * Embedded, the lease service is given as in the daemon's --lease; by default it is `local:`.
 * Clients and processes that share one file share its leases. With `local:` a waiter asks every 20
 * ms whether another process still holds the lease (where many wait, once a second). A
 * process that is stopped in mid-commit holds up the others' writes. A new file is for
 * its owner only (0600), as the daemon's is; later permissions stay. An embedded client has threads
 * of its own, and may do what a daemon's administrator may (DDL, GUARD).
 *
 * A daemon that refuses connections fails stk_client_open at once. timeout_ms: 1 to 86400000. */
STK_CHECKED enum stk_error stk_client_open(const char *uri, int64_t timeout_ms,
                                           stk_client **client);
/* Name the program, at the daemon's page and in `stockade why`, on connections that are made from
 * now on: 1 to 64 visible characters of ASCII. At first it is PROGRAM-PID@HOST. The daemon tells
 * processes apart by it, where one of them stands still while its threads wait: so give each
 * process a name of its own. */
#define STK_NAME_MAX 64
STK_CHECKED enum stk_error stk_client_set_name(stk_client *client, const char *name);
/* Let calls take at most so long from now on: 1 to 86400000. */
enum stk_error stk_client_set_timeout(stk_client *client, int64_t timeout_ms);
/* From now on let a call of this thread end early where it waits while `fd` is readable: a
 * signalfd, an eventfd, a pipe; -1, as at first: none. Nothing is read from it. The call returns
 * STK_CANCELLED, or STK_UNSURE where it was a write that may have been applied. A cancelled
 * stk_acquire leaves the line; a lease that was granted at that very moment ends with its TTL. (The
 * embedded stk_client_open is not cancelled while it opens the file.) */
void stk_cancel_on(int fd);
/* Free it; NULL is fine. Leases not released end with their TTL, and their handles may only be
 * freed then. Embedded: waits until what has begun is on disk. */
void stk_client_close(stk_client *client);

/* Leases. All zero, or NULL, is a good start. */
typedef struct stk_lease_options {
    int64_t ttl_ms;     /* 10 to 86400000; 0: 30000 */
    int64_t wait_ms;    /* how long to wait in line; 0: do not wait */
    const char *owner;  /* enters again, under the same token, what this owner holds already; NULL:
                           an owner of its own */
    bool ephemeral;     /* ends with the connection: when this process dies, not at the TTL */
    bool no_keep_alive; /* do not renew it by itself */
    /* The lease is lost: it was revoked or taken (STK_STALE), its thread has ended (STK_ABANDONED),
     * or it could not be renewed and its time is nearly over: why that was. Called once at most,
     * on the keep-alive thread; at once where the daemon tells of the loss, at the next renewal
     * where it does not, with a tenth of the TTL to go where it is silent. It may ask stk_lease_*
     * questions, and release or free the lease; it holds up other leases' renewals, so be brief.
     * Not with no_keep_alive. */
    void (*lost)(stk_lease *lease, enum stk_error why, void *context);
    void *context;
    void *reserved[4]; /* zero */
} stk_lease_options;

/* One resource (1 to 512 bytes), or several: all or none, taken in one global order, so that two
 * that cross never deadlock. STK_HELD: somebody else has it. The lease belongs to the calling
 * thread, and is renewed every third of its TTL (once, for the first time, after a tenth of a
 * second) until it is released or freed, its client is closed, or that thread ends. */
STK_CHECKED enum stk_error stk_acquire(stk_client *client, const char *resource,
                                       const stk_lease_options *options, stk_lease **lease);
STK_CHECKED enum stk_error stk_acquire_all(stk_client *client, const char *const *resources,
                                           size_t count, const stk_lease_options *options,
                                           stk_lease **lease);
/* Stand for election: wait for the lease on a name, by which this program leads, without end, or
 * for wait_ms where that is not 0. It goes on through outages of the daemon and of the lease
 * service, and ends early by stk_cancel_on. When wait_ms is over it returns what was the matter
 * last: STK_HELD where another led. The leader is told by `lost`, at once where its term is
 * revoked, and else with a tenth of the TTL to go (and a hundredth and 2 ms): before anybody else
 * may lead. What it writes under its term is judged by the token, whenever it comes. stk_release
 * steps down; call it again for another term. Not with no_keep_alive. */
STK_CHECKED enum stk_error stk_lead(stk_client *client, const char *name,
                                    const stk_lease_options *options, stk_lease **term);
/* A handle for a lease that was granted elsewhere: `stockade lock` tells its program
 * STOCKADE_RESOURCE and STOCKADE_TOKEN. Nothing is sent: what the token is good for shows when it
 * is used. It has no time for stk_lease_valid until stk_renew; stk_keep_alive comes after that. */
STK_CHECKED enum stk_error stk_lease_use(stk_client *client, const char *resource, int64_t token,
                                         stk_lease **lease);
/* Let the lease belong to the calling thread from now on. */
enum stk_error stk_lease_adopt(stk_lease *lease);
/* Give it back (once more for each time that its owner entered), and end the keep-alive. Where
 * that fails, it ends with its TTL. The handle still has to be freed. */
enum stk_error stk_release(stk_lease *lease);
/* End the keep-alive and free the handle, without a word to the daemon; waits for a `lost` that
 * is being called on another thread. NULL is fine. */
void stk_lease_free(stk_lease *lease);
/* Renew now, with this TTL from here on; 0: the same. */
STK_CHECKED enum stk_error stk_renew(stk_lease *lease, int64_t ttl_ms);
/* Start or stop renewing it by itself, and telling of its loss. A program that is about to be
 * stopped (SIGSTOP) may end the keep-alive, and renew and go on with it afterwards: its lease is
 * not called lost meanwhile, and is good again where nobody else has taken it. */
enum stk_error stk_keep_alive(stk_lease *lease, bool on);
/* Return why its last renewal failed (STK_OK: it did not) or, of a lost lease, why it is lost. */
enum stk_error stk_lease_why(const stk_lease *lease);
/* Does it still have time, for certain? The clock is this machine's; nobody sets it, and it goes on
 * while the machine sleeps. The time that the daemon told counts from before the request was sent,
 * less a hundredth and 2 ms for drift. Once lost it stays lost. This is for what happens outside
 * the store: writes inside it are judged there. */
bool stk_lease_valid(const stk_lease *lease);
int64_t stk_lease_left_ms(const stk_lease *lease); /* 0: not valid */
/* Return the token; `resource` NULL: of its first resource. 0: it has no such resource. */
int64_t stk_lease_token(const stk_lease *lease, const char *resource);

/* End the lease, whoever has it: the holder's next write is STK_STALE. `token`, which may be NULL,
 * is the one that was retired; 0: there was none. */
STK_CHECKED enum stk_error stk_revoke(stk_client *client, const char *resource, int64_t *token);

typedef struct stk_lease_info {
    bool held;
    int64_t token;          /* the newest; 0: none was ever granted */
    int64_t ttl_ms;         /* left */
    int64_t holds, waiters; /* waiters: at this daemon */
    char owner[513];        /* "" where it is free; ends at the first zero byte */
} stk_lease_info;
STK_CHECKED enum stk_error stk_query(stk_client *client, const char *resource,
                                     stk_lease_info *info);

/* Data. A key is a resource: to write it takes its lease. */

/* The value ends with a zero byte that `len` does not count; free() it. No such key: STK_OK and
 * NULL. `len` may be NULL. */
STK_CHECKED enum stk_error stk_get(stk_client *client, const char *key, char **value, size_t *len);
STK_CHECKED enum stk_error stk_set(stk_lease *lease, const char *key, const void *value,
                                   size_t len);
/* Take n, which is 0 or more, from a number if so many are there: DECRBY key n MIN 0. STK_RANGE:
 * they are not, and nothing changed. `left` may be NULL. */
STK_CHECKED enum stk_error stk_take(stk_lease *lease, const char *key, int64_t n, int64_t *left);

/* Any command. `lens` holds the arguments' lengths; NULL: they end with a zero byte. `reply` may be
 * NULL; free with stk_reply_free. An error reply is the returned code, and no reply.
 * Bare ones, such as reads: all but those that change what a connection is (MULTI, AUTH, ...). */
STK_CHECKED enum stk_error stk_command(stk_client *client, size_t argc, const char *const *argv,
                                       const size_t *lens, stk_reply **reply);
typedef struct stk_words { /* a command's arguments */
    size_t argc;
    const char *const *argv;
    const size_t *lens; /* NULL: they end with a zero byte */
} stk_words;
/* Several bare ones in one exchange. `reply` is an array of their replies; where one is refused,
 * the first such error is returned, and no reply. They are no transaction. */
STK_CHECKED enum stk_error stk_command_all(stk_client *client, const stk_words *commands,
                                           size_t count, stk_reply **reply);
/* Fenced ones, under the tokens of one lease or of several of one client. */
STK_CHECKED enum stk_error stk_fenced(stk_lease *lease, size_t argc, const char *const *argv,
                                      const size_t *lens, stk_reply **reply);
STK_CHECKED enum stk_error stk_fenced_all(stk_lease *const *leases, size_t count, size_t argc,
                                          const char *const *argv, const size_t *lens,
                                          stk_reply **reply);

enum stk_reply_type { STK_NIL, STK_INTEGER, STK_STRING, STK_ARRAY };
enum stk_reply_type stk_reply_type(const stk_reply *reply);
int64_t stk_reply_integer(const stk_reply *reply); /* also of a string that is one; else 0 */
/* NULL where it is no string. Ends with a zero byte; `len`, which may be NULL, does not count it.
 */
const char *stk_reply_string(const stk_reply *reply, size_t *len);
size_t stk_reply_count(const stk_reply *reply);                  /* 0 where it is no array */
const stk_reply *stk_reply_at(const stk_reply *reply, size_t i); /* NULL behind the last */
void stk_reply_free(stk_reply *reply);                           /* of the outermost one */

/* Transactions: whole or not at all. Commands are collected here and sent by stk_txn_exec; each
 * brings its lease (NULL: a read), and the tokens of all hold for all of it. */
STK_CHECKED enum stk_error stk_txn_begin(stk_client *client, stk_txn **txn);
STK_CHECKED enum stk_error stk_txn_add(stk_txn *txn, stk_lease *lease, size_t argc,
                                       const char *const *argv, const size_t *lens);
/* One try: where it fails, nothing was applied (but for STK_UNSURE), and another txn may be made.
 * `reply`, which may be NULL, is an array of the commands' replies. */
STK_CHECKED enum stk_error stk_txn_exec(stk_txn *txn, stk_reply **reply);
void stk_txn_free(stk_txn *txn); /* executed or not */

/* SQL, one statement. Without leases it may only read (and define, embedded or as an
 * administrator). */
enum stk_sql_type { STK_SQL_NULL, STK_SQL_INTEGER, STK_SQL_FLOAT, STK_SQL_TEXT, STK_SQL_BLOB };
typedef struct stk_sql_value {
    enum stk_sql_type type;
    int64_t integer;
    double real;
    const void *bytes; /* of text or a blob; text may leave len 0 where it ends with a zero byte */
    size_t len;
} stk_sql_value;

/* One value each, for the array that stk_sql takes. Text and blobs are not copied by these. */
static inline stk_sql_value stk_sql_null(void)
{
    stk_sql_value value = {STK_SQL_NULL, 0, 0, NULL, 0};
    return value;
}
static inline stk_sql_value stk_sql_integer(int64_t integer)
{
    stk_sql_value value = {STK_SQL_INTEGER, integer, 0, NULL, 0};
    return value;
}
static inline stk_sql_value stk_sql_float(double real)
{
    stk_sql_value value = {STK_SQL_FLOAT, 0, real, NULL, 0};
    return value;
}
/* Ends with a zero byte; NULL: SQL's NULL. */
static inline stk_sql_value stk_sql_text(const char *text)
{
    stk_sql_value value = {text != NULL ? STK_SQL_TEXT : STK_SQL_NULL, 0, 0, text, 0};
    return value;
}
static inline stk_sql_value stk_sql_blob(const void *bytes, size_t len)
{
    stk_sql_value value = {STK_SQL_BLOB, 0, 0, bytes, len};
    return value;
}

STK_CHECKED enum stk_error stk_sql(stk_client *client, stk_lease *const *leases,
                                   size_t leases_count, const char *statement,
                                   const stk_sql_value *params, size_t params_count,
                                   stk_rows **rows);
size_t stk_rows_count(const stk_rows *rows);
size_t stk_rows_columns(const stk_rows *rows);
const char *stk_rows_name(const stk_rows *rows, size_t column); /* NULL: no such column */
/* A value as text; NULL: SQL's NULL, or out of bounds. Then as a number, 0 where it is none. */
const char *stk_rows_text(const stk_rows *rows, size_t row, size_t column, size_t *len);
int64_t stk_rows_integer(const stk_rows *rows, size_t row, size_t column);
double stk_rows_float(const stk_rows *rows, size_t row, size_t column);
int64_t stk_rows_changes(const stk_rows *rows);
int64_t stk_rows_last_id(const stk_rows *rows); /* last_insert_rowid */
void stk_rows_free(stk_rows *rows);

/* Receipts: was this write applied, after a reply that never came? `id` as stk_last_id said.
 * STK_EXPIRED: it is too long ago to tell. `reply`, which may be NULL, is the write's where it was
 * applied. */
enum stk_outcome {
    STK_APPLIED,
    STK_NOT_APPLIED, /* and it never will be: its token is retired */
    STK_NOT_YET,     /* not applied so far; it still could be, under this token */
};
STK_CHECKED enum stk_error stk_receipt(stk_client *client, const char *resource, int64_t token,
                                       const char *id, enum stk_outcome *outcome,
                                       stk_reply **reply);

#ifdef __cplusplus
}
#endif
#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#undef STK_CHECKED

#endif
