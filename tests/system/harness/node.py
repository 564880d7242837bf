# SPDX-License-Identifier: Apache-2.0
"""Programs that use the package `stockade` for Node, and speak with their test in lines of JSON.

    program = node(rig, "say(await shop.get('k')); await told();", daemon.uri)
    program.hear()      what it said next
    program.tell(...)   what its told() resolves to
    program.end()       it must end by itself, with status 0
"""

import json
import subprocess

from harness.limits import HANG_SECONDS
from harness.process import Process
from harness.programs import NODE, link_node_modules

PRELUDE = """
import { createInterface } from 'node:readline';
import * as stockade from 'stockade';

const { connect } = stockade;
const [uri, ...args] = process.argv.slice(2);
const say = (value = null) => process.stdout.write(`${JSON.stringify(value)}\\n`);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const told = async () => JSON.parse((await lines.next()).value);
// What Python's time.monotonic() says.
const clock = () => Number(process.hrtime.bigint()) / 1e9;
const sleep = (ms) => new Promise((resume) => setTimeout(resume, ms));
// Holds the event loop up, as a long computation does.
function stall(ms) {
  for (const until = performance.now() + ms; performance.now() < until;);
}
// How it ended: the name of its error, or what it resolved to.
const end = (promise) => promise.then((value) => value ?? null, (error) => error.name);
const lost = (lease) => new Promise((resume) => {
  if (lease.signal.aborted) resume(lease.signal.reason);
  else lease.signal.addEventListener('abort', () => resume(lease.signal.reason));
});
process.on('SIGTERM', () => process.exit(0));
const shop = await connect(uri, { timeout: 5000 });
"""
EPILOGUE = "\nawait shop.close();\nprocess.stdin.destroy();\n"


class Node(Process):
    def hear(self, timeout=HANG_SECONDS):
        line = self.first_line(timeout)
        assert line, f"it ended without a word:\n{self.describe()}"
        return json.loads(line)

    def tell(self, value=None):
        self.popen.stdin.write(json.dumps(value).encode() + b"\n")
        self.popen.stdin.flush()

    def end(self, timeout=HANG_SECONDS):
        assert self.wait(timeout) == 0, self.describe()
        self.popen.stdin.close()


def node(rig, text, *args, prelude=PRELUDE, epilogue=EPILOGUE):
    folder = rig.folder / f"node-{next(rig.number)}"
    folder.mkdir()
    link_node_modules(folder)
    (folder / "program.mjs").write_text(prelude + text + epilogue)
    program = Node("node", [*NODE, folder / "program.mjs", *args], rig.stderr_path("node"),
                   cwd=folder, stdin=subprocess.PIPE)
    rig.processes.append(program)
    return program
