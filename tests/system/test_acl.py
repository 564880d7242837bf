# SPDX-License-Identifier: Apache-2.0
"""Users and their rights (--acl-file): the matrix of what each right allows, in each way in,
against what the documentation says; and the traps that other servers have fallen into."""

import hashlib
import re
import subprocess
from pathlib import Path

import pytest

from harness.limits import HANG_SECONDS, patience
from harness.resp import Client, Push, ReplyError, encode, mapped
from harness.rig import refusal
from harness.users import ROOT, change, login, with_users

# The oracle, from the documentation: what each command needs. `R` and `W` are the rights to the key
# that takes the place of KEY; FREE needs a login only, OPEN not even that.
READ, WRITE, LEASE, REVOKE = "@read R", "@write W", "@lease W", "@revoke W"
EXCHANGE = "@write RW" # its reply tells what was there, as Redis's ACCESS says of a key
EVENTS, ADMIN, CONNECTION, SQL = "@events", "@admin", "@connection", "@sql"
ORACLE = {
    "ACQUIRE KEY 60000": LEASE, "ACQUIREALL 60000 1 KEY": LEASE, "DEQUEUE KEY id": LEASE,
    "RENEW KEY 1 60000": LEASE, "RELEASE KEY 1": LEASE, "REVOKE KEY": REVOKE,
    "LEASE KEY": READ, "LEASES": "@read", "WAITERS KEY": READ, "HISTORY KEY": READ,
    "REFUSALS": "@read", "RECEIPT KEY 1 id": READ,
    "FENCED 1 GET KEY": READ, "FENCEDALL 1 KEY 1 GET KEY": READ,
    "MULTI": "FREE", "EXEC": "FREE", "DISCARD": "FREE", "WATCH KEY": "FREE", "UNWATCH": "FREE",
    "SQL SELECT~1": SQL, "GUARD LIST": ADMIN, "GUARD CREATE t c p": ADMIN, "GUARD DROP t": ADMIN,
    "GET KEY": READ, "STRLEN KEY": READ, "MGET KEY": READ, "GETRANGE KEY 0 1": READ,
    "SET KEY v": WRITE, "SET KEY v XX GET": EXCHANGE, "SET KEY GET NX": WRITE,
    "SETNX KEY v": WRITE, "GETSET KEY v": EXCHANGE, "GETDEL KEY": EXCHANGE,
    "MSET KEY v": WRITE, "APPEND KEY v": WRITE, "SETRANGE KEY 0 v": WRITE, "INCR KEY": EXCHANGE,
    "DECR KEY": EXCHANGE, "INCRBY KEY 1": EXCHANGE, "DECRBY KEY 1": EXCHANGE,
    "INCRBYFLOAT KEY 1": EXCHANGE,
    "DEL KEY": WRITE, "UNLINK KEY": WRITE, "EXISTS KEY": READ, "TTL KEY": READ, "PTTL KEY": READ,
    "TYPE KEY": READ, "SCAN 0": "@read", "DBSIZE": "@read",
    "HGET KEY f": READ, "HMGET KEY f": READ, "HGETALL KEY": READ, "HEXISTS KEY f": READ,
    "HLEN KEY": READ, "HKEYS KEY": READ, "HVALS KEY": READ, "HSTRLEN KEY f": READ,
    "HSCAN KEY 0": READ, "HSET KEY f v": WRITE, "HMSET KEY f v": WRITE, "HSETNX KEY f v": WRITE,
    "HDEL KEY f": WRITE, "HINCRBY KEY f 1": EXCHANGE, "HINCRBYFLOAT KEY f 1": EXCHANGE,
    "EVAL return~1 0": "@lease", "EVALSHA 00 0": "@lease", "BLPOP KEY 1": LEASE,
    "DELIFEQ KEY value": LEASE, "DELEX KEY IFEQ value": LEASE,
    "SCRIPT EXISTS 00": "@lease", "SCRIPT LOAD return~1": "@lease",
    "SUBSCRIBE mine:1": "@events &", "PSUBSCRIBE mine:*": "@events &", "UNSUBSCRIBE": EVENTS,
    "PUNSUBSCRIBE": EVENTS, "PUBLISH mine:1 m": "@events &", "PUBSUB CHANNELS": EVENTS,
    "PUBSUB NUMSUB mine:1": EVENTS, "PUBSUB NUMPAT": EVENTS,
    "PING": CONNECTION, "ECHO m": CONNECTION, "SELECT 0": CONNECTION, "TIME": CONNECTION,
    "CLIENT ID": CONNECTION, "CLIENT SETNAME n": CONNECTION, "CLIENT GETNAME": CONNECTION,
    "CLIENT SETINFO LIB-NAME n": CONNECTION, "CLIENT INFO": CONNECTION, "CLIENT LIST": ADMIN,
    "CLIENT KILL ID 999999": ADMIN, "INFO server": CONNECTION, "INFO stats": ADMIN,
    "CLIENT HELP": CONNECTION, "ACL HELP": CONNECTION, "COMMAND HELP": CONNECTION,
    "CONFIG HELP": ADMIN, "GUARD HELP": ADMIN, "PUBSUB HELP": EVENTS, "SCRIPT HELP": "@lease",
    "COMMAND": CONNECTION,
    "COMMAND COUNT": CONNECTION, "COMMAND DOCS GET": CONNECTION, "COMMAND INFO GET": CONNECTION,
    "ACL WHOAMI": CONNECTION, "ACL LIST": ADMIN, "ACL USERS": ADMIN, "ACL GETUSER root": ADMIN,
    "ACL CAT": ADMIN, "ACL DRYRUN root PING": ADMIN, "ACL LOAD": ADMIN, "ACL LOG": ADMIN,
    "ACL SETUSER u on": ADMIN, "ACL DELUSER u": ADMIN, "ACL SAVE": ADMIN,
    "CONFIG GET save": ADMIN, "CONFIG SET a b": ADMIN, "SHUTDOWN": ADMIN, "FLUSHALL": ADMIN,
    "FLUSHDB": ADMIN, "HELLO": "OPEN", "AUTH wrong": "OPEN", "QUIT": "OPEN", "RESET": "OPEN",
}
# On lock keys it is what is done to the lease that counts; LOCK is the lock key of LOCKED.
LOCKS = {
    "SET LOCK value NX PX 60000": LEASE, "SET LOCK value IFEQ value PX 60000": LEASE,
    "DELIFEQ LOCK value": LEASE, "DELEX LOCK IFEQ value": LEASE,
    "GET LOCK": READ, "TTL LOCK": READ, "PTTL LOCK": READ,
    "EXISTS LOCK": READ, "HEXISTS LOCK value": READ, "HGET LOCK value": READ, "DEL LOCK": REVOKE,
    "UNLINK LOCK": REVOKE, "GET redisson_lock_token:{LOCK}": READ,
    "DEL redisson_unlock_latch:{LOCK}:1": LEASE, "BLPOP lock-signal:LOCKED 0.01": LEASE,
}
# What the scripts of lock libraries do, by the names that scripts.c has for it.
DEEDS = {LEASE: """give_one give_or_gone give_or_error give_each give_all_ok take_all take_seconds
    take_seconds_one extend_one extend_all extend_all_ok extend_seconds extend_or_add
    extend_or_take take_or_error net_extend rb_lock obtain spring_obtain spring_renew
    spring_unlock spring_unlock_told unlock_signal extend_zero redisson_lock redisson_fenced_lock
    redisson_unlock redisson_spin_unlock redisson_renew redisson_renew_each db_take_all
    db_extend_all db_give_each take_batch extend_in_time reset_all semaphore_take
    semaphore_extend semaphore_give""",
    READ: """left_if_own left_if_own_3 left_or_error least_left owner_and_left
    owner_and_left_or_null""",
    REVOKE: "reset redisson_force_unlock redisson_spin_force_unlock"}
