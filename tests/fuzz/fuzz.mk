# SPDX-License-Identifier: Apache-2.0
# Fuzzers, under clang's libFuzzer: tests/fuzz/NAME_fuzz.c with corpus/NAME and NAME.dict.

FUZZ_SOURCES := $(wildcard tests/fuzz/*_fuzz.c)
FUZZERS := $(FUZZ_SOURCES:tests/fuzz/%.c=$(BUILD)/%)
PROOF_SOURCES += $(FUZZ_SOURCES)

.PHONY: fuzz fuzzers
# Each target for SECONDS, or until it finds something, which is then in build/fuzz; given to the
# target as its only argument, it is met again. With SQLITE=.../sqlite3.c, SQLite's amalgamation,
# the fuzzer sees into SQLite too, and finds far more ways through it.
SECONDS ?= 60
fuzz: ## look for inputs that break things: make fuzz SECONDS=60
	@tools/setup --all
	@$(MAKE) fuzzers CC=clang SANITIZE=address,undefined,fuzzer-no-link BUILD=build/fuzz
	@for name in $(FUZZ_SOURCES:tests/fuzz/%_fuzz.c=%); do \
	    mkdir -p build/fuzz/corpus/$$name && build/fuzz/$${name}_fuzz -max_total_time=$(SECONDS) \
	    -timeout=25 -rss_limit_mb=2048 -max_len=4096 -entropic=0 \
	    -artifact_prefix=build/fuzz/$$name- -dict=tests/fuzz/$$name.dict \
	    build/fuzz/corpus/$$name tests/fuzz/corpus/$$name || exit; done

fuzzers: $(FUZZERS)

$(FUZZERS): $(BUILD)/%: $(BUILD)/obj/tests/fuzz/%.o $(BUILD)/daemon.a \
    $(if $(SQLITE),$(BUILD)/obj/sqlite3.o)
	@echo 'ld  $@'
	@$(LINK) -fsanitize=fuzzer -o $@ $^ $(DAEMON_LIBS) -pthread -lm

# As Debian configures it. UndefinedBehaviorSanitizer is for our own code.
$(BUILD)/obj/sqlite3.o: $(SQLITE)
	@mkdir -p $(@D)
	@echo 'cc  $<'
	@$(CC) -O1 -g -w -fsanitize=address,fuzzer-no-link -fPIE -DSQLITE_SECURE_DELETE \
	    -DSQLITE_SOUNDEX -DSQLITE_OMIT_LOOKASIDE $(addprefix -DSQLITE_ENABLE_,FTS3 FTS4 FTS5 \
	    FTS3_PARENTHESIS FTS3_TOKENIZER RTREE SESSION PREUPDATE_HOOK COLUMN_METADATA DBSTAT_VTAB \
	    STMTVTAB MATH_FUNCTIONS UNLOCK_NOTIFY) -c -o $@ $<
