/* SPDX-License-Identifier: Apache-2.0 */
/* Replies as a client reads them, strictly. Shares no code with the engine's writer. */
#ifndef STOCKADE_TESTS_FUZZ_REPLIES_H
#define STOCKADE_TESTS_FUZZ_REPLIES_H

#include <stdbool.h>

#include "fence/base/bytes.h"

struct reply {
    struct bytes whole; /* from the type's byte to behind the last one */
    char type;          /* as on the wire: + - : $ * _ , # % ~ > = ( */
    struct bytes text;  /* what stands in a simple value or a bulk string; else empty */
    bool resp3;         /* it, or a part of it, is of a type that RESP2 does not have */
};

/* Take the next reply. False: there is no more. Abort where the bytes are not a whole and valid
 * reply, since an engine hands out whole ones. */
bool reply_next(struct bytes *rest, struct reply *reply);

#endif
