/* SPDX-License-Identifier: Apache-2.0 */
/* Why operations failed: each text is kept once, and operations point to it. So a failure costs an
 * operation no memory, however many there are. Where there are too many texts, one makes room that
 * nobody was given for long: whoever was given it has told it by then. */
#ifndef STOCKADE_STORE_REASONS_H
#define STOCKADE_STORE_REASONS_H

#include <pthread.h>
#include <stddef.h>

#include "store/store.h"

#define STORE_REASONS_MAX     32
#define STORE_REASONS_KEPT_MS (60 * 1000)

/* Shared by all threads of a store. */
struct store_reasons {
    pthread_mutex_t lock;
    size_t count;
    struct {
        char text[STORE_WHY_MAX];
        int64_t given_ms; /* last, by clock_monotonic */
    } all[STORE_REASONS_MAX];
};

void reasons_init(struct store_reasons *reasons);
void reasons_destroy(struct store_reasons *reasons);
/* Fails the operation with STK_STORE and `why`, as one printable line. Where there are too many
 * different reasons at once, the operation gets none: the log has them. */
void reasons_fail(struct store_reasons *reasons, struct store_op *op, const char *why);

#endif
