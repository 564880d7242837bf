# SPDX-License-Identifier: Apache-2.0
# The protocol as a model, explored by spin.

.PHONY: model
model: ## visit every state of the protocol's model, and find the faults put into it
	@tools/setup --all
	@/usr/bin/python3 tests/model/run
