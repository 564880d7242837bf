/* SPDX-License-Identifier: Apache-2.0 */
/* SQL: typed parameters in, rows out. The protocol's second version carries values as text, and so
 * they are kept; SQLite made that text, and it reads back as the same number. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"
#include "fence/base/plain.h"
#include "proxy/client/command.h"
#include "proxy/client/reply.h"

enum { PARAMS_MAX = 32766 };

/* The words of an SQL command: SQL TYPES itfbn statement param ... */
struct statement {
    size_t argc;
    const char **argv;
    size_t *lens;
    struct buf *texts; /* of numbers */
    char *types;
};

static void set_word(struct statement *statement, size_t i, const char *data, size_t len)
{
    statement->argv[i] = data;
    statement->lens[i] = len;
}

static void add_param(struct statement *statement, size_t i, const stk_sql_value *value)
{
    struct buf *text = &statement->texts[i];
    const char *data = value->bytes;
    size_t len = value->len;
    char number[PLAIN_FLOAT_SIZE];

    statement->types[i] = "niftb"[value->type];
    if (value->type == STK_SQL_INTEGER)
        buf_printf(text, "%lld", (long long)value->integer);
    else if (value->type == STK_SQL_FLOAT)
        buf_append_text(text, plain_float(value->real, number));
    else if (value->type == STK_SQL_TEXT && len == 0 && data != NULL)
        len = strlen(data);
    if (text->len > 0 || value->type == STK_SQL_NULL || data == NULL) {
        data = text->len > 0 ? text->data : "";
        len = text->len;
    }
    set_word(statement, 4 + i, data, len);
}

static void build(struct statement *statement, const char *text, const stk_sql_value *params,
                  size_t count)
{
    statement->argc = count > 0 ? 4 + count : 2;
    statement->argv = mem_zalloc((4 + count) * sizeof *statement->argv);
    statement->lens = mem_zalloc((4 + count) * sizeof *statement->lens);
    statement->texts = mem_zalloc((1 + count) * sizeof *statement->texts);
    statement->types = mem_zalloc(1 + count);
    set_word(statement, 0, "SQL", 3);
    for (size_t i = 0; i < count; i++)
        add_param(statement, i, &params[i]);
    if (count > 0) {
        set_word(statement, 1, "TYPES", 5);
        set_word(statement, 2, statement->types, count);
    }
    set_word(statement, count > 0 ? 3 : 1, text, strlen(text));
}

static void dispose(struct statement *statement, size_t count)
{
    for (size_t i = 0; i < count; i++)
        buf_free(&statement->texts[i]);
    free(statement->argv);
    free(statement->lens);
    free(statement->texts);
    free(statement->types);
}

static const redisReply *reply_of(const stk_rows *rows)
{
    return (const redisReply *)(const void *)rows;
}

/* The value of one of the map's names; NULL: it is not there. */
static const redisReply *part(const redisReply *map, const char *name, int type)
{
    for (size_t i = 0; map != NULL && map->type == REDIS_REPLY_ARRAY && i + 1 < map->elements;
         i += 2)
        if (map->element[i]->type == REDIS_REPLY_STRING &&
            strcmp(map->element[i]->str, name) == 0 && map->element[i + 1]->type == type)
            return map->element[i + 1];
    return NULL;
}

static bool is_result(const redisReply *map)
{
    const redisReply *columns = part(map, "columns", REDIS_REPLY_ARRAY);
    const redisReply *rows = part(map, "rows", REDIS_REPLY_ARRAY);

    if (columns == NULL || rows == NULL || part(map, "changes", REDIS_REPLY_INTEGER) == NULL ||
        part(map, "last_insert_rowid", REDIS_REPLY_INTEGER) == NULL)
        return false;
    for (size_t i = 0; i < columns->elements; i++)
        if (columns->element[i]->type != REDIS_REPLY_STRING)
            return false;
    for (size_t i = 0; i < rows->elements; i++)
        if (rows->element[i]->type != REDIS_REPLY_ARRAY ||
            rows->element[i]->elements != columns->elements)
            return false;
    return true;
}

static bool is_param(const stk_sql_value *value)
{
    return value->type >= STK_SQL_NULL && value->type <= STK_SQL_BLOB &&
           (value->type != STK_SQL_FLOAT || !isnan(value->real));
}

enum stk_error stk_sql(stk_client *client, stk_lease *const *leases, size_t leases_count,
                       const char *text, const stk_sql_value *params, size_t params_count,
                       stk_rows **rows)
{
    struct statement statement;
    stk_reply *reply = NULL;
    enum stk_error error = client_check(client);

    if (rows != NULL)
        *rows = NULL;
    if (error == STK_OK)
        error = leases_check(leases, leases_count, client);
    if (error == STK_OK && params_count > PARAMS_MAX)
        error = fail(STK_MISUSE, "a statement takes %d parameters at most", PARAMS_MAX);
    for (size_t i = 0; i < params_count && error == STK_OK; i++)
        if (!is_param(&params[i]))
            error = fail(STK_MISUSE, "parameter %zu has no type, or is no number", i + 1);
    if (error != STK_OK)
        return error;
    build(&statement, text, params, params_count);
    error = leases_count > 0
                ? stk_fenced_all(leases, leases_count, statement.argc, statement.argv,
                                 statement.lens, &reply)
                : stk_command(client, statement.argc, statement.argv, statement.lens, &reply);
    dispose(&statement, params_count);
    if (error == STK_OK && !is_result(reply_in(reply)))
        error = reply_strange("SQL");
    if (error == STK_OK && rows != NULL)
        *rows = (stk_rows *)(void *)reply;
    else
        stk_reply_free(reply);
    return error;
}

static const redisReply *rows_of(const stk_rows *rows)
{
    return part(reply_of(rows), "rows", REDIS_REPLY_ARRAY);
}

size_t stk_rows_count(const stk_rows *rows)
{
    return rows_of(rows)->elements;
}

size_t stk_rows_columns(const stk_rows *rows)
{
    return part(reply_of(rows), "columns", REDIS_REPLY_ARRAY)->elements;
}

const char *stk_rows_name(const stk_rows *rows, size_t column)
{
    const redisReply *columns = part(reply_of(rows), "columns", REDIS_REPLY_ARRAY);
    return column < columns->elements ? columns->element[column]->str : NULL;
}

const char *stk_rows_text(const stk_rows *rows, size_t row, size_t column, size_t *len)
{
    const redisReply *all = rows_of(rows), *value = NULL;

    if (row < all->elements && column < all->element[row]->elements)
        value = all->element[row]->element[column];
    return stk_reply_string((const stk_reply *)(const void *)value, len);
}

int64_t stk_rows_integer(const stk_rows *rows, size_t row, size_t column)
{
    size_t len;
    int64_t value = 0;
    const char *text = stk_rows_text(rows, row, column, &len);

    if (text != NULL)
        (void)bytes_to_int64((struct bytes){text, len}, &value);
    return value;
}

double stk_rows_float(const stk_rows *rows, size_t row, size_t column)
{
    const char *text = stk_rows_text(rows, row, column, NULL);
    return text != NULL ? plain_to_double(text, NULL) : 0;
}

int64_t stk_rows_changes(const stk_rows *rows)
{
    return part(reply_of(rows), "changes", REDIS_REPLY_INTEGER)->integer;
}

int64_t stk_rows_last_id(const stk_rows *rows)
{
    return part(reply_of(rows), "last_insert_rowid", REDIS_REPLY_INTEGER)->integer;
}

void stk_rows_free(stk_rows *rows)
{
    stk_reply_free((stk_reply *)(void *)rows);
}
