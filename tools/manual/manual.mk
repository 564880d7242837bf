# SPDX-License-Identifier: Apache-2.0
# Manual pages, completion for bash and a config file, made from the programs' --help and the
# library's header.

MANUAL := $(BUILD)/share/.made

all: $(MANUAL)

$(MANUAL): $(PROGRAMS) proxy/client/stockade.h $(wildcard tools/manual/*.py)
	@echo 'man $(@D)'
	@tools/manual/write.py $(BUILD) proxy/client/stockade.h $(@D)
	@touch $@
