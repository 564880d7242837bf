/* SPDX-License-Identifier: Apache-2.0 */
/* The options of lease commands: the words behind a command's own arguments, in any order, each
 * once. */
#ifndef STOCKADE_ENGINE_LEASE_OPTIONS_H
#define STOCKADE_ENGINE_LEASE_OPTIONS_H

#include "proxy/engine/session/request.h"

enum lease_option {
    OPTION_WAIT,
    OPTION_QUEUE,
    OPTION_OWNER,
    OPTION_TOKEN,
    OPTION_ID,
    OPTION_EPHEMERAL,
    OPTION_NOTIFY,
    OPTION_PERMITS,
};

/* Whose options: bits. */
enum lease_command {
    OF_ACQUIRE = 1,
    OF_ACQUIREALL = 2,
    OF_RENEW = 4,
    OF_RELEASE = 8,
    OF_LEASE = 16,
};

struct lease_options {
    unsigned given;        /* bits: 1 << enum lease_option */
    int64_t wait_until_ms; /* 0: does not wait */
    struct bytes owner;    /* empty: a new one. Borrowed from the request, as is */
    struct bytes id;       /* empty: none */
    bool ephemeral;
    int64_t permits; /* 0: the lease is exclusive */
};

static inline bool lease_option_given(const struct lease_options *options, enum lease_option option)
{
    return options->given & 1U << option;
}

/* Read the command's options from argv[at] on into *options, which is empty. False: the request has
 * failed. */
bool lease_options_parse(struct request *request, size_t at, enum lease_command command,
                         struct lease_options *options);
/* Is this one among them? What stands behind something that is no option does not count. */
bool lease_options_have(const struct bytes *argv, size_t argc, size_t at,
                        enum lease_command command, enum lease_option sought);

#endif
