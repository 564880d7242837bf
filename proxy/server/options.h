/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's options: one table, from which flags (--name VALUE), environment (STOCKADE_NAME),
 * config file (name = value), help, checks and CONFIG GET come. A flag wins over the environment,
 * that over the file, that over the default; a list is taken whole from the first of them that
 * has it. A mistake is one line: where it stands, and what would be right. */
#ifndef STOCKADE_SERVER_OPTIONS_H
#define STOCKADE_SERVER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fence/base/bytes.h"

/* X(id, name, kind, value, default, min, max, valid, taken, help). `value` names the value in the
 * help and, for a choice, lists what there is; `valid` is a check in options.c or NULL.
 * The default "" stands for "not given"; nobody can give that. `taken`: START, or also on SIGHUP,
 * while the daemon runs. */
#define OPTION_MAP(X)                                                                              \
    X(CONFIG, "config", OPTION_TEXT, "FILE", "", 0, 0, NULL, START,                                \
      "read options from FILE: lines of name = value, # comments")                                 \
    X(LISTEN, "listen", OPTION_LIST, "[tls:]HOST:PORT|unix:PATH", "127.0.0.1:7379", 0, 0,          \
      valid_listen, START, "where clients connect; port 0 is any free one; may be repeated")       \
    X(INSECURE_LISTEN, "insecure-listen", OPTION_CHOICE, "deny|allow", "deny", 0, 0, NULL, START,  \
      "allow: other machines may connect without a password or a certificate")                     \
    X(TLS_CERT, "tls-cert", OPTION_TEXT, "FILE", "", 0, 0, NULL, SIGHUP_TOO,                       \
      "the certificate of tls: addresses, and the chain behind it (PEM)")                          \
    X(TLS_KEY, "tls-key", OPTION_TEXT, "FILE", "", 0, 0, NULL, SIGHUP_TOO,                         \
      "its private key, without a password; may be in the same file")                              \
    X(TLS_CA, "tls-ca", OPTION_TEXT, "FILE", "", 0, 0, NULL, SIGHUP_TOO,                           \
      "who signs clients' certificates")                                                           \
    X(TLS_CLIENTS, "tls-clients", OPTION_CHOICE, "no|optional|required", "no", 0, 0, NULL,         \
      SIGHUP_TOO, "whether clients have to show a certificate that --tls-ca has signed")           \
    X(TLS_USER, "tls-user", OPTION_CHOICE, "no|cn|uri", "no", 0, 0, NULL, SIGHUP_TOO,              \
      "whether a client's certificate names its user: by its common name, or its URI")             \
    X(STORE, "store", OPTION_TEXT, "sqlite:PATH|postgresql://...", "sqlite:./stockade.db", 0, 0,   \
      valid_store, START,                                                                          \
      "what holds the data and the fences; :memory: is for tests, and goes with the daemon")       \
    X(LEASE, "lease", OPTION_TEXT, "URI", "local:", 0, 0, valid_lease, START,                      \
      "who grants leases: local:, redis://host:port, redis+unix:PATH, redlock://host,host,host,\n" \
      "        redis+sentinel://host,.../name, redis+cluster://host,..., zookeeper://host,...;\n"  \
      "        by TLS with rediss://, rediss+sentinel://, rediss+cluster://, redlock+tls://")      \
    X(ADMIN, "admin", OPTION_TEXT, "[tls:]HOST:PORT|off", "127.0.0.1:7380", 0, 0, valid_admin,     \
      START, "where the page, /health and /metrics are served over HTTP")                          \
    X(ADMIN_NAME, "admin-name", OPTION_LIST, "NAME", "", 0, 0, valid_admin_name, START,            \
      "a host name by which browsers may ask for the page, beside addresses and localhost; may\n"  \
      "        be repeated")                                                                       \
    X(PAGE_VALUES, "page-values", OPTION_CHOICE, "hide|show", "hide", 0, 0, NULL, START,           \
      "show: the page shows the values of keys, too")                                              \
    X(PASSWORD_FILE, "password-file", OPTION_TEXT, "FILE", "", 0, 0, NULL, SIGHUP_TOO,             \
      "connections must AUTH with the password in FILE's only line")                               \
    X(ACL_FILE, "acl-file", OPTION_TEXT, "FILE", "", 0, 0, NULL, SIGHUP_TOO,                       \
      "users and their rights, in the syntax of Redis's ACL, a line for each; in place of\n"       \
      "        password-file")                                                                     \
    X(UNFENCED_WRITES, "unfenced-writes", OPTION_CHOICE, "deny|allow", "deny", 0, 0, NULL,         \
      SIGHUP_TOO, "allow: keys whose token is not held may be written without one")                \
    X(LOG_LEVEL, "log-level", OPTION_CHOICE, "debug|info|warn|error", "info", 0, 0, NULL,          \
      SIGHUP_TOO, "what is logged")                                                                \
    X(LOG_FORMAT, "log-format", OPTION_CHOICE, "text|json", "text", 0, 0, NULL, SIGHUP_TOO,        \
      "json: each line of the log is an object with time, level, message and fields")              \
    X(LOG_FILE, "log-file", OPTION_TEXT, "FILE", "", 0, 0, NULL, START,                            \
      "the log goes to FILE instead of stderr; SIGUSR1 has it opened again")                       \
    X(AUDIT, "audit", OPTION_TEXT, "FILE", "", 0, 0, NULL, START,                                  \
      "who logged in, was granted a lease or refused is written to FILE, line by line, each "      \
      "with\n"                                                                                     \
      "        the hash of the one before; SIGUSR1 has it go on in a new file")                    \
    X(AUDIT_DURABLE, "audit-durable", OPTION_TEXT, "EVENTS", "", 0, 0, valid_audit_events, START,  \
      "events of the audit, as grant,release or all, that are on disk before their reply leaves")  \
    X(AUDIT_MAX_SIZE, "audit-max-size", OPTION_NUMBER, "MB", "64", 0, 1048576, NULL, START,        \
      "the audit goes on in a new file when FILE has so many megabytes; 0: never")                 \
    X(MAX_CONNECTIONS, "max-connections", OPTION_NUMBER, "N", "10000", 1, 1000000, NULL, START,    \
      "connections at a time; one more gets an error and is closed")                               \
    X(HISTORY, "history", OPTION_NUMBER, "N", "100000", 1, 10000000, NULL, START,                  \
      "so many grants, and so many refusals, are remembered for HISTORY and REFUSALS")             \
    X(MAX_WAITERS, "max-waiters", OPTION_NUMBER, "N", "100000", 1, 10000000, NULL, SIGHUP_TOO,     \
      "ACQUIREs under way or waiting at a time; one more is BUSY")                                 \
    X(MAX_LEASES, "max-leases", OPTION_NUMBER, "N", "0", 0, 1000000000, NULL, SIGHUP_TOO,          \
      "leases that are held at a time; 0: no limit")                                               \
    X(MAX_RATE, "max-rate", OPTION_NUMBER, "N", "0", 0, 1000000, NULL, SIGHUP_TOO,                 \
      "commands in a second; one more is BUSY; 0: no limit")                                       \
    X(MAX_CONNECTIONS_PER_USER, "max-connections-per-user", OPTION_NUMBER, "N", "0", 0, 1000000,   \
      NULL, SIGHUP_TOO, "the same for each user; 0: no limit")                                     \
    X(MAX_LEASES_PER_USER, "max-leases-per-user", OPTION_NUMBER, "N", "0", 0, 1000000000, NULL,    \
      SIGHUP_TOO, "see max-connections-per-user")                                                  \
    X(MAX_WAITERS_PER_USER, "max-waiters-per-user", OPTION_NUMBER, "N", "0", 0, 10000000, NULL,    \
      SIGHUP_TOO, "see max-connections-per-user")                                                  \
    X(MAX_RATE_PER_USER, "max-rate-per-user", OPTION_NUMBER, "N", "0", 0, 1000000, NULL,           \
      SIGHUP_TOO, "see max-connections-per-user")                                                  \
    X(MAX_MEMORY_PER_USER, "max-memory-per-user", OPTION_NUMBER, "MB", "0", 0, 1048576, NULL,      \
      SIGHUP_TOO, "of a user's requests under way and replies not read yet; 0: no limit")          \
    X(MAX_REPLY_MEMORY, "max-reply-memory", OPTION_NUMBER, "MB", "256", 128, 1048576, NULL,        \
      SIGHUP_TOO,                                                                                  \
      "memory for replies that clients have not read yet, all together; a large reply for\n"       \
      "        which there is no room is BUSY")                                                    \
    X(CACHE_SIZE, "cache-size", OPTION_NUMBER, "MB", "128", 16, 65536, NULL, START,                \
      "memory for names and pages of the store, taken as needed; 128 is enough for\n"              \
      "        a million small resources")                                                         \
    X(SQL_TIME_LIMIT, "sql-time-limit", OPTION_NUMBER, "MS", "1000", 1, 3600000, NULL, SIGHUP_TOO, \
      "milliseconds after which an SQL statement is interrupted")                                  \
    X(RECEIPTS_KEEP, "receipts-keep", OPTION_NUMBER, "SECONDS", "86400", 1, 31536000, NULL, START, \
      "receipts of requests with an ID outlive their token by this")                               \
    X(LOCK_KEYS, "lock-keys", OPTION_LIST, "PATTERN", "", 0, 0, lock_pattern_valid, START,         \
      "keys of this pattern, such as lock:*, are locks, for programs that lock in Redis: what\n"   \
      "        the * stands for is the resource; may be repeated")                                 \
    X(FORGET_AFTER, "forget-after", OPTION_NUMBER, "SECONDS", "2592000", 0, 3153600000, NULL,      \
      START, "resources without lease or value are forgotten after this; 0: never")