SCRIPT_DEEDS = {form: needs for needs, forms in DEEDS.items() for form in forms.split()}
SCRIPTS = dict(re.findall(r'\{"([0-9a-f]{40})",[^&{}]*&(\w+)\}',
                          (Path(__file__).resolve().parents[2] /
                           "proxy/engine/lockkeys/scripts.c").read_text()))
LOCKS |= {f"EVALSHA {sha1} 1 LOCK mine:1 mine:1 1 1 1 1": SCRIPT_DEEDS[form]
          for sha1, form in SCRIPTS.items()}
ALL = ORACLE | LOCKS
# Those that end the daemon, or the data of the other ways: whether they are allowed is asked by
# ACL DRYRUN only.
NOT_RUN = {"SHUTDOWN", "FLUSHALL", "FLUSHDB", "ACL LOAD", "QUIT", "RESET"}
CATEGORIES = ("@read", "@write", "@lease", "@revoke", "@sql", "@events", "@admin", "@connection")
PASSWORD = "a-word-of-theirs"


def words(command, key):
    return [key if word == "KEY" else word.replace("~", " ") if "LOCK" not in word else
            re.sub(r"\bLOCK\b", f"lock:{key}.l", re.sub(r"\bLOCKED\b", f"{key}.l", word))
            for word in command.split()]


def users():
    """A user for each right, with the key `k` in each way, and the channels mine:*."""
    lines = [f"user root on >{PASSWORD} ~* &* +@all"]
    for category in CATEGORIES:
        for name, keys in (("rw", "~k*"), ("r", "%R~k*"), ("w", "%W~k*"), ("none", "")):
            lines.append(f"user {category[1:]}.{name} on >{PASSWORD} {keys} &mine:* +{category}")
    lines.append(f"user deaf on >{PASSWORD} ~k* +@events")
    lines.append(f"user nothing on >{PASSWORD}")
    return "\n".join(lines) + "\n"


def allowed(command, user):
    """What the documentation says."""
    needs = ALL[command]
    if needs in ("FREE", "OPEN"):
        return True
    category, _, what = needs.partition(" ")
    if user == "deaf":
        return category == "@events" and what != "&"
    if user == "nothing" or not user.startswith(category[1:] + "."):
        return user == "root"
    keys = user.partition(".")[2]
    return keys == "rw" or {"R": keys == "r", "W": keys == "w", "RW": False}.get(what, True)


