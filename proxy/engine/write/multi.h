/* SPDX-License-Identifier: Apache-2.0 */
/* MULTI, EXEC, DISCARD, and WATCH, which is refused. */
#ifndef STOCKADE_ENGINE_MULTI_H
#define STOCKADE_ENGINE_MULTI_H

#include "proxy/engine/command/command.h"

struct session;

command_start multi_begin, multi_exec, multi_discard, multi_watch;
/* Drops the transaction that a connection has begun, if any. */
void multi_drop(struct session *session);

#endif
