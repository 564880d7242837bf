/* SPDX-License-Identifier: Apache-2.0 */
/* Options: where they come from, which source wins, and the messages about mistakes. */
#include <unistd.h>

#include "proxy/server/options.h"
#include "tests/unit/test.h"

enum { WORDS_MAX = 8 };

/* What a daemon is started with. `file` is the text of a config file, "options.conf". */
struct given {
    const char *flags[WORDS_MAX];
    const char *env[WORDS_MAX];
    const char *file;
};

struct loaded {
    enum options_outcome outcome;
    struct options *options;
    struct buf message; /* with a zero at its end */
};

static struct loaded load(struct given given)
{
    struct loaded loaded = {0};
    const char *argv[WORDS_MAX + 4] = {"stockaded"};
    char folder[] = "/tmp/stockade-options-XXXXXX";
    int argc = 1;

    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    if (given.file != NULL) {
        FILE *file = fopen("options.conf", "w");
        assert_non_null(file);
        fputs(given.file, file);
        fclose(file);
        argv[argc++] = "--config=options.conf";
    }
    for (size_t i = 0; i < WORDS_MAX && given.flags[i] != NULL; i++)
        argv[argc++] = given.flags[i];
    loaded.outcome = options_load(&loaded.options, argc, (char *const *)argv,
                                  (char *const *)given.env, &loaded.message);
    buf_append(&loaded.message, "", 1);
    unlink("options.conf");
    assert_int_equal(rmdir(folder), 0);
    return loaded;
}

static void unload(struct loaded *loaded)
{
    if (loaded->outcome == OPTIONS_READY)
        options_free(loaded->options);
    buf_free(&loaded->message);
}

static struct loaded load_right(struct given given)
{
    struct loaded loaded = load(given);
    if (loaded.outcome != OPTIONS_READY)
        fail_msg("%s", loaded.message.data);
    return loaded;
}

static void expect_wrong(struct given given, const char *message)
{
    struct loaded loaded = load(given);
    assert_int_equal(loaded.outcome, OPTIONS_WRONG);
    assert_string_equal(loaded.message.data, message);
    unload(&loaded);
}

/* Compare an option as CONFIG GET shows it. */
static void expect_shown(struct given given, enum option option, const char *expected)
{
    struct loaded loaded = load_right(given);
    assert_string_equal(options_shown(loaded.options, option), expected);
    unload(&loaded);
}

TEST(defaults_hold_where_nobody_speaks)
{
    struct loaded loaded = load_right((struct given){0});
    struct options *options = loaded.options;

    assert_string_equal(options_text(options, OPTION_LISTEN), "127.0.0.1:7379");
    assert_null(options_at(options, OPTION_LISTEN, 1));
    assert_string_equal(options_text(options, OPTION_STORE), "sqlite:./stockade.db");
    assert_string_equal(options_text(options, OPTION_LEASE), "local:");
    assert_string_equal(options_text(options, OPTION_ADMIN), "127.0.0.1:7380");
    assert_string_equal(options_text(options, OPTION_PASSWORD_FILE), "");
    assert_true(options_is(options, OPTION_UNFENCED_WRITES, "deny"));
    assert_int_equal(options_number(options, OPTION_MAX_CONNECTIONS), 10000);
    assert_int_equal(options_number(options, OPTION_MAX_WAITERS), 100000);
    assert_string_equal(options_origin(options, OPTION_STORE), "store (default)");
    unload(&loaded);
}

/* All of them, from the daemon's own table: a new one is tried by itself. */
TEST(each_number_is_taken_from_its_least_to_its_greatest)
{
    struct row {
        const char *name;
        bool is_number;
        int64_t min, max;
    };
#define X(id, name, kind, value, fallback, min, max, ...) {name, kind == OPTION_NUMBER, min, max},
    static const struct row rows[] = {OPTION_MAP(X)};
#undef X

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int64_t tried[] = {rows[i].min - 1, rows[i].min, rows[i].max, rows[i].max + 1};
        for (size_t t = 0; rows[i].is_number && t < 4; t++) {
            char flag[96];
            snprintf(flag, sizeof flag, "--%s=%lld", rows[i].name, (long long)tried[t]);
            struct loaded loaded = load((struct given){.flags = {flag}});
            bool within = t == 1 || t == 2;
            if ((loaded.outcome == OPTIONS_READY) != within)
                fail_msg("%s is %s", flag, within ? "refused" : "taken");
            if (within)
                assert_int_equal(options_number(loaded.options, (enum option)i), tried[t]);
            unload(&loaded);
        }
    }
}

TEST(a_pattern_of_lock_keys_has_at_most_256_bytes)
{
    char flag[16 + 258] = "--lock-keys=*";

    memset(flag + 13, 'k', 256);
    struct loaded loaded = load((struct given){.flags = {flag}});
    assert_int_equal(loaded.outcome, OPTIONS_WRONG);
    unload(&loaded);
    flag[13 + 255] = '\0';
    loaded = load_right((struct given){.flags = {flag}});
    unload(&loaded);
}

