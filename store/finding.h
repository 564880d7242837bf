/* SPDX-License-Identifier: Apache-2.0 */
/* How the checks of both kinds of store say what they have found: lines of printable ASCII. */
#ifndef STOCKADE_STORE_FINDING_H
#define STOCKADE_STORE_FINDING_H

#include "fence/base/bytes.h"
#include "store/maintenance.h"

#define FINDING_NAME_MAX 160 /* bytes of a name as it is shown, its end included */

/* Report a finding to the caller, cut to fit, and count it, unless it is an CHECK_WARNING. */
void finding_report(struct check_call *call, const char *kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Write a resource's name, in which bytes that are not plain ASCII are \xNN, and return it. */
const char *finding_name(struct bytes name, char out[FINDING_NAME_MAX]);

#endif