def all_users():
    return [f"{category[1:]}.{keys}" for category in CATEGORIES
            for keys in ("rw", "r", "w", "none")] + ["deaf", "nothing", "root"]


@pytest.fixture(scope="module")
def acl(module_rig, certs):
    """A daemon with all these users, and four ways in."""
    path = module_rig.folder / "users.acl"
    path.write_text(users())
    path.chmod(0o600)
    cert = certs.server()
    daemon = module_rig.daemon(
        "--acl-file", path, "--unfenced-writes", "allow", "--lock-keys", "lock:*",
        "--tls-cert", cert.cert, "--tls-key", cert.key, "--tls-ca", certs.ca,
        "--tls-clients", "optional", "--tls-user", "cn",
        listen=["127.0.0.1:0", "tls:127.0.0.1:0", f"unix:{module_rig.folder}/acl.sock"])
    return daemon


def connect(daemon, user=None, way=0, **options):
    client = Client(daemon.listeners[way], **options)
    daemon.clients.append(client)
    if user is not None:
        assert client("AUTH", user, PASSWORD) == "OK"
    return client


def verdict(client, *command):
    """Was it allowed? Whatever else came of it."""
    try:
        client(*command)
    except ReplyError as error:
        return error.code not in ("NOPERM", "NOAUTH")
    return True


def test_no_command_is_missing_from_the_oracle(acl):
    client = connect(acl, "root")
    known = {command.split()[0] for command in ORACLE}
    assert {row[0].decode().upper() for row in client("COMMAND")} == known
    in_categories = set()
    for category in client("ACL", "CAT"):
        assert "@" + category.decode() in CATEGORIES
        for name in client("ACL", "CAT", category):
            in_categories.add(name.decode())
            if "|" in name.decode():
                first = name.decode().upper().replace("|", " ")
                assert any(command.startswith(first) for command in ORACLE), name
                rights = {ORACLE[c].split()[0] for c in ORACLE if c.startswith(first)}
            else:
                rights = {ORACLE[c].split()[0] for c in ORACLE
                          if c.split()[0] == name.decode().upper()}
            if name.decode().upper() not in ("CLIENT", "ACL", "INFO"): # by what follows
                assert rights == {"@" + category.decode()}, name
    free = {command.split()[0] for command, needs in ORACLE.items() if needs in ("FREE", "OPEN")}
    assert known - {name.upper() for name in in_categories} == free | {"FENCED", "FENCEDALL"}


# Past the first one they run the same code of ours, and differ in what Python does.
@pytest.mark.parametrize("way", ["plain"] + [
    pytest.param(way, marks=pytest.mark.interpreted) for way in ("TLS", "unix", "certificate")])
def test_each_right_allows_exactly_what_it_should(acl, certs, way):
    for user in all_users():
        if way == "certificate" and user not in ("read.rw", "lease.rw", "nothing", "root"):
            continue # a certificate takes long to make
        client = come(acl, certs, way, user)
        assert verdict(client, "ACL", "WHOAMI") == allowed("ACL WHOAMI", user)
        wrong = [command for command in ALL
                 if (command not in NOT_RUN or not allowed(command, user)) and
                 verdict(fresh(client), *words(command, "k1")) != allowed(command, user)]
        assert not wrong, user
        # Another key: nobody but root may.
        wrong = [command for command in ALL if ("KEY" in command or "LOCK" in command) and
                 ALL[command] != "FREE" and
                 verdict(fresh(client), *words(command, "other")) != (user == "root")]
        assert not wrong, user


def come(daemon, certs, way, user):
    if way == "certificate":
        return connect(daemon, None, 1, tls=certs.client(certs.issue(user)))
    if way == "TLS":
        return connect(daemon, user, 1, tls=certs.client())
    return connect(daemon, user, ["plain", "TLS", "unix"].index(way))


def fresh(client):
    """The connection as it is between two commands: no transaction, no subscription."""
    for command in ("DISCARD", "UNSUBSCRIBE", "PUNSUBSCRIBE"):
        client.ask(command)
    return client


@pytest.mark.interpreted
def test_dry_runs_say_what_would_be(acl):
    root = connect(acl, "root")
    for user in all_users():
        for command in ALL:
            said = root("ACL", "DRYRUN", user, *words(command, "k1"))
            assert (said == "OK") == allowed(command, user), (user, command, said)


def test_what_command_says_of_keys_is_what_is_asked_of_users(acl):
    root = connect(acl, "root")
    flags = {READ: [b"RO", b"access"], WRITE: [b"OW", b"update"], LEASE: [b"OW", b"update"],
             REVOKE: [b"OW", b"update"], EXCHANGE: [b"RW", b"access", b"update"]}
    for command, needs in ORACLE.items():
        name = command.split()[0]
        row = root("COMMAND", "INFO", name)[0]
        said = [[str(flag).encode() for flag in mapped(spec)[b"flags"]] for spec in row[8]]
        if needs not in flags or name in ("FENCED", "FENCEDALL"):
            assert said == ([flags[LEASE] + [b"variable_flags"]] if "EVAL" in name else []), name
        elif name == "SET":
            assert said == [flags[WRITE] + [b"variable_flags"]]
        else:
            varies = name == "ACQUIRE"  # with PERMITS its keys are others
            assert said == [flags[needs] + [b"variable_flags"] * varies], name
            assert [str(each) for each in row[6]] == [needs.split()[0]], name
    found = mapped(mapped(root("COMMAND", "INFO", "MSET")[0][8][0])[b"find_keys"])
    assert found[b"type"] == b"range" and mapped(found[b"spec"])[b"keystep"] == 2


