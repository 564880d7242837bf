/* SPDX-License-Identifier: Apache-2.0 */
/* What the lease commands share: an owner's name in the lease service, and what the store has
 * recorded of a lease. */
#include "proxy/engine/lease/lease.h"

#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "proxy/engine/scope.h"

void lease_nonce(struct bytes owner, bool anonymous, char nonce[LEASE_NONCE_LEN + 1])
{
    /* A row that somebody else has written may have another: no lock has its hash. */
    if (anonymous && owner.len == LEASE_NONCE_LEN) {
        memcpy(nonce, owner.data, LEASE_NONCE_LEN);
        nonce[LEASE_NONCE_LEN] = '\0';
        return;
    }
    XXH128_hash_t hash = XXH3_128bits(owner.data, owner.len);
    snprintf(nonce, LEASE_NONCE_LEN + 1, "%016llx%016llx", (unsigned long long)hash.high64,
             (unsigned long long)hash.low64);
}

uint64_t lease_fingerprint(const char *command, struct bytes owner)
{
    return XXH3_64bits_withSeed(owner.data, owner.len, XXH3_64bits(command, strlen(command)));
}

bool lease_is_permit(struct bytes name, struct bytes *resource, int64_t *permit)
{
    const char *mark = name.len == 0 ? NULL : memrchr(name.data, PERMIT_MARK, name.len);

    if (mark == NULL || mark == name.data)
        return false;
    *resource = (struct bytes){name.data, (size_t)(mark - name.data)};
    struct bytes digits = {mark + 1, name.len - resource->len - 1};
    return digits.len > 0 && digits.data[0] >= '1' && digits.data[0] <= '9' &&
           bytes_to_int64(digits, permit) && *permit <= PERMITS_MAX;
}

struct session *lease_connection(struct engine *engine, const struct lease_record *record)
{
    for (struct list *at = engine->sessions.next;
         record->this_opening && record->connection != 0 && at != &engine->sessions;
         at = at->next) {
        struct session *session = list_entry(at, struct session, link);
        if ((int64_t)session->id == record->connection)
            return session;
    }
    return NULL;
}

struct account *lease_account(struct engine *engine, struct bytes owner)
{
    struct bytes user = scope_user(owner);
    char name[ACL_USER_MAX + 1];

    if (user.len == 0)
        return account_of(engine, ACL_DEFAULT_USER);
    snprintf(name, sizeof name, "%.*s", (int)user.len, user.data);
    return account_of(engine, name);
}

enum stk_error lease_submit(struct engine *engine, struct store_op *op, bool writes,
                            struct bytes resource, store_run *run, store_done *done)
{
    *op = (struct store_op){.writes = writes,
                            .brief = true,
                            .about = resource,
                            .run = run,
                            .done = done,
                            .submitted_us = engine->now_us};
    list_init(&op->link);
    return store_submit(engine->options.store, op);
}

/* The rest runs on the store's thread. */

enum stk_error lease_read(struct store_txn *txn, struct bytes resource, int64_t opening,
                          struct resource *row, struct lease_record *record, struct buf *owner)
{
    struct lease lease;
    enum stk_error error = txn_resource(txn, resource, row);

    *record = (struct lease_record){.floor = row->fence.floor};
    if (error != STK_OK || row->fence.state == FENCE_NONE)
        return error;
    error = txn_lease(txn, row, &lease);
    if (error != STK_OK)
        return error;
    int64_t end_ms = lease.changed_ms + lease.ttl_ms;
    record->token = row->fence.token;
    record->live = row->fence.state == FENCE_LIVE;
    record->unexpired = txn_now_ms(txn) < end_ms;
    record->this_opening = lease.opening == opening;
    /* A daemon that opened the store before this one may still be at work, unless the lease would
     * be over by the store's time, too. Even then it is held for its TTL from this one's start. */
    record->earlier_opening =
        lease.age_ms < 0 && lease.opening < opening && end_ms < txn_now_ms(txn);
    record->age_ms = lease.age_ms < 0 ? 0 : lease.age_ms;
    record->change = lease.change;
    record->ttl_ms = lease.ttl_ms;
    record->holds = lease.holds;
    record->ephemeral = lease.connection < 0;
    record->connection = record->ephemeral ? -lease.connection : lease.connection;
    record->written_ms =
        txn_now_ms(txn) > lease.changed_ms ? txn_now_ms(txn) - lease.changed_ms : 0;
    lease_nonce(lease.owner, lease.anonymous, record->nonce);
    if (owner != NULL) {
        buf_clear(owner);
        buf_append_bytes(owner, lease.owner);
    }
    return STK_OK;
}

enum stk_error lease_rewrite(struct store_txn *txn, const struct resource *row, struct lease *lease)
{
    struct buf owner = {0}; /* lease->owner is borrowed from the row that is written now */

    buf_append_bytes(&owner, lease->owner);
    lease->owner = buf_bytes(&owner);
    enum stk_error error = txn_fence_put(txn, row, lease);
    buf_free(&owner);
    return error;
}

enum stk_error lease_find_repeat(struct store_txn *txn, const struct resource *row, struct bytes id,
                                 uint64_t fingerprint, enum id_use *use)
{
    struct receipt receipt;
    bool found = false;
    enum stk_error error = txn_receipt(txn, row, id, &found, &receipt);

    *use = ID_UNUSED;
    if (error != STK_OK || !found)
        return error;
    if (receipt.fingerprint != fingerprint)
        *use = ID_MISUSED;
    else
        *use = fence_judge(&row->fence, receipt.token) == STK_OK ? ID_REPEATS : ID_OVER;
    return STK_OK;
}

enum stk_error lease_remember_grant(struct store_txn *txn, const struct resource *row,
                                    struct bytes id, uint64_t fingerprint, int64_t token,
                                    int64_t ttl_ms)
{
    struct buf reply = {0};

    resp_array(&reply, 2);
    resp_int(&reply, token);
    resp_int(&reply, ttl_ms);
    enum stk_error error = txn_receipt_put(
        txn, row, id,
        &(struct receipt){.token = token, .fingerprint = fingerprint, .reply = buf_bytes(&reply)});
    buf_free(&reply);
    return error;
}
