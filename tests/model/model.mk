# SPDX-License-Identifier: Apache-2.0
# The protocol as a model, explored by spin.

.PHONY: model
model: ## visit every state of the protocol, and find faults put into it: make model [SIZE=large]
	@tools/setup --all
	@SIZE=$(SIZE) /usr/bin/python3 tests/model/run
