/* SPDX-License-Identifier: Apache-2.0 */
/* Why operations failed: each text is kept once, and operations point to it. So a failure costs an
 * operation no memory, however many there are. When the table is full, a text is replaced that was
 * given to no operation for STORE_REASONS_KEPT_MS: those that have it are answered by then. */
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
/* Fail the operation with STK_STORE and `why`, as one printable line. If the table is full, the
 * operation gets no reason; the log has it. */
void reasons_fail(struct store_reasons *reasons, struct store_op *op, const char *why);

#endif
