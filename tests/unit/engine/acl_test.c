/* SPDX-License-Identifier: Apache-2.0 */
/* A file of users, word by word: who may do what, what is refused, and what is shown of it. */
#include "tests/unit/test.h"

#include <crypt.h>
#include <stdio.h>
#include <string.h>

#include "proxy/engine/acl/acl.h"
#include "proxy/engine/acl/log.h"

#define A63 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define A64 A63 "a"

static struct acl *parse(const char *text)
{
    char why[ACL_WHY_SIZE];
    struct acl *acl = acl_parse(bytes_of(text), commands, commands_count, why);

    if (acl == NULL)
        fail_msg("%s", why);
    return acl;
}

static void assert_wrong(const char *text, const char *part)
{
    char why[ACL_WHY_SIZE];
    struct acl *acl = acl_parse(bytes_of(text), commands, commands_count, why);

    if (acl != NULL || strstr(why, part) == NULL)
        fail_msg("%s: %s", text, acl != NULL ? "was taken" : why);
}

static const struct command *command(const char *name)
{
    for (size_t i = 0; i < commands_count; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    fail_msg("no %s", name);
    return NULL;
}

static bool may_run(const struct acl_user *user, const char *name, const char *sub)
{
    const struct command *row = command(name);
    return acl_may_run(user, row, sub == NULL ? NULL : subcommand_find(row, bytes_of(sub)));
}

static bool may_touch(const struct acl_user *user, const char *name, unsigned needs)
{
    return acl_may_touch(user, bytes_of(name), needs);
}

TEST(the_later_word_counts)
{
    struct acl *acl = parse("user a on +@all -@write +set -client|kill ~a ~b resetkeys ~c &x &y\n");
    const struct acl_user *a = acl_find(acl, bytes_of("a"));

    assert_true(may_run(a, "GET", NULL) && may_run(a, "SET", NULL));
    assert_false(may_run(a, "INCR", NULL));
    assert_true(may_run(a, "CLIENT", "list"));
    assert_false(may_run(a, "CLIENT", "kill"));
    assert_false(a->admin); /* not all of it */
    assert_true(may_touch(a, "c", ACL_WRITES));
    assert_false(may_touch(a, "a", ACL_READS));
    assert_true(acl_may_hear(a, bytes_of("y"), false));
    acl_drop(acl);
}

TEST(reading_and_writing_are_rights_of_their_own)
{
    struct acl *acl = parse("user a on %R~r* %W~*w %RW~both ~all\n");
    const struct acl_user *a = acl_find(acl, bytes_of("a"));

    assert_true(may_touch(a, "r1", ACL_READS));
    assert_false(may_touch(a, "r1", ACL_WRITES));
    assert_false(may_touch(a, "1w", ACL_READS));
    assert_true(may_touch(a, "rw", ACL_READS | ACL_WRITES)); /* by two patterns */
    assert_true(may_touch(a, "both", ACL_READS | ACL_WRITES));
    assert_true(may_touch(a, "all", ACL_READS | ACL_WRITES));
    assert_false(acl_may_touch_all(a, ACL_READS));
    acl_drop(acl);
}

/* What a pattern of channels matches nobody knows before. */
TEST(patterns_of_channels_are_allowed_word_by_word)
{
    struct acl *acl = parse("user a on &news:*\nuser b on &*\n");
    const struct acl_user *a = acl_find(acl, bytes_of("a")), *b = acl_find(acl, bytes_of("b"));

    assert_true(acl_may_hear(a, bytes_of("news:1"), false));
    assert_true(acl_may_hear(a, bytes_of("news:*"), true));
    assert_false(acl_may_hear(a, bytes_of("news:1*"), true));
    assert_false(acl_may_hear(a, bytes_of("*"), true));
    assert_true(acl_may_hear(b, bytes_of("*"), true));
    acl_drop(acl);
}

TEST(all_is_all_and_nothing_less)
{
    struct acl *acl = parse("user a on ~* &* +@all\nuser b on ~* &* +@all -dbsize\n"
                            "user c on %R~* &* +@all\nuser d on ~* +@all\n");

    assert_true(acl_find(acl, bytes_of("a"))->all);
    for (size_t i = 1; i < 4; i++)
        assert_false(acl_at(acl, i)->all);
    assert_true(acl_find(acl, bytes_of("b"))->admin);
    acl_drop(acl);
}

TEST(what_is_no_file_of_users_is_told)
{
    assert_wrong("user\n", "line 1: a user's name");
    assert_wrong("\n\nuser a on\nuser a off\n", "line 4: user a is there already");
    assert_wrong("user a +@fast\n", "no category @fast");
    assert_wrong("user a +nosuch\n", "no command 'nosuch'");
    assert_wrong("user a +aquire\n", "no command 'aquire' here (did you mean ACQUIRE?)");
    assert_wrong("user a +client|nosuch\n", "no command 'client|nosuch'");
    assert_wrong("user a +client|\n", "no command 'client|'");
    assert_wrong("user a -multi\n", "needs no right of its own");
    assert_wrong("user a %X~k\n", "no pattern of keys");
    assert_wrong("user a %R\n", "no pattern of keys");
    assert_wrong("user a >\n", "1 to 512 bytes");
    assert_wrong("user a #ABC\n", "64 lower-case");
    assert_wrong("user a #" A64 "0\n", "64 lower-case");
    assert_wrong("user a\nuser b #A" A63 "\n",
                 "line 2: behind # there have to be the 64 lower-case");
    assert_wrong("user a crypt:$9$x\n", "crypt(3)");
    assert_wrong("user a crypt:\n", "crypt(3)");
    assert_wrong("user a crypt:ab01FAX.bQRSU\n", "crypt(3)"); /* DES: eight bytes count */
    assert_wrong("user a (+get ~k)\n", "selectors");
    assert_wrong("user a maybe\n", "'maybe' is no rule");
    assert_wrong("users a\n", "begins with: user");
}

static void assert_crypt(const char *hash, bool right)
{
    char line[512], why[ACL_WHY_SIZE];

    snprintf(line, sizeof line, "user a on\nuser b on crypt:%s\n", hash);
    struct acl *acl = acl_parse(bytes_of(line), commands, commands_count, why);
    if ((acl != NULL) != right)
        fail_msg("%s: %s", hash, acl != NULL ? "taken" : why);
    if (acl != NULL)
        acl_drop(acl);
    else
        assert_non_null(strstr(why, "line 2: what is behind crypt: is no hash"));
}

TEST(a_hash_of_crypt_is_whole)
{
    static const char *const methods[] = {"$y$",  "$gy$", "$7$",   "$6$",  "$5$",
                                          "$2b$", "$2y$", "$sha1", "$md5", "$1$"};

    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        struct crypt_data data = {0};
        const char *salt =
            crypt_gensalt(methods[i], strchr(methods[i], '2') != NULL ? 4 : 1, NULL, 0);
        if (salt == NULL) /* not on this system */
            salt = crypt_gensalt(methods[i], 0, NULL, 0);
        assert_non_null(salt);
        char hash[256], changed[260];
        snprintf(hash, sizeof hash, "%s", crypt_r("secret", salt, &data));
        assert_crypt(hash, true);
        snprintf(changed, sizeof changed, "%s.", hash);
        assert_crypt(changed, false);
        snprintf(changed, sizeof changed, "%.*s", (int)strlen(hash) - 1, hash);
        assert_crypt(changed, false);
        snprintf(changed, sizeof changed, "%s", salt);
        assert_crypt(changed, false);
        snprintf(changed, sizeof changed, "%s", hash);
        *strrchr(changed, '$') = '.';
        assert_crypt(changed, false);
        snprintf(changed, sizeof changed, "%s", hash);
        changed[strlen(changed) - 1] = ':';
        assert_crypt(changed, false);
    }
    assert_crypt("$6$rounds=1000$salt$" A64 "aaaaaaaaaaaaaaaaaaaaaa", true);
    assert_crypt("$y$nonsense", false);
    assert_crypt("$6$nonsense", false);
    assert_crypt("$2b$12$nonsense", false);
}

