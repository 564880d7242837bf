/* SPDX-License-Identifier: Apache-2.0 */
/* The table of commands, for those who make an index of it. */
#ifndef STOCKADE_ENGINE_TABLE_H
#define STOCKADE_ENGINE_TABLE_H

#include "proxy/engine/command/command.h"

extern const struct command commands[];
extern const size_t commands_count;

#endif
