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

# packages-PURPOSE: tools/setup/packages.sh has a list for each.
.PHONY: venv qemu qtests qemu-stock qemu-asan qemu-tsan agent web-assets images rotdisk
packages-%:
	@bash $(SETUP)/packages.sh $*
venv: packages-python
	@bash $(SETUP)/venv.sh
qemu: packages-qemu ## build the patched QEMU into build/qemu
	@bash $(SETUP)/qemu.sh
qtests: qemu ## build the qtests for it into build/qemu-qtests
	@bash $(SETUP)/qemu.sh --qtests
qemu-stock: qemu ## build the same QEMU without patches: the baseline of experiment E1
	@bash $(SETUP)/qemu.sh --stock
qemu-asan: packages-sanitizers ## build it with address sanitizer and fuzzer into build/qemu-asan
	@bash $(SETUP)/qemu.sh --asan
	@bash $(SETUP)/qemu.sh --asan --qtests
qemu-tsan: packages-sanitizers ## build it with the thread sanitizer into build/qemu-tsan
	@bash $(SETUP)/qemu.sh --tsan
	@bash $(SETUP)/qemu.sh --tsan --qtests
agent: packages-agent ## build the guest agent into build/agent
	@bash $(SETUP)/agent.sh
web-assets:
	@bash $(SETUP)/web-assets.sh
images: packages-images
	@bash $(SETUP)/images.sh
rotdisk: packages-images
	@bash $(SETUP)/rotdisk.sh

# What a target needs, and no more; its steps run beside each other.
.PHONY: setup setup-demo setup-test setup-test-long
setup-demo: packages-demo
	@python3 $(SETUP)/all.py demo
setup-test: packages-test
	@python3 $(SETUP)/all.py test
setup-test-long: packages-test-long
	@python3 $(SETUP)/all.py test-long
setup: setup-test ## everything that demo and test need

.PHONY: demo
demo: setup-demo ## the main job: a VLC stream survives an overload
	@build/venv/bin/python -m demo $(ARGS)

.PHONY: test test-long
test: setup-test ## all tests but the long ones; prints how many of each kind
	@bash tools/test/run.sh $(ONLY)
test-long: setup-test-long ## the long tests: stress, fuzzing, hosts, packages
	@$(MAKE) deb ONLY= ARGS= && bash $(SETUP)/machines.sh
	@bash tools/test/run.sh --long $(ONLY)

.PHONY: machines test-deploy
machines: packages-images
	@bash $(SETUP)/machines.sh
test-deploy: venv qemu images ## deploy to two emulated Debian 13 machines and take it away again
	@$(MAKE) deb ONLY= ARGS=
	@bash $(SETUP)/machines.sh
	@bash tools/test/deploy.sh $(ARGS)

.PHONY: deb
deb: packages-images venv agent web-assets ## Debian packages into build/deb, a flat APT repository
	@bash tools/packaging/build.sh $(ONLY) $(ARGS)

.PHONY: bench bench-tick
bench-tick: venv ## the cost of one tick of sluiced at 10, 50 and 200 guests, and its bars
	@build/venv/bin/python tests/measure/experiments/tick.py $(ARGS)
bench: qemu packages-bench ## the engine's cost per decision, and its bars; ARGS=--instructions on a busy machine
	@bash qemu-patches/bench/run.sh $(ARGS)

.PHONY: cli-reference
cli-reference: venv ## docs/reference/cli.md from the commands themselves
	@sed -i '/^<!-- typer -->$$/q' docs/reference/cli.md
	@build/venv/bin/python -m typer sluice_controller.entry.cli.main utils docs --name sluice \
		| sed -e '$${/^$$/d;}' >> docs/reference/cli.md

.PHONY: perf
perf: setup-demo packages-perf ## an experiment of the papers: make perf EXPERIMENT=E2
	@[ "$(EXPERIMENT)" != E1 ] || bash $(SETUP)/qemu.sh --stock
	@build/venv/bin/python -m measure.experiments $(EXPERIMENT) $(ARGS)

.PHONY: sim
sim: venv ## auto-shaping on simulated hosts: make sim ARGS="--seeds 0-19 --kind ssd"
	@nice build/venv/bin/python -m sim $(ARGS)

.PHONY: stress fuzz stock-tests check-series newest-qemu
stress: ## long runs: make stress ARGS="migration --count 50", or lifecycle, threads, changes, hosts
	@[ -n "$(ARGS)" ] || { echo 'say which: ARGS=lifecycle, threads, changes, hosts or "migration --count 50"'; exit 2; }
	@case "$(ARGS)" in lifecycle*) t=qemu-asan ;; threads*) t=qemu-tsan ;; *) t="setup-demo packages-perf" ;; esac; $(MAKE) $$t
	@case "$(ARGS)" in hosts*) $(MAKE) deb ONLY= ARGS= && bash $(SETUP)/machines.sh ;; esac
	@case "$(ARGS)" in \
	lifecycle*) bash qemu-patches/scripts/stress.sh lifecycle build/qemu-asan '$(word 2,$(ARGS))' '$(word 3,$(ARGS))' ;; \
	threads*) bash qemu-patches/scripts/stress.sh threads build/qemu-tsan '$(word 2,$(ARGS))' '$(word 3,$(ARGS))' ;; \
	*) cd tests && ../build/venv/bin/python -m measure.stress $(ARGS) ;; esac
fuzz: qemu-asan ## all fuzzers for long: make fuzz MINUTES=10 (each)
	@SLUICE_FUZZ_SECONDS=$$(( $(or $(MINUTES),10) * 60 )) bash qemu-patches/scripts/fuzz.sh
stock-tests: packages-qemu ## QEMU's own qtests and iotests, with the series and without
	@bash $(SETUP)/qemu.sh --full
	@bash $(SETUP)/qemu.sh --stock --full
	@python3 qemu-patches/scripts/stock_tests.py build/qemu-stock-full build/qemu-full $(ARGS)
check-series: qemu ## each patch applies and builds alone; the series is small
	@bash qemu-patches/scripts/check-series.sh
newest-qemu: qemu ## try the series on the newest QEMU that Debian packages
	@. $(SETUP)/common.sh && export CCACHE_DIR=$$SLUICE_CACHE/qemu/ccache && \
	    bash qemu-patches/scripts/newest.sh "$$SLUICE_CACHE/qemu-newest"

.PHONY: lint
lint: venv agent packages-lint ## linters and formatters, changing nothing
	@bash tools/test/lint.sh

.PHONY: lock
lock: ## write requirements.lock anew
	@bash $(SETUP)/lock.sh

.PHONY: clean distclean
clean: ## remove build/ (the cache stays)
	rm -rf build
distclean: ## also remove the cache of build trees and guest images
	@bash $(SETUP)/distclean.sh
