# SPDX-License-Identifier: GPL-2.0-or-later
# The front door. Every target installs what it needs; a second run skips
# what is there. `make help` lists the targets.

SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
SETUP := tools/setup

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-28s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  make demo ARGS=--once                run the demo, print the result, clean up"
	@echo "  make test ONLY=unit                  one kind of test (tools/test/run.sh --help)"
	@echo "  make test-deploy ARGS='-x --keep'    stop at the first failure, hold the machines"
	@echo "  make deb ONLY=controller             one package (tools/packaging/build.sh --list)"
	@echo "  make perf EXPERIMENT=E2              one of the papers' experiments"

.PHONY: packages venv qemu qemu-stock agent web-assets images rotdisk setup
packages:
	@bash $(SETUP)/packages.sh
venv: packages
	@bash $(SETUP)/venv.sh
qemu: packages ## build the patched QEMU into build/qemu
	@bash $(SETUP)/qemu.sh
qemu-stock: qemu ## build the same QEMU without patches: the baseline of experiment E1
	@bash $(SETUP)/qemu.sh --stock
agent: packages ## build the guest agent into build/agent
	@bash $(SETUP)/agent.sh
web-assets: packages
	@bash $(SETUP)/web-assets.sh
images: packages
	@bash $(SETUP)/images.sh
rotdisk: packages
	@bash $(SETUP)/rotdisk.sh
setup: packages venv agent web-assets rotdisk images qemu ## everything that demo and test need

.PHONY: demo
demo: setup ## the main job: a VLC stream survives an overload
	@build/venv/bin/python -m demo $(ARGS)

.PHONY: test
test: setup ## all tests; prints how many of each kind
	@bash tools/test/run.sh $(ONLY)

.PHONY: machines test-deploy
machines: packages
	@bash $(SETUP)/machines.sh
test-deploy: venv qemu images deb ## deploy to two emulated Debian 13 machines and take it away again
	@bash $(SETUP)/machines.sh
	@build/venv/bin/python -m pytest -v -rs -p no:cacheprovider tests/deploy $(ARGS)

.PHONY: deb
deb: packages venv agent web-assets ## Debian packages into build/deb, a flat APT repository
	@bash tools/packaging/build.sh $(ONLY) $(ARGS)

.PHONY: bench
bench: qemu ## the engine's cost per decision beside QEMU's own throttle core
	@bash qemu-patches/bench/run.sh

.PHONY: perf
perf: setup ## an experiment of the papers: make perf EXPERIMENT=E2
	@[ "$(EXPERIMENT)" != E1 ] || bash $(SETUP)/qemu.sh --stock
	@build/venv/bin/python -m perf $(EXPERIMENT) $(ARGS)

.PHONY: lint
lint: venv agent ## linters and formatters, changing nothing
	@bash tools/test/lint.sh

.PHONY: lock
lock: ## write requirements.lock anew
	@bash $(SETUP)/lock.sh

.PHONY: clean distclean
clean: ## remove build/ (the cache stays)
	rm -rf build
distclean: clean ## also remove the cache of build trees and guest images
	@. $(SETUP)/common.sh && rm -rf "$$SLUICE_CACHE" "$$SLUICE_TOP/build" && echo "removed $$SLUICE_CACHE"
