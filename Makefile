# make help    what there is to make
PREFIX ?= /usr/local
TO = $(DESTDIR)$(PREFIX)
CARGO ?= cargo
RPCPROBE := userspace/target/release/rpcprobe
# What is installed: the program without its debug data, and these beside it, where debuggers, profilers
# and backtraces look for them.
STRIPPED := userspace/target/release/stripped/rpcprobe
DEBUG := .debug/rpcprobe.debug
# Man pages and shell completions, made by the program and laid out as below $(PREFIX)/share.
SHARE := userspace/target/release/share
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
C_SOURCES = $(shell git ls-files '*.c' '*.h' '*.cc')
PYTHON_SOURCES = $(shell git ls-files '*.py') targets/netlab/netlab
VENV := .cache/venv
TARGETS := frpc echo netlab kvlog flexcache stockbazaar greeter
TEST_VENV := .cache/test-venv
PACKAGE_VENV := .cache/package-venv

all: build
.PHONY: all help build install demo bench notebook notebooks test test-targets test-rust test-python lint fmt clean
.PHONY: deps-build deps-test deps-lint deps-vmtest

# A target's line is what stands after `##` beside it.
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r target what; do \
		printf 'make %-16s %s\n' "$$target" "$$what"; \
	done

deps-build deps-test deps-lint deps-vmtest: deps-%:
	@.ci/install-deps $*

build: deps-build ## build rpcprobe and the evaluator that the main job runs
	$(CARGO) build --release --locked --manifest-path userspace/Cargo.toml
	$(MAKE) --no-print-directory -C targets/frpc

install: build ## install rpcprobe with its man pages and shell completions (PREFIX=/usr/local; DESTDIR= for a package)
	@if ! [ $(STRIPPED) -nt $(RPCPROBE) ]; then \
		mkdir -p $(dir $(STRIPPED)) && rm -f $(STRIPPED) && \
		objcopy --only-keep-debug --compress-debug-sections=zlib $(RPCPROBE) $(STRIPPED).debug && \
		objcopy --strip-all --add-gnu-debuglink=$(STRIPPED).debug $(RPCPROBE) $(STRIPPED); \
	fi
	@mkdir -p $(TO)/bin 2> /dev/null; test -w $(TO)/bin && as_root= || as_root=sudo; \
	cmp -s $(STRIPPED) $(TO)/bin/rpcprobe && cmp -s $(STRIPPED).debug $(TO)/bin/$(DEBUG) || { \
		$$as_root install -D -m 755 $(STRIPPED) $(TO)/bin/rpcprobe && \
		$$as_root install -D -m 644 $(STRIPPED).debug $(TO)/bin/$(DEBUG); \
	} || exit; \
	rm -rf $(SHARE) && $(RPCPROBE) generate $(SHARE) || exit; \
	for file in $$(cd $(SHARE) && find * -type f); do \
		cmp -s $(SHARE)/$$file $(TO)/share/$$file || \
			$$as_root install -D -m 644 $(SHARE)/$$file $(TO)/share/$$file || exit; \
	done

demo: install ## build all and run the main job on real input
	@rm -rf targets/frpc/rpcprobe.out targets/frpc/rpcprobe.out.[0-9]*
	@echo; echo '$$ cd targets/frpc && sudo rpcprobe run -- ./frpc -m 3 < expressions.txt'
	@cd targets/frpc && sudo rpcprobe run -- ./frpc -m 3 < expressions.txt > answers.txt
	@echo; echo "The slowest request, piece by piece:"; echo '$$ rpcprobe explain --slowest'
	@cd targets/frpc && rpcprobe explain --slowest
	@echo; echo "$$(grep -c ANSWER targets/frpc/answers.txt) answers are in targets/frpc/answers.txt," \
		"the capture is in targets/frpc/rpcprobe.out."

bench: build ## what tracing costs, beside other tools (half an hour; ARGS='--rounds 2' for less)
	@$(MAKE) --no-print-directory -C experiments/overhead check rate

# The notebooks' programs: what `build` makes, and these.
notebook-targets: build $(PACKAGE_VENV)/ready
	@$(MAKE) --no-print-directory -C targets/flexcache
	@$(MAKE) --no-print-directory -C targets/stockbazaar
.PHONY: notebook-targets

