# SPDX-License-Identifier: Apache-2.0
# Builds Stockade with GNU make. `make help` lists the targets.
#
#   CC=gcc|clang    OPTIMISE=-O0    BUILD=folder for what is built, one for each set of flags
#   PREFIX=, LIBDIR=, DESTDIR= for install
#
# Sources are found by folder: a new file needs no line here.

ifeq ($(origin CC),default)
CC := gcc
endif
BUILD ?= build$(addprefix /,$(filter-out gcc,$(notdir $(CC))))
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
VERSION := $(shell sed -n 's/^.define STK_VERSION  *"\(.*\)"$$/\1/p' proxy/client/stockade.h)

MAKEFLAGS += --no-print-directory --no-builtin-rules
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc)
endif

# What is built from what.
DAEMON_FOLDERS := fence/base fence fence/lease $(addprefix fence/lease/,redis redlock zookeeper) \
                  store store/sqlite store/postgresql store/extension proxy/resp proxy/engine \
                  $(addprefix proxy/engine/,acl history session write lease lockkeys show command) \
                  proxy/host proxy/server proxy/server/audit proxy/server/page
DAEMON_MAIN := proxy/server/daemon.c
TOOLS_MAIN := tools/main.c
DAEMON_SOURCES := $(filter-out $(DAEMON_MAIN),$(wildcard $(addsuffix /*.c,$(DAEMON_FOLDERS))))
CLIENT_SOURCES := $(wildcard proxy/client/*.c)
LIBRARY_SOURCES := $(CLIENT_SOURCES) \
                   $(filter-out proxy/server/% store/extension/%,$(DAEMON_SOURCES))
TOOLS_SOURCES := $(filter-out $(TOOLS_MAIN),$(wildcard tools/*.c tools/*/*.c))
# The SQLite extension: its own folder (unit tests use it as part of daemon.a), and what it shares.
EXTENSION_SOURCES := $(wildcard store/extension/*.c) store/sqlite/guard_function.c \
                     store/sqlite/names.c fence/token.c \
                     $(addprefix fence/base/,bytes.c check.c err.c mem.c)
UNIT_SOURCES := $(sort $(shell find tests/unit -name '*.c' 2>/dev/null))
TEST_SOURCES := $(filter %_test.c,$(UNIT_SOURCES))
HELPER_SOURCES := $(filter-out %_test.c,$(UNIT_SOURCES))
# What tests share: in-memory stores and lease services, disks and connections that fail.
SUPPORT_SOURCES := $(wildcard tests/twins/*.c tests/disk/*.c tests/libpq/*.c)
# Filled in by tests/*/*.mk: more sources whose dependencies are to be tracked.
PROOF_SOURCES := tests/support/again_store.c
SHIM_SOURCES := $(wildcard tests/support/*_shim.c)

PROGRAMS := $(BUILD)/stockaded $(BUILD)/stockade
EXTENSION := $(BUILD)/stockade_guard.so
INSTALLED = $(DESTDIR)$(PREFIX)
INSTALLED_LIB = $(DESTDIR)$(LIBDIR)
LIBRARY_NAME := libstockade.so.0
LIBRARY := $(BUILD)/libstockade.so.$(VERSION)
LIBRARY_LINKS := $(BUILD)/$(LIBRARY_NAME) $(BUILD)/libstockade.so
LIBRARIES := $(LIBRARY_LINKS) $(BUILD)/libstockade.a
# The package for Java, where there is a JDK, and its tests, where there is JUnit, too.
JAVA_SOURCES := $(wildcard $(addprefix proxy/client/java/io/stockade/,*.java */*.java))
JAVA_TEST_SOURCES := $(wildcard tests/java/*.java tests/system/clients/*.java)
JAR := $(BUILD)/stockade.jar
# The sale in PostgreSQL, where it is installed.
POSTGRESQL := $(wildcard /usr/lib/postgresql/*/bin/initdb)
JUNIT := $(wildcard /usr/share/java/junit-platform-console-standalone.jar)
SHIMS := $(SHIM_SOURCES:tests/support/%.c=$(BUILD)/%.so)
TESTS := $(TEST_SOURCES:%.c=$(BUILD)/%)

objects = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
library_objects = $(patsubst %.c,$(BUILD)/library/%.o,$(LIBRARY_SOURCES))
extension_objects = $(patsubst %.c,$(BUILD)/extension/%.o,$(EXTENSION_SOURCES))

# Flags. pkg-config is asked once, when first needed: on a fresh machine `make demo` installs it.
DAEMON_PACKAGES := libuv hiredis sqlite3 libmicrohttpd json-c inih libxxhash openssl libxcrypt \
                   libsystemd
# Of the command line only: a screen. Its header needs no flags.
TOOLS_PACKAGES := ncursesw
LIBRARY_PACKAGES := libuv hiredis sqlite3 libxxhash openssl libxcrypt
# Debian's libuv.a has another name, and a .pc file of its own.
STATIC_PACKAGES = $(LIBRARY_PACKAGES:libuv=$(if $(shell pkg-config --exists libuv-static && \
    echo yes),libuv-static,libuv))
PKG_LIBS := pkg-config --libs
# The clients of ZooKeeper and PostgreSQL are loaded where they are asked for
# (fence/base/library.h). The tests and the benchmark use ZooKeeper's by themselves; it comes
# without a .pc file.
ZOOKEEPER_LIBS := -lzookeeper_mt
once = $(eval $(1) := $(shell $(2)))$($(1))
PACKAGE_CFLAGS = $(call once,PACKAGE_CFLAGS,pkg-config --cflags $(DAEMON_PACKAGES) libpq zlib)
DAEMON_LIBS = $(call once,DAEMON_LIBS,$(PKG_LIBS) $(DAEMON_PACKAGES))
LIBRARY_LIBS = $(call once,LIBRARY_LIBS,$(PKG_LIBS) $(LIBRARY_PACKAGES))
TOOLS_LIBS = $(call once,TOOLS_LIBS,$(PKG_LIBS) $(DAEMON_PACKAGES) $(TOOLS_PACKAGES) zlib)
TEST_LIBS = $(call once,TEST_LIBS,$(PKG_LIBS) $(DAEMON_PACKAGES) $(TOOLS_PACKAGES) zlib cmocka)

OPTIMISE ?= -O2
WARNINGS := -Wall -Wextra -Wshadow -Wconversion -Werror
HARDENING := -fstack-protector-strong -fstack-clash-protection -fPIE
LINK_HARDENING := -pie -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack
# Sanitizers run under clang: gcc's combined runtimes do not write every report to the log.
ifneq ($(SANITIZE),)
INSTRUMENT := -fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer \
    -DREQUEST_SPARES_MAX=0
else ifneq ($(COVERAGE),)
INSTRUMENT := --coverage
else ifneq ($(OPTIMISE),-O0)
HARDENING += -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
endif
# The language and the include root, which static analysis needs too.
LANGUAGE = -std=c11 -D_GNU_SOURCE -DSTOCKADE_VERSION='"$(VERSION)"' -I. $(PACKAGE_CFLAGS)
COMPILE = $(CC) $(LANGUAGE) $(OPTIMISE) -g $(WARNINGS) $(HARDENING) $(INSTRUMENT) $(CFLAGS)
LINK = $(CC) $(OPTIMISE) -g $(INSTRUMENT) $(LINK_HARDENING) $(LDFLAGS) -Wl,--as-needed
# There are many tests: binutils' other linker takes half the time for them, clang's a quarter. What
# is installed is linked by the usual one.
FAST_LINKER := $(if $(findstring clang,$(CC)),lld,gold)
FAST_LINKER_PATH := $(shell command -v ld.$(FAST_LINKER))
LINK_TEST = $(LINK) $(if $(FAST_LINKER_PATH),-fuse-ld=$(FAST_LINKER))

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:
.PHONY: all help java javadoc java-dist setup demo picture check replay screenshots format tidy \
        asan tsan install uninstall clean tests helpers FORCE

all: $(PROGRAMS) $(LIBRARIES) $(EXTENSION) ## build programs, library, extension (the default)

ifneq ($(shell command -v javac),)
all: java
helpers: $(if $(JUNIT),$(BUILD)/java-tests.jar)
endif
java: $(JAR) ## build the package for Java (where there is a JDK, all does)

javadoc: $(JAVA_SOURCES) ## write the Java package's pages to build/javadoc
	@javadoc -quiet -Xdoclint:all -encoding UTF-8 -d $(BUILD)/javadoc $(JAVA_SOURCES)

JAVA_DIST := $(BUILD)/java-dist/stockade-$(VERSION)
java-dist: $(JAR) javadoc ## the same as a registry takes it, in build/java-dist
	@rm -rf $(BUILD)/java-dist && mkdir -p $(BUILD)/java-dist
	@cp $(JAR) $(JAVA_DIST).jar
	@cp proxy/client/java/pom.xml $(JAVA_DIST).pom
	@jar --create --file $(JAVA_DIST)-sources.jar -C proxy/client/java io
	@jar --create --file $(JAVA_DIST)-javadoc.jar -C $(BUILD)/javadoc .

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' \
	    $(filter Makefile %.mk,$(MAKEFILE_LIST)) | expand -t 24

setup: ## install what the build, the demo and the tests need (Debian)
	@tools/setup --tests

demo: ## the flash sale and the baskets: who oversells when a client is paused?
	@tools/setup
	@$(MAKE) all
	@$(BUILD)/stockade demo oversell --report $(BUILD)/oversell.html
	@echo
	@$(BUILD)/stockade demo basket --report $(BUILD)/basket.html
	@echo
	@if [ -n "$(POSTGRESQL)" ]; then \
	    $(BUILD)/stockade demo oversell --store postgresql --report $(BUILD)/oversell-sql.html; \
	else echo 'The sale in PostgreSQL is left out: apt-get install postgresql'; fi

picture: all ## draw the demo's picture, tools/report/oversell.svg, anew (needs node)
	@$(BUILD)/stockade demo oversell --contender redis-lock --contender stockade \
	    --report $(BUILD)/picture.html
	@node tools/report/picture.js $(BUILD)/picture.html 'Redis lock' Stockade \
	    >tools/report/oversell.svg

# SUITES: unit, system (the fast ones), slow (those that pytest marks slow), page (in a browser),
# postgresql (those of system that hold with any store), again (these with a daemon whose
# operations run again), core (those of system that sanitizers run before each change).
SUITES ?= unit system
check: ## build, then run every fast test (SUITES="unit system slow" for all)
	@tools/setup --tests
	@$(MAKE) all tests
	@STOCKADE_BUILD=$(BUILD) tools/check $(SUITES)

replay: ## replay real order history: make replay ORDERS=FILE.csv.gz
	@test -n '$(ORDERS)' || { echo 'usage: make replay ORDERS=FILE.csv[.gz]' >&2; exit 2; }
	@tools/setup
	@$(MAKE) all
	@$(BUILD)/stockade replay --orders '$(ORDERS)'

screenshots: ## make the README's pictures of the page
	@tools/setup --tests
	@$(MAKE) all
	@STOCKADE_BUILD=$(BUILD) /usr/bin/python3 tests/system/screenshots.py

format: ## lay the C files out
	@git ls-files -co --exclude-standard '*.[ch]' | xargs -r clang-format -i

# CHECKS: those of tools/tidy to run, all by default.
tidy: ## layout, direction of includes and calls, globals and static analysis
	@tools/setup --all
	@$(MAKE) all bench-programs
	@STOCKADE_BUILD=$(BUILD) tools/tidy $(CHECKS) -- $(LANGUAGE) -Iproxy/client

asan: ## check under AddressSanitizer and UndefinedBehaviorSanitizer
	@tools/setup --all
	@$(MAKE) check CC=clang SANITIZE=address,undefined BUILD=build/asan

tsan: ## check under ThreadSanitizer
	@tools/setup --all
	@$(MAKE) check CC=clang SANITIZE=thread BUILD=build/tsan

install: all ## install programs, library, extension, manual: PREFIX=/usr/local, DESTDIR=
	install -d '$(INSTALLED)/bin' '$(INSTALLED)/include' '$(INSTALLED_LIB)/pkgconfig' \
	    '$(INSTALLED_LIB)/stockade'
	install -m 755 $(PROGRAMS) '$(INSTALLED)/bin'
	install -m 644 proxy/client/stockade.h '$(INSTALLED)/include'
	install -m 644 $(LIBRARY) $(BUILD)/libstockade.a '$(INSTALLED_LIB)'
	cp -P $(LIBRARY_LINKS) '$(INSTALLED_LIB)'
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@VERSION@|$(VERSION)|' \
	    -e "s|@LIBS@|$$($(PKG_LIBS) --static $(STATIC_PACKAGES))|" \
	    proxy/client/stockade.pc.in >'$(INSTALLED_LIB)/pkgconfig/stockade.pc'
	install -m 644 $(EXTENSION) '$(INSTALLED_LIB)/stockade'
	find $(BUILD)/share -type f ! -name .made -printf '%P\n' | while read -r file; do \
	    install -D -m 644 "$(BUILD)/share/$$file" '$(INSTALLED)/share/'"$$file" || exit; done
	[ ! -f $(JAR) ] || install -D -m 644 $(JAR) '$(INSTALLED)/share/java/stockade.jar'

uninstall: ## remove what install put there, with the same PREFIX and DESTDIR
	rm -f $(PROGRAMS:$(BUILD)/%='$(INSTALLED)'/bin/%) '$(INSTALLED)/include/stockade.h' \
	    '$(INSTALLED_LIB)/libstockade.a' '$(INSTALLED_LIB)/libstockade.so' \
	    '$(INSTALLED_LIB)/$(LIBRARY_NAME)' '$(INSTALLED_LIB)/$(notdir $(LIBRARY))' \
	    '$(INSTALLED_LIB)/pkgconfig/stockade.pc' \
	    '$(INSTALLED_LIB)/stockade/$(notdir $(EXTENSION))' \
	    '$(INSTALLED)'/share/man/man3/stk_*.3 '$(INSTALLED)/share/man/man3/libstockade.3' \
	    '$(INSTALLED)/share/man/man1/stockade.1' '$(INSTALLED)/share/man/man5/stockade.conf.5' \
	    '$(INSTALLED)/share/man/man8/stockaded.8' \
	    '$(INSTALLED)'/share/bash-completion/completions/stockade* \
	    '$(INSTALLED)/share/doc/stockade/stockade.conf' '$(INSTALLED)/share/java/stockade.jar'
	for folder in '$(INSTALLED_LIB)/stockade' '$(INSTALLED)/share/doc/stockade'; do \
	    [ ! -d "$$folder" ] || rmdir "$$folder"; done

clean: ## remove what was built
	rm -rf build

tests: $(TESTS) $(BUILD)/stockaded-again helpers

# What tests/system runs besides the programs.
helpers: $(SHIMS)

# What changed flags have to build anew.
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(subst ','\'',$(COMPILE))' | cmp -s - $@ || echo '$(subst ','\'',$(COMPILE))' >$@

$(BUILD)/obj/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	@echo 'cc  $<'
	@$(COMPILE) -MMD -MP -c -o $@ $<

# Files that are built into the programs as they are.
$(call objects,proxy/server/page/page.c): $(wildcard proxy/server/page/*.html \
    proxy/server/page/*.css proxy/server/page/*.js)
$(call objects,store/postgresql/schema.c) $(BUILD)/library/store/postgresql/schema.o: \
    $(wildcard store/postgresql/schema/*.sql)
$(call objects,tools/demo/oversell_python.c): tools/demo/buyer.py
$(call objects,tools/report/report.c): tools/report/report.css tools/report/report.js

$(BUILD)/daemon.a: $(call objects,$(DAEMON_SOURCES))
$(BUILD)/client.a: $(call objects,$(CLIENT_SOURCES))
$(BUILD)/tools.a: $(call objects,$(TOOLS_SOURCES))
$(BUILD)/support.a: $(call objects,$(SUPPORT_SOURCES))
$(BUILD)/%.a:
	@rm -f $@
	@ar rcs $@ $^

$(BUILD)/stockaded: $(call objects,$(DAEMON_MAIN)) $(BUILD)/daemon.a
	@echo 'ld  $@'
	@$(LINK) -o $@ $^ $(DAEMON_LIBS) -pthread -lm

$(BUILD)/stockade: $(call objects,$(TOOLS_MAIN)) $(BUILD)/tools.a $(BUILD)/client.a \
    $(BUILD)/daemon.a
	@echo 'ld  $@'
	@$(LINK) -o $@ $^ $(TOOLS_LIBS) -pthread -lm

# The extension and the library are loaded by other people's programs, so they are never
# instrumented: builds with sanitizers take those of the plain build.
ifneq ($(SANITIZE),)
$(EXTENSION) $(LIBRARY) $(BUILD)/libstockade.a &: FORCE
	@$(MAKE) CC=gcc SANITIZE= BUILD=build \
	    $(patsubst $(BUILD)/%,build/%,$(EXTENSION) $(LIBRARY) $(BUILD)/libstockade.a)
	@ln -sf $(patsubst $(BUILD)/%,$(CURDIR)/build/%,$(EXTENSION) $(LIBRARY) $(BUILD)/libstockade.a) \
	    $(BUILD)
else
# The extension shows its entry point only.
$(BUILD)/extension/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	@echo 'cc  $< (extension)'
	@$(CC) $(LANGUAGE) -DSTOCKADE_EXTENSION -O2 -g $(WARNINGS) -fstack-protector-strong -fPIC \
	    -fvisibility=hidden -ffunction-sections $(CFLAGS) -MMD -MP -c -o $@ $<

$(EXTENSION): $(extension_objects)
	@echo 'ld  $@'
	@$(CC) -shared -g -Wl,--gc-sections,-z,defs,-z,relro,-z,now,-z,noexecstack -o $@ $^

$(BUILD)/library/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	@echo 'cc  $< (library)'
	@$(CC) $(LANGUAGE) -DSTOCKADE_LIBRARY -O2 -g $(WARNINGS) -fstack-protector-strong \
	    -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -fPIC -fvisibility=hidden $(CFLAGS) -MMD -MP -c -o $@ $<

$(LIBRARY): $(library_objects) proxy/client/stockade.map
	@echo 'ld  $@'
	@$(CC) -shared -g -Wl,-soname,$(LIBRARY_NAME),--version-script,proxy/client/stockade.map \
	    -Wl,-z,defs,-z,relro,-z,now,-z,noexecstack,-z,nodelete,--as-needed \
	    -o $@ $(library_objects) $(LIBRARY_LIBS) -pthread -lm

# The archive is one object in which only what is exported can be seen.
$(BUILD)/libstockade.a: $(library_objects)
	@echo 'ar  $@'
	@ld -r -o $(BUILD)/library/stockade.o $^
	@objcopy --localize-hidden $(BUILD)/library/stockade.o
	@rm -f $@
	@ar rcs $@ $(BUILD)/library/stockade.o
endif

$(LIBRARY_LINKS): $(LIBRARY)
	@ln -sf $(notdir $(LIBRARY)) $@

$(JAR): $(JAVA_SOURCES) LICENSE proxy/client/java/pom.xml
	@echo 'jar $@'
	@rm -rf $(BUILD)/java && mkdir -p $(BUILD)/java/META-INF/maven/io.stockade/stockade
	@javac --release 17 -Xlint:all -Xdoclint:all/protected -Werror -encoding UTF-8 \
	    -d $(BUILD)/java $(JAVA_SOURCES)
	@cp LICENSE $(BUILD)/java/META-INF
	@cp proxy/client/java/pom.xml $(BUILD)/java/META-INF/maven/io.stockade/stockade
	@printf '%s\n' 'Automatic-Module-Name: io.stockade' 'Implementation-Title: stockade' \
	    'Implementation-Version: $(VERSION)' >$(BUILD)/java.manifest
	@jar --create --file $@ --manifest $(BUILD)/java.manifest -C $(BUILD)/java .

$(BUILD)/java-tests.jar: $(JAVA_TEST_SOURCES) $(JAR)
	@echo 'jar $@'
	@rm -rf $(BUILD)/java-tests && mkdir -p $(BUILD)/java-tests
	@javac --release 17 -Xlint:all -Werror -encoding UTF-8 -cp $(JAR):$(JUNIT) \
	    -d $(BUILD)/java-tests $(JAVA_TEST_SOURCES)
	@jar --create --file $@ -C $(BUILD)/java-tests .

# A unit test is its own program; the helpers of its folder and the parts under test go with it.
define unit_test
$(BUILD)/$(1:%.c=%): $(call objects,$(1) tests/unit/test.c $(foreach h,$(HELPER_SOURCES),$(if \
    $(filter $(dir $(1)),$(dir $(h))),$(h)))) \
    $(if $(filter tests/unit/tools/%,$(1)),$(BUILD)/tools.a) \
    $(if $(filter tests/unit/tools/% tests/unit/client/%,$(1)),$(BUILD)/client.a) \
    $(BUILD)/support.a $(BUILD)/daemon.a
	@mkdir -p $$(@D)
	@$$(LINK_TEST) -o $$@ $$^ $$(TEST_LIBS) $$(ZOOKEEPER_LIBS) -pthread -lm
endef
$(foreach t,$(TEST_SOURCES),$(eval $(call unit_test,$(t))))
# Its connections are tests/libpq's.
$(BUILD)/tests/unit/store/postgresql_refusals_test: LDFLAGS += -Wl,--wrap=libpq_load

# What tries to break the promises has its targets beside its sources: tests/README.md.
include $(sort $(wildcard tests/*/*.mk tools/*/*.mk))

# Shims are preloaded into the daemon by system tests, so they are never instrumented.
$(BUILD)/%_shim.so: tests/support/%_shim.c $(BUILD)/flags
	@echo 'cc  $<'
	@$(CC) $(LANGUAGE) -O2 -g $(WARNINGS) -fPIC -shared -o $@ $< -ldl

# The daemon of the suite `again`.
$(BUILD)/stockaded-again: $(call objects,$(DAEMON_MAIN) tests/support/again_store.c) \
    $(BUILD)/daemon.a
	@echo 'ld  $@'
	@$(LINK) -Wl,--wrap=store_open -o $@ $^ $(DAEMON_LIBS) -pthread -lm

-include $(patsubst %.o,%.d,$(call objects,$(DAEMON_SOURCES) $(CLIENT_SOURCES) $(TOOLS_SOURCES) \
    $(UNIT_SOURCES) $(SUPPORT_SOURCES) $(DAEMON_MAIN) $(TOOLS_MAIN) $(PROOF_SOURCES)) \
    $(extension_objects) $(library_objects))
