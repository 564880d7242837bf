# SPDX-License-Identifier: Apache-2.0
# Sells one piece of sku:42, with redis-cli.
shop() { redis-cli -e -p 7379 "$@"; }
sku=sku:42

set -- $(shop ACQUIRE $sku 30000 WAIT 10000)
token=$1
if [ -z "$token" ]; then echo "busy: others are selling it" >&2; exit 1; fi
trap 'shop RELEASE $sku $token >/dev/null 2>&1 || true' EXIT

stock=$(shop GET $sku)
if [ "$stock" -eq 0 ]; then echo "sold out" >&2; exit 1; fi
# prices, payment, a pause: whatever takes its time happens here
if shop FENCED $token SET $sku $((stock - 1)) >/dev/null; then
    echo "sold, left: $((stock - 1))"
else
    echo "not sold" >&2; exit 1 # STALE: the lease passed on, nothing changed
fi
