# SPDX-License-Identifier: Apache-2.0
# Everything in full.

.PHONY: proof
proof: ## all suites and tools in full: hours
	@tests/proof/run full
