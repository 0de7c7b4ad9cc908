# Two commands do everything on a machine with Python 3.11 or newer, make and pip.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: quickstart test docs clean

quickstart: .venv/.quickstart  ## install, then train, certify and compare on digits
	$(BIN)/prood quickstart $(if $(OUT),--out $(OUT))

test: .venv/.test  ## install, then style, types and all tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2

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

clean:
	rm -rf .venv dist site
