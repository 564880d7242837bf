# SPDX-License-Identifier: Apache-2.0
# The Debian packages, built by Debian's tools in a copy of what they are made from.

DEB := $(BUILD)/deb
DEB_TREE := $(DEB)/stockade-$(VERSION)
DEB_MAINTAINER = $(shell sed -n 's/^Maintainer: //p' tools/debian/control)

.PHONY: deb
deb: ## build Debian packages in build/deb, and check them with lintian; runs no tests
	@tools/setup --deb
	@rm -rf $(DEB) && mkdir -p $(DEB_TREE)
	@cp -a CHANGELOG.md LICENSE Makefile README.md examples fence proxy store tools $(DEB_TREE)
	@cp -a tools/debian $(DEB_TREE)/debian
	@printf '%s\n' 'stockade ($(VERSION)-1) unstable; urgency=medium' '' \
	    '  * CHANGELOG.md says what is new.' '' \
	    " -- $(DEB_MAINTAINER)  $$(date -R -r proxy/client/stockade.h)" >$(DEB_TREE)/debian/changelog
	@cd $(DEB_TREE) && env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS dpkg-buildpackage -b -us -uc
	@lintian --fail-on error $(DEB)/*.changes
	@ls $(DEB)/*.deb
