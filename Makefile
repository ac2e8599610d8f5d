# What a person types: `make demo` shows the tool at work, `make check` runs every check. GNU make 4.3, Python >= 3.10, git.

PYTHON ?= python3
# The interpreters of check-pythons: the oldest that is supported, and the newest.
PYTHONS ?= python3.10 python3.13
TREE ?=
ARGS ?=

VENV := .venv
REQUIREMENTS := requirements/run.txt requirements/dev.txt requirements/torch.txt
TORCH = $(if $(filter %/torch.txt,$(REQUIREMENTS)),requirements/torch-build.txt)
PIP_INSTALL = -m pip install --quiet --disable-pip-version-check
RUN := $(VENV)/bin/python
SPECIMEN_STACKS := tests/specimen/stacks

.SHELLFLAGS := -eu -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

.PHONY: help
help: ## Say what there is to make.
	@sed -nE 's/^([a-z-]+):.*## (.*)/make \1\t\2/p' Makefile | expand -t 24

.PHONY: setup
setup: $(VENV)/.ready ## Make the virtual environment .venv, or make it again when requirements/ has changed.

# --clear: what is pinned is all that there is. The stamp comes last, so that an attempt that failed is made again.
$(VENV)/.ready: $(REQUIREMENTS) $(TORCH)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or later is needed, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv --clear $(VENV)
	$(RUN) $(PIP_INSTALL) --require-hashes $(REQUIREMENTS:%=--requirement %)
	$(if $(TORCH),$(RUN) $(PIP_INSTALL) --requirement $(TORCH))
	$(RUN) -m pip check
	@touch $@

.PHONY: demo
demo: setup ## Show the main job on the specimen, a miniature torch_musa.
	@$(RUN) tests/demo.py

.PHONY: apply
apply: $(if $(TREE),setup) ## Apply the stack to a real tree: make apply TREE=../torch_musa [ARGS=--dry-run].
	@$(if $(TREE),,echo 'make apply: name the tree: make apply TREE=../torch_musa' >&2; exit 2)
	$(RUN) apply.py apply $(ARGS) '$(TREE)'

.PHONY: check
check: setup ## Run every check: ruff, mypy, the lint of the stacks, all tests.
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy --strict apply.py stack verify
	$(RUN) apply.py lint
	$(RUN) apply.py lint --stacks $(SPECIMEN_STACKS)
	$(RUN) -m pytest -n 2 --dist loadfile

# What can differ between Pythons and between unidiffs: the engine, its command line, and what reads sources.
ENGINE := series pins paths patch hunk header state plan transaction interrupts journal quilt cli lint start_up \
    fork gitwork defect static scan imported export cases protections

.PHONY: check-pythons
check-pythons: ## Run the engine's tests on each of PYTHONS at once, Python 3.10 with the unidiff and GitPython of Debian.
	@$(MAKE) --no-print-directory -j $(words $(PYTHONS)) $(PYTHONS:%=on-%)

.PHONY: $(PYTHONS:%=on-%)
$(PYTHONS:%=on-%): on-%:
	@version=$$($* -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	unidiff=run; if [ "$$version" = 3.10 ]; then unidiff=debian; fi; \
	$(MAKE) --no-print-directory engine-tests PYTHON="$*" VENV=".venv-$$version" \
	    REQUIREMENTS="requirements/$$unidiff.txt requirements/dev.txt"

.PHONY: engine-tests
engine-tests: setup
	$(RUN) -m pytest -m 'not torch and not chromium and not distro' $(ENGINE:%=tests/test_%.py)

.PHONY: bench
bench: setup ## Time apply beside quilt, git am and patch, and how it grows.
	@$(RUN) tests/bench.py

.PHONY: matrix
matrix: setup ## Run the simulated level of each release on its own torch; installs gigabytes. ARGS=--trees=DIR for real trees.
	@$(RUN) tests/matrix.py $(ARGS)

.PHONY: faults
faults: setup ## Kill every command at each call to the file system, and let each fail: about an hour. ARGS='apply commit'.
	@$(RUN) tests/faults.py $(ARGS)

TOOLS := .venv-tools
LOCKED := $(basename $(wildcard requirements/*.in))

$(TOOLS)/.ready: requirements/tools.txt
	$(PYTHON) -m venv --clear $(TOOLS)
	$(TOOLS)/bin/python $(PIP_INSTALL) --require-hashes --requirement requirements/tools.txt
	@touch $@

.PHONY: lock
lock: $(TOOLS)/.ready ## Write requirements/*.txt anew from the *.in: every package with the digests of its files.
	for name in $(LOCKED); do $(TOOLS)/bin/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes \
	    --no-header --no-emit-index-url --no-emit-find-links $$name.in --output-file $$name.txt; done

# --strict: a package that could not be looked up is a failure, not a pass.
.PHONY: audit
audit: $(TOOLS)/.ready ## Ask PyPI's advisories about everything in requirements/; needs the network.
	$(TOOLS)/bin/pip-audit --strict --disable-pip --require-hashes $(LOCKED:%=--requirement %.txt)

.PHONY: sums
sums: ## Write SHA256SUMS of both stacks folders anew, after a change by hand.
	for folder in . $(SPECIMEN_STACKS); do (cd $$folder && LC_ALL=C sh -c 'sha256sum patches/*/* series/*' > SHA256SUMS); done

# Hypothesis: EXAMPLES of all properties together, other ones each time. atheris: TIME seconds for each target, which
# may take no input longer than 25 seconds or 2 GB. What either finds is left in build/, and is tried first the next time.
EXAMPLES ?= 100000
TIME ?= 600
FUZZ_TARGETS := patch series pins header record data apply
FUZZ := build/fuzz

.PHONY: fuzz
fuzz: ## Fuzz the engine for hours: EXAMPLES=100000 random stacks, then TIME=600 seconds on each of seven targets.
	@$(MAKE) --no-print-directory fuzz-here PYTHON="$(PYTHON)" VENV=.venv-fuzz \
	    REQUIREMENTS="requirements/run.txt requirements/dev.txt requirements/fuzz.txt"

.PHONY: fuzz-here
fuzz-here: setup
	EXAMPLES=$(EXAMPLES) $(RUN) -m pytest -n 2 --dist load tests/test_fuzz.py tests/test_fuzz_parsers.py
	@$(MAKE) --no-print-directory $(FUZZ_TARGETS:%=fuzz-%) VENV=$(VENV) REQUIREMENTS="$(REQUIREMENTS)"

.PHONY: $(FUZZ_TARGETS:%=fuzz-%)
$(FUZZ_TARGETS:%=fuzz-%): fuzz-%:
	@mkdir -p $(FUZZ)/$*
	$(RUN) tests/fuzz_atheris.py $* $(FUZZ)/$* -max_total_time=$(TIME) -timeout=25 -rss_limit_mb=2048 \
	    -max_len=65536 -len_control=0 -verbosity=0 -print_final_stats=1 -artifact_prefix=$(FUZZ)/$*-

.PHONY: clean
clean: ## Remove what the other targets have made.
	rm -rf .venv .venv-3.* .venv-fuzz .venv-tools build .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
