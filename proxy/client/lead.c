/* SPDX-License-Identifier: Apache-2.0 */
/* Election: a candidate's wait for the lease by which it leads. It ends when it leads, when its own
 * limit is over, or by the thread's descriptor; nothing that may pass ends it. Each try waits in
 * line for a while, and sends again by itself what a broken connection lost; what it ends with is
 * looked at here. */
#include "fence/base/clock.h"
#include "proxy/client/call.h"

enum {
    LOOK_MS = 30000, /* one wait in line: a daemon that is silent for ever is noticed after it */
    PAUSE_FIRST_MS = 20,
    PAUSE_LAST_MS = 1000,
    DAY_MS = 24 * 3600 * 1000,
};

static bool passes(const stk_client *client, enum stk_error error)
{
    switch (error) {
    case STK_HELD:
    case STK_TIMEOUT:
    case STK_UNREACHABLE:
    case STK_LEASEDOWN:
    case STK_BUSY:
    case STK_STALE: /* it was granted, and revoked before anybody had it */
    case STK_UNKNOWN: return true;
    case STK_STORE: return client->embedded == NULL; /* ours would stay as it is */
    default: return false;
    }
}

/* Let a moment pass, a longer one each time; half of it is left to chance, so that a crowd spreads
 * out. */
static enum io_result rest(int64_t *pause_ms, int64_t until_ms)
{
    unsigned char random;
    chance_system.fill(&chance_system, &random, 1);
    int64_t end_ms = now_ms() + *pause_ms / 2 + *pause_ms * random / 512;

    *pause_ms = *pause_ms * 2 > PAUSE_LAST_MS ? PAUSE_LAST_MS : *pause_ms * 2;
    return wait_for(-1, 0, thread_cancel_fd(), end_ms < until_ms ? end_ms : until_ms);
}

enum stk_error stk_lead(stk_client *client, const char *name, const stk_lease_options *options,
                        stk_lease **term)
{
    stk_lease_options each = options != NULL ? *options : (stk_lease_options){0};
    int64_t until_ms = each.wait_ms > 0 ? now_ms() + each.wait_ms : INT64_MAX;
    int64_t pause_ms = PAUSE_FIRST_MS;

    *term = NULL;
    if (each.no_keep_alive)
        return fail(STK_MISUSE, "a leader that is not kept alive is not told of its loss");
    if (each.wait_ms < 0 || each.wait_ms > DAY_MS)
        return fail(STK_MISUSE, "wait_ms is from 0 to %d", DAY_MS);
    for (;;) {
        int64_t left_ms = until_ms - now_ms();
        each.wait_ms = left_ms > LOOK_MS ? LOOK_MS : left_ms > 0 ? left_ms : 0;
        enum stk_error error = stk_acquire(client, name, &each, term);
        if (error == STK_OK || !passes(client, error) || now_ms() >= until_ms)
            return error;
        if (error == STK_HELD) /* that was waited for already */
            pause_ms = PAUSE_FIRST_MS;
        else if (rest(&pause_ms, until_ms) == IO_WOKEN)
            return fail(STK_CANCELLED, NULL);
    }
}
