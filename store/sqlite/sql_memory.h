/* SPDX-License-Identifier: Apache-2.0 */
/* A bound on the memory that one statement takes. SQLite itself only knows a bound on what the
 * whole process takes, beyond which any statement fails, a COMMIT among them; and compiling a few
 * hundred bytes of SQL can take all the memory there is (names that stand for twice their
 * predecessor). So SQLite's allocator is told to count, per thread, between begin and end.
 *
 * The allocator is one for the whole process: where a program has started SQLite before it opens a
 * store, its own stays, and statements have no bound. */
#ifndef STOCKADE_STORE_SQLITE_SQL_MEMORY_H
#define STOCKADE_STORE_SQLITE_SQL_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* Call it before SQLite is used; a second call does no harm. */
void sql_memory_install(void);
/* From now on this thread may take `max` bytes more from SQLite than it gives back. */
void sql_memory_begin(size_t max);
/* More than `part` bytes of it are taken. */
bool sql_memory_above(size_t part);
/* The bound was reached: SQLite was told that there is no memory. */
bool sql_memory_met(void);
void sql_memory_end(void);

#endif
