/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon's process asks of the system: limits, usage, the password file. */
#ifndef STOCKADE_SERVER_PROCESS_H
#define STOCKADE_SERVER_PROCESS_H

#include <stdbool.h>
#include <stddef.h>

#include "fence/base/log.h"
#include "proxy/engine/engine.h"

/* Prepare the process: a peer that hangs up and a file that reaches its limit become errors of one
 * write instead of the end, and files that are made from here on are for their owner only. */
void process_prepare(void);
/* Raise the limit on open files to what so many connections need; return how many fit. */
size_t process_fit_connections(size_t connections, const struct log *log);
/* Fill in memory and CPU time, for engine_host.usage. What the system does not tell stays 0. */
void process_usage(struct engine_usage *usage);
/* Return the only line of the file, allocated. NULL: `why` says what is wrong. */
char *process_read_password(const char *path, const struct log *log, char *why, size_t why_size);

#endif
