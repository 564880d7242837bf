/* SPDX-License-Identifier: Apache-2.0 */
/* What a user has at this daemon now, over all its connections. It lives as long as somebody keeps
 * it: a connection, a lease, a waiter. */
#ifndef STOCKADE_ENGINE_ACCOUNT_H
#define STOCKADE_ENGINE_ACCOUNT_H

#include <stddef.h>
#include <stdint.h>

struct account;
struct engine;

/* The account of a user; kept for the caller. */
struct account *account_of(struct engine *engine, const char *name);
struct account *account_keep(struct account *account);
/* May be NULL. */
void account_drop(struct account *account);
const char *account_name(const struct account *account);

#endif
