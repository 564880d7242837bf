# SPDX-License-Identifier: Apache-2.0
"""A real browser (tests/system/clients/browser.js), and the daemon's page in it.

    browser = Browser(rig)
    with browser.page(daemon) as page:
        page.await_text("#verdict", "All is well")
        page.run("await page.click(args)", "#pause")

A page must close without a console error and without a request to another origin.
"""

import contextlib
import json
import os
import subprocess
import time

from harness.limits import Late, patience
from harness.process import Process
from harness.programs import NODE_MODULES, SYSTEM

START_S = 30
STEP_S = 10


class Browser(Process):
    def __init__(self, rig):
        super().__init__("browser", ["node", SYSTEM / "clients/browser.js",
                                     int(patience(STEP_S) * 1000)],
                         rig.stderr_path("browser"),
                         env={**os.environ, "NODE_PATH": str(NODE_MODULES)},
                         stdin=subprocess.PIPE)
        rig.processes.append(self)

    def order(self, **order):
        begun = time.monotonic()
        self.popen.stdin.write(json.dumps(order).encode() + b"\n")
        self.popen.stdin.flush()
        line = self.first_line(START_S + STEP_S)
        assert line, f"the browser ended:\n{self.describe()}"
        answer = json.loads(line)
        if "Timeout" in answer.get("error", ""):
            raise Late(answer["error"], begun, patience(STEP_S))
        assert "error" not in answer, answer["error"]
        return answer["value"]

    def stop(self):
        """It ends with its input, and its browser with it."""
        self.popen.stdin.close()
        assert self.wait() == 0, self.describe()

    @contextlib.contextmanager
    def page(self, daemon, path="/", scheme="light", width=1280, height=800, expect=None):
        """The page of a daemon. `expect` is part of console errors that the test causes."""
        url = "http://{}:{}{}".format(*daemon.admin, path)
        self.order(open=url, scheme=scheme, width=width, height=height)
        failed = True
        try:
            yield Page(self)
            failed = False
        finally:
            wrong = self.order(close=True)
            if not failed:
                assert not wrong["outside"]
                assert not [text for text in wrong["console"]
                            if expect is None or expect not in text]


class Page:
    def __init__(self, browser):
        self.browser = browser

    def run(self, script, args=None):
        return self.browser.order(run=script, args=args)

    def text(self, selector):
        """The text of the first element, as it is shown."""
        return self.run("return page.locator(args).first().innerText()", selector)

    def texts(self, selector):
        return self.run("return page.locator(args).allInnerTexts()", selector)

    def click(self, selector):
        self.run("await page.locator(args).first().click()", selector)

    def fill(self, selector, text):
        self.run("await page.locator(args[0]).fill(args[1])", [selector, text])

    def press(self, *keys):
        self.run("for (const key of args) await page.keyboard.press(key)", keys)

    def wait(self, condition, args=None):
        """Waits until a JavaScript expression on `args` is true in the page."""
        self.run(f"await page.waitForFunction((args) => {condition}, args)", args)

    def await_text(self, selector, text):
        self.wait("[...document.querySelectorAll(args[0])].some((node) => "
                  "node.checkVisibility() && node.textContent.includes(args[1]))",
                  [selector, text])

    def await_lease(self, resource):
        self.wait("[...document.querySelectorAll('#leases tbody .name-link')]"
                  ".some((link) => link.textContent === args)", resource)

    def focused(self):
        return self.run("return page.evaluate(() => document.activeElement.textContent)")

    def wider_than_the_window(self):
        return self.run("return page.evaluate(() => "
                        "document.documentElement.scrollWidth > innerWidth)")

    def serious(self):
        """What axe-core finds serious or worse."""
        return self.run("return axe()")
