/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon's process asks of the system: limits, usage, the password file. */
#ifndef STOCKADE_SERVER_PROCESS_H
#define STOCKADE_SERVER_PROCESS_H

#include <stdbool.h>
#include <stddef.h>

#include "fence/base/log.h"
#include "proxy/engine/engine.h"

/* Copy the program's arguments, and hide the passwords of URIs in the originals, which every user
 * of the machine can see (ps). The caller frees the copy with process_free_arguments. */
char **process_take_arguments(int argc, char **argv);
void process_free_arguments(char **arguments);
/* A secret is about to be read: from now on there is no core dump, and no other process of the
 * same user can look into this one. */
void process_hide_memory(void);
/* Prepare the process: it gains no rights any more, whatever it runs; a peer that hangs up and a
 * file that reaches its limit become errors of one write instead of the end, and files that are
 * made from here on are for their owner only. */
void process_prepare(void);
/* Raise the limit on open files to what so many connections need; return how many fit. */
size_t process_fit_connections(size_t connections, const struct log *log);
/* Fill in memory and CPU time, for engine_host.usage. What the system does not tell stays 0. */
void process_usage(struct engine_usage *usage);
/* Return the only line of the file, allocated. NULL: `why` says what is wrong. */
char *process_read_password(const char *path, const struct log *log, char *why, size_t why_size);
/* The same for a file of users; the caller owns the acl. */
struct acl *process_read_users(const char *path, const struct log *log, char *why, size_t why_size);

#endif
