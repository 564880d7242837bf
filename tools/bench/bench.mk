# SPDX-License-Identifier: Apache-2.0
# Stockade beside others on this machine, and what guards its speed.

BENCH_LOAD_SOURCES := $(wildcard tools/bench/load/*.c)
BENCH_SQLITE_SOURCES := $(wildcard tools/bench/sqlite/*.c) tools/bench/load/histogram.c
PROOF_SOURCES += $(BENCH_LOAD_SOURCES) $(BENCH_SQLITE_SOURCES)

.PHONY: bench bench-quick bench-programs

bench-programs: $(BUILD)/bench-load $(BUILD)/bench-sqlite

$(BUILD)/bench-load: $(call objects,$(BENCH_LOAD_SOURCES)) $(BUILD)/tools.a $(BUILD)/client.a \
    $(BUILD)/daemon.a
	@echo 'ld  $@'
	@$(LINK) -o $@ $^ $(TOOLS_LIBS) -pthread -lm

$(BUILD)/bench-sqlite: $(call objects,$(BENCH_SQLITE_SOURCES)) $(BUILD)/tools.a \
    $(BUILD)/daemon.a
	@echo 'ld  $@'
	@$(LINK) -o $@ $^ $(TOOLS_LIBS) -pthread -lm

BENCH = PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tools STOCKADE_BUILD=$(BUILD) /usr/bin/python3 -m bench

# CASES="write-* read-1": only these. ROUNDS, RUN_SECONDS: how many runs of each, how long.
bench: ## Stockade beside Redis and others, in turns on this machine: make bench [CASES=GLOB]
	@tools/setup
	@$(MAKE) all bench-programs
	@$(BENCH) $(CASES:%=--only '%') $(if $(ROUNDS),--rounds $(ROUNDS)) \
	    $(if $(RUN_SECONDS),--seconds $(RUN_SECONDS))

bench-quick: ## the same in less than a minute, beside Redis only
	@tools/setup
	@$(MAKE) all bench-programs
	@$(BENCH) --quick $(CASES:%=--only '%')
