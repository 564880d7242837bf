/* SPDX-License-Identifier: Apache-2.0 */
/* SQLite's functions, for the sources that are compiled twice: into the daemon, which is linked
 * with SQLite, and into the loadable extension, which is handed the functions of whatever SQLite
 * has loaded it. */
#ifndef STOCKADE_STORE_SQLITE_GUARD_API_H
#define STOCKADE_STORE_SQLITE_GUARD_API_H

#ifdef STOCKADE_EXTENSION
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3
#else
#include <sqlite3.h>
#endif

#endif
