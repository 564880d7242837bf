# SPDX-License-Identifier: Apache-2.0
# What of fence, engine and store the suites reach.

.PHONY: coverage
coverage: ## check, and print the lines and branches that it reached: HTML in build/coverage/html
	@tools/setup --all
	@rm -rf build/coverage
	@status=0; $(MAKE) check CC=gcc COVERAGE=1 OPTIMISE=-O0 BUILD=build/coverage || status=1; \
	    tests/coverage/report build/coverage && exit $$status
