/* SPDX-License-Identifier: Apache-2.0 */
/* What is wrong with a command's arguments is told in Redis's words, and changes nothing; what is
 * at a limit is refused beyond it; and connections look at themselves and at each other. */
#include "tests/unit/engine/says.h"

TESTS_HAVE_ONE_THREAD

enum { LARGE_BYTES = 15 << 20 };

static void assert_has(struct world *world, int client, const char *line, const char *part)
{
    const char *reply = world_call(world, client, line);
    if (strstr(reply, part) == NULL)
        fail_msg("%s: no %s in %s", line, part, reply);
}

static const char *const wrong[][2] = {
    {"MSET a 1 b", "-ERR wrong number of arguments for 'mset' command\r\n"},
    {"HSET h f", "-ERR wrong number of arguments for 'hset' command\r\n"},
    {"HSET h f 1 g", "-ERR wrong number of arguments for 'hset' command\r\n"},
    {"SET k v EX 10", "-ERR"},
    {"SET k v EXAT 10", "-ERR"},
    {"SET k v PXAT 10", "-ERR"},
    {"SET k v NX XX", "-ERR syntax error\r\n"},
    {"SET k v SOON", "-ERR syntax error\r\n"},
    {"INCRBY n many", "-ERR value is not an integer or out of range\r\n"},
    {"INCRBY n 1 MIN", "-ERR syntax error\r\n"},
    {"INCRBY n 1 LEAST 5", "-ERR wrong number of arguments for 'incrby' command\r\n"},
    {"IncrBy n 1 MIN 5 6", "-ERR wrong number of arguments for 'incrby' command\r\n"},
    {"INCRBY n 1 MAX much", "-ERR MIN or MAX is not an integer or out of range\r\n"},
    {"DECRBY n -9223372036854775808", "-ERR"},
    {"SCAN -1", "-ERR invalid cursor\r\n"},
    {"SCAN x", "-ERR invalid cursor\r\n"},
    {"SCAN 0 COUNT 0", "-ERR syntax error\r\n"},
    {"SCAN 0 COUNT x", "-ERR value is not an integer or out of range\r\n"},
    {"SCAN 0 MATCH", "-ERR syntax error\r\n"},
    {"HSCAN h 0 TYPE hash", "-ERR syntax error\r\n"},
    {"HSCAN h -1", "-ERR invalid cursor\r\n"},
    {"HSCAN h 9223372036854775808", "-ERR invalid cursor\r\n"},
    {"FENCED 0 GET k", "-ERR a token is a number from 1 to 9007199254740991\r\n"},
    {"FENCED 1 ID i", "-ERR wrong number of arguments for 'fenced' command\r\n"},
    {"FENCED 1 ID i GET", "-ERR wrong number of arguments for 'get' command\r\n"},
    {"FENCED 1 NOSUCH k", "-ERR FENCED: unknown command 'NOSUCH' behind '1'\r\n"},
    {"FENCED 1 gte k", "-ERR FENCED: unknown command 'gte' behind '1' (did you mean GET?)\r\n"},
    {"FENCED 1 PING k", "-ERR FENCED takes a command on a key, not PING\r\n"},
    {"FENCED 1 SQL select", "-ERR FENCED takes a command on a key, not SQL: use FENCEDALL\r\n"},
    {"FENCED 1 MSET a 1 b 2", "-ERR MSET takes one key here"},
    {"FENCEDALL 0 k 1 GET k", "-ERR FENCEDALL takes 1 to 1024 resources and tokens\r\n"},
    {"FENCEDALL 1025 k 1 GET k", "-ERR FENCEDALL takes 1 to 1024 resources and tokens\r\n"},
    {"FENCEDALL many k 1 GET k", "-ERR FENCEDALL takes 1 to 1024 resources and tokens\r\n"},
    {"FENCEDALL 2 a 1 b 1", "-ERR FENCEDALL 2 takes 2 resources with tokens, then"},
    {"FENCEDALL 1 k 0 GET k", "-ERR a token is a number from"},
    {"FENCEDALL 1 '' 1 GET k", "-ERR a resource must be 1 to 512 bytes long\r\n"},
    {"FENCEDALL 1 k 1 ID i", "-ERR FENCEDALL: the command is missing\r\n"},
    {"FENCEDALL 1 k 1 ID '' GET k", "-ERR"},
    {"FENCEDALL 1 k 1 GET", "-ERR wrong number of arguments for 'get' command\r\n"},
    {"FENCEDALL 1 k 1 PING", "-ERR FENCEDALL takes a data command or SQL, not PING\r\n"},
    {"RECEIPT '' 1 i", "-ERR"},
    {"RECEIPT k 0 i", "-ERR"},
    {"RECEIPT k 1 ''", "-ERR"},
    {"SET '' v", "-ERR a key must be 1 to 512 bytes long\r\n"},
    {"GET ''", "-ERR a key must be 1 to 512 bytes long\r\n"},
    {"ACQUIRE k 1000 SOON",
     "-ERR syntax error: ACQUIRE takes [WAIT ms] [QUEUE] [OWNER owner] [ID id] [EPHEMERAL] "
     "[PERMITS n]\r\n"},
    {"ACQUIRE k 1000 EPHEMERAL OWNER", "-ERR syntax error: ACQUIRE takes [WAIT ms]"},
    {"ACQUIRE k 1000 wait 1 WAIT 1", "-ERR syntax error: WAIT is given twice\r\n"},
    {"ACQUIRE k 1000 QUEUE QUEUE ID i", "-ERR syntax error: QUEUE is given twice\r\n"},
    {"ACQUIRE k 1000 EPHEMERAL EPHEMERAL", "-ERR syntax error: EPHEMERAL is given twice\r\n"},
    {"ACQUIRE k 1000 NOTIFY", "-ERR syntax error: ACQUIRE takes [WAIT ms]"},
    {"ACQUIREALL 1000 1 k ID",
     "-ERR syntax error: ACQUIREALL takes [WAIT ms] [OWNER owner] [ID id] [EPHEMERAL]\r\n"},
    {"RELEASE k 1 ID", "-ERR syntax error: RELEASE takes [ID id]\r\n"},
    {"RELEASE k 1 OWNER o", "-ERR syntax error: RELEASE takes [ID id]\r\n"},
    {"RELEASE k 1 ID i ID j", "-ERR syntax error: ID is given twice\r\n"},
    {"RENEW k 1 1000 ID i", "-ERR syntax error: RENEW takes [NOTIFY]\r\n"},
    {"LEASE k o", "-ERR syntax error: LEASE takes [OWNER owner] [TOKEN]\r\n"},
    {"LEASE k OWNER o OWNER p", "-ERR syntax error: OWNER is given twice\r\n"},
    {"LEASE k TOKEN", "-ERR TOKEN tells an owner's token: it needs OWNER\r\n"},
    {"HELLO x", "-ERR Protocol version is not an integer or out of range\r\n"},
    {"HELLO 4", "-NOPROTO"},
    {"HELLO 3 SETNAME", "-ERR Syntax error in HELLO option 'SETNAME'\r\n"},
    {"HELLO 3 NOSUCH", "-ERR Syntax error in HELLO option 'NOSUCH'\r\n"},
    {"HELLO 2 SETNAME 'a b'", "-ERR Client names cannot contain spaces"},
    {"CONFIG SET maxmemory 1", "-ERR options are set where the daemon starts"},
    {"CONFIG GET", "-ERR wrong number of arguments for 'config|get' command\r\n"},
    {"CONFIG NOSUCH", "-ERR unknown subcommand 'NOSUCH'. Try CONFIG HELP.\r\n"},
    {"CONFIG gett", "-ERR unknown subcommand 'gett'. Try CONFIG HELP. (did you mean GET?)\r\n"},
    {"CLIENT stname x",
     "-ERR unknown subcommand 'stname'. Try CLIENT HELP. (did you mean SETNAME?)\r\n"},
    {"CLIENT SETINFO colour red", "-ERR Unrecognized option 'colour'\r\n"},
    {"CLIENT SETINFO LIB-VER 'a b'", "-ERR lib-ver cannot contain spaces"},
    {"CLIENT SETINFO LIB-NAME 'a b'", "-ERR lib-name cannot contain spaces"},
    {"CLIENT SETNAME 'a b'", "-ERR Client names cannot contain spaces"},
    {"CLIENT NOSUCH", "-ERR unknown subcommand 'NOSUCH'. Try CLIENT HELP.\r\n"},
    {"CLIENT KILL nobody:1", "-ERR No such client\r\n"},
    {"CLIENT KILL ID 0", "-ERR client-id should be greater than 0\r\n"},
    {"CLIENT KILL ID x", "-ERR client-id should be greater than 0\r\n"},
    {"CLIENT KILL ID 1 ADDR", "-ERR syntax error\r\n"},
    {"CLIENT KILL NAME x", "-ERR syntax error\r\n"},
    {"nosuchcommandwithanamelongerthanthirtytwobytes a", "-ERR unknown command 'nosuch"},
    {"GTE", "-ERR unknown command 'GTE', with args beginning with: (did you mean GET?)\r\n"},
    {"acqire r 1",
     "-ERR unknown command 'acqire', with args beginning with: 'r' '1' (did you mean ACQUIRE?)"},
    {"SADD s m", "-ERR unknown command 'SADD', with args beginning with: 's' 'm' \r\n"},
};