def test_a_text_is_not_looked_at_for_who_may_not_run_it(acl):
    text = ('if redis.call( "get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) '
            'else return 0 end')
    sha1 = hashlib.sha1(text.encode()).hexdigest()
    root = connect(acl, "root")
    connect(acl, "write.rw").refused("NOPERM", "EVAL", text, 1, "lock:k9", "v-1")
    daemon_knows = root("SCRIPT", "EXISTS", sha1)
    assert daemon_knows == [0]
    assert connect(acl, "lease.rw")("EVAL", text, 1, "lock:k9", "v-1") == 0
    assert root("SCRIPT", "EXISTS", sha1) == [1]


def test_what_acl_is_asked_wrongly_it_says(acl):
    root = connect(acl, "root")
    root.refused("ERR", "ACL", "DRYRUN", "nobody", "GET", "k", text="User 'nobody' not found")
    root.refused("ERR", "ACL", "DRYRUN", "root", "NOSUCH", text="Command 'NOSUCH' not found")
    root.refused("ERR", "ACL", "DRYRUN", "root", "GET", text="wrong number of arguments")
    root.refused("ERR", "ACL", "CAT", "nosuch", text="Unknown category 'nosuch'")
    root.refused("ERR", "ACL", "CAT", "read", "write", text="wrong number of arguments")
    root.refused("ERR", "ACL", "LOG", "1", "2", text="wrong number of arguments")
    root.refused("ERR", "ACL", "LOG", "-1", text="count")
    assert {b"read", b"write", b"lease", b"admin"} <= set(root("ACL", "CAT"))
    assert b"get" in root("ACL", "CAT", "READ") and b"set" not in root("ACL", "CAT", "READ")
    assert root("ACL", "LOG", 0) == []


DATA = [command for command, needs in ORACLE.items() if needs in (READ, WRITE, EXCHANGE) and
        command.split()[0] not in ("FENCED", "FENCEDALL", "LEASE", "WAITERS", "HISTORY", "RECEIPT")]


def test_fenced_needs_what_the_command_in_it_needs(acl):
    token = connect(acl, "root").token("k1")
    for user in all_users():
        client = connect(acl, user)
        for command in DATA:
            inner = words(command, "k1")
            for outer in (("FENCED", token), ("FENCEDALL", 1, "k1", token)):
                assert verdict(client, *outer, *inner) == allowed(command, user), (user, inner)
    connect(acl, "root")("RELEASE", "k1", token)


def test_a_transaction_is_judged_when_it_is_queued(acl):
    token = connect(acl, "root").token("k1")
    for user in all_users():
        client = connect(acl, user)
        for command in DATA:
            for outer in ((), ("FENCED", token), ("FENCEDALL", 1, "k1", token)):
                client("MULTI")
                may = verdict(client, *outer, *words(command, "k1"))
                assert may == allowed(command, user), (user, outer, command)
                if not may:
                    client.refused("EXECABORT", "EXEC")
                else:
                    client("DISCARD")
    connect(acl, "root")("RELEASE", "k1", token)


def test_what_is_refused_leaves_nothing_in_a_transaction(rig):
    daemon = with_users(rig, ROOT, "user low on >pw ~k* +@all")
    root, low = login(daemon, "root"), login(daemon, "low")
    token = root.token("k1")
    assert low("MULTI") == "OK"
    low.refused("NOPERM", "FENCED", token, "ID", "one", "SET", "other", "v" * 1000)
    low.refused("NOPERM", "FENCED", token, "ID", "two", "SET", "other", "w" * 1000)
    assert low("FENCED", token, "ID", "three", "SET", "k1", "v") == "QUEUED"
    low.refused("ERR", "FENCED", token, "ID", "four", "SET", "k1", "v", text="one ID")
    low.refused("EXECABORT", "EXEC")
    assert low("GET", "k1") is None


def test_sql_in_a_transaction_needs_the_right_to_write_all_it_acts_under(rig):
    daemon = with_users(rig, ROOT, "user low on >pw ~mine %R~sku:* +@read +@lease +@sql")
    root, low = login(daemon, "root"), login(daemon, "low")
    root("SQL", "CREATE TABLE stock(sku TEXT PRIMARY KEY, pieces)")
    root("GUARD", "CREATE", "stock", "sku", "sku:")
    token, own = root.token("sku:1"), low.token("mine")
    root("FENCEDALL", 1, "sku:1", token, "SQL", "INSERT INTO stock VALUES ('1', 5)")
    change_it = ("SQL", "UPDATE stock SET pieces = 0")
    low.refused("NOPERM", "FENCEDALL", 2, "sku:1", token, "mine", own, *change_it)
    low.refused("GUARDED", "FENCEDALL", 1, "mine", own, *change_it)
    assert low("MULTI") == "OK"
    assert low("FENCED", token, "GET", "sku:1") == "QUEUED"
    assert low("FENCEDALL", 1, "mine", own, *change_it) == "QUEUED"
    low.refused("NOPERM", "EXEC", text="'sku:1'")
    assert mapped(root("SQL", "SELECT pieces FROM stock"))[b"rows"] == [[b"5"]]


