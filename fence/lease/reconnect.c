/* SPDX-License-Identifier: Apache-2.0 */
/* See reconnect.h. */
#include "fence/lease/reconnect.h"

#include <stdio.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/plain.h"

#define PAUSE_MIN_MS     50
#define PAUSE_MAX_MS     2000
#define TIMEOUTS_MAX     5 /* that one answer is waited for while others arrive */
#define FIRST_ATTEMPT_MS 1000

void reconnect_init(struct reconnect *reconnect, const char *name, int timeout_ms,
                    const struct lease_surroundings *surroundings)
{
    memset(reconnect, 0, sizeof *reconnect);
    reconnect->env = *surroundings;
    reconnect->timeout_ms = timeout_ms;
    snprintf(reconnect->name, sizeof reconnect->name, "%s", name);
}

void reconnect_set_timer(const struct reconnect *reconnect, uv_timer_t *timer, uv_timer_cb on_timer,
                         int64_t due_ms)
{
    int64_t delay_ms = due_ms - reconnect_now_ms(reconnect);

    if (due_ms == INT64_MAX)
        uv_timer_stop(timer);
    else
        uv_timer_start(timer, on_timer, delay_ms < 0 ? 0 : (uint64_t)delay_ms, 0);
}

/* Up and down. */

void reconnect_up(struct reconnect *reconnect)
{
    reconnect->failures = 0;
    reconnect->connections++;
    reconnect->reason[0] = reconnect->refusal[0] = '\0';
}

void reconnect_set_reason(struct reconnect *reconnect, const char *reason)
{
    snprintf(reconnect->reason, sizeof reconnect->reason, "%s", reason);
}

int64_t reconnect_down(struct reconnect *reconnect, const char *reason)
{
    const struct chance *chance = reconnect->env.chance;
    uint32_t dice;
    int64_t pause_ms = PAUSE_MIN_MS * 2;

    reconnect_set_reason(reconnect, reason);
    for (unsigned i = 0; i < reconnect->failures && pause_ms < PAUSE_MAX_MS; i++)
        pause_ms *= 2;
    if (pause_ms > PAUSE_MAX_MS)
        pause_ms = PAUSE_MAX_MS;
    reconnect->failures++;
    chance->fill(chance, &dice, sizeof dice);
    return pause_ms / 2 + (int64_t)(dice % (uint32_t)(pause_ms / 2 + 1));
}

bool reconnect_refused(struct reconnect *reconnect, const char *why)
{
    bool changed = reconnect->refusal[0] == '\0';

    if (changed)
        log_warn(reconnect->env.log, "lease service %s refuses: %s", reconnect->name, why);
    snprintf(reconnect->refusal, sizeof reconnect->refusal, "%s", why);
    return changed;
}

bool reconnect_accepted(struct reconnect *reconnect)
{
    bool changed = reconnect->refusal[0] != '\0';

    if (changed)
        log_info(reconnect->env.log, "lease service %s accepts again", reconnect->name);
    reconnect->refusal[0] = '\0';
    return changed;
}

/* For people. */

void reconnect_log_up(struct reconnect *reconnect)
{
    if (reconnect->logged != LOGGED_UP)
        log_info(reconnect->env.log, "lease service %s is ready", reconnect->name);
    reconnect->logged = LOGGED_UP;
}

void reconnect_log_down(struct reconnect *reconnect, const char *why)
{
    if (reconnect->logged != LOGGED_DOWN)
        log_warn(reconnect->env.log, "lease service %s is down: %s; trying again until it is back",
                 reconnect->name, why);
    reconnect->logged = LOGGED_DOWN;
}

const char *reconnect_reason(const struct reconnect *reconnect)
{
    return reconnect->reason[0] != '\0' ? reconnect->reason : "not connected yet";
}

void reconnect_health(const struct reconnect *reconnect, bool answers, int64_t retry_at_ms,
                      struct lease_health *health)
{
    size_t size = sizeof health->detail;
    double pause_s = (double)(retry_at_ms - reconnect_now_ms(reconnect)) / 1000;

    health->reconnects = reconnect->connections > 0 ? reconnect->connections - 1 : 0;
    health->up = answers && reconnect->refusal[0] == '\0';
    if (health->up)
        text_print(health->detail, size, "%s: ready", reconnect->name);
    else if (answers)
        text_print(health->detail, size, "%s: refuses: %s", reconnect->name, reconnect->refusal);
    else if (reconnect->reason[0] == '\0')
        text_print(health->detail, size, "%s: connecting", reconnect->name);
    else if (retry_at_ms != 0 && pause_s > 0)
        plain_print(health->detail, size, "%s: %s, trying again in %.1f s", reconnect->name,
                    reconnect->reason, pause_s);
    else
        text_print(health->detail, size, "%s: %s, trying again", reconnect->name,
                   reconnect->reason);
}

/* Waiting for an answer. */

int64_t reconnect_due_ms(const struct reconnect *reconnect, int64_t deadline_ms)
{
    int64_t silent_ms = reconnect->heard_ms + reconnect->timeout_ms;
    int64_t end_ms = deadline_ms + (TIMEOUTS_MAX - 1) * (int64_t)reconnect->timeout_ms;

    return silent_ms < deadline_ms ? deadline_ms : silent_ms < end_ms ? silent_ms : end_ms;
}

bool reconnect_is_overdue(struct reconnect *reconnect, int64_t due_ms)
{
    int64_t now_ms = reconnect_now_ms(reconnect), late_ms = now_ms - due_ms;

    if (late_ms < 0) {
        reconnect->grace_until_ms = 0;
        return false;
    }
    if (reconnect->grace_until_ms == 0) {
        int64_t grace_ms = late_ms < reconnect->timeout_ms ? late_ms : reconnect->timeout_ms;
        reconnect->grace_until_ms = now_ms + (grace_ms < 1 ? 1 : grace_ms);
        return false;
    }
    return now_ms >= reconnect->grace_until_ms;
}

/* The first attempt. */

void reconnect_on_first_attempt(struct reconnect *reconnect, void (*ended)(void *context),
                                void *context)
{
    check(reconnect->on_first_attempt == NULL);
    if (reconnect->first_attempt_ended) {
        ended(context);
        return;
    }
    reconnect->on_first_attempt = ended;
    reconnect->context = context;
    reconnect->first_due_ms = reconnect_now_ms(reconnect) + FIRST_ATTEMPT_MS;
}

void reconnect_end_first_attempt(struct reconnect *reconnect)
{
    void (*ended)(void *context) = reconnect->on_first_attempt;

    reconnect->on_first_attempt = NULL;
    reconnect->first_attempt_ended = true;
    if (ended != NULL)
        ended(reconnect->context);
}

int64_t reconnect_first_due_ms(const struct reconnect *reconnect)
{
    return reconnect->on_first_attempt == NULL ? INT64_MAX : reconnect->first_due_ms;
}
