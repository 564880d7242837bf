/* SPDX-License-Identifier: Apache-2.0 */
/* SQLite's own instr, replace, trim, ltrim and rtrim take time in proportion to the product of what
 * they are given: hours, for two texts of some megabytes, and nothing can interrupt them. These
 * give the same results, and refuse where it would take long. */
#ifndef STOCKADE_STORE_SQLITE_SQL_FUNCTIONS_H
#define STOCKADE_STORE_SQLITE_SQL_FUNCTIONS_H

#include <sqlite3.h>

/* Puts them in the place of SQLite's. SQLITE_OK or its code. */
int sql_functions_add(sqlite3 *db);

#endif
