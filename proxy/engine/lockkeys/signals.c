/* SPDX-License-Identifier: Apache-2.0 */
/* BLPOP on a signal key, with which python-redis-lock waits for an unlock: it answers when nobody
 * holds the lock any more, and the client then tries to take it. There is no list behind it.
 *
 *   looking ──free──▶ [key, 1]
 *    │   ▲  └──held──▶ waiting ──its time is up──▶ null
 *    │   └──an unlock here, its turn; the lease should end; a second has passed──┘
 *    └── the client has gone, the daemon stops ──▶ no more
 *
 * An unlock wakes the one that has waited here longest for that lock, as LPUSH does. */
#include "proxy/engine/lockkeys/signals.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"
#include "fence/base/plain.h"
#include "proxy/engine/lease/lease.h"
#include "proxy/engine/session/arguments.h"

enum { SECONDS_SIZE = 32 };

struct wait {
    struct list link; /* in lock_keys->signals, in order of arrival */
    struct request *request;
    struct account *account; /* kept: among whose waiters it is counted */
    struct bytes resource;
    int64_t until_ms;
    bool looks; /* the view is under way */
    bool woken; /* meanwhile */
    struct timer timer;
    struct lease_view view;
};

static void wait_free(void *state)
{
    struct wait *wait = state;

    buf_free(&wait->view.owner);
    free(wait);
}

/* It waits no more: take it off the list, and free its user's place. */
static void leave(struct wait *wait)
{
    struct engine *engine = wait->request->engine;

    timer_stop(engine, &wait->timer);
    list_remove(&wait->link);
    account_give(wait->account, ACCOUNT_WAITERS);
    account_drop(wait->account);
}

static void reply_none(struct wait *wait)
{
    struct request *request = wait->request;

    leave(wait);
    resp_null_array(&request->reply, request->resp3);
    request_finish(request);
}

static void fail(struct wait *wait, enum stk_error error, const char *reason)
{
    struct request *request = wait->request;

    leave(wait);
    request->op.why = wait->view.op.why;
    request_fail(request, error, reason == NULL ? NULL : "%s", reason);
}

static void look(struct wait *wait)
{
    wait->looks = true;
    wait->woken = false;
    lease_view_start(&wait->view);
}

static void wait_on(struct wait *wait)
{
    struct engine *engine = wait->request->engine;
    int64_t now_ms = engine_now_ms(engine), at_ms = now_ms + LINE_POLL_MS;

    if (wait->view.left_ms < LINE_POLL_MS)
        at_ms = now_ms + wait->view.left_ms + 1;
    if (wait->until_ms < at_ms)
        at_ms = wait->until_ms;
    timer_set(engine, &wait->timer, at_ms);
}

static void on_seen(struct lease_view *view)
{
    struct wait *wait = list_entry(view, struct wait, view);
    struct request *request = wait->request;
    bool is_wanted = request->session != NULL;

    wait->looks = false;
    if (is_wanted && request->engine->draining) {
        fail(wait, STK_BUSY, "the daemon is stopping; try again");
    } else if (is_wanted && view->error != STK_OK) {
        fail(wait, view->error, view->reason);
    } else if (is_wanted && !view->locked) {
        leave(wait);
        resp_array(&request->reply, 2);
        resp_bulk(&request->reply, request->argv[1]);
        resp_bulk_text(&request->reply, "1");
        request_finish(request);
    } else if (!is_wanted || engine_now_ms(request->engine) >= wait->until_ms) {
        reply_none(wait);
    } else if (wait->woken) {
        look(wait);
    } else {
        wait_on(wait);
    }
}

static void on_timer(struct timer *timer)
{
    look(list_entry(timer, struct wait, timer));
}

/* Read argv[2]: seconds, maybe with a fraction; 0 stands for LEASE_WAIT_MAX_MS. */
static bool take_seconds(struct request *request, int64_t *wait_ms)
{
    char text[SECONDS_SIZE] = {0}, *end = text;
    double seconds = -1;

    if (request->argv[2].len > 0 && request->argv[2].len < sizeof text) {
        memcpy(text, request->argv[2].data, request->argv[2].len);
        seconds = plain_to_double(text, &end);
    }
    if (end == text || *end != '\0' || !(seconds >= 0)) {
        request_fail(request, STK_ERR, "timeout is not a float or out of range");
        return false;
    }
    double longest = LEASE_WAIT_MAX_MS / 1000.0;
    *wait_ms = (int64_t)((seconds > 0 && seconds < longest ? seconds : longest) * 1000);
    return true;
}

void lock_signal_wait(struct request *request, struct bytes resource)
{
    struct engine *engine = request->engine;
    struct account *account = request->session->account;
    char why[ACCOUNT_WHY_SIZE];
    int64_t wait_ms;

    if (request->argc != 3) {
        request_fail(request, STK_ERR, "BLPOP waits for one lock");
        return;
    }
    if (!take_seconds(request, &wait_ms))
        return;
    if (!account_take(account, ACCOUNT_WAITERS, why)) {
        request_fail(request, STK_BUSY, "%s", why);
        return;
    }
    struct wait *wait = mem_zalloc(sizeof *wait);
    request->state = wait;
    request->waited = true;
    request->free_state = wait_free;
    wait->request = request;
    wait->account = account_keep(account);
    wait->resource = resource;
    wait->until_ms = engine_now_ms(engine) + wait_ms;
    wait->timer.fire = on_timer;
    wait->view = (struct lease_view){.engine = engine, .resource = resource, .on_end = on_seen};
    list_append(&engine->lock_keys->signals, &wait->link);
    look(wait);
}

void lock_signal_abandon(struct request *request)
{
    struct wait *wait = request->state;

    if (wait != NULL && !wait->looks)
        reply_none(wait);
}

void lock_signals_wake(struct engine *engine, struct bytes resource)
{
    struct list *all = &engine->lock_keys->signals;

    for (struct list *at = all->next; at != all; at = at->next) {
        struct wait *wait = list_entry(at, struct wait, link);
        if (!bytes_equal(wait->resource, resource))
            continue;
        if (wait->looks) {
            wait->woken = true;
        } else {
            timer_stop(engine, &wait->timer);
            look(wait);
        }
        return;
    }
}