#define OPTION_VARIABLE_MAX 64

enum option_kind { OPTION_TEXT, OPTION_LIST, OPTION_CHOICE, OPTION_NUMBER };

enum option {
#define X(id, ...) OPTION_##id,
    OPTION_MAP(X)
#undef X
        OPTIONS
};

struct options;

enum options_outcome {
    OPTIONS_READY,
    OPTIONS_SHOW,  /* --help or --version: print `message` on stdout, exit 0 */
    OPTIONS_WRONG, /* `message` is one line, without its end; exit 2 */
};

/* Read all sources. `env` is as environ. *options is set for OPTIONS_READY; the caller frees it.
 * `argv` and `env` are borrowed for as long as it lives. */
enum options_outcome options_load(struct options **options, int argc, char *const *argv,
                                  char *const *env, struct buf *message);
void options_free(struct options *options);

/* Return whether --check was given: to look whether a daemon could start, and to start none. */
bool options_only_check(const struct options *options);

/* Read all sources anew, as they are now. NULL: `message` says what is wrong. */
struct options *options_again(const struct options *options, struct buf *message);
/* Return whether the option may change while the daemon runs. */
bool options_reloads(enum option option);
/* Return whether the values of one option differ. */
bool options_differ(const struct options *a, const struct options *b, enum option option);
/* Take over the value of one option from `from`, which gets the old one. */
void options_take(struct options *options, struct options *from, enum option option);

/* Return its name, such as "max-waiters". */
const char *options_name(enum option option);
/* Write the name of its environment variable, such as "STOCKADE_MAX_WAITERS"; return `variable`. */
const char *options_variable(enum option option, char variable[OPTION_VARIABLE_MAX]);
/* Return the value, borrowed from the options: of a list, the first; "" where there is none. */
const char *options_text(const struct options *options, enum option option);
/* Return the i-th element of a list, or NULL behind the last. */
const char *options_at(const struct options *options, enum option option, size_t i);
/* Return all elements of a list, borrowed from the options, and their number. */
const char *const *options_all(const struct options *options, enum option option);
size_t options_count(const struct options *options, enum option option);
/* Return the value of a number. */
int64_t options_number(const struct options *options, enum option option);
/* Return whether the value is this one. */
bool options_is(const struct options *options, enum option option, const char *choice);
/* Return where the value was given, for messages: "--store", "STOCKADE_STORE", "FILE:3: store", or
 * "store (default)" where it was not. */
const char *options_origin(const struct options *options, enum option option);
/* Return the value as CONFIG GET shows it: a list joined by blanks, no password. Valid until the
 * next call. */
const char *options_shown(struct options *options, enum option option);

#endif