def test_every_key_of_a_command_counts(acl):
    client = connect(acl, "write.rw")
    reader, holder = connect(acl, "read.rw"), connect(acl, "lease.rw")
    for command in (("MSET", "k1", "v", "other", "v"), ("DEL", "k1", "other"),
                    ("MSET", "other", "v", "k1", "v")):
        client.refused("NOPERM", *command, text="'other'")
    assert client("MSET", "k1", "v", "k2", "v") == "OK"
    reader.refused("NOPERM", "MGET", "k1", "other", text="may not read 'other'")
    holder.refused("NOPERM", "ACQUIREALL", 1000, 2, "k1", "other", text="may not write 'other'")
    tokens = holder("ACQUIREALL", 60000, 2, "k1", "k2")
    # What is only claimed is a key, too.
    client.refused("NOPERM", "FENCEDALL", 2, "k1", tokens[0], "other", 1, "SET", "k1", "v",
                   text="'other'")
    for token, name in zip(tokens, ("k1", "k2")):
        holder("RELEASE", name, token)


def test_names_that_may_not_be_read_are_not_shown(acl):
    root = connect(acl, "root")
    root("MSET", "k7", "v", "other", "v")
    tokens = {name: root.token(name) for name in ("k8", "hidden")}
    root.refused("NOTOKEN", "SET", "hidden", "v")
    root.refused("NOTOKEN", "SET", "k8", "v")
    reader = connect(acl, "read.r")
    assert b"k7" in reader("SCAN", 0, "COUNT", 1000)[1]
    assert all(name.startswith(b"k") for name in reader("SCAN", 0, "COUNT", 1000)[1])
    assert b"k8" in reader("LEASES") and b"hidden" not in reader("LEASES")
    shown = {mapped(entry)[b"resource"] for entry in reader("REFUSALS")}
    assert b"k8" in shown and all(name.startswith(b"k") for name in shown)
    for command in ("LEASE", "HISTORY", "WAITERS"):
        reader.refused("NOPERM", command, "hidden")
    for name, token in tokens.items():
        root("RELEASE", name, token)


def test_events_tell_only_names_that_may_be_read(rig):
    daemon = with_users(rig, "user root on >pw ~* &* +@all",
                        "user ear on >pw %R~k* &stockade:events* +@events")
    root, ear = login(daemon, "root"), login(daemon, "ear")
    ear("SUBSCRIBE", "stockade:events")
    root("RELEASE", "hidden", root.token("hidden"))
    root("RELEASE", "k1", root.token("k1"))
    event = ear.read()
    assert b'"resource":"k1"' in event[2]


def test_who_becomes_another_user_hears_what_that_one_may(rig):
    daemon = with_users(rig, ROOT, "user ear on >pw &mine &m* +@events +@connection",
                        "user deaf on >pw +@connection")
    root, client = login(daemon, "root"), login(daemon, "root")
    assert client("HELLO", 3)
    for kind, name in (("subscribe", "mine"), ("subscribe", "theirs"), ("psubscribe", "m*"),
                       ("psubscribe", "t*")):
        assert client(kind, name)[:2] == [kind.encode(), name.encode()]
    told = client.pipeline([("AUTH", "ear", "pw")]) + [client.read(), client.read()]
    assert [each for each in told if not isinstance(each, Push)] == ["OK"]
    assert sorted(each for each in told if isinstance(each, Push)) == [
        [b"punsubscribe", b"t*", 2], [b"unsubscribe", b"theirs", 3]]
    assert root("PUBLISH", "theirs", "x") == 0 and root("PUBLISH", "mine", "m") == 2
    assert {client.read()[0], client.read()[0]} == {b"message", b"pmessage"}
    told = client.pipeline([("AUTH", "deaf", "pw")]) + [client.read(), client.read()]
    assert "OK" in told and root("PUBLISH", "mine", "m") == 0
    assert client("PING") == "PONG"


def test_sql_reads_own_views_only_with_all_names(rig):
    daemon = with_users(rig, "user some on >pw ~k* +@sql", "user all on >pw %R~* +@sql",
                        "user root on >pw ~* +@all")
    root, some, everything = login(daemon, "root"), login(daemon, "some"), login(daemon, "all")
    root("SQL", "CREATE TABLE t (a)")
    root("SQL", "CREATE VIEW v AS SELECT resource FROM stockade_fences")
    assert some("SQL", "SELECT count(*) FROM t")
    for view in ("stockade_fences", "stockade_values", "stockade_receipts", "v"):
        some.refused("NOPERM", "SQL", f"SELECT * FROM {view}")
        some.refused("NOPERM", "SQL", f"SELECT count(*) FROM {view}")
        assert everything("SQL", f"SELECT count(*) FROM {view}")
    some.refused("NOPERM", "SQL", "DROP TABLE t")
    everything.refused("NOPERM", "SQL", "CREATE TABLE u (a)")


