/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's options: one table, from which flags (--name VALUE), environment (STOCKADE_NAME),
 * config file (name = value), help, checks and CONFIG GET come. A flag wins over the environment,
 * that over the file, that over the default; a list is taken whole from the first of them that
 * has it. What is wrong is told in one line: where it stands, and what would be right. */
#ifndef STOCKADE_SERVER_OPTIONS_H
#define STOCKADE_SERVER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fence/base/bytes.h"

/* X(id, name, kind, value, default, min, max, valid, help). `value` names the value in the help
 * and, for a choice, lists what there is; `valid` is a function of options_valid.h or NULL. The
 * default "" stands for "not given"; nobody can give that. */
#define OPTION_MAP(X)                                                                              \
    X(CONFIG, "config", OPTION_TEXT, "FILE", "", 0, 0, NULL,                                       \
      "read options from FILE: lines of name = value, # comments")                                 \
    X(LISTEN, "listen", OPTION_LIST, "HOST:PORT|unix:PATH", "127.0.0.1:7379", 0, 0, valid_listen,  \
      "where clients connect; port 0 is any free one; may be repeated")                            \
    X(STORE, "store", OPTION_TEXT, "sqlite:PATH", "sqlite:./stockade.db", 0, 0, valid_store,       \
      "the file that holds the data and the fences")                                               \
    X(LEASE, "lease", OPTION_TEXT, "URI", "local:", 0, 0, valid_lease,                             \
      "who grants leases: local:, redis://host:port, redis+unix:PATH, redlock://host,host,host,\n" \
      "        redis+sentinel://host,.../name, zookeeper://host,.../chroot")                       \
    X(ADMIN, "admin", OPTION_TEXT, "HOST:PORT|off", "127.0.0.1:7380", 0, 0, valid_admin,           \
      "where /health and /metrics are served over HTTP")                                           \
    X(PASSWORD_FILE, "password-file", OPTION_TEXT, "FILE", "", 0, 0, NULL,                         \
      "connections must AUTH with the password in FILE's only line")                               \
    X(UNFENCED_WRITES, "unfenced-writes", OPTION_CHOICE, "deny|allow", "deny", 0, 0, NULL,         \
      "allow: keys whose token is not held may be written without one")                            \
    X(LOG_LEVEL, "log-level", OPTION_CHOICE, "debug|info|warn|error", "info", 0, 0, NULL,          \
      "what is logged on stderr")                                                                  \
    X(MAX_CONNECTIONS, "max-connections", OPTION_NUMBER, "N", "10000", 1, 1000000, NULL,           \
      "connections at a time; one more is told so and closed")                                     \
    X(MAX_WAITERS, "max-waiters", OPTION_NUMBER, "N", "100000", 1, 10000000, NULL,                 \
      "ACQUIREs under way or waiting at a time; one more is BUSY")                                 \
    X(CACHE_SIZE, "cache-size", OPTION_NUMBER, "MB", "128", 16, 65536, NULL,                       \
      "memory for names and pages of the store, filled as they are met; 128 is enough for\n"       \
      "        a million small resources")                                                         \
    X(SQL_TIME_LIMIT, "sql-time-limit", OPTION_NUMBER, "MS", "1000", 1, 3600000, NULL,             \
      "milliseconds after which an SQL statement is interrupted")                                  \
    X(RECEIPTS_KEEP, "receipts-keep", OPTION_NUMBER, "SECONDS", "86400", 1, 31536000, NULL,        \
      "receipts of requests with an ID outlive their token by this")                               \
    X(FORGET_AFTER, "forget-after", OPTION_NUMBER, "SECONDS", "2592000", 0, 3153600000, NULL,      \
      "resources without lease or value are forgotten after this; 0: never")

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

/* `env` is as environ. *options is set where it is OPTIONS_READY; the caller frees it. */
enum options_outcome options_load(struct options **options, int argc, char *const *argv,
                                  char *const *env, struct buf *message);
void options_free(struct options *options);

const char *options_name(enum option option); /* "max-waiters" */
/* Borrowed from the options. Of a list, the first. */
const char *options_text(const struct options *options, enum option option);
/* The i-th element of a list, NULL behind the last. */
const char *options_at(const struct options *options, enum option option, size_t i);
int64_t options_number(const struct options *options, enum option option);
bool options_is(const struct options *options, enum option option, const char *choice);
/* Where it was said, for messages: "--store", "STOCKADE_STORE", "FILE:3: store"; of what nobody has
 * said, "store (default)". */
const char *options_origin(const struct options *options, enum option option);
/* As CONFIG GET shows it: lists joined by blanks, no password. Borrowed until the next call. */
const char *options_shown(struct options *options, enum option option);

#endif
