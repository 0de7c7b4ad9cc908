# Two commands do everything on a machine with Python 3.11 or newer, make and pip.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: quickstart check test style docs release clean

quickstart: .venv/.quickstart  ## install, then train, certify and compare on digits
	$(BIN)/prood quickstart $(if $(OUT),--out $(OUT))

check: style  ## while working: style, types, and the tests of every room that take no longer than a moment
	$(BIN)/pytest -n 2 --dist worksteal -m 'not slow'

test: style  ## before a change is handed in: style, types and all tests
	$(BIN)/pytest -n 2 --dist worksteal --durations 20

style: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/.docs  ## install, then bring the generated pages up to date and build the site into site/
	$(BIN)/python docs/make
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# torch comes first and only through the constraints file: any other request may bring several GB of CUDA packages.
.venv/.torch: constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	touch $@

.venv/.quickstart: .venv/.torch pyproject.toml
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[quickstart,serve]'
	touch $@

.venv/.test: .venv/.torch pyproject.toml
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@

.venv/.docs: .venv/.torch pyproject.toml
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

release: .venv/.torch  ## build wheel and sdist into dist/, look into them, and try the wheel in an empty environment
	bash .ci/release $(BIN)/python

clean:
	rm -rf .venv dist site
