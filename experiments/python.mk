# What the experiments import: one environment, the same as the Python package's tests have.
PYTHON := $(CURDIR)/../../.cache/package-venv/bin/python

python:
	@$(MAKE) --no-print-directory -s -C ../.. .cache/package-venv/ready

.PHONY: python