# Captures need root, and notebooks take some; `notebook` itself runs as you are.
IN_PACKAGE := env PYTHONPATH=$(CURDIR)/userspace/python PYTHONDONTWRITEBYTECODE=1 RPCPROBE=$(CURDIR)/$(RPCPROBE)

notebooks: notebook-targets ## run the notebooks, export them to notebooks/exported
	@$(SUDO) $(IN_PACKAGE) $(PACKAGE_VENV)/bin/python notebooks/export.py --to notebooks/exported

notebook: notebook-targets ## open the notebooks, to change what they show (marimo)
	@$(IN_PACKAGE) $(PACKAGE_VENV)/bin/marimo edit notebooks

# The reports' experiments: their folders, by their first word (S=s1). With QUICK=1 less of everything, written elsewhere.
STUDIES := $(notdir $(patsubst %/tell.py,%,$(wildcard experiments/*/tell.py)))
STUDY_TARGETS := frpc netlab kvlog flexcache stockbazaar greeter
IN_EXPERIMENTS := $(IN_PACKAGE) PYTHONPATH=$(CURDIR)/userspace/python:$(CURDIR)/experiments
experiments: $(STUDIES:%=experiment-%) ## the five reports anew: figures and RESULTS.md of each (QUICK=1 in a few minutes)
experiment: ## one of them: S=s1 (QUICK=1)
	@test -n "$(filter $(S)%,$(STUDIES))" || { echo "S= one of: $(STUDIES)" >&2; exit 2; }
	@$(MAKE) --no-print-directory $(patsubst %,experiment-%,$(filter $(S)%,$(STUDIES)))
$(STUDIES:%=experiment-%): experiment-%: experiment-targets
	@echo "$*"
	@$(SUDO) $(IN_EXPERIMENTS) $(PACKAGE_VENV)/bin/python experiments/$*/run.py \
		$(if $(QUICK),--quick --to .cache/experiments/$*)
experiment-targets: build deps-test $(PACKAGE_VENV)/ready
	@for target in $(STUDY_TARGETS); do $(MAKE) --no-print-directory -s -C targets/$$target || exit; done
experiment-page: build ## the page of one of them: S=s1 (after make experiment)
	@for study in $(filter $(S)%,$(STUDIES)); do \
		$(RPCPROBE) report experiments/$$study/.cache/capture --html experiments/$$study/.cache/page.html && \
		echo experiments/$$study/.cache/page.html; \
	done
.PHONY: experiments experiment experiment-page experiment-targets

test: deps-test build test-targets test-rust test-python test-experiments test-kernels ## run every test; captures need root

test-targets: ## check the programs under test only
	@for target in $(TARGETS); do \
		$(MAKE) --no-print-directory -C targets/$$target check || exit; \
	done

# Captures need root; the tests say what they skip where the kernel lacks an ability. Where doctor
# finds that all works, skipping counts as failing; and where the verifier finds fault with a program, which is ours.
test-rust: build $(TEST_VENV)/ready ## run rpcprobe's own tests only
	@$(MAKE) --no-print-directory -C targets/echo
	@said=$$($(SUDO) $(RPCPROBE) doctor 2>&1); \
	case "$$?$$said" in 0*|*verifier*) require=1;; *) require=0;; esac; \
	echo "kernel tests required: $$require"; \
	RPCPROBE_REQUIRE_KERNEL=$$require \
	$(if $(SUDO),CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="sudo -E") \
	$(CARGO) test --locked --manifest-path userspace/Cargo.toml

# As for test-rust; what captures does so as root. The wheel is built in the same folder as everything else, and stripped:
# then the program there is put back.
test-python: notebook-targets ## the tests of the Python package and the notebooks only
	@$(IN_PACKAGE) $(PACKAGE_VENV)/bin/pytest -p no:cacheprovider -m "not root"
	@said=$$($(SUDO) $(RPCPROBE) doctor 2>&1); \
	case "$$?$$said" in 0*|*verifier*) require=1;; *) require=0;; esac; \
	$(SUDO) $(IN_PACKAGE) RPCPROBE_REQUIRE_KERNEL=$$require $(PACKAGE_VENV)/bin/pytest -p no:cacheprovider -m root
	@$(CARGO) build --quiet --release --locked --manifest-path userspace/Cargo.toml

