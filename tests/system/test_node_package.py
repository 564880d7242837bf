# SPDX-License-Identifier: Apache-2.0
"""The package `stockade` for Node as others get it: its types, its page, what is published."""

import json
import tarfile

import pytest

from harness.install import VERSION
from harness.limits import REPO
from harness.node import node
from harness.programs import NODE, NODE_MODULES, NODE_PACKAGE, link_node_modules, run

pytestmark = pytest.mark.interpreted

PACKAGE = json.loads((NODE_PACKAGE / "package.json").read_text())
TSC = [*NODE, NODE_MODULES / "typescript/bin/tsc"]
TYPESCRIPT = """
import { connect, Held, Lost, SoldOut, Stale, StockadeError, Unsure } from 'stockade';
import type { Late, Rows, SqliteConnection } from 'stockade';

const shop = await connect(process.argv[2], { timeout: 5000 });
shop.on('late', (late: Late) => console.error(late.late, late.left));
const first: number = await shop.lease('sku:1', { ttl: 30000, wait: 10000 }, async (lease) => {
  await lease.set(10);
  await lease.hset({ left: 1 }).catch((error: unknown) => {
    if (!(error instanceof StockadeError)) throw error;
  });
  return lease.take(1, { id: 'order', min: 0 });
});
let token: number;
{
  await using lease = await shop.acquire('sku:1', { signal: AbortSignal.timeout(60000) });
  token = lease.token;
  const signal: AbortSignal = lease.signal;
  const value: string | null = await lease.get();
  const rows: Rows = await lease.sql('SELECT ? AS n', [signal.aborted ? 1 : value]);
  if (rows.rows[0]?.n !== '9') throw new Error(JSON.stringify(rows));
  await lease.fenced('SETRANGE', 'sku:1', 0, '8', { id: 'mine' });
}
{
  await using basket = await shop.acquireAll(['sku:1', 'sku:2']);
  const [one, other] = basket;
  await shop.transaction(basket, (sale) => sale.take(one!).put(other!, 2, { max: 9 }));
}
const state: 'free' | 'held' | undefined = (await shop.query('sku:1'))?.state;
console.log(JSON.stringify([first, token, state, await shop.get('sku:1')]));
await shop.close();

async function mistakes(connection: SqliteConnection, error: unknown) {
  const lease = await shop.acquire('sku:1');
  lease.present(connection, { schema: 'main' });
  if (error instanceof Lost) console.log(error.reason === 'revoked', error.code);
  if (error instanceof Unsure) await shop.wasApplied(error);
  // @ts-expect-error
  await shop.lease('sku:1', { ttl: '30s' }, () => 1);
  // @ts-expect-error
  await shop.acquire('sku:1', { waits: 1 });
  // @ts-expect-error
  lease.token = 7;
  // @ts-expect-error
  await lease.take('1');
  // @ts-expect-error
  await lease.set({});
  // @ts-expect-error
  new Held.Nothing();
  // @ts-expect-error
  await shop.wasApplied(new Stale('x'));
}
void mistakes;
void SoldOut;
"""
SETTINGS = {"compilerOptions": {
    "strict": True, "noUncheckedIndexedAccess": True, "exactOptionalPropertyTypes": True,
    "module": "nodenext", "target": "es2022", "lib": ["es2022"],
    "types": ["node"], "preserveSymlinks": True, "skipLibCheck": False},
    "files": ["program.mts"]}


@pytest.mark.slow
def test_tsc_takes_what_is_right_refuses_what_is_not_and_await_using_gives_back(rig):
    daemon = rig.daemon()
    link_node_modules(rig.folder)
    (rig.folder / "program.mts").write_text(TYPESCRIPT)
    (rig.folder / "tsconfig.json").write_text(json.dumps(SETTINGS))
    run(*TSC, "-p", rig.folder, timeout=60)
    said = run(*NODE, rig.folder / "program.mjs", daemon.uri)
    assert json.loads(said) == [9, 2, "free", "7"]


