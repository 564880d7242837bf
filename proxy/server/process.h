/* SPDX-License-Identifier: Apache-2.0 */
/* What the process as a whole has and asks of the system. */
#ifndef STOCKADE_SERVER_PROCESS_H
#define STOCKADE_SERVER_PROCESS_H

#include <stdbool.h>
#include <stddef.h>

#include "fence/base/log.h"
#include "proxy/engine/engine.h"

/* A peer that hangs up and a file that reaches its limit are errors of one write, not the end.
 * Files that are made from here on are for their owner only. */
void process_prepare(void);
/* Raises the limit on open files to what `connections` connections need; returns how many fit. */
size_t process_fit_connections(size_t connections, const struct log *log);
/* For engine_host.usage. What the system does not tell stays 0. */
void process_usage(struct engine_usage *usage);
/* The only line of the file, allocated; NULL: `why` says what is wrong. */
char *process_read_password(const char *path, const struct log *log, char *why, size_t why_size);

#endif
