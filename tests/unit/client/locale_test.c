/* SPDX-License-Identifier: Apache-2.0 */
/* A program that has called setlocale(LC_ALL, "") gets what any other one gets. The locale is that
 * of Turkey in ISO-8859-9: numbers have a comma, and the small letter of I is none of ASCII's. */
#include <locale.h>
#include <math.h>

#include "tests/unit/client/rig.h"
#include "tests/unit/folder.h"

#define LOCALE "tr_TR.ISO-8859-9"

static char locales[64];

static int take_locale(void **state)
{
    char command[256];

    (void)state;
    folder_make(locales, sizeof locales);
    snprintf(command, sizeof command, "localedef -c -i tr_TR -f ISO-8859-9 %s/" LOCALE, locales);
    (void)!system(command); /* it warns of what does not matter here */
    setenv("LOCPATH", locales, 1);
    assert_non_null(setlocale(LC_ALL, LOCALE)); /* Debian's package locales has its source */
    assert_true(strtod("2.5", NULL) == 2);
    return 0;
}

static int leave_locale(void **state)
{
    (void)state;
    setlocale(LC_ALL, "C");
    folder_remove(locales);
    return 0;
}

AROUND_ALL_TESTS(take_locale, leave_locale);

static double selected(struct rig *rig, const char *sql, const stk_sql_value *params, size_t count)
{
    stk_rows *rows = NULL;

    ok(stk_sql(rig->client, NULL, 0, sql, params, count, &rows));
    double value = stk_rows_float(rows, 0, 0);
    stk_rows_free(rows);
    return value;
}

RIG_TEST(a_float_comes_out_of_sql_as_it_went_in)
{
    const stk_sql_value half = {.type = STK_SQL_FLOAT, .real = 2.5};
    const stk_sql_value endless = {.type = STK_SQL_FLOAT, .real = -HUGE_VAL};

    assert_true(selected(rig, "SELECT 2.5", NULL, 0) == 2.5);
    assert_true(selected(rig, "SELECT ?", &half, 1) == 2.5);
    assert_true(selected(rig, "SELECT ? * 2", &half, 1) == 5);
    assert_true(isinf(selected(rig, "SELECT ?", &endless, 1)));
}

/* SQLite reads these by libc's strtod. */
RIG_TEST(sqlite_reads_numbers_in_json_as_ever)
{
    assert_true(selected(rig, "SELECT json_extract('{\"price\": 2.5}', '$.price')", NULL, 0) ==
                2.5);
}

RIG_TEST(a_value_is_counted_up_by_a_float)
{
    stk_lease *lease = rig_acquire(rig->client, "r", 60000);
    char *value;

    ok(stk_set(lease, "r", "10.5", 4));
    ok(stk_fenced(lease, WORDS("INCRBYFLOAT", "r", "0.5"), NULL, NULL));
    ok(stk_get(rig->client, "r", &value, NULL));
    assert_string_equal(value, "11");
    free(value);
    ok(stk_fenced(lease, WORDS("INCRBYFLOAT", "r", "0.25"), NULL, NULL));
    ok(stk_get(rig->client, "r", &value, NULL));
    assert_string_equal(value, "11.25");
    free(value);
    stk_lease_free(lease);
}

/* In this locale the small letter of I is 0xfd, and the capital of i is 0xdd. */
RIG_TEST(words_are_known_in_any_case)
{
    stk_lease *lease = rig_acquire(rig->client, "r", 60000);
    stk_reply *reply;
    stk_rows *rows;

    ok(stk_fenced(lease, WORDS("incrby", "r", "2", "min", "0"), NULL, NULL));
    ok(stk_command(rig->client, WORDS("INFO", "SERVER"), NULL, &reply));
    stk_reply_free(reply);
    ok(stk_command(rig->client, WORDS("info", "Server"), NULL, &reply));
    stk_reply_free(reply);
    ok(stk_command(rig->client, WORDS("command", "docs", "hincrby"), NULL, &reply));
    stk_reply_free(reply);
    assert_int_equal(stk_sql(rig->client, NULL, 0, "SELECT * FROM STOCKADE_META", NULL, 0, &rows),
                     STK_NOPERM);
    stk_lease_free(lease);
}
