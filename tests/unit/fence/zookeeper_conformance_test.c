/* SPDX-License-Identifier: Apache-2.0 */
/* The conformance tests over the provider on a real ZooKeeper; each in a folder of its own. */
#include "fence/base/mem.h"
#include "tests/unit/fence/conformance.h"
#include "tests/unit/fence/rig.h"
#include "tests/unit/fence/zookeeper_server.h"
#include "tests/unit/test.h"

#define ABOVE_ALL_ZXIDS (INT64_C(1) << 40)
#define MANY            2000

static struct zookeeper_server *server; /* one for all; a test's program is one process */
static int folders;

struct zookeeper_subject {
    struct subject base;
    struct rig rig;
};

static void turn(struct subject *subject)
{
    rig_turn(&((struct zookeeper_subject *)(void *)subject)->rig);
}

static int setup(void **state)
{
    struct zookeeper_subject *subject = mem_zalloc(sizeof *subject);

    rig_init(&subject->rig);
    rig_open(&subject->rig, "zookeeper://127.0.0.1:%d/t%d?timeout_ms=10000&session_ms=30000",
             server->port, folders++);
    rig_until(&subject->rig, rig_up(&subject->rig));
    subject->base = (struct subject){
        .provider = subject->rig.provider, .turn = turn, .base = ABOVE_ALL_ZXIDS, .many = MANY};
    *state = subject;
    return 0;
}

static int teardown(void **state)
{
    struct zookeeper_subject *subject = *state;

    rig_free(&subject->rig); /* its nodes go with the session */
    free(subject);
    return 0;
}

#define SUBJECT_TEST(name) TEST_WITH(setup, teardown, struct zookeeper_subject *subject, name)

/* From here on without a base: the number of the transaction is the token. */
SUBJECT_TEST(a_token_is_the_number_of_the_transaction_that_made_the_node)
{
    struct rig *rig = &subject->rig;
    struct asked first = rig_question(LEASE_GRANT, "a0000000000000000000000000000001", 0);
    struct asked other = rig_question(LEASE_GRANT, "a0000000000000000000000000000001", 0);

    other.call.resource = BYTES_LITERAL("sku:2");
    rig_answer(rig, &first);
    assert_int_equal(first.call.answer, LEASE_GRANTED);
    assert_true(first.call.answer_token > 1);
    rig_answer(rig, &other);
    assert_int_equal(other.call.answer, LEASE_GRANTED);
    assert_true(other.call.answer_token > first.call.answer_token);
    assert_answer(rig_call(rig, LEASE_QUERY, "", 0), LEASE_HELD, first.call.answer_token);
}

static void left_out_by_the_user(void **state)
{
    (void)state;
    skip();
}

int main(void)
{
    const struct CMUnitTest none[] = {cmocka_unit_test(left_out_by_the_user)};

    if (zookeeper_left_out())
        return cmocka_run_group_tests(none, NULL, NULL);
    server = zookeeper_server_new();
    int failed = conformance_run("zookeeper", setup, teardown);
    failed += unit_tests_run();
    zookeeper_server_free(server);
    return failed;
}
