/* SPDX-License-Identifier: Apache-2.0 */
/* A fuzzer's SQLite store: one file at a time, in memory where there is such a folder. It goes when
 * the process exits. */
#ifndef STOCKADE_TESTS_FUZZ_STORE_FILE_H
#define STOCKADE_TESTS_FUZZ_STORE_FILE_H

#include "store/open.h"

/* Open a store in a new file, whose path is filled in. The one before is closed and gone. */
struct store *store_file_open(struct store_options options);
void store_file_close(void);
const char *store_file_path(void);

/* Run one operation on any store on which nothing else is under way. */
void store_perform(struct store *store, struct store_op *op);

#endif
