/* SPDX-License-Identifier: Apache-2.0 */
/* A report is one page that can be looked at: lanes of what each process did, drawn by a script in
 * the page from data in the page. It asks nothing of anybody else. */
#ifndef STOCKADE_TOOLS_REPORT_REPORT_H
#define STOCKADE_TOOLS_REPORT_REPORT_H

#include <stdio.h>

#include "fence/base/bytes.h"
#include "tools/failure.h"

/* Open the file of a report, before the work that it is about. NULL: it cannot be written. */
FILE *report_open(const char *path, struct failure *failure);
/* Write the page around `json`, and close the file. */
bool report_write(FILE *file, const char *path, struct bytes json, struct failure *failure);

#endif