TEST(a_pattern_has_a_limit)
{
    enum { MOST = 1024 };
    static const char *const rules[] = {"~", "%R~", "&"};
    char text[MOST + 64], pattern[MOST + 2];

    memset(pattern, 'k', MOST + 1);
    pattern[MOST + 1] = '\0';
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        snprintf(text, sizeof text, "user a %s%s\n", rules[i], pattern);
        assert_wrong(text, "at most 1024 bytes");
        snprintf(text, sizeof text, "user a %s%s\n", rules[i], pattern + 1);
        acl_drop(parse(text));
    }
}

TEST(a_users_name_has_1_to_64_bytes)
{
    char text[128], name[66];

    memset(name, 'n', 65);
    name[65] = '\0';
    snprintf(text, sizeof text, "user %s on\n", name);
    assert_wrong(text, "a user's name");
    snprintf(text, sizeof text, "user %s on\n", name + 1);
    acl_drop(parse(text));
    acl_drop(parse("user n on\n"));
}

/* And fit into a mebibyte. */
TEST(there_are_at_most_10000_users)
{
    enum { MOST = 10000, MIB = 1 << 20 };
    struct buf text = {0};

    for (int i = 0; i < MOST; i++)
        buf_printf(&text, "user u%d on\n", i);
    buf_append(&text, "", 1);
    acl_drop(parse(text.data));
    text.len--;
    buf_append_text(&text, "user one-more on\n");
    buf_append(&text, "", 1);
    assert_wrong(text.data, "more than 10000 users");
    buf_clear(&text);
    buf_append_text(&text, "user u on\n#");
    while (text.len < MIB)
        buf_append_text(&text, "x");
    buf_append(&text, "", 1);
    acl_drop(parse(text.data));
    text.len--;
    buf_append_text(&text, "x");
    buf_append(&text, "", 1);
    assert_wrong(text.data, "more than 1048576 bytes");
    buf_free(&text);
}

