/* SPDX-License-Identifier: Apache-2.0 */
/* A store that fails when it is told to: the memory store, with a hand on each of its calls. */
#ifndef STOCKADE_TESTS_ENGINE_MOODY_STORE_H
#define STOCKADE_TESTS_ENGINE_MOODY_STORE_H

#include "store/open.h"

/* For world_new_on. */
struct store *moody_store_new(const struct store_options *options);
/* The n-th call (from 1) that an operation makes from now on fails, once; 0: none. */
void moody_store_fail(struct store *store, int nth);
/* Whether it has come to that. */
bool moody_store_failed(const struct store *store);
/* Takes no operation, as if the queue were full. */
void moody_store_set_full(struct store *store, bool full);
/* From now on it is as if another daemon had opened it. */
void moody_store_set_session(struct store *store, int64_t session);

#endif
