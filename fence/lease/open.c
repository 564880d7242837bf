/* SPDX-License-Identifier: Apache-2.0 */
/* One line for each kind of lease service. */
#include "fence/lease/open.h"

#include "fence/base/check.h"

struct lease_provider *lease_open(const struct lease_uri *uri,
                                  const struct lease_surroundings *surroundings, char *why,
                                  size_t why_size)
{
    char wrong[TLS_WHY_MAX];

    if (uri->tls) { /* each connection reads the files; that they can be used is known now */
        struct tls_context *tls = lease_uri_tls(uri, wrong);
        tls_context_free(tls);
        if (tls == NULL) {
            text_print(why, why_size, "%s", wrong);
            return NULL;
        }
    }
    if (uri->kind == LEASE_URI_LOCAL)
        return lease_local_new(surroundings->clock);
    if (uri->kind == LEASE_URI_REDLOCK)
        return lease_redlock_new(uri, surroundings);
    if (uri->kind == LEASE_URI_CLUSTER)
        return lease_cluster_new(uri, surroundings);
    if (uri->kind == LEASE_URI_ZOOKEEPER)
        return lease_zookeeper_new(uri, surroundings, why, why_size);
    check(uri->kind == LEASE_URI_REDIS || uri->kind == LEASE_URI_REDIS_UNIX ||
          uri->kind == LEASE_URI_SENTINEL);
    return lease_redis_new(uri, surroundings);
}
