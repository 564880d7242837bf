# SPDX-License-Identifier: Apache-2.0
# The simulator: a whole cluster in one process under a virtual clock, from one seed.

SIM_SOURCES := $(wildcard tests/sim/*.c)
PROOF_SOURCES += $(SIM_SOURCES)

.PHONY: sim

# Without SEED and RUNS: the same seeds each time. With SECONDS: seeds that are new each time. With
# SEED alone: that one; STORY=1 tells all that happens in it.
sim: ## simulate clusters, faults and all: make sim [SEED=n] [RUNS=n] [SECONDS=n]
	@tools/setup
	@$(MAKE) $(BUILD)/sim
	@$(BUILD)/sim $(if $(SEED),--seed $(SEED)) $(if $(RUNS),--runs $(RUNS)) \
	    $(if $(filter command,$(origin SECONDS)),--seconds $(SECONDS)) $(if $(STORY),--story)

$(BUILD)/sim: $(call objects,$(SIM_SOURCES)) $(BUILD)/support.a $(BUILD)/daemon.a
	@echo 'ld  $@'
	@$(LINK) -o $@ $^ $(DAEMON_LIBS) -pthread -lm
