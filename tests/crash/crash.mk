# SPDX-License-Identifier: Apache-2.0
# The crash disk: what the power, the disk or the memory can do to the store, at every point.

CRASH_SOURCES := $(wildcard tests/crash/*.c)
PROOF_SOURCES += $(CRASH_SOURCES)

.PHONY: crash
# SEED=n: other clients. POINT=...: one point alone, as a failure prints it. SAMPLE=n: one of n.
# SWEEPS="write io": only these of write, again, migrate, io, memory. EVERY=1: each allocation, not
# one of each kind (minutes).
crash: ## power loss, I/O errors and lack of memory at every point of the store's work
	@tools/setup
	@$(MAKE) $(BUILD)/crash
	@$(BUILD)/crash $(if $(SEED),seed=$(SEED)) $(if $(POINT),point='$(POINT)') $(if $(EVERY),every) \
	    $(if $(SAMPLE),sample=$(SAMPLE)) $(SWEEPS)

$(BUILD)/crash: $(call objects,$(CRASH_SOURCES)) $(BUILD)/support.a $(BUILD)/daemon.a
	@echo 'ld  $@'
	@$(LINK) -Wl,--wrap,cache_new,--wrap,cache_free -o $@ $^ $(DAEMON_LIBS) -pthread -lm
