// SPDX-License-Identifier: Apache-2.0
// Sells one piece of sku:42, with libstockade: by a daemon, or without one.
#include <stdio.h>
#include <stockade.h>

int main(int argc, char **argv)
{
    const char *uri = argc > 1 ? argv[1] : "stockade://127.0.0.1:7379", *sku = "sku:42";
    const stk_lease_options options = {.ttl_ms = 30000, .wait_ms = 10000};
    stk_client *shop;
    stk_lease *lease = NULL;
    int64_t left;
    enum stk_error error = stk_client_open(uri, 5000, &shop);
    error = error ? error : stk_acquire(shop, sku, &options, &lease); // STK_HELD: others sell it
    // prices, payment, a pause: whatever takes its time happens here
    if (error == STK_OK && (error = stk_take(lease, sku, 1, &left)) == STK_OK)
        printf("sold, left: %lld\n", (long long)left);
    else // STK_STALE: the lease passed on, nothing changed
        fprintf(stderr, "not sold: %s\n", error == STK_RANGE ? "sold out" : stk_message());
    stk_release(lease);
    stk_lease_free(lease);
    stk_client_close(shop);
    return error != STK_OK;
}
