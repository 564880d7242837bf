/* SPDX-License-Identifier: Apache-2.0 */
/* SQLite without Stockade, as any other program uses it. What fails fails the test. */
#ifndef STOCKADE_TESTS_STORE_PLAIN_H
#define STOCKADE_TESTS_STORE_PLAIN_H

#include <sqlite3.h>
#include <stdint.h>

/* Open a file, or make it. Close it with sqlite3_close. */
sqlite3 *plain_open(const char *path);
void plain_run(sqlite3 *db, const char *sql);
/* Return the first column of the first row. */
int64_t plain_number(sqlite3 *db, const char *sql);
/* Return the rows that the statements give: '|' between cells, '\n' between rows. The caller frees
 * them. */
char *plain_rows(sqlite3 *db, const char *sql);

#endif