UNFENCED_TEST(wrong_arguments_are_told)
{
    assert_says(world, 1, "HSET h f 1", ":1\r\n");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_begins(world, 1, wrong[i][0], wrong[i][1]);
    assert_says(world, 1, "DBSIZE", ":1\r\n");
    assert_says(world, 1, "LEASES", "*0\r\n");
}

UNFENCED_TEST(a_name_or_an_id_has_at_most_512_bytes)
{
    char name[514], line[600];

    memset(name, 'n', sizeof name);
    for (int len = 512; len <= 513; len++) {
        snprintf(line, sizeof line, "SET %.*s v", len, name);
        assert_begins(world, 1, line, len == 512 ? "+OK" : "-ERR a key must be");
        snprintf(line, sizeof line, "ACQUIRE %.*s 1000", len, name);
        assert_begins(world, 1, line, len == 512 ? "*2\r\n:1\r\n" : "-ERR");
        snprintf(line, sizeof line, "ACQUIRE k%d 1000 OWNER %.*s", len, len, name);
        assert_begins(world, 1, line, len == 512 ? "*2\r\n:1\r\n" : "-ERR");
        snprintf(line, sizeof line, "HSET h%d %.*s v", len, len, name);
        assert_begins(world, 1, line, len == 512 ? ":1\r\n" : "-ERR");
    }
    assert_begins(world, 1, "ACQUIRE k 1000", "*2");
    for (int len = 512; len <= 513; len++) {
        snprintf(line, sizeof line, "FENCED 1 ID %.*s SET k v", len, name);
        assert_begins(world, 1, line, len == 512 ? "+OK" : "-ERR");
        snprintf(line, sizeof line, "ACQUIRE l%d 1000 ID %.*s", len, len, name);
        assert_begins(world, 1, line, len == 512 ? "*2\r\n:1\r\n" : "-ERR an ID must be");
        snprintf(line, sizeof line, "ACQUIREALL 1000 1 m%d ID %.*s", len, len, name);
        assert_begins(world, 1, line, len == 512 ? "*1\r\n:1\r\n" : "-ERR an ID must be");
    }
}

