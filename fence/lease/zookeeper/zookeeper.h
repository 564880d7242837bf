/* SPDX-License-Identifier: Apache-2.0 */
/* The lease provider on ZooKeeper. Opened through fence/lease/open.h. */
#ifndef STOCKADE_FENCE_LEASE_ZOOKEEPER_ZOOKEEPER_H
#define STOCKADE_FENCE_LEASE_ZOOKEEPER_ZOOKEEPER_H

#include "fence/lease/open.h"

/* As lease_open, for LEASE_URI_ZOOKEEPER. */
struct lease_provider *lease_zookeeper_new(const struct lease_uri *uri,
                                           const struct lease_surroundings *surroundings);

#endif
