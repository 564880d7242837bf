/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the heads of audits for `stockade audit verify`, on a connection of its own, without
 * opening the store. */
#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"
#include "store/maintenance.h"
#include "store/postgresql/pg.h"
#include "store/postgresql/uri.h"

bool store_postgresql_heads(const char *uri, struct store_audit_head **heads, size_t *count,
                            char *why, size_t why_size)
{
    struct pg pg = {.uri = uri, .name = "stockade audit", .timeout_ms = pg_uri_timeout_ms(uri)};
    PGresult *result = NULL;
    bool there = false;

    *heads = NULL;
    *count = 0;
    if (!libpq_load(&pg.pq, why, why_size))
        return false;
    if (pg_connect(&pg)) {
        pg_send_text(&pg, "SELECT to_regclass('stockade.audit') IS NOT NULL");
        pg_sync(&pg);
        result = pg_take(&pg);
        there = result != NULL && pg_value_bool(&pg, result, 0, 0);
        pg.pq.PQclear(result);
        result = NULL;
        if (pg_end(&pg) && there) {
            pg_send_text(&pg, "SELECT chain, hash, lines FROM stockade.audit ORDER BY chain");
            pg_sync(&pg);
            result = pg_take(&pg);
            (void)pg_end(&pg);
        }
    }
    for (int i = 0; i < pg.pq.PQntuples(result); i++) {
        *heads = mem_realloc(*heads, (*count + 1) * sizeof **heads);
        struct store_audit_head *head = &(*heads)[(*count)++];
        pg_value_text(&pg, result, i, 0, head->chain, sizeof head->chain);
        pg_value_text(&pg, result, i, 1, head->hash, sizeof head->hash);
        head->lines = pg_value_int64(&pg, result, i, 2);
    }
    bool good = pg.conn != NULL && !pg.failed;
    if (!good)
        text_print(why, why_size, "%s", pg.why);
    pg.pq.PQclear(result);
    pg_drop(&pg);
    return good;
}
