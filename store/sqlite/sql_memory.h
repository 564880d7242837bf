/* SPDX-License-Identifier: Apache-2.0 */
/* A limit on the memory that one statement takes. Compiling a few hundred bytes of SQL can take all
 * the memory there is (a chain of WITH queries, each twice as large as the one before). SQLite's
 * own limit is for the whole process, and any statement fails beyond it, even a COMMIT. So SQLite
 * gets an allocator that counts, for each thread, between begin and end.
 *
 * There is one allocator for the whole process. If a program has used SQLite before it opens a
 * store, SQLite's own stays, and statements have no limit. */
#ifndef STOCKADE_STORE_SQLITE_SQL_MEMORY_H
#define STOCKADE_STORE_SQLITE_SQL_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* Call it before SQLite is used; a second call does no harm. */
void sql_memory_install(void);
/* From now on this thread may take `max` bytes more from SQLite than it gives back. */
void sql_memory_begin(size_t max);
/* Has it taken more than `bytes`? */
bool sql_memory_exceeds(size_t bytes);
/* Was the limit reached, so that SQLite was told that there is no memory? */
bool sql_memory_exhausted(void);
void sql_memory_end(void);

#endif
