/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon as a whole: opens its parts in order, runs the loop, drains, closes them in reverse.
 */
#ifndef STOCKADE_SERVER_DAEMON_H
#define STOCKADE_SERVER_DAEMON_H

#include "fence/base/log.h"
#include "proxy/server/options.h"

/* Run until SIGTERM, SIGINT or SHUTDOWN, and return the exit status. A reason why it cannot start
 * is one line in the log. Does not return where a commit's outcome is unknown (exit status 70), or
 * where a second signal asks for the end (1). SIGHUP reads the options again, and may give `log` a
 * new level. */
int daemon_run(struct options *options, struct log *log);

#endif
