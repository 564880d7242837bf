/* SPDX-License-Identifier: Apache-2.0 */
/* News between daemons on one Redis: the others hear what one of them ends. And what happens where
 * they cannot listen. */
#include "tests/unit/fence/rig.h"
#include "tests/unit/test.h"

#define PATIENT "?timeout_ms=5000" /* the machine may be busy */

static bool is_watching(const struct watched *watched)
{
    return lease_provider_health(watched->provider).watching;
}

static struct watched *open_other(struct rig *rig, const char *rest)
{
    return rig_open_other(rig, "redis://127.0.0.1:%d%s", rig->redis->port, rest);
}

/* Open a daemon that acts, and another one that listens. */
static struct watched *open_both(struct rig *rig)
{
    rig_open_redis(rig, 5000);
    struct watched *other = open_other(rig, PATIENT);
    rig_until(rig, is_watching(other) && lease_provider_health(other->provider).up);
    return other;
}

static struct lease_call grant(struct rig *rig)
{
    struct lease_call call = rig_call(rig, LEASE_GRANT, ann, 0);
    if (call.answer != LEASE_GRANTED)
        fail_msg("not granted: %s", call.reason);
    return call;
}

static int64_t granted(struct rig *rig)
{
    return grant(rig).answer_token;
}

static void end(struct rig *rig, int64_t token, bool revoked)
{
    struct asked asked = rig_question(LEASE_RELEASE, ann, token);

    asked.call.revoked = revoked;
    rig_answer(rig, &asked);
    assert_int_equal(asked.call.answer, LEASE_FREE);
}

RIG_TEST(a_release_is_heard_with_its_token)
{
    struct watched *other = open_both(rig);
    int64_t token = granted(rig);

    end(rig, token, false);
    rig_until(rig, other->news == 1);
    assert_int_equal(other->revoked, 0);
    assert_int_equal(other->token, token);
    assert_true(bytes_equal(buf_bytes(&other->resource), BYTES_LITERAL("sku:1")));

    struct lease_call next = grant(rig);
    struct asked debt =
        rig_question(LEASE_RELEASE, ann, 0); /* it names no token, but the news does */
    debt.call.attempt = next.attempt;
    rig_answer(rig, &debt);
    rig_until(rig, other->news == 2);
    assert_int_equal(other->token, next.answer_token);
    assert_int_equal(lease_provider_health(other->provider).news, 2);
}

RIG_TEST(a_revoked_lease_is_told_even_where_it_had_run_out)
{
    struct watched *other = open_both(rig);
    int64_t token = granted(rig);

    end(rig, token, true);
    rig_until(rig, other->revoked == 1);
    assert_int_equal(other->token, token);
    end(rig, token, false); /* it is free already: nothing to tell */
    end(rig, token, true);
    rig_until(rig, other->revoked == 2);
    assert_int_equal(other->news, 2);
    assert_int_equal(other->token, token);
}

RIG_TEST(nobody_hears_of_what_he_ended_himself)
{
    rig_open(rig, "redis://127.0.0.1:%d", rig->redis->port);
    struct watched *mine = rig_watch(rig);

    rig_until(rig, rig_up(rig) && is_watching(mine));
    end(rig, granted(rig), false);
    redis_do(rig->redis, "PUBLISH stockade:wake %b", "revoked x 7 sku:1", (size_t)17);
    rig_until(rig, mine->news == 1); /* came later */
    assert_int_equal(mine->token, 7);
}

RIG_TEST(other_databases_and_prefixes_are_other_worlds)
{
    struct watched *other = open_both(rig), *far = open_other(rig, "/3"),
                   *foreign = open_other(rig, "?prefix=shop");

    rig_until(rig, is_watching(far) && is_watching(foreign));
    end(rig, granted(rig), false);
    redis_do(rig->redis, "PUBLISH stockade:wake:3 %b", "released x 5 a b", (size_t)16);
    redis_do(rig->redis, "PUBLISH shop:wake %b", "released x 6 \0\xff", (size_t)15);
    rig_until(rig, other->news == 1 && far->news == 1 && foreign->news == 1);
    assert_true(bytes_equal(buf_bytes(&far->resource), BYTES_LITERAL("a b")));
    assert_true(bytes_equal(buf_bytes(&foreign->resource), BYTES_LITERAL("\0\xff")));
}

RIG_TEST(what_others_publish_is_passed_over)
{
    struct watched *other = open_both(rig);
    static const char *const texts[] = {"",
                                        "released",
                                        "released x",
                                        "released x 5",
                                        "released x 5 ",
                                        "released x 0 r",
                                        "released x -1 r",
                                        "released x y r",
                                        "freed x 5 r",
                                        " released x 5 r",
                                        "released  x 5 r"};

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        redis_do(rig->redis, "PUBLISH stockade:wake %s", texts[i]);
    redis_do(rig->redis, "PUBLISH stockade:wake %s", "released x 5 r");
    rig_until(rig, other->news > 0);
    assert_int_equal(other->news, 1);
    assert_int_equal(other->token, 5);
}

