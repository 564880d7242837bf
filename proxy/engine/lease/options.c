/* SPDX-License-Identifier: Apache-2.0 */
/* What ACQUIRE and ACQUIREALL take alike: [WAIT ms] [OWNER owner] [ID id] [EPHEMERAL]. */
#include <string.h>
#include <xxhash.h>

#include "proxy/engine/lease/lease.h"

/* One option at argv[*at]; moves on behind it. False: the request has failed. */
static bool parse_one(struct request *request, size_t *at, struct lease_options *options)
{
    size_t value = *at + 1;
    int64_t wait_ms;

    if (request_is_word(request, *at, "EPHEMERAL")) {
        options->ephemeral = true;
        *at += 1;
        return true;
    }
    *at += 2;
    if (value < request->argc && request_is_word(request, value - 1, "WAIT")) {
        if (!request_int(request, value, 0, LEASE_WAIT_MAX_MS, "WAIT", &wait_ms))
            return false;
        options->wait_until_ms = wait_ms > 0 ? engine_now_ms(request->engine) + wait_ms : 0;
        return true;
    }
    if (value < request->argc && request_is_word(request, value - 1, "OWNER")) {
        options->owner = request->argv[value];
        return request_name(request, value, "an owner");
    }
    if (value < request->argc && request_is_word(request, value - 1, "ID")) {
        options->id = request->argv[value];
        return request_id(request, value);
    }
    request_fail(request, STK_ERR, "syntax error: %s [WAIT ms] [OWNER owner] [ID id] [EPHEMERAL]",
                 request->command->name);
    return false;
}

bool lease_options_parse(struct request *request, size_t at, struct lease_options *options)
{
    while (at < request->argc)
        if (!parse_one(request, &at, options))
            return false;
    return true;
}

uint64_t lease_fingerprint(const char *command, struct bytes owner)
{
    return XXH3_64bits_withSeed(owner.data, owner.len, XXH3_64bits(command, strlen(command)));
}

void lease_make_nonce(const struct chance *chance, char nonce[LEASE_NONCE_LEN + 1])
{
    unsigned char random[LEASE_NONCE_LEN / 2];

    chance->fill(chance, random, sizeof random);
    for (size_t i = 0; i < sizeof random; i++) {
        nonce[2 * i] = "0123456789abcdef"[random[i] >> 4];
        nonce[2 * i + 1] = "0123456789abcdef"[random[i] & 15];
    }
    nonce[LEASE_NONCE_LEN] = '\0';
}
