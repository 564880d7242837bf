# SPDX-License-Identifier: Apache-2.0
# Stockade beside others on this machine, and what guards its speed.

BENCH_LOAD_SOURCES := $(wildcard tools/bench/load/*.c)
BENCH_SQLITE_SOURCES := $(wildcard tools/bench/sqlite/*.c) tools/bench/load/histogram.c
BENCH_RELAY_SOURCES := $(wildcard tools/bench/relay/*.c)
PROOF_SOURCES += $(BENCH_LOAD_SOURCES) $(BENCH_SQLITE_SOURCES) $(BENCH_RELAY_SOURCES)

.PHONY: bench bench-growth bench-guard bench-page bench-quick bench-programs

bench-programs: $(BUILD)/bench-load $(BUILD)/bench-sqlite $(BUILD)/bench-relay
helpers: bench-programs

$(BUILD)/bench-load: $(call objects,$(BENCH_LOAD_SOURCES)) $(BUILD)/tools.a $(BUILD)/client.a \
    $(BUILD)/daemon.a
	@echo 'ld  $@'
	@$(LINK) -o $@ $^ $(TOOLS_LIBS) $(ZOOKEEPER_LIBS) -pthread -lm

$(BUILD)/bench-sqlite: $(call objects,$(BENCH_SQLITE_SOURCES)) $(BUILD)/tools.a \
    $(BUILD)/daemon.a
	@echo 'ld  $@'
	@$(LINK) -o $@ $^ $(TOOLS_LIBS) -pthread -lm

$(BUILD)/bench-relay: $(call objects,$(BENCH_RELAY_SOURCES)) $(BUILD)/tools.a \
    $(BUILD)/daemon.a
	@echo 'ld  $@'
	@$(LINK) -o $@ $^ $(TOOLS_LIBS) -pthread -lm

BENCH = PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tools STOCKADE_BUILD=$(BUILD) /usr/bin/python3 -m bench

# CASES="write-* read-1": only these. ROUNDS, RUN_SECONDS: how many runs of each, how long. HUGE=1:
# ten million keys, too; GROWTH=1: what bench-growth measures, too.
BENCH_OPTIONS = $(CASES:%=--only '%') $(if $(ROUNDS),--rounds $(ROUNDS)) \
    $(if $(RUN_SECONDS),--seconds $(RUN_SECONDS)) $(if $(HUGE),--huge) \
    $(if $(GROWTH),--growth) --out $(BUILD)/bench
bench: ## measure beside others, in turns: make bench [CASES=GLOB] [ROUNDS=n]
	@tools/setup --bench
	@$(MAKE) all bench-programs
	@$(BENCH) $(BENCH_OPTIONS)

bench-growth: ## how the store in PostgreSQL slows down from a thousand keys to a million
	@$(MAKE) bench CASES='growth-*'

bench-page: ## the same, and keep the results in the repository, for readers
	@tools/setup --bench
	@$(MAKE) all bench-programs
	@$(BENCH) $(BENCH_OPTIONS) --growth --page tools/bench/RESULTS.md
	@$(BENCH).report $(BUILD)/bench/results.json tools/bench/README.md

bench-quick: ## beside Redis, SQLite and PostgreSQL only, in about a minute
	@tools/setup
	@$(MAKE) all bench-programs
	@$(BENCH) --quick $(CASES:%=--only '%')

# UPDATE=1: keep the figures, after a change that was to cost, or to save. NOISE=n: keep by how much
# they may differ, as n runs do. BASE=FILE: the figures of this daemon are what all later ones are
# held against.
bench-guard: ## count instructions per operation, and compare them with the figures kept
	@tools/setup --tests
	@$(MAKE) all bench-programs
	@PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tools STOCKADE_BUILD=$(BUILD) /usr/bin/python3 \
	    -m bench.guard $(if $(UPDATE),--update) $(NOISE:%=--noise %) $(BASE:%=--base %)
