# SPDX-License-Identifier: Apache-2.0
# Small deliberate defects, each of which a test has to notice.

.PHONY: mutants mutants-random
mutants: ## plant defects, see them found: make mutants [ONLY=fence.toml] [SAMPLE=n] [SEED=n]
	@tools/setup --all
	@/usr/bin/python3 tests/mutants/run $(if $(ONLY),--only '$(ONLY)') \
	    $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED))

mutants-random: ## random defects on lines that tests reach: [N=100] [SEED=n] [FROM=n] [LIST=1]
	@tools/setup --all
	@/usr/bin/python3 tests/mutants/random $(if $(N),--count $(N)) $(if $(SEED),--seed $(SEED)) \
	    $(if $(ONLY),--only '$(ONLY)') $(if $(FROM),--from $(FROM)) $(if $(LIST),--list)
