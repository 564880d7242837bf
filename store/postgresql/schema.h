/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STOCKADE_STORE_POSTGRESQL_SCHEMA_H
#define STOCKADE_STORE_POSTGRESQL_SCHEMA_H

#include "store/postgresql/pg.h"

/* Is there a store of this program's version? False: pg->why. */
bool pg_schema_is_current(struct pg *pg);
/* What brings version `version` to the next one, as SQL; NULL: there is no next one. */
const char *pg_schema_step(int64_t version);
/* Make the schema in the database, or bring it forward. False: pg->why says why not. */
bool pg_schema_prepare(struct pg *pg);
/* Count one more opening of the store. */
bool pg_schema_session(struct pg *pg, int64_t *session);

#endif
