/* SPDX-License-Identifier: Apache-2.0 */
#include "store/floor.h"

#include "fence/base/clock.h"
#include "fence/token.h"

int64_t store_floor_anew(int64_t known, int64_t others_us)
{
    int64_t now_us = clock_wall_us(&clock_monotonic);
    uint32_t random;

    chance_system.fill(&chance_system, &random, sizeof random);
    return token_floor_anew(known, now_us > others_us ? now_us : others_us, random);
}