def test_what_comes_behind_auth_in_a_pipeline_is_the_new_users(rig):
    """And what came before it the old one's, also while crypt(3) takes its time."""
    crypted = subprocess.run(["openssl", "passwd", "-6", "pw"], capture_output=True, text=True,
                             check=True, timeout=patience(HANG_SECONDS)).stdout.strip()
    daemon = with_users(rig, ROOT, f"user low on crypt:{crypted} ~k* +@read")
    client = login(daemon, "root")
    client.send_bytes(encode("SET", "k1", "v") + encode("MULTI") + encode("DISCARD") +
                    encode("AUTH", "low", "pw") + encode("ACL", "LIST") + encode("ACL", "WHOAMI") +
                    encode("GET", "k1") + encode("GET", "other"))
    replies = [client.read() for _ in range(8)]
    assert str(replies[0]).startswith("NOTOKEN") and replies[3] == "OK"
    assert str(replies[4]).startswith("NOPERM") and str(replies[5]).startswith("NOPERM")
    assert replies[6] is None and str(replies[7]).startswith("NOPERM")
    client.refused("WRONGPASS", "AUTH", "low", "no")
    client.refused("NOPERM", "GET", "other") # it stays who it was
    assert client("AUTH", "low", "pw") == "OK" # known by now
    for wrong in ("pw\0x", "", "p", "x" * 600):
        client.refused("WRONGPASS", "AUTH", "low", wrong)


def test_what_comes_behind_a_slow_auth_is_parsed_as_the_new_users(rig):
    """Then its IDs are that user's own, and it may be as large as a user's request."""
    crypted = subprocess.run(["openssl", "passwd", "-6", "pw"], capture_output=True, text=True,
                             check=True, timeout=patience(HANG_SECONDS)).stdout.strip()
    daemon = with_users(rig, ROOT, *(f"user {name} on crypt:{crypted} ~* +@all" for name in "ab"))
    add = ("FENCED", login(daemon, "root").token("k"), "ID", "i", "INCR", "k")
    a, b = daemon.client(), daemon.client()
    a.send_bytes(encode("AUTH", "a", "pw") + encode(*add))
    assert [a.read(), a.read()] == ["OK", 1]
    assert a(*add) == 1 # a repeat counts once
    b.send_bytes(encode("AUTH", "b", "pw") + encode("ECHO", "x" * 50000) + encode("PING"))
    assert b.read() == "OK" and len(b.read()) == 50000 and b.read() == "PONG"


def test_a_user_without_passwords_comes_by_certificate_only(rig, certs):
    """Where certificates are optional, who shows none must not come in as that user."""
    cert = certs.server()
    daemon = with_users(
        rig, ROOT, "user till on ~k* +@all",
        args=("--tls-cert", cert.cert, "--tls-key", cert.key, "--tls-ca", certs.ca,
              "--tls-clients", "optional", "--tls-user", "cn"), listen=["tls:127.0.0.1:0"])
    by_cert = Client(daemon.address, tls=certs.client(certs.issue("till")))
    daemon.clients.append(by_cert)
    assert by_cert("ACL", "WHOAMI") == b"till"
    stranger = Client(daemon.address, tls=certs.client(certs.issue("nobody")))
    bare = Client(daemon.address, tls=certs.client())
    daemon.clients += [stranger, bare]
    for client in (stranger, bare):
        client.refused("NOAUTH", "GET", "k1")
        for password in ("", "till", "anything"):
            client.refused("WRONGPASS", "AUTH", "till", password)
        client.refused("NOAUTH", "GET", "k1")


def test_reset_takes_the_rights_with_it(rig):
    daemon = with_users(rig, ROOT, "user default on nopass %R~open +@read")
    client = daemon.client()
    assert client("GET", "open") is None
    client.refused("NOPERM", "GET", "k1")
    assert client("AUTH", "root", "pw") == "OK"
    assert client("GET", "k1") is None
    assert client("MULTI") == "OK" and client("GET", "k1") == "QUEUED"
    assert client("RESET") == "RESET"
    client.refused("NOPERM", "GET", "k1")
    client.refused("ERR", "EXEC")
    assert client("GET", "open") is None


def test_a_hello_that_is_refused_logs_nobody_in(rig):
    client = with_users(rig, ROOT).client()
    for name in ("two words", "n" * 65):
        client.refused("ERR", "HELLO", 3, "AUTH", "root", "pw", "SETNAME", name, text="names")
        client.refused("NOAUTH", "PING")
    assert client("HELLO", 2, "AUTH", "root", "pw", "SETNAME", "till") and client("PING") == "PONG"


def test_default_is_off_unless_it_is_named(rig):
    daemon = with_users(rig, ROOT)
    client = daemon.client()
    client.refused("NOAUTH", "PING")
    client.refused("WRONGPASS", "AUTH", "pw")
    assert client("HELLO", 3, "AUTH", "root", "pw")


