/* SPDX-License-Identifier: Apache-2.0 */
/* What the demo of baskets says: before, and at the end the table and what it means. */
#ifndef STOCKADE_TOOLS_DEMO_BASKET_REPORT_H
#define STOCKADE_TOOLS_DEMO_BASKET_REPORT_H

#include "tools/demo/basket_sale.h"

void basket_report_opening(struct term *term, const struct basket_sale *sale);
void basket_report_sale(struct term *term, const struct basket_result *result);
void basket_report_table(struct term *term, const struct basket_result *results, size_t count);
void basket_report_meaning(struct term *term, bool redis_is_private);

#endif
