/* SPDX-License-Identifier: Apache-2.0 */
/* Other processes write to the store's file while it is open. What they did is seen, nothing older
 * is answered from the cache, and nobody's write is lost. */
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/store/rig.h"

enum { RESOURCES = 3, GRANTS = 400, CHILD_SECONDS = 60 };

static enum stk_error receipt(struct store_txn *txn, void *arg)
{
    snprintf(arg, 64, "%s", rig_receipt(txn, "r", "id"));
    return STK_OK;
}

/* Return "r" as the writer sees it; the reader has to agree. */
static struct resource seen(struct rig *rig)
{
    struct resource by_writer, by_reader;

    assert_ok(rig_read(rig, rig_find_r, &by_reader));
    assert_ok(rig_write(rig, rig_find_r, &by_writer));
    assert_int_equal(by_writer.id, by_reader.id);
    assert_int_equal(by_writer.fence.token, by_reader.fence.token);
    assert_int_equal(by_writer.fence.floor, by_reader.fence.floor);
    assert_int_equal(by_writer.fence.state, by_reader.fence.state);
    assert_int_equal(by_writer.type, by_reader.type);
    return by_writer;
}

SQLITE_TEST(each_thing_that_is_cached_follows_a_foreign_change)
{
    char text[64];

    (void)rig_next_token(rig);
    rig_write_r(rig, "1");
    int64_t id = seen(rig).id;
    rig_sql(rig, "UPDATE stockade_meta SET value = 70 WHERE key = 'floor'");
    assert_int_equal(seen(rig).fence.floor, 70);
    rig_sql(rig, "UPDATE stockade_resource SET token = 90");
    assert_int_equal(seen(rig).fence.token, 90);
    rig_sql(rig, "UPDATE stockade_resource SET state = 2");
    assert_int_equal(seen(rig).fence.state, FENCE_RELEASED);
    rig_sql(rig, "DELETE FROM stockade_string; UPDATE stockade_resource SET type = 0");
    assert_int_equal(seen(rig).type, VALUE_NONE);
    rig_sql(rig, "INSERT INTO stockade_receipt VALUES(1, x'6964', 90, 0, 0, 0, x'2b4f4b')");
    assert_ok(rig_write(rig, receipt, text));
    assert_string_equal(text, "+OK");
    assert_ok(rig_read(rig, receipt, text));
    assert_string_equal(text, "+OK");
    rig_sql(rig, "DELETE FROM stockade_receipt; DELETE FROM stockade_resource;"
                 "INSERT INTO stockade_resource(id, name) VALUES(40, x'78'), (41, x'72')");
    assert_int_equal(seen(rig).id, 41);
    assert_true(id != 41);
    assert_int_equal(rig_next_token(rig), 71);
    assert_int_equal(store_stats(rig->store).foreign_commits, 6);
}

SQLITE_TEST(P2_older_contents_that_lack_a_first_grant_are_noticed)
{
    assert_int_equal(rig_next_token(rig), 1);
    rig_sql(rig, "DELETE FROM stockade_resource");
    assert_true(rig_next_token(rig) > 1);
    assert_contains(rig_log(rig), "older contents");
}

SQLITE_TEST(statements_survive_foreign_changes_of_the_schema_and_of_the_whole_file)
{
    static const char *const changes[] = {
        "CREATE TABLE theirs(x); INSERT INTO theirs VALUES(1)",
        "CREATE INDEX theirs_x ON theirs(x)",
        "PRAGMA wal_checkpoint(TRUNCATE)",
        "ANALYZE",
        "ALTER TABLE theirs ADD COLUMN y",
        "VACUUM",
        "DROP TABLE theirs",
        "VACUUM",
    };
    char value[16];

    for (int i = 0; i < (int)(COUNT(changes)); i++) {
        assert_int_equal(rig_next_token(rig), i + 1);
        snprintf(value, sizeof value, "%d", i);
        rig_write_r(rig, value);
        rig_sql(rig, changes[i]);
        assert_int_equal(seen(rig).fence.token, i + 1);
        rig_expect_r(rig, value);
    }
}

/* What each of two processes does again and again: grants the next token (*arg, which says of which
 * resource), adds one to a sum, and cleans up. */
static enum stk_error take_part(struct store_txn *txn, void *arg)
{
    int64_t *token = arg, sum = 0, after = 0;
    char name[8], text[24];
    size_t removed;
    bool more;

    snprintf(name, sizeof name, "r%d", (int)(*token % RESOURCES));
    *token = rig_grant(txn, name, "o").fence.token;
    rig_release(txn, name);
    if (strcmp(rig_get(txn, "sum"), "(none)") != 0)
        sum = atoll(rig_get(txn, "sum"));
    snprintf(text, sizeof text, "%lld", (long long)sum + 1);
    rig_set(txn, "sum", text);
    return *token % 5 != 0 ? STK_OK
                           : txn_sweep_resources(txn, INT64_MAX, 0, 10, &after, &removed, &more);
}

/* The two processes wait for each other now and then, or one would do it all before the other. */
static void meet(int out, int in)
{
    char byte = 'm';

    if (write(out, &byte, 1) != 1 || read(in, &byte, 1) != 1)
        fail_msg("the other process is gone");
}

static void play(struct rig *rig, int64_t *tokens, int out, int in)
{
    rig_open(rig, false);
    for (int i = 0; i < GRANTS; i++) {
        if (i % 10 == 0)
            meet(out, in);
        tokens[i] = i;
        assert_ok(rig_write(rig, take_part, &tokens[i]));
    }
}

static enum stk_error get_sum(struct store_txn *txn, void *arg)
{
    *(int64_t *)arg = atoll(rig_get(txn, "sum"));
    return STK_OK;
}

SQLITE_TEST(P2_two_processes_on_one_file_never_grant_a_token_twice_and_lose_no_write)
{
    static int64_t mine[GRANTS], theirs[GRANTS];
    int64_t sum = 0, last[RESOURCES] = {0};
    int here[2], there[2], status; /* pipes, named after who reads */

    rig_close(rig);
    assert_true(pipe(here) == 0 && pipe(there) == 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(CHILD_SECONDS);
        close(here[0]);
        close(there[1]);
        play(rig, theirs, here[1], there[0]);
        _exit(write(here[1], theirs, sizeof theirs) == (ssize_t)sizeof theirs ? 0 : 1);
    }
    close(here[1]);
    close(there[0]);
    play(rig, mine, there[1], here[0]);
    assert_int_equal(read(here[0], theirs, sizeof theirs), sizeof theirs);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(here[0]);
    close(there[1]);
    assert_ok(rig_read(rig, get_sum, &sum));
    assert_int_equal(sum, 2 * GRANTS);
    assert_true(store_stats(rig->store).foreign_commits >= GRANTS / 10 / 4);
    /* Each saw its own rise, and no two are the same. */
    for (int i = 0; i < GRANTS; i++) {
        assert_true(mine[i] > last[i % RESOURCES]);
        last[i % RESOURCES] = mine[i];
        for (int k = i % RESOURCES; k < GRANTS; k += RESOURCES)
            assert_true(mine[i] != theirs[k]);
    }
}
