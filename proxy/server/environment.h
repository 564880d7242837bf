/* SPDX-License-Identifier: Apache-2.0 */
/* The environment's variables of Stockade: those of the daemon's options, and a few more. One that
 * nobody reads was probably meant to be another. */
#ifndef STOCKADE_SERVER_ENVIRONMENT_H
#define STOCKADE_SERVER_ENVIRONMENT_H

#include <stddef.h>

/* Return what is to be said about one setting, "NAME=VALUE", in `out`: that it begins with
 * STOCKADE_, and nobody reads it. NULL: nothing. */
const char *environment_complaint(const char *setting, char *out, size_t size);

#endif
