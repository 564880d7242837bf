# SPDX-License-Identifier: Apache-2.0
"""The package for Java: its own tests, and its README. (test_handlers.py: web handlers.)"""

import re
import subprocess
import xml.etree.ElementTree
import zipfile

import pytest

from harness.install import VERSION, make
from harness.leash import Leash
from harness.limits import BUILD, REPO, Late, patience
from harness.programs import CLASS_PATH, JAVA, JAVA_JARS, run

pytestmark = pytest.mark.interpreted

PACKAGE = REPO / "proxy/client/java"
JUNIT = "/usr/share/java/junit-platform-console-standalone.jar"


@pytest.fixture(scope="module", autouse=True)
def jars():
    assert JAVA_JARS[1].exists(), "no JDK or no JUnit: run tools/setup --tests, then make tests"


@pytest.fixture
def leash():
    """The daemons that these tests start end with them, however they end."""
    leash = Leash("java")
    yield leash
    leash.close()


@pytest.mark.parametrize("name", ["DecoderTest", "LeaseTest", "FencedLockTest", "FaultTest"])
def test_its_own_tests_pass(name, leash):
    done = subprocess.run(
        [*JAVA, f"-Dstockade.build={BUILD}", f"-Dstockade.patience={patience(1)}",
         f"-Djava.io.tmpdir={leash.folder}", "-jar", JUNIT, "--class-path", CLASS_PATH,
         "--select-class", f"io.stockade.{name}", "--disable-banner", "--details=verbose",
         "--disable-ansi-colors"], cwd=leash.folder, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False)  # until the test's own limit
    late = re.findall(r"caught:.*late from ([\d.]+) to ([\d.]+), allowed ([\d.]+)", done.stdout)
    if late and len(late) == done.stdout.count("caught:"):
        begun, ended, allowed = map(float, late[0])
        raise Late(done.stdout, begun, allowed, ended)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"[1-9]\d* tests successful", done.stdout), done.stdout


@pytest.mark.slow
def test_what_a_registry_takes_is_whole(tmp_path):
    make("java-dist", f"BUILD={tmp_path}", f"JAR={JAVA_JARS[0]}")
    names = {path.name: path for path in (tmp_path / "java-dist").iterdir()}
    stem = f"stockade-{VERSION}"
    assert set(names) == {f"{stem}{end}" for end in (".jar", ".pom", "-sources.jar",
                                                     "-javadoc.jar")}
    entries = {end: set(zipfile.ZipFile(names[f"{stem}{end}.jar"]).namelist())
               for end in ("", "-sources", "-javadoc")}
    for path in (PACKAGE / "io").rglob("*.java"):
        name = str(path.relative_to(PACKAGE).with_suffix(""))
        assert f"{name}.class" in entries[""] and f"{name}.java" in entries["-sources"]
    assert {"io/stockade/Lease.html", "io/stockade/testing/TestDaemon.html"} <= entries["-javadoc"]
    pom = xml.etree.ElementTree.parse(names[f"{stem}.pom"]).getroot()
    said = {each.tag.partition("}")[2]: each.text for each in pom}
    assert (said["groupId"], said["artifactId"], said["version"]) == (
        "io.stockade", "stockade", VERSION)
    assert "META-INF/maven/io.stockade/stockade/pom.xml" in entries[""]


def test_the_readme_names_the_package_as_its_pom_does():
    pom = (PACKAGE / "pom.xml").read_text()
    names = re.findall(r"<(groupId|artifactId|version)>(.*)</", pom)
    assert len(names) == 3
    page = (PACKAGE / "README.md").read_text()
    assert re.findall(r"<(groupId|artifactId|version)>(.*)</", page) == names


def readme_examples():
    page = (PACKAGE / "README.md").read_text()
    return re.findall(r"^```java\n(.*?)^```", page, re.M | re.S)


def test_the_readmes_examples_compile_and_do_what_they_say(rig, tmp_path):
    daemon = rig.daemon(listen=["127.0.0.1:0"])
    client = daemon.client()
    for key, stock in {"sku:42": 10, "sku:1": 5, "sku:2": 5}.items():
        client.fenced(client.token(key), "SET", key, stock)
        client("REVOKE", key)
    examples = readme_examples()
    assert len(examples) == 4
    files = []
    for text in examples:
        name = re.search(r"public class (\w+)", text)[1]
        files.append(tmp_path / f"{name}.java")
        files[-1].write_text(text.replace("127.0.0.1:7379", "{}:{}".format(*daemon.address)))
    run("javac", "--release", "17", "-Xlint:all", "-Werror", "-cp", JAVA_JARS[0], "-d", tmp_path,
        *files)
    printed = [run(*JAVA, "-cp", f"{JAVA_JARS[0]}:{tmp_path}", file.stem) for file in files]
    told = [re.findall(r"// prints: (.*)", text) for text in examples]
    assert [text.splitlines() for text in printed] == told
    assert client("MGET", "sku:42", "sku:1", "sku:2") == [b"8", b"4", b"3"]
