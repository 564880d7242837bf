/* SPDX-License-Identifier: Apache-2.0 */
/* Private to options: what the sources of values share. */
#ifndef STOCKADE_SERVER_OPTIONS_LOAD_H
#define STOCKADE_SERVER_OPTIONS_LOAD_H

#include "proxy/server/options.h"

/* A higher one wins. */
enum option_source { SOURCE_DEFAULT, SOURCE_FILE, SOURCE_ENVIRONMENT, SOURCE_FLAG };

/* The option of this name, or OPTIONS. */
enum option option_find(struct bytes name);
/* Takes one value from one source, if no higher source has spoken; sources may come in any order.
 * `origin` is where it stands, for messages. False: it is no good, `message` says why. */
bool option_set(struct options *options, enum option option, enum option_source source,
                const char *origin, const char *text, struct buf *message);
/* Reads the config file. */
bool options_load_file(struct options *options, const char *path, struct buf *message);

#endif
