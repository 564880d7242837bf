/* SPDX-License-Identifier: Apache-2.0 */
/* Keys beside a lock key, see companion.c. */
#ifndef STOCKADE_ENGINE_LOCK_COMPANION_H
#define STOCKADE_ENGINE_LOCK_COMPANION_H

#include "fence/base/bytes.h"

struct engine;

enum lock_companion {
    LOCK_COMPANION_NONE,
    LOCK_COMPANION_TOKEN,
    LOCK_COMPANION_LATCH,
    LOCK_COMPANION_SIGNAL,
};

/* What a key is; `resource` is that of its lock, a part of the key. */
enum lock_companion lock_companion_of(const struct engine *engine, struct bytes key,
                                      struct bytes *resource);

#endif