/* Names that have the mark of users in them are copied. Twice the same option would leave no room
 * for the next copy, where all of them are as long as can be. */
WORLD_TEST(an_option_of_a_lease_is_given_once)
{
    static const char *const starts[] = {"ACQUIRE r 60000", "ACQUIREALL 60000 2 r s"};
    char name[400];
    struct buf line = {0};

    memset(name, 'n', sizeof name);
    name[0] = '\x1f';
    for (size_t start = 0; start < 2; start++)
        for (int first_is_id = 0; first_is_id < 2; first_is_id++) {
            const char *first = first_is_id ? "ID" : "OWNER", *again = first_is_id ? "OWNER" : "ID";
            char reply[80];
            buf_clear(&line);
            buf_printf(&line, "%s %s %.400s", starts[start], first, name);
            for (int i = 0; i < 5; i++)
                buf_printf(&line, " %s %d%.399s", again, i, name);
            buf_append(&line, "", 1);
            snprintf(reply, sizeof reply, "-ERR syntax error: %s is given twice\r\n", again);
            assert_says(world, 1, line.data, reply);
        }
    assert_says(world, 1, "LEASES", "*0\r\n");
    buf_free(&line);
}

/* Send a command with so many words, the last ones all the same. */
static const char *call_many(struct world *world, const char *words, size_t count)
{
    struct buf line = {0};
    size_t has = 1;

    for (const char *at = words; *at != '\0'; at++)
        has += *at == ' ';
    buf_append_text(&line, words);
    for (; has < count; has++)
        buf_append_text(&line, " x");
    buf_append(&line, "", 1);
    world_send(world, 1, line.data);
    buf_free(&line);
    return world_received(world, 1);
}

