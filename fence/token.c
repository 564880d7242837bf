/* SPDX-License-Identifier: Apache-2.0 */
/* The token rule. No I/O, no clock, no state. */
#include "fence/token.h"

#include "fence/base/check.h"

enum stk_error fence_judge(const struct fence *fence, int64_t presented)
{
    if (fence->state == FENCE_NONE || presented > fence->token)
        return STK_UNKNOWN;
    if (presented < fence->token || fence->state != FENCE_LIVE)
        return STK_STALE;
    return STK_OK;
}

bool fence_admits(const struct fence *fence, int64_t minted)
{
    check(fence->floor >= fence->token);
    return minted > fence->floor && minted <= TOKEN_MAX;
}

bool fence_unclaimed(const struct fence *fence)
{
    return fence->state != FENCE_LIVE;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t token_believed_max(int64_t floor, int64_t now_us)
{
    int64_t by_time = smaller(now_us, TOKEN_MAX - TOKEN_DRIFT_MAX_US) + TOKEN_DRIFT_MAX_US;

    check(floor >= 0 && floor <= TOKEN_MAX);
    return smaller(larger(floor + TOKEN_STEPS_MAX, by_time), TOKEN_MAX);
}

int64_t token_next(int64_t counter, int64_t floor, int64_t believed_max)
{
    check(floor >= 0 && floor <= TOKEN_MAX);
    int64_t last = counter > floor && counter <= believed_max ? counter : floor;
    return last >= TOKEN_MAX ? 0 : last + 1;
}

bool token_follows(int64_t token, int64_t floor, int64_t believed_max)
{
    return token > floor && token <= larger(floor, believed_max) + 1;
}

bool token_parse(struct bytes text, int64_t *token)
{
    return bytes_to_int64(text, token) && *token >= 1 && *token <= TOKEN_MAX;
}

int64_t token_floor_anew(int64_t known, int64_t now_us, uint32_t random)
{
    if (known < 0 || known >= TOKEN_MAX - TOKEN_STEPS_MAX)
        return 0;
    return now_us > known && now_us < TOKEN_MAX - TOKEN_STEPS_MAX ? now_us : known + 1 + random;
}
