/* SPDX-License-Identifier: Apache-2.0 */
/* Shared libraries that are loaded where a URI asks for them, and nowhere else: programs start, and
 * are installed, without them. Once loaded they stay for the life of the process. */
#ifndef STOCKADE_BASE_LIBRARY_H
#define STOCKADE_BASE_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

struct library_symbol {
    const char *name;
    size_t offset; /* of the pointer to it, in the struct of pointers */
};

struct library {
    const char *file, *package; /* its name, and the package of Debian's that has it */
    const char *what, *scheme;  /* "ZooKeeper's C client", "zookeeper://" */
    const struct library_symbol *symbols;
    size_t count;
};

/* Fill in the struct of pointers. False: `why` says what is missing, and which package has it. */
bool library_load(const struct library *library, void *pointers, char *why, size_t why_size);

#endif
