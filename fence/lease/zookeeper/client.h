/* SPDX-License-Identifier: Apache-2.0 */
/* ZooKeeper's C client, which is loaded where a URI asks for ZooKeeper and nowhere else: programs
 * start, and are installed, without it. Once loaded it stays for the life of the process. */
#ifndef STOCKADE_FENCE_LEASE_ZOOKEEPER_CLIENT_H
#define STOCKADE_FENCE_LEASE_ZOOKEEPER_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <zookeeper/zookeeper.h>

/* What we use of it: functions, and constants that it has as data. */
#define ZK_CLIENT_MAP(X)                                                                           \
    X(zookeeper_init2)                                                                             \
    X(zookeeper_close)                                                                             \
    X(zoo_client_id)                                                                               \
    X(zoo_state)                                                                                   \
    X(zoo_add_auth)                                                                                \
    X(zoo_aget_children)                                                                           \
    X(zoo_aget)                                                                                    \
    X(zoo_awexists)                                                                                \
    X(zoo_acreate2)                                                                                \
    X(zoo_aset)                                                                                    \
    X(zoo_adelete)                                                                                 \
    X(zoo_amulti)                                                                                  \
    X(zoo_create_op_init)                                                                          \
    X(zoo_delete_op_init)                                                                          \
    X(zerror)                                                                                      \
    X(ZOO_OPEN_ACL_UNSAFE)                                                                         \
    X(ZOO_CREATOR_ALL_ACL)                                                                         \
    X(ZOO_PERSISTENT)                                                                              \
    X(ZOO_CONTAINER)                                                                               \
    X(ZOO_EPHEMERAL)                                                                               \
    X(ZOO_EPHEMERAL_SEQUENTIAL)                                                                    \
    X(ZOO_SESSION_EVENT)                                                                           \
    X(ZOO_CHANGED_EVENT)                                                                           \
    X(ZOO_CONNECTED_STATE)                                                                         \
    X(ZOO_ASSOCIATING_STATE)                                                                       \
    X(ZOO_EXPIRED_SESSION_STATE)                                                                   \
    X(ZOO_AUTH_FAILED_STATE)

struct zk_client {
/* A pointer to each of them, under its name. */
#define X(name) __typeof__(&(name)) name;
    ZK_CLIENT_MAP(X)
#undef X
};

/* False: `why` says what is missing, and which package has it. */
bool zk_client_load(struct zk_client *client, char *why, size_t why_size);

#endif
