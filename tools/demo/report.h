/* SPDX-License-Identifier: Apache-2.0 */
/* What the demo says: before, and at the end the table and what it means. */
#ifndef STOCKADE_TOOLS_DEMO_REPORT_H
#define STOCKADE_TOOLS_DEMO_REPORT_H

#include <stddef.h>

#include "tools/demo/sale.h"
#include "tools/term.h"

void report_opening(struct term *term, const struct sale *sale);
void report_sale(struct term *term, const struct sale *sale, const struct sale_result *result);
void report_table(struct term *term, const struct sale_result *results, size_t count);
/* The honest small print. */
void report_meaning(struct term *term, bool redis_is_private);

#endif
