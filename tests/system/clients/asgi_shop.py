# SPDX-License-Identifier: Apache-2.0
"""A shop on ASGI, a task for each request: POST /sell/SKU. The arguments are flask_shop.py's."""

import asyncio
import json
import signal
import socket
import sys

import stockade
import uvicorn

shop = stockade.aio.connect(sys.argv[1], timeout=60)


@shop.leased("sku:{sku}", ttl=int(sys.argv[2]) / 1000, wait=300)
async def sell(sku, lease):
    left = int(await lease.get())
    if left == 0:
        return {"error": "sold out"}
    await asyncio.sleep(0.003)  # a price rule
    await lease.set(left - 1)
    return {"left": left - 1}


async def app(scope, receive, send):
    assert scope["type"] == "http"
    try:
        answer = await sell(scope["path"].rpartition("/")[2])
    except stockade.StockadeError as error:
        answer = {"error": error.code}
    await send({"type": "http.response.start", "status": 200,
                "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


if __name__ == "__main__":
    signal.alarm(900)
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off",
                                  timeout_keep_alive=600)).run([listener])