TEST(users_shown_are_the_users_read)
{
    struct acl *acl =
        parse("# ours\nuser b on >pw %R~r %W~w ~x &c +@read -get +client|list +@sql\r\n"
              "user a off nopass\nuser c on ~* &* +@all sanitize-payload\n"
              "user d on +client -@admin -get");
    struct buf shown = {0}, again = {0};
    const struct acl_user *user;

    for (size_t i = 0; (user = acl_at(acl, i)) != NULL; i++) {
        acl_show_user(user, &shown);
        buf_append_text(&shown, "\n");
    }
    buf_append(&shown, "", 1);
    struct acl *second = parse(shown.data);
    for (size_t i = 0; (user = acl_at(second, i)) != NULL; i++) {
        acl_show_user(user, &again);
        buf_append_text(&again, "\n");
    }
    buf_append(&again, "", 1);
    assert_string_equal(shown.data, again.data);
    assert_non_null(strstr(shown.data, "user c on ~* &* +@all\n"));
    assert_null(strstr(shown.data, "pw "));
    assert_non_null(strstr(shown.data, " -@all +client -client|list -client|kill\n"));
    buf_free(&shown);
    buf_free(&again);
    acl_drop(acl);
    acl_drop(second);
}

/* The password goes in all of them, because its hash would be shown. */
TEST(words_without_a_value_do_what_redis_says)
{
    static const char had[] = "user a on >pw ~k &c +get ";
    static const struct {
        const char *words, *shown;
    } rows[] = {
        {"resetpass off", "user a off ~k &c -@all +get"},
        {"nopass", "user a on nopass ~k &c -@all +get"},
        {"nopass resetpass", "user a on ~k &c -@all +get"},
        {"resetpass resetkeys allkeys", "user a on ~* &c -@all +get"},
        {"resetpass resetkeys", "user a on &c -@all +get"},
        {"resetpass resetchannels allchannels", "user a on ~k &* -@all +get"},
        {"resetpass resetchannels", "user a on ~k resetchannels -@all +get"},
        {"resetpass allcommands", "user a on ~k &c +@all"},
        {"resetpass allcommands nocommands", "user a on ~k &c -@all"},
        {"nopass reset", "user a off resetchannels -@all"},
        {"reset on", "user a on resetchannels -@all"},
        {"RESETPASS ResetKeys AllKeys clearselectors", "user a on ~* &c -@all +get"},
    };
    char text[128];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf shown = {0};
        snprintf(text, sizeof text, "%s%s\n", had, rows[i].words);
        struct acl *acl = parse(text);
        acl_show_user(acl_at(acl, 0), &shown);
        buf_append(&shown, "", 1);
        assert_string_equal(shown.data, rows[i].shown);
        buf_free(&shown);
        acl_drop(acl);
    }
}

