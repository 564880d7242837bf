/* SPDX-License-Identifier: Apache-2.0 */
/* See patience.h. */
#include "fence/lease/patience.h"

#define BACKOFF_MIN_MS 50
#define BACKOFF_MAX_MS 2000
#define TIMEOUTS_MAX   5

int64_t patience_backoff_ms(const struct chance *chance, unsigned failures)
{
    uint32_t dice;
    int64_t delay_ms = BACKOFF_MIN_MS * 2;

    for (unsigned i = 1; i < failures && delay_ms < BACKOFF_MAX_MS; i++)
        delay_ms *= 2;
    if (delay_ms > BACKOFF_MAX_MS)
        delay_ms = BACKOFF_MAX_MS;
    chance->fill(chance, &dice, sizeof dice);
    return delay_ms / 2 + (int64_t)(dice % (uint32_t)(delay_ms / 2 + 1));
}

int64_t patience_due_ms(int64_t deadline_ms, int64_t heard_ms, int64_t timeout_ms)
{
    int64_t silent_ms = heard_ms + timeout_ms;
    int64_t end_ms = deadline_ms + (TIMEOUTS_MAX - 1) * timeout_ms;

    return silent_ms < deadline_ms ? deadline_ms : silent_ms < end_ms ? silent_ms : end_ms;
}

int64_t patience_grace_ms(int64_t now_ms, int64_t due_ms, int64_t timeout_ms)
{
    int64_t late_ms = now_ms - due_ms;

    return now_ms + (late_ms < 1 ? 1 : late_ms < timeout_ms ? late_ms : timeout_ms);
}