TEST(a_flag_takes_its_value_with_an_equals_sign_or_as_the_next_word)
{
    struct loaded loaded = load_right((struct given){
        .flags = {"--store=sqlite:a=b", "--log-level", "debug", "--max-waiters", "7"}});

    assert_string_equal(options_text(loaded.options, OPTION_STORE), "sqlite:a=b");
    assert_true(options_is(loaded.options, OPTION_LOG_LEVEL, "debug"));
    assert_int_equal(options_number(loaded.options, OPTION_MAX_WAITERS), 7);
    assert_string_equal(options_origin(loaded.options, OPTION_STORE), "--store");
    unload(&loaded);
}

TEST(a_flag_wins_over_the_environment_that_over_the_file_that_over_the_default)
{
    struct given given = {.flags = {"--store", "sqlite:flag"},
                          .env = {"STOCKADE_STORE=sqlite:env", "STOCKADE_LOG_LEVEL=warn"},
                          .file = "store = sqlite:file\nlog-level = error\nmax-waiters = 5\n"};
    struct loaded loaded = load_right(given);

    assert_string_equal(options_text(loaded.options, OPTION_STORE), "sqlite:flag");
    assert_string_equal(options_text(loaded.options, OPTION_LOG_LEVEL), "warn");
    assert_string_equal(options_origin(loaded.options, OPTION_LOG_LEVEL), "STOCKADE_LOG_LEVEL");
    assert_int_equal(options_number(loaded.options, OPTION_MAX_WAITERS), 5);
    assert_string_equal(options_origin(loaded.options, OPTION_MAX_WAITERS),
                        "options.conf:3: max-waiters");
    unload(&loaded);
}

TEST(a_list_is_taken_whole_from_the_highest_source)
{
    const char *file = "listen = 127.0.0.1:1\nlisten = unix:/f\n";

    expect_shown((struct given){.file = file}, OPTION_LISTEN, "127.0.0.1:1 unix:/f");
    expect_shown((struct given){.file = file, .env = {"STOCKADE_LISTEN=[::1]:2  unix:/e"}},
                 OPTION_LISTEN, "[::1]:2 unix:/e");
    expect_shown((struct given){.file = file,
                                .env = {"STOCKADE_LISTEN=[::1]:2"},
                                .flags = {"--listen", "h:3", "--listen=h:4"}},
                 OPTION_LISTEN, "h:3 h:4");
}

TEST(of_a_single_value_the_last_one_counts)
{
    expect_shown((struct given){.flags = {"--admin", "off", "--admin", "h:1"}}, OPTION_ADMIN,
                 "h:1");
    expect_shown((struct given){.file = "admin = off\nadmin = h:2\n"}, OPTION_ADMIN, "h:2");
}

TEST(an_empty_or_foreign_variable_says_nothing)
{
    expect_shown((struct given){.env = {"STOCKADE_ADMIN=", "STOCKADE_TOKEN=34", "STOCKADE=x",
                                        "XSTOCKADE_ADMIN=off", "STOCKADE_ADMINS=off"}},
                 OPTION_ADMIN, "127.0.0.1:7380");
}

TEST(the_environment_can_name_the_config_file)
{
    expect_wrong((struct given){.env = {"STOCKADE_CONFIG=nosuch.conf"}},
                 "STOCKADE_CONFIG nosuch.conf: No such file or directory");
}

TEST(a_message_is_one_line_whatever_the_path_holds)
{
    expect_wrong((struct given){.flags = {"--config=a\nb"}},
                 "--config \"a\\x0ab\": No such file or directory");
}

TEST(a_config_file_has_comments_blanks_and_long_lines)
{
    char file[1100];

    expect_shown((struct given){.file = "\n# store = x\n; store = y\n  store=sqlite:z  # why\r\n"},
                 OPTION_STORE, "sqlite:z");
    expect_shown((struct given){.file = "admin = off\n   store = sqlite:indented\n"}, OPTION_STORE,
                 "sqlite:indented");
    expect_shown((struct given){.file = "store = sqlite:#1"}, OPTION_STORE, "sqlite:#1");
    snprintf(file, sizeof file, "store = sqlite:%0900d", 0);
    expect_shown((struct given){.file = file}, OPTION_STORE, file + strlen("store = "));
    snprintf(file, sizeof file, "\nstore = sqlite:%01020d", 0);
    expect_wrong((struct given){.file = file},
                 "options.conf:2: the line is too long, or holds a zero byte");
}

TEST(mistakes_in_the_file_are_named_by_line)
{
    expect_wrong((struct given){.file = "\n\nnosuch = 1\n"},
                 "options.conf:3: \"nosuch\": no such option; stockaded --help lists them");
    expect_wrong((struct given){.file = "admin = off\nlisten\n"},
                 "options.conf:2: expected name = value");
    expect_wrong((struct given){.file = "[server]\nadmin = off\n"},
                 "options.conf:2: a config file has no [sections]");
    expect_wrong((struct given){.file = "config = other.conf\n"},
                 "options.conf:1: a config file cannot name another one");
    expect_wrong((struct given){.file = "admin = off\nmax-waiters = many\nnosuch = 1\n"},
                 "options.conf:2: max-waiters \"many\": expected a number from 1 to 10000000");
    expect_wrong((struct given){.file = "store =\n"},
                 "options.conf:1: store \"\": expected sqlite:PATH|postgresql://...");
}

