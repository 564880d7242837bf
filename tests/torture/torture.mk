# SPDX-License-Identifier: Apache-2.0
# Real daemons, a real Redis and real clients under faults; what the clients saw is checked.

.PHONY: torture
# A SECONDS or SEED of the command line or the environment; the fuzzers' default is not ours.
torture: ## torture real daemons, check what clients saw: make torture SECONDS=30 [SEED=n]
	@tools/setup --tests
	@$(MAKE) $(BUILD)/stockaded
	@PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests:tests/system STOCKADE_BUILD=$(BUILD) \
	    /usr/bin/python3 -m torture.run --seconds $(if $(filter \
	    command environment,$(firstword $(origin SECONDS))),$(SECONDS),30) \
	    $(if $(filter command environment,$(firstword $(origin SEED))),--seed $(SEED)) \
	    --out $(BUILD)/torture
