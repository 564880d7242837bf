# SPDX-License-Identifier: Apache-2.0
# Small deliberate defects, each of which a named test has to notice.

.PHONY: mutants
mutants: ## plant defects, see them found: make mutants [ONLY=fence.toml] [SAMPLE=n] [SEED=n]
	@tools/setup --all
	@/usr/bin/python3 tests/mutants/run $(if $(ONLY),--only '$(ONLY)') \
	    $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED))