/* On every way in: bare, within another command, as a subcommand, in a dry run. */
UNFENCED_TEST(a_command_has_at_most_4096_words_unless_it_may_have_many)
{
    static const char *const bounded[] = {"EXISTS",       "DEL",  "UNLINK",     "SCRIPT EXISTS",
                                          "COMMAND INFO", "INFO", "UNSUBSCRIBE"};

    for (size_t i = 0; i < sizeof bounded / sizeof *bounded; i++) {
        assert_true(call_many(world, bounded[i], COMMAND_WORDS_MAX)[0] != '-');
        assert_memory_equal(call_many(world, bounded[i], COMMAND_WORDS_MAX + 1),
                            "-ERR too many arguments for '", 29);
    }
    assert_begins(world, 1, "ACQUIRE x 60000", "*2");
    assert_string_equal(call_many(world, "FENCEDALL 1 x 1 DEL", COMMAND_WORDS_MAX + 4), ":0\r\n");
    assert_memory_equal(call_many(world, "FENCEDALL 1 x 1 DEL", COMMAND_WORDS_MAX + 5),
                        "-ERR too many arguments for 'del'", 33);
    assert_memory_equal(call_many(world, "ACL DRYRUN default DEL", COMMAND_WORDS_MAX), "+OK", 3);
    assert_memory_equal(call_many(world, "MGET", COMMAND_WORDS_MAX + 1), "*4096\r\n", 7);
}

UNFENCED_TEST(a_value_or_a_reply_that_is_too_large_is_refused)
{
    char hset[] = "HSET h a";

    assert_string_equal(call_large(world, 1, "SET k", LARGE_BYTES), "+OK\r\n");
    assert_memory_equal(call_large(world, 1, "APPEND k", 2 << 20), "-ERR string exceeds", 19);
    assert_says(world, 1, "STRLEN k", ":15728640\r\n");
    for (; hset[7] < 'f'; ++hset[7])
        assert_string_equal(call_large(world, 1, hset, LARGE_BYTES), ":1\r\n");
    assert_begins(world, 1, "MGET k k k k k", "-ERR the reply is too large; ask for fewer keys");
    assert_begins(world, 1, "HMGET h a a b b a",
                  "-ERR the reply is too large; ask for fewer fields");
    assert_begins(world, 1, "HGETALL h", "-ERR the reply is too large; read it in parts");
    assert_begins(world, 1, "HVALS h", "-ERR the reply is too large; read it in parts");
    assert_begins(world, 1, "HKEYS h", "*5\r\n");
    world_send(world, 1,
               "MULTI\r\nGET k\r\nGET k\r\nGET k\r\nGET k\r\nGET k\r\nSET k small\r\nEXEC");
    assert_non_null(strstr(world_received(world, 1),
                           "-ERR the transaction's replies are too large; nothing was applied"));
    assert_says(world, 1, "STRLEN k", ":15728640\r\n");
}