def test_client_kill_user(rig):
    daemon = with_users(rig, ROOT, "user a on >pw +@connection", "user b on >pw +@connection")
    root, a, b = (login(daemon, name) for name in ("root", "a", "b"))
    assert b"user=a" in root("CLIENT", "LIST")
    assert root("CLIENT", "KILL", "USER", "a") == 1
    assert a.is_closed()
    assert b("PING") == "PONG"


def test_acl_load_ends_what_is_no_longer_allowed(rig):
    lines = [ROOT, "user ear on >pw %R~* &stockade:* &mine +@events +@connection",
             "user gone on >pw +@connection", "user buyer on >pw ~k* +@all",
             "user calm on >pw ~k* +@all"]
    daemon = with_users(rig, *lines)
    root, ear, gone, buyer, calm = (login(daemon, name)
                                    for name in ("root", "ear", "gone", "buyer", "calm"))
    other_ear = login(daemon, "ear")
    other_ear("SUBSCRIBE", "mine")
    token, other = root.token("k1"), root.token("k2")
    buyer.send("ACQUIRE", "k1", 60000, "WAIT", 60000)
    root.await_waiters("k1")
    calm.multi(("FENCED", other, "SET", "k2", "v"))
    ear("SUBSCRIBE", "stockade:events")
    change(daemon, root, ROOT, "user ear on >pw %R~* &mine +@events +@connection",
           "user buyer on >other ~k* +@all -@lease", "user calm on >pw ~k* +@read")
    assert ear.is_closed() and gone.is_closed() and buyer.is_closed()
    assert root("PUBLISH", "mine", "m") == 1 and other_ear.read()[2] == b"m"
    root.await_waiters("k1", 0)
    calm.refused("NOPERM", "EXEC")
    assert root("RELEASE", "k1", token) == 0


def test_a_file_that_cannot_be_read_changes_nothing(rig):
    daemon = with_users(rig, ROOT, "user a on >pw +@read ~*")
    root = login(daemon, "root")
    for text, why in (("user b on +@nothing\n", "line 1: there is no category @nothing"),
                      ("user b on\nuser b on\n", "line 2: user b is there already"),
                      ("user b on +lpush\n", "there is no command 'lpush' here"),
                      ("user b on #123\n", "64 lower-case"), ("\0", "zero byte"),
                      ("user b on (~k +get)\n", "selectors"), ("users b\n", "a line begins with"),
                      ("user b on crypt:hello\n", "crypt")):
        daemon.users.write_text(text)
        root.refused("ERR", "ACL", "LOAD", text=why)
    daemon.users.unlink()
    root.refused("ERR", "ACL", "LOAD", text="No such file")
    assert login(daemon, "a")("GET", "k") is None


def test_the_start_says_what_is_wrong_with_the_file(rig):
    path = rig.folder / "users.acl"
    path.write_text("user a on +@nothing\n")
    path.chmod(0o600)
    assert f"{path}: line 1: there is no category @nothing" in refusal(rig, "--acl-file", path)
    path.write_text("user a on nopass +@read\n")
    assert "user a needs no password" in refusal(rig, "--acl-file", path, listen=["0.0.0.0:0"])
    password = rig.folder / "password"
    password.write_text("pw\n")
    password.chmod(0o600)
    assert "give one of the two" in refusal(rig, "--acl-file", path, "--password-file", password)


def test_users_as_redis_shows_them(rig):
    digest = hashlib.sha256(b"pw").hexdigest()
    daemon = with_users(rig, ROOT, f"user a on #{digest} %R~r:* %W~w:* ~x &c +@read -get +set "
                        "+client|list", "user b off nopass")
    root = login(daemon, "root")
    assert root("ACL", "USERS") == [b"a", b"b", b"root"]
    line = next(line for line in root("ACL", "LIST") if line.startswith(b"user a "))
    assert line.startswith(f"user a on #{digest} %R~r:* %W~w:* ~x &c -@all ".encode())
    assert b"+set" in line and b"+client|list" in line and b"+get " not in line + b" "
    user = mapped(root("ACL", "GETUSER", "a"))
    assert user[b"flags"] == [b"on"] and user[b"passwords"] == [digest.encode()]
    assert root("ACL", "GETUSER", "nobody") is None
    # What it shows is a file that makes the same users.
    change(daemon, root, *(entry.decode() for entry in root("ACL", "LIST")))
    assert line in root("ACL", "LIST")
    a = login(daemon, "a")
    a.refused("NOPERM", "GET", "r:1", text="needs @read")
    a.refused("WRONGPASS", "AUTH", "b", "x") # off
    log = [mapped(entry) for entry in root("ACL", "LOG")]
    assert [entry[b"reason"] for entry in log] == [b"auth", b"command"]
    assert log[1][b"object"] == b"get" and log[1][b"username"] == b"a"
    assert root("ACL", "LOG", "RESET") == "OK" and root("ACL", "LOG") == []


