/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STOCKADE_STORE_POSTGRESQL_SCHEMA_H
#define STOCKADE_STORE_POSTGRESQL_SCHEMA_H

#include "store/postgresql/pg.h"

/* Make the schema in the database, or bring it forward. False: pg->why says why not. */
bool pg_schema_prepare(struct pg *pg);
/* Count one more opening of the store. */
bool pg_schema_session(struct pg *pg, int64_t *session);

#endif
