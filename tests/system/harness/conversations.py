# SPDX-License-Identifier: Apache-2.0
"""What lock libraries say to Redis, and what Redis answers: read from the sources of each library
at the version that is named, and checked against a real redis-server that ran their scripts.

One line for each command: `command => reply`. EVALSHA is left out before a SHA1. In replies `~n` is
a time of at most n ms or s, not much less; `T` is a token; `-CODE` an error. `until free KEY` waits
for the lease's end. Keys are lock keys of the pattern lock:*, and `k` in them is replaced by a name
that nobody else uses.
"""

import re
import shlex

from harness.limits import wait_until
from harness.resp import ReplyError

SHORT = "150"  # ms, of a lock that is to run out
TAKEN = "SET lock:k me NX PX 60000 => OK\n"

# Most libraries have these two in their own words: to give back, and to live on.
GIVE = """
{0} 1 lock:k other => 0
GET lock:k => me
{0} 1 lock:k me => 1
{0} 1 lock:k me => 0
GET lock:k => nil
SET lock:k me2 NX PX {SHORT} => OK
until free lock:k
{0} 1 lock:k me2 => 0
"""
EXTEND = """
SET lock:k me3 NX PX 60000 => OK
{0} 1 lock:k other 90000 => 0
PTTL lock:k => ~60000
{0} 1 lock:k me3 90000 => 1
PTTL lock:k => ~90000
{0} 1 lock:k me3 {SHORT} => 1
until free lock:k
{0} 1 lock:k me3 60000 => 0
EXISTS lock:k => 0
"""


def classic(give, extend):
    return TAKEN + GIVE.format(give, SHORT=SHORT) + EXTEND.format(extend, SHORT=SHORT)


