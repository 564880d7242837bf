/* SPDX-License-Identifier: Apache-2.0 */
/* A memory of names that no row has, for the cache of resources: who asks for a name that is free
 * asks again at once, when it makes the row. It is a table of fixed size in which each name has one
 * place: who comes to a place that is taken has it. Short names only: up to 58 bytes. */
#ifndef STOCKADE_STORE_SQLITE_ABSENT_H
#define STOCKADE_STORE_SQLITE_ABSENT_H

#include <stdbool.h>

#include "fence/base/bytes.h"

struct absent;

/* It takes up to 256 KB, as it fills. */
struct absent *absent_new(void);
void absent_free(struct absent *absent);
bool absent_has(const struct absent *absent, struct bytes name);
void absent_put(struct absent *absent, struct bytes name);
/* A row has the name now. */
void absent_forget(struct absent *absent, struct bytes name);
/* Forget all of them, in no time to speak of. */
void absent_clear(struct absent *absent);

#endif
