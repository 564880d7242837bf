# SPDX-License-Identifier: Apache-2.0
# Fuzzers, under clang's libFuzzer: tests/fuzz/NAME_fuzz.c with corpus/NAME and NAME.dict; the other
# sources here help all of them.

FUZZ_SOURCES := $(wildcard tests/fuzz/*_fuzz.c)
FUZZ_HELPERS := $(filter-out %_fuzz.c,$(wildcard tests/fuzz/*.c))
FUZZ_TARGETS := $(FUZZ_SOURCES:tests/fuzz/%_fuzz.c=%)
FUZZERS := $(FUZZ_SOURCES:tests/fuzz/%.c=$(BUILD)/%)
PROOF_SOURCES += $(FUZZ_SOURCES) $(FUZZ_HELPERS)

.PHONY: fuzz fuzzers
# Each target for SECONDS, or until it finds something, which is then in build/fuzz. With
# SQLITE=.../sqlite3.c, SQLite's amalgamation, the fuzzer sees into SQLite too, and finds far more
# ways through it.
#
# SECONDS=0 gives each what its corpus holds, once. That takes no build of its own: what asan built
# will do.
SECONDS ?= 60
FUZZ ?= $(FUZZ_TARGETS)
ifeq ($(SECONDS),0)
FUZZ_BUILD := SANITIZE=address,undefined BUILD=build/asan
else
FUZZ_BUILD := SANITIZE=address,undefined,fuzzer-no-link BUILD=build/fuzz
endif
fuzz: ## look for inputs that break things: make fuzz SECONDS=60 [FUZZ=NAME]
	@tools/setup --all
	@$(MAKE) fuzzers CC=clang $(FUZZ_BUILD) FUZZ='$(FUZZ)'
	@tests/fuzz/run $(SECONDS) $(FUZZ)

fuzzers: $(FUZZ:%=$(BUILD)/%_fuzz)

$(FUZZERS): $(BUILD)/%: $(BUILD)/obj/tests/fuzz/%.o $(call objects,$(FUZZ_HELPERS)) \
    $(BUILD)/tools.a $(BUILD)/client.a $(BUILD)/support.a $(BUILD)/daemon.a \
    $(if $(SQLITE),$(BUILD)/obj/sqlite3.o)
	@echo 'ld  $@'
	@$(LINK_TEST) -fsanitize=fuzzer -o $@ $^ $(TOOLS_LIBS) -pthread -lm

# As Debian configures it. UndefinedBehaviorSanitizer is for our own code.
$(BUILD)/obj/sqlite3.o: $(SQLITE)
	@mkdir -p $(@D)
	@echo 'cc  $<'
	@$(CC) -O1 -g -w -fsanitize=address,fuzzer-no-link -fPIE -DSQLITE_SECURE_DELETE \
	    -DSQLITE_SOUNDEX -DSQLITE_OMIT_LOOKASIDE $(addprefix -DSQLITE_ENABLE_,FTS3 FTS4 FTS5 \
	    FTS3_PARENTHESIS FTS3_TOKENIZER RTREE SESSION PREUPDATE_HOOK COLUMN_METADATA DBSTAT_VTAB \
	    STMTVTAB MATH_FUNCTIONS UNLOCK_NOTIFY) -c -o $@ $<