# Of what is kept with the sources, and of a quick run.
test-experiments: $(PACKAGE_VENV)/ready ## the reports' experiments only: that what RESULTS.md says is in the tables, of a quick run, too
	@$(IN_EXPERIMENTS) $(PACKAGE_VENV)/bin/pytest -p no:cacheprovider --import-mode=importlib experiments
	@said=$$($(SUDO) $(RPCPROBE) doctor 2>&1); \
	case "$$?$$said" in 0*|*verifier*) ;; *) echo "skipped: a quick run, since this kernel lacks what captures need"; exit;; esac; \
	$(MAKE) --no-print-directory experiments QUICK=1 && \
	$(IN_EXPERIMENTS) EXPERIMENT_RESULTS=.cache/experiments \
		$(PACKAGE_VENV)/bin/pytest -p no:cacheprovider --import-mode=importlib experiments
.PHONY: test-experiments

# This machine's kernel and Debian's 6.1 and 6.12, those for arm64, too, as root. `test-kernels` installs no emulator, and says
# what it skips.
vmtest: deps-vmtest test-kernels ## captures on stock kernels 6.1 and 6.12 (x86-64, arm64) under QEMU, beside this one (QUICK=1: fewer cases; ARGS=6.1)
test-kernels: build $(PACKAGE_VENV)/ready
	@for target in $(KERNEL_TARGETS); do $(MAKE) --no-print-directory -s -C $$target || exit; done
	@$(SUDO) $(IN_PACKAGE) $(PACKAGE_VENV)/bin/python experiments/kernels/run.py \
		$(if $(QUICK)$(filter test,$(MAKECMDGOALS)),--quick) $(ARGS)
KERNEL_TARGETS := targets/frpc targets/echo targets/greeter targets/flexcache experiments/ground_truth
.PHONY: vmtest test-kernels

lint: deps-lint deps-build $(VENV)/bin/ruff ## check format and style of all sources
	$(CARGO) fmt --all --check --manifest-path userspace/Cargo.toml
	$(CARGO) clippy --locked --all-targets --manifest-path userspace/Cargo.toml -- -D warnings
	clang-format-19 --dry-run -Werror $(C_SOURCES)
	$(VENV)/bin/ruff check $(PYTHON_SOURCES)
	$(VENV)/bin/ruff format --check $(PYTHON_SOURCES)

fmt: deps-lint $(VENV)/bin/ruff ## format all sources
	$(CARGO) fmt --all --manifest-path userspace/Cargo.toml
	clang-format-19 -i $(C_SOURCES)
	$(VENV)/bin/ruff format $(PYTHON_SOURCES)

$(VENV)/bin/ruff: | deps-lint
	python3 -m venv $(VENV)
	$(VENV)/bin/pip install --quiet ruff==0.14.5

# What the tests drive and nobody has to install.
$(TEST_VENV)/ready: Makefile | deps-test
	python3 -m venv $(TEST_VENV)
	$(TEST_VENV)/bin/pip install --quiet grpcio==1.76.0 duckdb==2.0.0 perfetto==0.59.1
	@touch $@

# What the package's tests and the notebooks import.
$(PACKAGE_VENV)/ready: userspace/python/requirements.txt | deps-test
	python3 -m venv $(PACKAGE_VENV)
	$(PACKAGE_VENV)/bin/pip install --quiet -r userspace/python/requirements.txt
	@grep -l '$(MATHJAX)' $(MARIMO_ASSETS) | xargs -r sed -i 's|$(MATHJAX)|data:text/javascript,|'
	@touch $@
# marimo's component for figures asks a network for it, and none of our figures has a formula: nothing takes its place.
MATHJAX := https://cdn.jsdelivr.net/npm/mathjax-full@[0-9.]*/es5/tex-mml-svg.min.js
MARIMO_ASSETS = $(PACKAGE_VENV)/lib/python3*/site-packages/marimo/_static/assets/*.js

clean: ## remove everything that was built
	$(CARGO) clean --manifest-path userspace/Cargo.toml
	@for target in $(TARGETS); do $(MAKE) -C targets/$$target clean; done
	rm -rf .cache notebooks/exported targets/frpc/rpcprobe.out targets/frpc/rpcprobe.out.[0-9]* targets/frpc/answers.txt