@pytest.mark.slow
def test_the_types_need_no_newer_library_than_the_package_says(rig):
    """Node's types, where they are there, bring along what a browser's do not."""
    link_node_modules(rig.folder)
    (rig.folder / "program.mts").write_text("export { connect } from 'stockade';")
    options = {**SETTINGS["compilerOptions"], "lib": ["es2022", "dom"], "types": []}
    (rig.folder / "tsconfig.json").write_text(
        json.dumps({**SETTINGS, "compilerOptions": {**options, "noEmit": True}}))
    run(*TSC, "-p", rig.folder, timeout=60)


MEMBERS = """
    import { readFileSync } from 'node:fs';
    import ts from 'typescript';

    const text = readFileSync(args[0], 'utf8');
    const declared = {};
    for (const each of ts.createSourceFile('t.ts', text, ts.ScriptTarget.Latest).statements) {
      if (ts.isFunctionDeclaration(each)) declared[each.name.text] = [];
      if (!ts.isClassDeclaration(each)) continue;
      declared[each.name.text] = each.members.filter((member) => member.name)
        .map((member) => member.name.expression?.name.text ?? member.name.text);
    }
    const name = (key) => (typeof key === 'symbol' ? key.description.split('.')[1] : key);
    const real = {};
    for (const [key, value] of Object.entries(stockade)) {
      real[key] = Reflect.ownKeys(value.prototype ?? {}).map(name);
    }
    say([declared, real]);
"""
# What the package's own files tell each other.
INTERNAL = {"Stockade": {"newId", "sayLate"}, "Transaction": {"exec"},
            "Lease": {"check", "suspect", "forget"}}
# Set by constructors, or inherited from EventEmitter and Error.
OWN = {"Lease": {"resource", "token"}, "Stockade": {"on", "once", "off"},
       "StockadeError": {"code"}, "Lost": {"reason"}, "Unsure": {"code", "resource", "token", "id"}}


def test_the_types_declare_what_is_there_and_nothing_else(rig):
    running = node(rig, MEMBERS, rig.daemon().uri, NODE_PACKAGE / "index.d.ts")
    declared, real = running.hear()
    running.end()
    assert set(declared) == set(real)
    for name, members in declared.items():
        there = set(real[name]) - {"constructor"} - INTERNAL.get(name, set())
        assert set(members) - OWN.get(name, set()) == there, name


def test_what_is_published_is_whole_and_runs(rig):
    run("npm", "pack", NODE_PACKAGE, "--ignore-scripts", "--offline", "--pack-destination",
        rig.folder, cwd=rig.folder)
    with tarfile.open(rig.folder / f"stockade-{PACKAGE['version']}.tgz") as packed:
        names = {name.removeprefix("package/") for name in packed.getnames()}
        packed.extractall(rig.folder)
    sources = {str(path.relative_to(NODE_PACKAGE)) for path in NODE_PACKAGE.rglob("*.js")
               if "node_modules" not in path.parts}
    assert names == sources | {"package.json", "index.d.ts", "testing.d.ts", "README.md", "LICENSE"}
    link_node_modules(rig.folder, stockade=rig.folder / "package")
    (rig.folder / "program.mjs").write_text("""
        import { connect } from 'stockade';
        const shop = await connect(process.argv[2]);
        console.log(await shop.lease('k', (lease) => lease.put(5)));
        await shop.close();""")
    assert run(*NODE, rig.folder / "program.mjs", rig.daemon().uri) == "5\n"


def test_the_package_says_what_the_registry_asks_for():
    assert PACKAGE["version"] == VERSION
    assert PACKAGE["license"] == "Apache-2.0"
    assert (NODE_PACKAGE / "LICENSE").read_text() == (REPO / "LICENSE").read_text()
    for field in ("name", "description", "keywords", "engines", "exports"):
        assert PACKAGE[field]
    assert "scripts" not in PACKAGE  # npm warns of one that runs when it is installed