RIG_TEST(a_listener_that_lost_its_connection_is_back_by_itself)
{
    struct watched *other = open_both(rig);
    char text[4096];

    rig_logged(rig, text, sizeof text);
    for (int i = 0; i < 3; i++) {
        redis_do(rig->redis, "CLIENT KILL TYPE pubsub");
        rig_until(rig, !is_watching(other));
        rig_until(rig, is_watching(other));
    }
    end(rig, granted(rig), false);
    rig_until(rig, other->news == 1);
    assert_string_equal(rig_logged(rig, text, sizeof text),
                        ""); /* nothing that anybody needs to know */

    service_kill(rig->redis);
    rig_until(rig, !is_watching(other));
    service_start(rig->redis);
    rig_until(rig, is_watching(other) && rig_up(rig));
    end(rig, granted(rig), false);
    rig_until(rig, other->news == 2);
}

/* A daemon that only listens asks Redis nothing, and yet it notices a dead peer. */
RIG_TEST(a_silent_peer_is_noticed)
{
    struct watched *other = open_other(rig, "?timeout_ms=500");

    rig_until(rig, is_watching(other));
    struct deadline listening = deadline_in(2600);                 /* as long as it is looked at */
    while (deadline_spent_ms(&listening) < listening.allowed_ms) { /* a peer that answers is kept */
        rig_turn(rig);
        assert_true(is_watching(other));
    }
    service_pause(rig->redis);
    rig_until(rig, !is_watching(other));
    service_resume(rig->redis);
    rig_until(rig, is_watching(other));
}

RIG_TEST(without_the_right_to_listen_it_works_on_and_says_so_once)
{
    char text[8192];

    redis_do(rig->redis, "ACL SETUSER dumb on >secret ~* +@all resetchannels");
    rig_open(rig, "redis://dumb:secret@127.0.0.1:%d", rig->redis->port);
    struct watched *watched = rig_watch(rig);
    rig_until(rig, rig_up(rig));
    for (text[0] = '\0'; rig_count(text, "\n") < 2;) {
        size_t len = strlen(text);
        rig_turn(rig);
        rig_logged(rig, text + len, sizeof text - len);
    }
    assert_int_equal(rig_count(text, "does not let this daemon listen to stockade:wake: NOPERM"),
                     1);
    assert_false(is_watching(watched));
    int64_t token = granted(rig);
    end(rig, token, false); /* though it may not publish */
    assert_int_equal(granted(rig), token + 1);

    rig_logged(rig, text, sizeof text);
    redis_do(rig->redis, "ACL SETUSER dumb &stockade:wake");
    rig_until(rig, is_watching(watched));
    assert_int_equal(rig_count(rig_logged(rig, text, sizeof text), "listen again"), 1);
    assert_int_equal(rig_count(text, "\n"), 1);
    redis_do(rig->redis, "PUBLISH stockade:wake %s", "released x 5 r");
    rig_until(rig, watched->news == 1);
}

/* A right answer to the greeting, then messages of every wrong form. */
RIG_TEST(messages_of_another_form_end_the_connection_only)
{
    static const char *const texts[] = {
        "*2\r\n$4\r\npong\r\n$0\r\n\r\n",
        "*0\r\n",
        "*1\r\n:1\r\n",
        "*3\r\n:1\r\n:1\r\n:1\r\n",
        "*3\r\n$7\r\nmessage\r\n$-1\r\n$1\r\nx\r\n",
        "*3\r\n$11\r\nunsubscribe\r\n$13\r\nstockade:wake\r\n$1\r\nx\r\n",
        "*3\r\n$9\r\nsubscribe\r\n$5\r\nother\r\n:1\r\n",
        "*3\r\n$7\r\nmessage\r\n$13\r\nstockade:wake\r\n*1\r\n:1\r\n",
        "*3\r\n+message\r\n$13\r\nstockade:wake\r\n$1\r\nx\r\n",
        "*3\r\n$7\r\nmessage\r\n$13\r\nstockade:wake\r\n$-1\r\n",
        "*4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$13\r\nstockade:wake\r\n$1\r\nx\r\n",
        "*3\r\n*3\r\n$1\r\nx\r\n",
        "$1\r\nx\r\n",
        ":1\r\n",
        "+OK\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "-ERR no\r\n-ERR no\r\n",
        "*3\r\n$7\r\nmessage\r\n$13\r\nstockade:wake\r\n$14\r\nreleased x 5 r\r\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char says[256];
        int len = snprintf(says, sizeof says, "+OK\r\n%s", texts[i]);

        rig_say(rig, says, (size_t)len);
        rig_open(rig, "redis://127.0.0.1:%d", rig->chatterbox.port);
        struct watched *watched = rig_watch(rig);
        rig_until(rig, rig->chatterbox.visitors >= 3);
        assert_false(is_watching(watched));
        assert_int_equal(watched->news, 0);
        rig_close(rig);
    }
}