def test_owners_and_ids_are_each_users_own(rig):
    daemon = with_users(rig, ROOT, "user a on >pw ~* +@all", "user b on >pw ~* +@all",
                        "user default on >pw ~* +@all")
    a, b, plain = login(daemon, "a"), login(daemon, "b"), login(daemon, "default")
    token = a("ACQUIRE", "k", 60000, "OWNER", "till", "ID", "one")[0]
    assert a("ACQUIRE", "k", 60000, "OWNER", "till")[0] == token
    for other in (b, plain):
        assert other("ACQUIRE", "k", 60000, "OWNER", "till") is None
        assert other("ACQUIRE", "k", 60000, "OWNER", "till", "ID", "one") is None
        assert other("ACQUIRE", "k", 60000, "OWNER", "till\x1fa") is None
        assert other("LEASE", "k", "OWNER", "till") is None
    shown = mapped(a("LEASE", "k", "OWNER", "till"))
    assert shown[b"owner"] == b"till"
    assert a("FENCED", token, "ID", "x", "INCR", "k") == 1
    assert a("FENCED", token, "ID", "x", "INCR", "k") == 1
    assert b("FENCED", token, "ID", "x", "INCR", "k") == 2
    assert plain("FENCED", token, "ID", "x", "INCR", "k") == 3
    assert a("RECEIPT", "k", token, "x") == [1, 1] and b("RECEIPT", "k", token, "x") == [1, 2]
    entry = mapped(a("HISTORY", "k")[0])
    assert entry[b"owner"] == b"till" and entry[b"user"] == b"a"
    a.refused("ERR", "ACQUIRE", "k", 60000, "OWNER", "x" * 512, text="name of its user")


def test_a_wrong_password_holds_up_nobody_else(rig):
    crypted = subprocess.run(["openssl", "passwd", "-6", "-salt", "abcdefgh", "pw"],
                             capture_output=True, text=True, check=True,
                             timeout=patience(HANG_SECONDS)).stdout.strip()
    slow = crypted.replace("$6$", "$6$rounds=20000$")
    daemon = with_users(rig, ROOT, f"user slow on crypt:{slow} +@all")
    root = login(daemon, "root")
    guessers = [daemon.client() for _ in range(70)]
    for guesser in guessers:
        guesser.send("AUTH", "slow", "wrong")
    assert root("PING") == "PONG" # long before they are done
    answers = [str(guesser.read()) for guesser in guessers]
    assert {answer.split()[0] for answer in answers} == {"WRONGPASS", "BUSY"}


@pytest.mark.usefixtures("lease")
def test_lock_keys_need_the_right_to_their_resource(rig):
    daemon = with_users(rig, ROOT, "user a on >pw ~sku:* +@lease +@read",
                        args=("--lock-keys", "lock:*"))
    a, root = login(daemon, "a"), login(daemon, "root")
    value = "v" * 20
    assert a("SET", "lock:sku:1", value, "NX", "PX", 60000) == "OK"
    assert a("GET", "lock:sku:1") == value.encode()
    a.refused("NOPERM", "SET", "lock:other", value, "NX", "PX", 60000, text="'other'")
    a.refused("NOPERM", "GET", "lock:other")
    a.refused("NOPERM", "DEL", "lock:sku:1", text="@revoke")
    script = ('if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) '
              'else return 0 end')
    a.refused("NOPERM", "EVAL", script, 1, "lock:other", value)
    assert root("EVAL", script, 1, "lock:sku:1", value) == 0, "the value is another user's"
    assert a("EVAL", script, 1, "lock:sku:1", value) == 1


def test_a_lock_s_script_publishes_on_no_other_channel_than_its_own(rig):
    daemon = with_users(rig, ROOT, "user a on >pw ~sku:* +@lease",
                        "user b on >pw ~sku:* &orders +@lease", args=("--lock-keys", "lock:*"))
    listener = login(daemon, "root")
    listener("SUBSCRIBE", "orders")
    for name, publishes in (("a", False), ("b", True)):
        client = login(daemon, name)
        unlock = ("EVALSHA", "6866459238a13a701d42f4971f12d9f3a50e2442", 3, "lock:sku:1", "orders",
                  "latch", "forged", 60000, "u:1", "publish", 9000)
        assert client("EVALSHA", "149c5a8bf18676fd99e9e6e24923bd64d9b62f94", 1, "lock:sku:1", 60000,
                      "u:1") is None
        if publishes:
            assert client(*unlock) == 1
            assert listener.read() == [b"message", b"orders", b"forged"]
        else:
            client.refused("NOPERM", *unlock, text="channel 'orders'")
            said = login(daemon, "root")("ACL", "DRYRUN", "a", *unlock)
            assert said.startswith(b"user 'a' may not use channel 'orders'")
            for channel in ("redisson_lock__channel:{lock:sku:2}", "lock-channel:sku:2"):
                client.refused("NOPERM", *unlock[:4], channel, *unlock[5:])
            assert client(*unlock[:4], "redisson_lock__channel:{lock:sku:1}", *unlock[5:]) == 1
            assert client("SET", "lock:sku:1", "c:1", "NX", "PX", 60000) == "OK"
            assert client("EVALSHA", "7a71e9443a2a41539fb115a5a27d5a748a871aed", 1, "lock:sku:1",
                          "c:1", "lock-channel:sku:1") == 1