TEST(mistakes_say_where_they_stand_and_what_is_right)
{
    static const struct {
        const char *flag, *message;
    } cases[] = {
        {"--nosuch=1", "\"--nosuch\": no such option; stockaded --help lists them"},
        {"stray", "\"stray\": no such option; stockaded --help lists them"},
        {"--", "\"--\": no such option; stockaded --help lists them"},
        {"--store", "--store: expected sqlite:PATH|postgresql://... behind it"},
        {"--store=mysql:x", "--store \"mysql:x\": expected sqlite:PATH or postgresql://..."},
        {"--listen=7379",
         "--listen \"7379\": expected HOST:PORT, [IPV6]:PORT, tls:HOST:PORT or unix:PATH"},
        {"--admin=unix:/x",
         "--admin \"unix:/x\": expected HOST:PORT, [IPV6]:PORT, tls:HOST:PORT or off"},
        {"--unfenced-writes=all", "--unfenced-writes \"all\": expected one of deny|allow"},
        {"--unfenced-writes=den", "--unfenced-writes \"den\": expected one of deny|allow"},
        {"--log-level=", "--log-level \"\": expected debug|info|warn|error"},
        {"--max-connections=0", "--max-connections \"0\": expected a number from 1 to 1000000"},
        {"--max-connections=1e3", "--max-connections \"1e3\": expected a number from 1 to 1000000"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_wrong((struct given){.flags = {cases[i].flag}}, cases[i].message);
    expect_wrong((struct given){.env = {"STOCKADE_MAX_WAITERS=-1"}},
                 "STOCKADE_MAX_WAITERS \"-1\": expected a number from 1 to 10000000");
}

TEST(a_mistake_is_told_even_where_a_higher_source_overrides_it)
{
    expect_wrong((struct given){.flags = {"--admin", "off"}, .file = "admin = nonsense\n"},
                 "options.conf:1: admin \"nonsense\": expected HOST:PORT, [IPV6]:PORT, "
                 "tls:HOST:PORT or off");
}

TEST(passwords_in_lease_uris_are_never_shown)
{
    static const char *const uris[][2] = {
        {"redis://me:s3cret@h:1", "redis://***@h:1"},
        {"redis+sentinel://me:s3cret@h/n?sentinel_password=s3@cret",
         "redis+sentinel://***@h/n?sentinel_password=***"},
        {"redis://:s3cret@h", "redis://***@h"},
        {"redis://h:1/2?prefix=x", "redis://h:1/2?prefix=x"},
        {"redis+unix:/run/r.sock?password=s3cret", "redis+unix:/run/r.sock?password=***"},
        {"redis+unix:/run/r.sock?password=s3@cret", "redis+unix:/run/r.sock?password=***"},
        {"redis+unix:/run/r.sock?password=s3://c@ret", "redis+unix:/run/r.sock?password=***"},
        {"redis+sentinel://h/n?sentinel_password=s3://c@ret",
         "redis+sentinel://h/n?sentinel_password=***"},
        {"local:", "local:"},
    };
    static const char *const wrong[] = {
        "redis://me:s3cret@h:99999",
        "redis:me:s3cret@h",
        "redis://:s3cret",
        "redis://me:s3@s3cret@h/x",
        "rediss:/a:s3cret@h",
        "redis://u:s3cret@h?password=s3cret",
        "redis+unix:?password=s3cret",
        "nosuch://x:s3cret@y",
        "redis+unix:/x?y=1&password=s3cret&z",
        "redis://:s3cret?password=s3cret",
    };
    for (size_t i = 0; i < sizeof uris / sizeof *uris; i++)
        expect_shown((struct given){.flags = {"--lease", uris[i][0]}}, OPTION_LEASE, uris[i][1]);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct loaded loaded = load((struct given){.flags = {"--lease", wrong[i]}});
        assert_int_equal(loaded.outcome, OPTIONS_WRONG);
        assert_null(strstr(loaded.message.data, "s3cret"));
        assert_non_null(strstr(loaded.message.data, "--lease "));
        unload(&loaded);
    }
}

TEST(help_lists_every_option_with_its_default)
{
    struct loaded loaded = load((struct given){.flags = {"--nosuch", "--help"}});

    assert_int_equal(loaded.outcome, OPTIONS_SHOW);
    for (int i = 0; i < OPTIONS; i++) {
        char flag[64];
        snprintf(flag, sizeof flag, "\n  --%s ", options_name((enum option)i));
        assert_non_null(strstr(loaded.message.data, flag));
    }
    assert_non_null(strstr(loaded.message.data, "(default sqlite:./stockade.db)"));
    unload(&loaded);
    loaded = load((struct given){.flags = {"--version"}});
    assert_int_equal(loaded.outcome, OPTIONS_SHOW);
    assert_memory_equal(loaded.message.data, "stockaded ", 10);
    unload(&loaded);
}
