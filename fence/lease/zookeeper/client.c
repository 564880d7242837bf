/* SPDX-License-Identifier: Apache-2.0 */
#include "fence/lease/zookeeper/client.h"

#include "fence/base/library.h"

static const struct library_symbol symbols[] = {
#define X(name) {#name, offsetof(struct zk_client, name)},
    ZK_CLIENT_MAP(X)
#undef X
};

bool zk_client_load(struct zk_client *client, char *why, size_t why_size)
{
    static const struct library library = {
        .file = "libzookeeper_mt.so.2",
        .package = "libzookeeper-mt2",
        .what = "ZooKeeper's C client",
        .scheme = "zookeeper://",
        .symbols = symbols,
        .count = sizeof symbols / sizeof *symbols,
    };
    return library_load(&library, client, why, why_size);
}
