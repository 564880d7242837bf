/* SPDX-License-Identifier: Apache-2.0 */
/* The watchdog over a store that says of its threads what the test wants; the test is the service
 * manager, too. */
#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fence/base/mem.h"
#include "proxy/server/watchdog.h"
#include "tests/unit/deadline.h"
#include "tests/unit/folder.h"
#include "tests/unit/test.h"

enum { CHECKS = 5 };

struct rig {
    struct store store; /* first: what is asked is this */
    struct store_stats stats;
    uint64_t writes_more, reads_more; /* from check to check */
    int checks;
    uv_loop_t loop;
    struct watchdog watchdog;
    char folder[64];
    struct sockaddr_un path;
    int manager;
};

static struct store_stats stats(const struct store *store)
{
    struct rig *rig = (struct rig *)(uintptr_t)store;

    rig->checks++;
    rig->stats.writes += rig->writes_more;
    rig->stats.reads += rig->reads_more;
    return rig->stats;
}

static const struct store_impl impl = {.stats = stats};

static int rig_new(void **state)
{
    struct rig *rig = mem_zalloc(sizeof *rig);

    rig->store.impl = &impl;
    folder_make(rig->folder, sizeof rig->folder);
    rig->path.sun_family = AF_UNIX;
    snprintf(rig->path.sun_path, sizeof rig->path.sun_path, "%s/notify", rig->folder);
    rig->manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(rig->manager, (struct sockaddr *)&rig->path, sizeof rig->path), 0);
    setenv("NOTIFY_SOCKET", rig->path.sun_path, 1);
    setenv("WATCHDOG_USEC", "4000", 1); /* a check each millisecond */
    assert_int_equal(uv_loop_init(&rig->loop), 0);
    watchdog_init(&rig->watchdog, &rig->loop);
    *state = rig;
    return 0;
}

static int rig_free(void **state)
{
    struct rig *rig = *state;

    watchdog_close(&rig->watchdog);
    assert_int_equal(uv_run(&rig->loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&rig->loop), 0);
    close(rig->manager);
    assert_int_equal(unlink(rig->path.sun_path), 0);
    assert_int_equal(rmdir(rig->folder), 0);
    free(rig);
    return 0;
}

#define RIG_TEST(name) TEST_WITH(rig_new, rig_free, struct rig *rig, name)

/* Some checks are made, and each one is told to the manager, or none. */
static void assert_told(struct rig *rig, bool told)
{
    struct deadline limit = deadline_in(HANG_MS);
    char message[64];
    int messages = 0, had = rig->checks;

    for (; rig->checks < had + CHECKS; deadline_keep(&limit))
        uv_run(&rig->loop, UV_RUN_ONCE);
    for (;; messages++) {
        ssize_t len = recv(rig->manager, message, sizeof message, 0);
        if (len < 0)
            break;
        assert_memory_equal(message, "WATCHDOG=1", (size_t)len);
    }
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(messages, told ? rig->checks - had : 0);
}

RIG_TEST(threads_that_rest_are_fine)
{
    rig->stats.writer_rests = rig->stats.reader_rests = true;
    watchdog_start(&rig->watchdog, &rig->store);
    assert_told(rig, true);
}

RIG_TEST(threads_that_have_work_and_do_it_are_fine)
{
    rig->writes_more = rig->reads_more = 1;
    watchdog_start(&rig->watchdog, &rig->store);
    assert_told(rig, true);
}

RIG_TEST(a_writer_that_has_work_and_does_none_is_told_by_silence)
{
    rig->stats.reader_rests = true;
    rig->writes_more = 1;
    watchdog_start(&rig->watchdog, &rig->store);
    assert_told(rig, true);
    rig->writes_more = 0;
    assert_told(rig, false);
    rig->stats.writer_rests = true;
    assert_told(rig, true);
}

RIG_TEST(a_reader_that_has_work_and_does_none_is_told_by_silence)
{
    rig->writes_more = rig->reads_more = 1;
    watchdog_start(&rig->watchdog, &rig->store);
    assert_told(rig, true);
    rig->reads_more = 0;
    assert_told(rig, false);
}

RIG_TEST(without_a_watchdog_nothing_is_checked)
{
    unsetenv("WATCHDOG_USEC");
    watchdog_start(&rig->watchdog, &rig->store);
    assert_int_equal(uv_run(&rig->loop, UV_RUN_NOWAIT), 0);
    assert_int_equal(rig->checks, 0);
}
