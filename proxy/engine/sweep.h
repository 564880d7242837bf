/* SPDX-License-Identifier: Apache-2.0 */
/* Removes old receipts and forgotten resources, a little at a time. */
#ifndef STOCKADE_ENGINE_SWEEP_H
#define STOCKADE_ENGINE_SWEEP_H

struct engine;
struct sweeper;

/* Look for them once a second from now on. */
struct sweeper *sweeper_new(struct engine *engine);
/* Nothing of it may be under way: see engine_idle. */
void sweeper_free(struct sweeper *sweeper);

#endif
