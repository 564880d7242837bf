/* SPDX-License-Identifier: Apache-2.0 */
/* The page that a browser shows at the admin address: fixed files, built into the program. All that
 * changes comes from the JSON API, so they need no templates. */
#ifndef STOCKADE_SERVER_PAGE_H
#define STOCKADE_SERVER_PAGE_H

#include <stdbool.h>

#include "fence/base/bytes.h"

/* The Content-Security-Policy of every file of the page. It loads what comes from its own origin,
 * sends nothing elsewhere, and runs in no other page's frame. */
#define PAGE_POLICY                                                                                \
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "                \
    "img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

struct page_file {
    const char *type;  /* its Content-Type */
    struct bytes body; /* lives as long as the program */
};

/* Look up the file at a URL's path, "/" for the page itself. False: there is none. */
bool page_find(const char *path, struct page_file *file);

#endif
