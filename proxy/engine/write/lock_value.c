/* SPDX-License-Identifier: Apache-2.0 */
/* See lock_value.h. */
#include "proxy/engine/write/lock_value.h"

#include <string.h>

#include "proxy/engine/session/arguments.h"

enum { TOKEN_DIGITS_MAX = 16 };

/* What the receipt of a value holds: it stands for the receipt's token, or for none. */
#define STANDS    BYTES_LITERAL(":1\r\n")
#define AMBIGUOUS BYTES_LITERAL(":0\r\n")

static bool is_digits(struct bytes text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.data[i] < '0' || text.data[i] > '9')
            return false;
    return true;
}

bool lock_value_is(struct bytes text)
{
    return text.len > TOKEN_DIGITS_MAX || (text.len > 0 && !is_digits(text));
}

const char *lock_value_refused(struct bytes value)
{
    if (value.len < 1 || value.len > RECEIPT_ID_MAX - RECEIPT_ID_OWN.len)
        return "the value of a lock must be 1 to 496 bytes long";
    if (!lock_value_is(value))
        return "a lock's value of 1 to 16 digits would read as a token; take another, such as a "
               "UUID";
    return NULL;
}

/* The ID of a value's receipt, in `out`. False: no value is that long. */
static bool id_of(struct bytes value, char out[RECEIPT_ID_MAX], struct bytes *id)
{
    size_t own = RECEIPT_ID_OWN.len;

    if (value.len > RECEIPT_ID_MAX - own)
        return false;
    memcpy(out, RECEIPT_ID_OWN.data, own);
    if (value.len > 0)
        memcpy(out + own, value.data, value.len);
    *id = (struct bytes){out, own + value.len};
    return true;
}

enum stk_error lock_value_remember(struct store_txn *txn, const struct resource *row,
                                   struct bytes value, int64_t token)
{
    char text[RECEIPT_ID_MAX];
    struct bytes id;
    struct receipt receipt;
    bool found = false;

    if (!id_of(value, text, &id))
        return STK_OK;
    enum stk_error error = txn_receipt(txn, row, id, &found, &receipt);
    if (error != STK_OK || (found && receipt.token == token))
        return error; /* entered again */
    if (found && (error = txn_receipt_remove(txn, row, id)) != STK_OK)
        return error;
    return txn_receipt_put(txn, row, id,
                           &(struct receipt){.token = token, .reply = found ? AMBIGUOUS : STANDS});
}

enum stk_error lock_value_forget(struct store_txn *txn, const struct resource *row,
                                 struct bytes value, int64_t token)
{
    char text[RECEIPT_ID_MAX];
    struct bytes id;
    struct receipt receipt;
    bool found = false;

    if (!id_of(value, text, &id))
        return STK_OK;
    enum stk_error error = txn_receipt(txn, row, id, &found, &receipt);
    if (error != STK_OK || !found || receipt.token != token || !bytes_equal(receipt.reply, STANDS))
        return error;
    return txn_receipt_remove(txn, row, id);
}

enum stk_error lock_value_token(struct store_txn *txn, struct bytes resource, struct bytes value,
                                int64_t *token, const char **why)
{
    char text[RECEIPT_ID_MAX];
    struct bytes id;
    struct resource row;
    struct receipt receipt;
    bool found = false;
    enum stk_error error = txn_resource(txn, resource, &row);

    *token = 0;
    *why = "no lease on this resource was granted to this value, or so long ago that it is "
           "forgotten";
    if (error != STK_OK || row.id == 0 || !id_of(value, text, &id))
        return error;
    error = txn_receipt(txn, &row, id, &found, &receipt);
    if (error != STK_OK || !found)
        return error;
    if (bytes_equal(receipt.reply, STANDS))
        *token = receipt.token;
    else
        *why = "this value was granted more than one lease on this resource, so it stands for no "
               "single token: ask for the token with LEASE resource OWNER value";
    return STK_OK;
}
