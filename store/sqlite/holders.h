/* SPDX-License-Identifier: Apache-2.0 */
/* Who reads from a store's log just now, as far as the system tells. */
#ifndef STOCKADE_STORE_SQLITE_HOLDERS_H
#define STOCKADE_STORE_SQLITE_HOLDERS_H

#include <stddef.h>
#include <sys/types.h>

/* Name the programs that have a snapshot open: "sqlite3 (process 123), ...", "this program itself",
 * or "another program" where the system does not say (it hides processes of other containers).
 * `device` and `number` are those of the file's -shm. */
void holders_name(dev_t device, ino_t number, char *out, size_t size);

#endif