CONVERSATIONS = {
    # redis/lock.py
    "redis-py 4.3.4 to 8.1.0": classic("c3f8721cbb97f72bc19e972846bd7aaf91901658",
                                       "1cac51482acf5858da00f6d685d68f886cd6b6b2") + """
SET lock:k me4 NX PX 60000 => OK
a4e8783852e6b949f9ef3a97212805108459a890 1 lock:k other 5000 0 => 0
a4e8783852e6b949f9ef3a97212805108459a890 1 lock:k me4 5000 0 => 1
PTTL lock:k => ~65000
a4e8783852e6b949f9ef3a97212805108459a890 1 lock:k me4 5000 1 => 1
PTTL lock:k => ~5000
""",
    # redlock.js
    "node-redlock 4.2.0": """
e5a322e2634ef59a516e8ea150cb085afafee684 2 lock:k:b lock:k:a me 60000 => 2
e5a322e2634ef59a516e8ea150cb085afafee684 2 lock:k:b lock:k:c you 60000 => 0
EXISTS lock:k:a lock:k:b lock:k:c => 2
ce46f80993d5dac20dd066eb301a4e37994bdbed 2 lock:k:a lock:k:b you 90000 => 0
ce46f80993d5dac20dd066eb301a4e37994bdbed 2 lock:k:a lock:k:b me 90000 => 2
PTTL lock:k:a => ~90000
PTTL lock:k:b => ~90000
0f0f23b9048b36752b5be114f357ba083449f908 2 lock:k:a lock:k:b you => 0
0f0f23b9048b36752b5be114f357ba083449f908 3 lock:k:a lock:k:b lock:k:c me => 2
EXISTS lock:k:a lock:k:b lock:k:c => 0
""",
    # src/index.ts
    "node-redlock 5.0.0-beta.2": """
96da70f7716f27d278a5218544df37fd8b0a5e4c 2 lock:k:b lock:k:a me 60000 => 2
96da70f7716f27d278a5218544df37fd8b0a5e4c 2 lock:k:c lock:k:a me 60000 => 0
EXISTS lock:k:c => 0
aed6f382e410db8ba7926d4e5e9aab410bf2a78a 2 lock:k:a lock:k:b me 90000 => 2
PTTL lock:k:a => ~90000
aed6f382e410db8ba7926d4e5e9aab410bf2a78a 2 lock:k:a lock:k:c me 60000 => 0
PTTL lock:k:a => ~90000
e4612211c9f8f51c257e26e056b0a654b3187242 2 lock:k:a lock:k:b me => 2
e4612211c9f8f51c257e26e056b0a654b3187242 2 lock:k:a lock:k:b me => 0
""",
    # src/scripts.ts
    "@sesamecare-oss/redlock 1.4.0": """
1b77b94aa78451d55dfa97e18819bfbfc596cb5b 2 lock:k:b lock:k:a 0 me 60000 => 2
1b77b94aa78451d55dfa97e18819bfbfc596cb5b 2 lock:k:c lock:k:a 0 me 60000 => 0
EXISTS lock:k:c => 0
820e9778d2b6733e9ed771e4be90ae73a95a6f3b 2 lock:k:a lock:k:b 0 you 90000 => 0
820e9778d2b6733e9ed771e4be90ae73a95a6f3b 2 lock:k:a lock:k:b 0 me 90000 => 2
PTTL lock:k:a => ~90000
df51f6837dcfe303d334e6abea9aeae192bab216 2 lock:k:a lock:k:b 0 you => 0
df51f6837dcfe303d334e6abea9aeae192bab216 3 lock:k:a lock:k:b lock:k:c 0 me => 2
EXISTS lock:k:a lock:k:b => 0
""",
    # src/adapters/BaseAdapter.ts
    "redlock-universal 0.8.5": classic("fd83166fb3d7235e3ace652b700c9e217c1adc1f",
                                       "e218d686a8f90368e5cd45074f06ce766cad9987") + """
994908155dadb1bed08a5af6dee7fedf956c4826 1 lock:k => nil
514d8d1b08387624661da2a9098d3949b633eb3a 3 lock:k:c lock:k:b lock:k:a me1 me2 me3 60000 => [1 3]
GET lock:k:b => me2
994908155dadb1bed08a5af6dee7fedf956c4826 1 lock:k:c => [me1 ~60000]
514d8d1b08387624661da2a9098d3949b633eb3a 3 lock:k:d lock:k:b lock:k:a m n o 60000 => [0 2 lock:k:b]
514d8d1b08387624661da2a9098d3949b633eb3a 1 lock:k:a me1 60000 => [0 1 lock:k:a]
EXISTS lock:k:d => 0
c000e088bd4aca36ab429d3b7a16fc736f4cb6f1 1 lock:k:a me3 1000 90000 => [1 ~60000]
PTTL lock:k:a => ~90000
c000e088bd4aca36ab429d3b7a16fc736f4cb6f1 1 lock:k:a me3 100000 200000 => [0 ~90000]
c000e088bd4aca36ab429d3b7a16fc736f4cb6f1 1 lock:k:a other 100000 200000 => [0 ~90000]
c000e088bd4aca36ab429d3b7a16fc736f4cb6f1 1 lock:k:a other 1000 200000 => [-1 ~90000]
PTTL lock:k:a => ~90000
c000e088bd4aca36ab429d3b7a16fc736f4cb6f1 1 lock:k:d me3 1000 90000 => [-1 -2]
""",
    # src/scripts.ts
    "@microfleet/ioredis-lock 6.0.1": classic("da225123b2af4a41136fdba7ffac1e045e344da1",
                                              "bf3108245472c550b02852e1e425128e5eb399c4"),
    # src/mutex
    "redis-semaphore 5.8.0": classic("7157921a7cc7cfba979acf6d63f073151df17d12",
                                     "594683e49a64ebaf975caf5f8079a1d097c438f1"),
    # mutex.go
    "redsync v4.8.0": classic("00583931c4e4d483f6233879c133c71ed5393f9d",
                              "d75bb8b5bd13532ddedd17762e772346e39b321e"),
    # mutex.go; scripts.go since
    "redsync v4.13.0": TAKEN + """
e950836ed1e694540c503ef9972b8de518044d3b 1 lock:k other => 0
e950836ed1e694540c503ef9972b8de518044d3b 1 lock:k me => 1
e950836ed1e694540c503ef9972b8de518044d3b 1 lock:k me => -1
b6b55c439e02c6f52ffb8be7ec8c0d0ac816ea79 1 lock:k you 60000 => 1
GET lock:k => you
b6b55c439e02c6f52ffb8be7ec8c0d0ac816ea79 1 lock:k other 90000 => 0
PTTL lock:k => ~60000
b6b55c439e02c6f52ffb8be7ec8c0d0ac816ea79 1 lock:k you 90000 => 1
PTTL lock:k => ~90000
""",
    # providers/redis/shedlock-support-redis, InternalRedisLockProvider.java
    "ShedLock 7.9.0": classic("194f3902b2dd08557818d09fc2e7682d91480e53",
                              "67256370c2d1c87e2250898075542b1a7fa5b917"),
    # src/Illuminate/Cache/LuaScripts.php, RedisLock.php, RedisStore.php
    "Laravel v12.67.0": """
SET lock:k me EX 60 NX => OK
SET lock:k you EX 60 NX => nil
d5f94f1848f0c54fff99d99dbc4d54184a157c02 1 lock:k you 90 => 0
d5f94f1848f0c54fff99d99dbc4d54184a157c02 1 lock:k me 90 => 1
TTL lock:k => ~90
GET lock:k => me
647c65a442733a1aa440f99908d249d13b4d6c4a 1 lock:k you => 0
647c65a442733a1aa440f99908d249d13b4d6c4a 1 lock:k me => 1
a08c9c69b7c07ae2485190873b90d128a23e502d 1 lock:k you 60 => OK
a08c9c69b7c07ae2485190873b90d128a23e502d 1 lock:k me 60 => nil
TTL lock:k => ~60
DEL lock:k => 1
DEL lock:k => 0
""",
    # redislock.go
    "bsm/redislock v0.9.4": classic("cf0e94b2e9ffc7e04395cf88f7583fc309985910",
                                    "a7aba3bc5d6e99b3003da8b9d80a63b9f4092ecf") + """
80a1b5f2cfccec3b7119ba7721d2127682b691a7 1 lock:k token 5 60000 => OK
80a1b5f2cfccec3b7119ba7721d2127682b691a7 1 lock:k other 5 60000 => nil
80a1b5f2cfccec3b7119ba7721d2127682b691a7 1 lock:k token 5 90000 => OK
PTTL lock:k => ~90000
6484da7d58920897fdc22b7f9afd1a3d47524ea8 1 lock:k token => ~90000
6484da7d58920897fdc22b7f9afd1a3d47524ea8 1 lock:k other => -3
""",
    # obtain.lua, release.lua, refresh.lua, pttl.lua
    "bsm/redislock v0.10.0": """
eb0c00d98f6f33b4262419a509002884540f30be 2 lock:k:a lock:k:b token 5 60000 => OK
eb0c00d98f6f33b4262419a509002884540f30be 2 lock:k:b lock:k:c other 5 60000 => nil
EXISTS lock:k:c => 0
eb0c00d98f6f33b4262419a509002884540f30be 2 lock:k:a lock:k:b token 5 90000 => OK
PTTL lock:k:b => ~90000
5a22d7e8431313862816d4416b5e46dd70fc340d 2 lock:k:a lock:k:b other 60000 => nil
5a22d7e8431313862816d4416b5e46dd70fc340d 2 lock:k:a lock:k:b token 60000 => OK
66e1084c2d842a7e8c271925aae90219fac4e129 2 lock:k:a lock:k:b token => ~60000
66e1084c2d842a7e8c271925aae90219fac4e129 2 lock:k:a lock:k:c token => nil
9470c810040e272ee6c579d8d4331aaf6332a7b1 2 lock:k:a lock:k:b other => nil
9470c810040e272ee6c579d8d4331aaf6332a7b1 2 lock:k:a lock:k:b token => OK
9470c810040e272ee6c579d8d4331aaf6332a7b1 2 lock:k:a lock:k:b token => nil
""",
    # sherlock/lock.py
    "sherlock 0.4.1": """
7bcdefae3714859f68f1f2377bddae74a1af9391 1 lock:k me 60 => 1
7bcdefae3714859f68f1f2377bddae74a1af9391 1 lock:k you 90 => 0
TTL lock:k => ~60
8a7fdef25bdef981900f982f5773edaf35000372 1 lock:k you 90 => 0
8a7fdef25bdef981900f982f5773edaf35000372 1 lock:k me 90 => 1
TTL lock:k => ~90
bfb9f817b2e860fe4fc58656b2bf657d3fdc2be1 1 lock:k you => 0
bfb9f817b2e860fe4fc58656b2bf657d3fdc2be1 1 lock:k me => 1
bfb9f817b2e860fe4fc58656b2bf657d3fdc2be1 1 lock:k me => 0
8a7fdef25bdef981900f982f5773edaf35000372 1 lock:k me 90 => 0
EXISTS lock:k => 0
""",
    # src/redis_lock/__init__.py
    "python-redis-lock v4.0.0": TAKEN + """
GET lock:k => me
fed16109024d968d9496e4140fe1355bac05ebff 2 lock:k lock-signal:k other 90 => 1
fed16109024d968d9496e4140fe1355bac05ebff 2 lock:k lock-signal:k me 90 => 0
TTL lock:k => ~90
90da91872223f85eb1376a17e3c4df21ace8c54b 2 lock:k lock-signal:k other 1000 => 1
90da91872223f85eb1376a17e3c4df21ace8c54b 2 lock:k lock-signal:k me 1000 => 0
90da91872223f85eb1376a17e3c4df21ace8c54b 2 lock:k lock-signal:k me 1000 => 1
SET lock:k you NX EX 60 => OK
afbc8014508f92e446b56567e8ba600e811c1bd5 2 lock:k lock-signal:k you 1000 => 1
afbc8014508f92e446b56567e8ba600e811c1bd5 2 lock:k lock-signal:k you 1000 => 0
""",
    # redisson/src/main/java/org/redisson/RedissonLock.java, renewal/LockTask.java
    "Redisson 3.50.0, RLock": """
149c5a8bf18676fd99e9e6e24923bd64d9b62f94 1 lock:k 60000 u:1 => nil
149c5a8bf18676fd99e9e6e24923bd64d9b62f94 1 lock:k 60000 u:2 => ~60000
149c5a8bf18676fd99e9e6e24923bd64d9b62f94 1 lock:k 90000 u:1 => nil
PTTL lock:k => ~90000
EXISTS lock:k => 1
HEXISTS lock:k u:1 => 1
HEXISTS lock:k u:2 => 0
HGET lock:k u:1 => 2
HGET lock:k u:2 => nil
6a3d31570dc6f4b0bd32bcdc8e75667747c6f635 1 lock:k 60000 u:1 => [1]
6a3d31570dc6f4b0bd32bcdc8e75667747c6f635 2 lock:k lock:k:b 60000 u:2 u:1 => [0 0]
PTTL lock:k => ~60000
6866459238a13a701d42f4971f12d9f3a50e2442 3 lock:k ch lt:1 0 60000 u:2 publish 9000 => nil
6866459238a13a701d42f4971f12d9f3a50e2442 3 lock:k ch lt:2 0 60000 u:1 publish 9000 => 0
HGET lock:k u:1 => 1
6866459238a13a701d42f4971f12d9f3a50e2442 3 lock:k ch lt:3 0 60000 u:1 publish 9000 => 1
EXISTS lock:k => 0
6866459238a13a701d42f4971f12d9f3a50e2442 3 lock:k ch lt:4 0 60000 u:1 publish 9000 => nil
149c5a8bf18676fd99e9e6e24923bd64d9b62f94 1 lock:k 60000 u:2 => nil
605e338249a7a1d40df83b04f7658354f883b41b 2 lock:k ch 0 publish => 1
605e338249a7a1d40df83b04f7658354f883b41b 2 lock:k ch 0 publish => 0
""",
    # the same, before it renewed many at once and remembered unlocks
    "Redisson 3.17.0, RLock": """
dad0f8d619e548e04f21fb48d50be5034df3adae 1 lock:k 60000 u:1 => nil
dad0f8d619e548e04f21fb48d50be5034df3adae 1 lock:k 60000 u:2 => ~60000
8e19a1ddbdee9138df9f32a480c57addab4353d1 1 lock:k 90000 u:1 => 1
8e19a1ddbdee9138df9f32a480c57addab4353d1 1 lock:k 60000 u:2 => 0
PTTL lock:k => ~90000
3ffe249c16dee540ac8ab32e39bd408626b9aff7 2 lock:k ch 0 60000 u:1 => 1
3ffe249c16dee540ac8ab32e39bd408626b9aff7 2 lock:k ch 0 60000 u:1 => nil
dad0f8d619e548e04f21fb48d50be5034df3adae 1 lock:k 60000 u:1 => nil
7e9c80b3d786b95d5d4aaf8fd73adb9775fa6fb1 2 lock:k ch 0 => 1
""",
    "Redisson 3.11.0, RLock": """
9401052d872adfd0179ef8c8e8c028512707629a 1 lock:k 60000 u:1 => nil
9401052d872adfd0179ef8c8e8c028512707629a 1 lock:k 60000 u:1 => nil
9401052d872adfd0179ef8c8e8c028512707629a 1 lock:k 60000 u:2 => ~60000
3ffe249c16dee540ac8ab32e39bd408626b9aff7 2 lock:k ch 0 90000 u:1 => 0
PTTL lock:k => ~90000
3ffe249c16dee540ac8ab32e39bd408626b9aff7 2 lock:k ch 0 60000 u:1 => 1
""",
    "Redisson 3.23.5, RLock": """
149c5a8bf18676fd99e9e6e24923bd64d9b62f94 1 lock:k 60000 u:1 => nil
778cea8aada230ae060b432fc333adaec85f2f4c 2 lock:k ch 0 60000 u:2 publish => nil
778cea8aada230ae060b432fc333adaec85f2f4c 2 lock:k ch 0 60000 u:1 publish => 1
""",
    # redisson/src/main/java/org/redisson/RedissonSpinLock.java
    "Redisson 3.37.0, RSpinLock": """
dad0f8d619e548e04f21fb48d50be5034df3adae 1 lock:k 60000 u:1 => nil
dad0f8d619e548e04f21fb48d50be5034df3adae 1 lock:k 60000 u:2 => ~60000
dad0f8d619e548e04f21fb48d50be5034df3adae 1 lock:k 60000 u:1 => nil
73ac2729af29ea9a975f95e8097f7ee9a74cce3d 2 lock:k lt:1 60000 u:2 9000 => nil
73ac2729af29ea9a975f95e8097f7ee9a74cce3d 2 lock:k lt:2 90000 u:1 9000 => 0
PTTL lock:k => ~90000
73ac2729af29ea9a975f95e8097f7ee9a74cce3d 2 lock:k lt:3 60000 u:1 9000 => 1
EXISTS lock:k => 0
dad0f8d619e548e04f21fb48d50be5034df3adae 1 lock:k 60000 u:2 => nil
51b433c3cc9a6ca991b3aefec63d23490c246318 1 lock:k => 1
51b433c3cc9a6ca991b3aefec63d23490c246318 1 lock:k => 0
""",
    # redisson/src/main/java/org/redisson/RedissonFencedLock.java
    "Redisson 3.50.0, RFencedLock": """
49babb5a1e6a0c5f188c2ae62b93b51cdfd63e45 2 lock:k tok 60000 u:1 => [-1 T]
49babb5a1e6a0c5f188c2ae62b93b51cdfd63e45 2 lock:k tok 60000 u:2 => [~60000 -1]
6866459238a13a701d42f4971f12d9f3a50e2442 3 lock:k ch lt:1 0 60000 u:1 publish 9000 => 1
46b5551ba403d6152a7a6eca122e08728d6c8c66 2 lock:k tok 60000 u:2 => nil
46b5551ba403d6152a7a6eca122e08728d6c8c66 2 lock:k tok 60000 u:1 => ~60000
""",
    # spring-integration-redis, RedisLockRegistry.java
    "spring-integration 6.5.0": """
175897a4e379e99e79a54937be09226f76cdcfe5 1 lock:k c:1 60000 => 1
175897a4e379e99e79a54937be09226f76cdcfe5 1 lock:k c:2 60000 => nil
175897a4e379e99e79a54937be09226f76cdcfe5 1 lock:k c:1 90000 => 1
PTTL lock:k => ~90000
879e0f7b8d83c3266d4e996627438c05dbda0b89 1 lock:k c:2 60000 => nil
879e0f7b8d83c3266d4e996627438c05dbda0b89 1 lock:k c:1 60000 => 1
PTTL lock:k => ~60000
f0f9038aa2b6d6c3436c72d147573ea2a58f0ef2 1 lock:k c:2 => nil
f0f9038aa2b6d6c3436c72d147573ea2a58f0ef2 1 lock:k c:1 => 1
175897a4e379e99e79a54937be09226f76cdcfe5 1 lock:k c:2 60000 => 1
7a71e9443a2a41539fb115a5a27d5a748a871aed 1 lock:k c:1 ch => nil
7a71e9443a2a41539fb115a5a27d5a748a871aed 1 lock:k c:2 ch => 1
EXISTS lock:k => 0
""",
    # lib/redlock/scripts.rb
    "redlock-rb 2.0.6": """
ceb2b2062e40c51a2b3963fd078bc71f11bdc65c 1 lock:k me 60000 no => nil
ceb2b2062e40c51a2b3963fd078bc71f11bdc65c 1 lock:k me 60000 yes => OK
ceb2b2062e40c51a2b3963fd078bc71f11bdc65c 1 lock:k you 60000 yes => nil
ceb2b2062e40c51a2b3963fd078bc71f11bdc65c 1 lock:k me 90000 no => OK
78d2ca48a6dc9ef6892059792a3a0c5237733d64 1 lock:k => [me ~90000]
8e4905cee18e7c3188d10f2b8b170e403baed34f 1 lock:k you => 0
8e4905cee18e7c3188d10f2b8b170e403baed34f 1 lock:k me => 1
78d2ca48a6dc9ef6892059792a3a0c5237733d64 1 lock:k => [nil -2]
""",
    # pottery/redlock.py
    "pottery v3.0.1": classic("a4aada0b36710970eedaaaeec4a6b7d8c78c4f80",
                              "ba015a80261b616e7a62d35df0b8e3edbe6c9414") + """
f5f7bd3a3aa4a63c507c1155c5ea1219b350d992 1 lock:k me => 0
SET lock:k me4 NX PX 60000 => OK
f5f7bd3a3aa4a63c507c1155c5ea1219b350d992 1 lock:k me4 => ~60000
f5f7bd3a3aa4a63c507c1155c5ea1219b350d992 1 lock:k me => 0
""",
    # aioredlock/redis.py
    "aioredlock v0.7.3": """
aecadef15d24ccd9360d8641cdec8e0337a0d343 1 lock:k me 60000 => OK
aecadef15d24ccd9360d8641cdec8e0337a0d343 1 lock:k you 60000 => -ERR
aecadef15d24ccd9360d8641cdec8e0337a0d343 1 lock:k me 90000 => OK
2239e3d89e276c90ec523515c30bcf0071823c7e 1 lock:k me => ~90
2239e3d89e276c90ec523515c30bcf0071823c7e 1 lock:k you => -ERR
0e084295a6567dabd5b7d5b4c99018cff95fceff 1 lock:k you => -ERR
0e084295a6567dabd5b7d5b4c99018cff95fceff 1 lock:k me => 1
0e084295a6567dabd5b7d5b4c99018cff95fceff 1 lock:k me => OK
2239e3d89e276c90ec523515c30bcf0071823c7e 1 lock:k me => -ERR
""",
    # RedLockNet.SERedis/Lua
    "RedLock.net 2.3.2": """
9f614a785a5f9ae8c6396c6b4bf94d2087342603 1 lock:k me 60000 => 1
9f614a785a5f9ae8c6396c6b4bf94d2087342603 1 lock:k you 60000 => -1
9f614a785a5f9ae8c6396c6b4bf94d2087342603 1 lock:k me 90000 => 1
PTTL lock:k => ~90000
18b2a577dbe847b16bebde190d69a1613d68e60e 1 lock:k you => 0
18b2a577dbe847b16bebde190d69a1613d68e60e 1 lock:k me => 1
""",
    # Of Valkey 9 and Redis 8.4.
    "commands that compare": """
SET lock:k me NX PX 60000 => OK
SET lock:k you IFEQ you PX 90000 => nil
SET lock:k me IFEQ me PX 90000 => OK
PTTL lock:k => ~90000
set lock:k me ex 60 ifeq me => OK
TTL lock:k => ~60
DELIFEQ lock:k you => 0
DELIFEQ lock:k me => 1
DELIFEQ lock:k me => 0
SET lock:k me IFEQ me PX 90000 => nil
EXISTS lock:k => 0
SET lock:k me2 NX PX 60000 => OK
DELEX lock:k IFEQ you => 0
delex lock:k ifeq me2 => 1
DELEX lock:k IFEQ me2 => 0
SET lock:k me3 NX PX {SHORT} => OK
until free lock:k
SET lock:k me3 IFEQ me3 PX 60000 => nil
DELIFEQ lock:k me3 => 0
""".format(SHORT=SHORT),
    # What is known and not done; redis-semaphore's semaphores are sorted sets.
    "scripts that are refused": """
b121d3548d693116c3851b63befe947e49f28c7c 0 => -ERR
43ebdb49120d170e08af560cb4e46e36f8585936 1 lock:k 5 me 60000 1 => -ERR
999a49a1d07671a8027165641001f5bad44608b3 1 lock:k 5 me 60000 1 => -ERR
10c1c2e05e7c48aa5824d227b8c51abcde87b18e 1 lock:k 5 2 me 60000 1 => -ERR
2327bcdc5edb5b8687f6d19b5e1f42b815ebddab 1 lock:k 5 2 me 60000 1 => -ERR
0bd1010c98f1ddd70a6024fd374489a8ea3d2c12 1 lock:k 2 me => -ERR
EXISTS lock:k => 0
""",
    # What all of them stand on.
    "plain commands": """
GET lock:k => nil
PTTL lock:k => -2
TTL lock:k => -2
EXISTS lock:k => 0
DEL lock:k => 0
set lock:k me px 60000 nx => OK
SET lock:k me NX PX 90000 => nil
SET lock:k you NX PX 90000 => nil
PTTL lock:k => ~60000
TTL lock:k => ~60
GET lock:k => me
EXISTS lock:k lock:k lock:k:b => 2
DEL lock:k lock:k:b => 1
EXISTS lock:k => 0
SET lock:k me NX EX 60 => OK
TTL lock:k => ~60
UNLINK lock:k => 1
SET lock:k you NX PX 150 => OK
until free lock:k
GET lock:k => nil
DEL lock:k => 0
SET lock:k me NX PX 60000 => OK
EVALSHA 0000000000000000000000000000000000000000 1 lock:k me => -NOSCRIPT
EVALSHA 00 1 lock:k me => -NOSCRIPT
SCRIPT EXISTS 0000000000000000000000000000000000000000 => [0]
""",
}