UNFENCED_TEST(a_client_has_a_name_of_at_most_64_bytes)
{
    char name[66], line[100];

    memset(name, 'n', sizeof name);
    for (int len = 64; len <= 65; len++) {
        snprintf(line, sizeof line, "CLIENT SETNAME %.*s", len, name);
        assert_begins(world, 1, line, len == 64 ? "+OK" : "-ERR Client names");
        snprintf(line, sizeof line, "CLIENT SETINFO LIB-VER %.*s", len, name);
        assert_begins(world, 1, line, len == 64 ? "+OK" : "-ERR lib-ver");
    }
}

UNFENCED_TEST(a_client_sees_itself_and_the_others)
{
    assert_says(world, 1, "CLIENT ID", ":1\r\n");
    assert_says(world, 1, "CLIENT GETNAME", "$-1\r\n");
    assert_says(world, 1, "CLIENT SETNAME me", "+OK\r\n");
    assert_says(world, 1, "CLIENT GETNAME", "$2\r\nme\r\n");
    assert_says(world, 1, "CLIENT SETINFO LIB-NAME lib", "+OK\r\n");
    assert_says(world, 1, "CLIENT SETINFO LIB-VER 1.2", "+OK\r\n");
    world->now_ms += 5000;
    assert_has(world, 1, "CLIENT INFO", "id=1 addr=test:1 name=me age=5 idle=0 ");
    assert_has(world, 1, "CLIENT INFO", "resp=2 lib-name=lib lib-ver=1.2 user=default");
    assert_begins(world, 2, "HELLO 3 SETNAME other", "%");
    assert_has(world, 2, "CLIENT INFO", "txt:id=2 addr=test:2 name=other age=0 ");
    assert_has(world, 1, "CLIENT LIST", "name=me ");
    assert_has(world, 1, "CLIENT LIST", "name=other ");
    assert_null(strstr(world_call(world, 1, "CLIENT INFO"), "name=other "));
}

UNFENCED_TEST(clients_are_killed_by_id_and_address_and_not_oneself_unless_asked)
{
    for (int i = 1; i <= 4; i++)
        assert_says(world, i, "PING", "+PONG\r\n");
    assert_says(world, 1, "CLIENT KILL ID 99", ":0\r\n");
    assert_says(world, 1, "CLIENT KILL ID 2", ":1\r\n");
    assert_true(world->clients[2].closed);
    assert_says(world, 1, "CLIENT KILL ADDR test:9", ":0\r\n");
    assert_says(world, 1, "CLIENT KILL ADDR test:3", ":1\r\n");
    assert_true(world->clients[3].closed);
    assert_says(world, 1, "CLIENT KILL ID 1", ":0\r\n"); /* spared */
    assert_says(world, 1, "CLIENT KILL ADDR test:4 ID 1", ":0\r\n");
    assert_says(world, 1, "CLIENT KILL test:4", "+OK\r\n");
    assert_true(world->clients[4].closed);
    assert_false(world->clients[1].closed);
    assert_says(world, 1, "CLIENT KILL ID 1 SKIPME no", ":1\r\n");
    assert_true(world->clients[1].closed);
}

UNFENCED_TEST(settings_and_info_are_shown_in_parts)
{
    assert_has(world, 1, "CONFIG GET save", "*2\r\n$4\r\nsave\r\n");
    assert_says(world, 1, "CONFIG GET nosuch", "*0\r\n");
    assert_has(world, 1, "INFO everything", "# Server");
    assert_has(world, 1, "INFO default", "# Server");
    assert_null(strstr(world_call(world, 1, "INFO server"), "# Clients"));
    assert_has(world, 1, "COMMAND INFO get nosuch", "get");
    assert_has(world, 1, "COMMAND DOCS get nosuch", "The value of a key");
}
