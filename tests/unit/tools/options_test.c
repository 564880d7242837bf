/* SPDX-License-Identifier: Apache-2.0 */
/* Command options from a table. */
#include "tests/unit/test.h"
#include "tools/options.h"

struct settings {
    bool flag;
    int64_t count, ttl_ms;
    const char *name;
    const char *file;
    int calls;
};

static bool set_call(void *settings, const char *text, struct failure *failure)
{
    ((struct settings *)settings)->calls++;
    return strcmp(text, "good") == 0 || failure_set(failure, "takes good");
}

static const struct option_row rows[] = {
    {"flag", OPTION_FLAG, offsetof(struct settings, flag), 0, 0, NULL, "a flag", NULL},
    {"count", OPTION_NUMBER, offsetof(struct settings, count), 1, 10, "N", "a number", NULL},
    {"ttl", OPTION_MS, offsetof(struct settings, ttl_ms), 10, 60000, "MS", "a time", NULL},
    {"name", OPTION_TEXT, offsetof(struct settings, name), 0, 0, "TEXT", "a text", NULL},
    {"call", OPTION_CALL, 0, 0, 0, "X", "a call", set_call},
};
static const struct option_table table = {
    .command = "test",
    .usage = "test",
    .about = "about",
    OPTION_ROWS(rows),
};

/* `words` ends with NULL. */
static enum options_result parse_with(const struct option_table *with, struct settings *settings,
                                      const char *const *words)
{
    char copies[8][32], *argv[9] = {copies[0]};
    int argc = 1;

    strcpy(copies[0], "test");
    for (; words[argc - 1] != NULL; argc++) {
        strcpy(copies[argc], words[argc - 1]);
        argv[argc] = copies[argc];
    }
    enum options_result result = options_parse(with, settings, NULL, argc, argv);
    if (settings->name != NULL)
        settings->name = strcmp(settings->name, "some name") == 0 ? "some name" : "another";
    if (settings->file != NULL)
        settings->file = strcmp(settings->file, "-x") == 0 ? "-x" : "a file";
    return result;
}

static enum options_result parse(struct settings *settings, const char *const *words)
{
    return parse_with(&table, settings, words);
}

#define PARSE(settings, ...) parse(settings, (const char *const[]){__VA_ARGS__, NULL})

TEST(each_kind_reaches_its_field)
{
    struct settings settings = {.count = 3};

    assert_int_equal(PARSE(&settings, "--flag", "--count", "7", "--ttl=2s", "--name=some name",
                           "--call", "good"),
                     OPTIONS_RUN);
    assert_true(settings.flag);
    assert_int_equal(settings.count, 7);
    assert_int_equal(settings.ttl_ms, 2000);
    assert_string_equal(settings.name, "some name");
    assert_int_equal(settings.calls, 1);
}

TEST(what_was_not_given_keeps_its_default)
{
    struct settings settings = {.count = 3};

    assert_int_equal(parse(&settings, (const char *const[]){NULL}), OPTIONS_RUN);
    assert_int_equal(settings.count, 3);
    assert_false(settings.flag);
}

TEST(what_makes_no_sense_is_refused_and_changes_nothing)
{
    struct settings settings = {.count = 3};

    assert_int_equal(PARSE(&settings, "--count", "0"), OPTIONS_WRONG);
    assert_int_equal(PARSE(&settings, "--count", "11"), OPTIONS_WRONG);
    assert_int_equal(PARSE(&settings, "--count", "7x"), OPTIONS_WRONG);
    assert_int_equal(PARSE(&settings, "--count", ""), OPTIONS_WRONG);
    assert_int_equal(PARSE(&settings, "--count"), OPTIONS_WRONG);
    assert_int_equal(PARSE(&settings, "--ttl", "9"), OPTIONS_WRONG);
    assert_int_equal(PARSE(&settings, "--ttl", "61s"), OPTIONS_WRONG);
    assert_int_equal(PARSE(&settings, "--nope"), OPTIONS_WRONG);
    assert_int_equal(PARSE(&settings, "--flag=1"), OPTIONS_WRONG);
    assert_int_equal(PARSE(&settings, "word"), OPTIONS_WRONG);
    assert_int_equal(PARSE(&settings, "--call", "bad"), OPTIONS_WRONG);
    assert_int_equal(settings.count, 3);
    assert_int_equal(settings.ttl_ms, 0);
}

TEST(the_one_operand_stands_before_or_behind_the_options)
{
    struct option_table with = table;
    static const char *const good[][4] = {
        {"name", "--flag"}, {"--flag", "name"}, {"--count", "7", "name"}, {"--flag", "--", "-x"}};
    static const char *const bad[][4] = {
        {"--flag"}, {NULL}, {"one", "two"}, {"one", "--", "two"}, {"--", "one", "two"}};

    with.operands[0] = (struct option_operand){"FILE", offsetof(struct settings, file)};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct settings settings = {.count = 3};
        assert_int_equal(parse_with(&with, &settings, good[i]), OPTIONS_RUN);
        assert_string_equal(settings.file, i == 3 ? "-x" : "a file");
        assert_true(settings.flag || settings.count == 7);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct settings settings = {.count = 3};
        assert_int_equal(parse_with(&with, &settings, bad[i]), OPTIONS_WRONG);
    }
}

TEST(a_second_operand_follows_the_first_and_an_optional_one_may_be_missing)
{
    struct option_table with = table;
    struct settings settings = {.count = 3}, none = {.count = 3};
    static const char *const both[] = {"key", "--flag", "some name", NULL};
    static const char *const one[] = {"key", NULL}, *const three[] = {"a", "b", "c", NULL};
    static const char *const nothing[] = {NULL};

    with.operands[0] = (struct option_operand){"KEY", offsetof(struct settings, file)};
    with.operands[1] = (struct option_operand){"VALUE", offsetof(struct settings, name)};
    assert_int_equal(parse_with(&with, &settings, both), OPTIONS_RUN);
    assert_string_equal(settings.file, "a file");
    assert_string_equal(settings.name, "some name");
    settings = none;
    assert_int_equal(parse_with(&with, &settings, one), OPTIONS_WRONG);
    settings = none;
    assert_int_equal(parse_with(&with, &settings, three), OPTIONS_WRONG);
    with.operands[1].name = NULL;
    with.operand_is_optional = true;
    assert_int_equal(parse_with(&with, &none, nothing), OPTIONS_RUN);
    assert_null(none.file);
}

TEST(help_is_an_answer_of_its_own)
{
    struct settings settings = {.count = 3};

    assert_int_equal(PARSE(&settings, "--help"), OPTIONS_HELPED);
    assert_int_equal(PARSE(&settings, "-h"), OPTIONS_HELPED);
}

TEST(times_have_units)
{
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {{"0", 0},       {"200", 200},   {"200ms", 200},
                {"30s", 30000}, {"5m", 300000}, {"24h", 86400000}};
    static const char *const bad[] = {"",
                                      "s",
                                      "-1",
                                      "1.5s",
                                      "1 s",
                                      "1d",
                                      "1S",
                                      "0x10",
                                      "9223372036854775807h",
                                      "99999999999999999999"};
    int64_t ms;

    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(options_ms(good[i].text, &ms));
        assert_int_equal(ms, good[i].ms);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(options_ms(bad[i], &ms));
}
