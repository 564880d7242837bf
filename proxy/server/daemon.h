/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon as a whole: opens its parts in order, runs the loop, drains, closes them in reverse.
 */
#ifndef STOCKADE_SERVER_DAEMON_H
#define STOCKADE_SERVER_DAEMON_H

#include "fence/base/log.h"
#include "proxy/server/options.h"

/* Runs until SIGTERM, SIGINT or SHUTDOWN; returns the exit status. What prevents it is one line in
 * the log. Does not return where a commit's outcome is unknown (exit status 70), or where it is
 * told to stop a second time (1). SIGHUP reads the options again;
 * `log` gets a new level by that. */
int daemon_run(struct options *options, struct log *log);

#endif