TEST(a_password_is_right_or_wrong)
{
    struct acl *acl = parse("user a on >one >two <one\nuser b on nopass\nuser c on\n"
                            "user d on nopass >pw\n");

    assert_int_equal(acl_check_password(acl_find(acl, bytes_of("a")), bytes_of("two")), ACL_RIGHT);
    assert_int_equal(acl_check_password(acl_find(acl, bytes_of("a")), bytes_of("one")), ACL_WRONG);
    assert_int_equal(acl_check_password(acl_find(acl, bytes_of("b")), bytes_of("x")), ACL_RIGHT);
    assert_int_equal(acl_check_password(acl_find(acl, bytes_of("c")), bytes_of("")), ACL_WRONG);
    assert_int_equal(acl_check_password(acl_find(acl, bytes_of("d")), bytes_of("x")), ACL_WRONG);
    assert_null(acl_open_user(acl)); /* who needs none may do nothing */
    acl_drop(acl);
    acl = parse("user c on\nuser b on nopass +get\n");
    assert_string_equal(acl_open_user(acl)->name, "b");
    acl_drop(acl);
}

TEST(a_password_may_be_as_long_as_one_that_is_checked)
{
    char text[ACL_PASSWORD_MAX + 32], longest[ACL_PASSWORD_MAX + 1] = {0};

    memset(longest, 'x', ACL_PASSWORD_MAX);
    snprintf(text, sizeof text, "user a on >%s\n", longest);
    struct acl *acl = parse(text);
    assert_int_equal(acl_check_password(acl_find(acl, bytes_of("a")), bytes_of(longest)),
                     ACL_RIGHT);
    snprintf(text, sizeof text, "user a on >%sx\n", longest);
    assert_wrong(text, "1 to 512 bytes");
    acl_drop(acl);
}

static bool try(struct acl *acl, const struct acl *now, const char *password)
{
    struct acl_trial *trial = acl_trial_new(acl, acl_find(acl, bytes_of("a")), bytes_of(password));
    acl_trial_run(trial);
    return acl_trial_end(trial, now);
}

/* Hashes of "pw", by mkpasswd. */
#define HASH    "crypt:$5$saltsalt$0rl.MZtoLLPP3X0Rdl8riRnphIcAXJY27/aOAyK2hB5\n"
#define CRYPTED "user a on " HASH

TEST(crypt_is_asked_once)
{
    struct acl *acl = parse(CRYPTED), *other = parse("user a on >pw\n");
    const struct acl_user *a = acl_find(acl, bytes_of("a"));

    assert_int_equal(acl_check_password(a, bytes_of("pw")), ACL_SLOW);
    assert_false(try(acl, acl, "px"));
    assert_false(try(acl, other, "pw")); /* which has not that password any more */
    assert_int_equal(acl_check_password(a, bytes_of("pw")), ACL_SLOW);
    assert_true(try(acl, acl, "pw"));
    assert_int_equal(acl_check_password(a, bytes_of("pw")), ACL_RIGHT);
    assert_int_equal(acl_check_password(a, bytes_of("px")), ACL_SLOW);
    acl_drop(acl);
    acl_drop(other);
}

/* Between the question and its answer its user may have become any other. */
TEST(a_password_that_is_right_counts_for_who_has_it_when_that_is_known)
{
    static const char *const later[] = {"user b on " HASH, "user a off " HASH, "user a on >pw\n",
                                        "user a on\n"};

    for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
        struct acl *acl = parse(CRYPTED), *now = parse(later[i]);
        assert_false(try(acl, now, "pw"));
        assert_true(try(acl, acl, "pw"));
        acl_drop(acl);
        acl_drop(now);
    }
}

static void add(struct acl_log *log, const char *reason, const char *object, int64_t at_ms)
{
    acl_log_add(
        log,
        &(struct acl_log_entry){
            .reason = reason, .context = "toplevel", .created_ms = at_ms, .updated_ms = at_ms},
        bytes_of(object), bytes_of("a"), bytes_of("id=1"));
}

TEST(the_log_counts_the_same_and_forgets_the_oldest)
{
    static const char key[] = "key";
    struct acl_log *log = acl_log_new();
    char name[16];

    add(log, key, "k", 1000);
    add(log, key, "l", 2000);
    add(log, key, "k", 3000);
    assert_string_equal(acl_log_at(log, 0)->object, "k");
    assert_int_equal(acl_log_at(log, 0)->count, 2);
    assert_int_equal(acl_log_at(log, 0)->created_ms, 1000);
    add(log, key, "k", 3000 + 60000);
    assert_int_equal(acl_log_at(log, 0)->count, 1);
    for (int i = 0; i < ACL_LOG_MAX; i++) {
        snprintf(name, sizeof name, "k%d", i);
        add(log, key, name, 70000);
    }
    assert_string_equal(acl_log_at(log, ACL_LOG_MAX - 1)->object, "k0");
    assert_null(acl_log_at(log, ACL_LOG_MAX));
    acl_log_free(log);
}