MS_SLACK, S_SLACK = 30000, 30  # times differ by half a minute at least


def parse(conversation, key):
    """(words, reply as written) for each line."""
    def named(text):
        return re.sub(r"\b(?<=[-:])k\b", key, text)

    for line in filter(None, conversation.splitlines()):
        command, _, reply = line.partition(" => ")
        words, reply = [named(word) for word in shlex.split(command)], named(reply)
        if re.fullmatch("[0-9a-f]{40}", words[0]):
            words.insert(0, "EVALSHA")
        yield words, reply


def says(reply, wanted):
    """Is it what was written?"""
    if wanted.startswith("["):
        parts = wanted[1:-1].split()
        return isinstance(reply, list) and len(reply) == len(parts) and all(map(says, reply, parts))
    if wanted.startswith("~"):
        most = int(wanted[1:])
        least = most - (MS_SLACK if most > 1000 else S_SLACK)
        return isinstance(reply, int) and least < reply <= most
    if wanted == "T":
        return isinstance(reply, int) and reply > 0
    if wanted == "nil":
        return reply is None
    if re.fullmatch(r"-[A-Z]+", wanted):
        return isinstance(reply, ReplyError) and reply.code == wanted[1:]
    if isinstance(reply, int):
        return wanted == str(reply)
    return wanted == (reply.decode() if isinstance(reply, bytes) else reply)


def hold(client, name, key):
    """Say it all, and check each reply."""
    for words, wanted in parse(CONVERSATIONS[name], key):
        if words[0] == "until":
            wait_until(lambda: client("EXISTS", words[2]) == 0, f"{words[2]} is free")
            continue
        if SHORT in words and words[0] == "SET":  # it may run out before anybody is told of it
            wait_until(lambda: client.ask(*words) == wanted, f"{words} is granted")
            continue
        reply = client.ask(*words)
        assert says(reply, wanted), f"{words}: {reply!r}, wanted {wanted}"
