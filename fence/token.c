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

int64_t token_next(int64_t counter, int64_t floor)
{
    check(floor >= 0 && floor <= TOKEN_MAX);
    bool believable = counter > floor && counter - floor <= TOKEN_LEAP_MAX;
    int64_t last = believable ? counter : floor;
    return last >= TOKEN_MAX ? 0 : last + 1;
}

bool token_follows(int64_t token, int64_t floor)
{
    return token > floor && token - floor <= TOKEN_LEAP_MAX + 1;
}

bool token_parse(struct bytes text, int64_t *token)
{
    return bytes_to_int64(text, token) && *token >= 1 && *token <= TOKEN_MAX;
}

int64_t token_floor_restored(int64_t known, int64_t now_us)
{
    if (known < 0 || known > TOKEN_MAX - TOKEN_LEAP_MAX)
        return 0;
    return now_us > known && now_us < TOKEN_MAX ? now_us : known + TOKEN_LEAP_MAX;
}
