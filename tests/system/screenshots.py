# SPDX-License-Identifier: Apache-2.0
"""Makes the README's pictures of the page, from a daemon in whose shop something goes on.

    make screenshots    writes proxy/server/page/page.png and lane.png
"""

import pathlib
import tempfile
import time

from harness.browser import Browser
from harness.limits import REPO, wait_until
from harness.rig import Rig

FOLDER = REPO / "proxy/server/page"
SECONDS = 24
BUYERS = 6
ARTICLES = ["lamp", "chair", "kettle", "teapot", "desk", "rug", "mirror", "clock", "vase", "shelf"]
PICTURE_BYTES_MAX = 150000


def refuse(client, token, resource):
    client.ask("FENCED", token, "SET", f"stock:{resource}", 1)


def pause_and_be_overtaken(daemon, pause_s):
    """A buyer sleeps through the end of its lease; another buys, and the first one's write comes
    late."""
    paused = daemon.client(name="checkout-7")
    token = paused.token("stock:lamp", 1500, "OWNER", "order-5117")
    paused.fenced(token, "SET", "stock:lamp", 12)
    overtaker = daemon.client(name="checkout-8")
    newer = overtaker.token("stock:lamp", 20000, "OWNER", "order-5120", "WAIT", 10000)
    overtaker.fenced(newer, "SET", "stock:lamp", 11)
    time.sleep(pause_s)
    paused.ask("FENCED", token, "SET", "stock:lamp", 11)
    overtaker("RELEASE", "stock:lamp", newer)


def shop(daemon):
    """Buyers who take what they want in turn, for a while; then those that the picture shows."""
    buyers = [daemon.client(name=f"checkout-{n + 1}") for n in range(BUYERS)]
    end = time.monotonic() + SECONDS
    step = 0
    while time.monotonic() < end:
        buyer = buyers[step % BUYERS]
        resource = f"stock:{ARTICLES[step % len(ARTICLES)]}"
        token = buyer.token(resource, 10000, "OWNER", f"order-{4000 + step}")
        for left in range(3 + step % 5):
            buyer.fenced(token, "SET", resource, left)
        time.sleep(0.02 + 0.02 * (step // 100 % 3))
        buyer("RELEASE", resource, token)
        if step % 150 == 149:
            refuse(buyer, token, ARTICLES[step % len(ARTICLES)])
        step += 1
    buyers[1]("RELEASE", "stock:lamp", buyers[1].token("stock:lamp", 5000, "OWNER", "order-5109"))
    pause_and_be_overtaken(daemon, 1.6)
    for n, article in enumerate(ARTICLES):
        buyers[n % BUYERS].token(f"stock:{article}", 20000 + 2500 * n, "OWNER", f"order-{5200 + n}")
    for n, waited_for in enumerate(["lamp", "lamp", "lamp", "kettle", "rug"]):
        waiter = daemon.client(name=f"checkout-{n + 9}")
        waiter.send("ACQUIRE", f"stock:{waited_for}", 10000, "OWNER", f"order-{5300 + n}",
                    "WAIT", 30000)
        time.sleep(0.3)


def take(page, name, part="body"):
    path = FOLDER / name
    page.run("await page.locator(args[1]).screenshot({ path: args[0] })", [str(path), part])
    size = path.stat().st_size
    assert size < PICTURE_BYTES_MAX, f"{path}: {size} bytes"
    print(f"{path.relative_to(REPO)}: {size} bytes")


def main():
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(pathlib.Path(folder))
        try:
            browser = Browser(rig)
            daemon = rig.daemon(lease=rig.redis().uri)
            shop(daemon)
            with browser.page(daemon, width=1280, height=720) as page:
                page.await_lease("stock:lamp")
                page.wait("document.querySelector('#refusals tbody tr')")
                wait_until(lambda: "p50" in page.text("#fact-commit"), "the facts are there")
                take(page, "page.png")
            with browser.page(daemon, "/#/resource/stock%3Alamp", width=900, height=600) as page:
                page.wait("document.querySelector('#lane .refusal')")
                take(page, "lane.png", "[aria-labelledby=lane-title]")
        finally:
            rig.close()


if __name__ == "__main__":
    main()
