# Everything that can be done to Holdfast. `make` alone prints this list.
# Needed on the machine: Python 3.11 or newer, and make. All else is set up here, in .venv, on first use.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

PYTHON ?= python3
PIP_VERSION := 26.3
BIN := .venv/bin
# Three stamps: what runs Holdfast, what runs its pipelines, and what checks, tests and measures it.
READY := .venv/.ready
SPARK := .venv/.spark
DEV := .venv/.dev
CODE := $(wildcard src tests tools bench examples)
PG15_BIN ?= /usr/lib/postgresql/15/bin
# A process for each core; each has a PostgreSQL server of its own.
PYTEST := $(BIN)/python -m pytest --numprocesses=auto --maxprocesses=8 --dist=worksteal $(PYTEST_ARGS)

.PHONY: help
help: ## this list
	@grep -hE '^[a-z0-9/_-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | awk -F '\t' '{printf "  make %-20s %s\n", $$1, $$2}'

# --- what people want -------------------------------------------------------------------------

.PHONY: run spark demo test verify bench-engine bench-http bench-spark bench-webhook
run: $(READY) ## set up, then run Holdfast with its own PostgreSQL (data in ./.holdfast)
	$(BIN)/holdfast up

spark: $(SPARK) ## add to it what pipelines need: Spark, and Java for a machine that has none

demo: $(SPARK) ## 200,000 orders from files to a report, in two minutes (files in ./.demo)
	$(BIN)/python -m examples.demo $(DEMO_ARGS)

test: check debian/pgbouncer debian/redis debian/nodejs ## set up, then lint, types and the test suite (< 15 minutes)
	$(PYTEST) -m "not verify"

verify: check debian/pgbouncer debian/redis debian/nodejs debian/postgresql-15 debian/libpostgresql-jdbc-java debian/wrk ## all tests, the long ones too, on PostgreSQL 18 and 15
	$(PYTEST)
	HOLDFAST_PG_BIN=$(PG15_BIN) $(PYTEST)

bench-engine: $(DEV) ## measure the engine beside its peers
	$(BIN)/python -m bench.engine $(BENCH_ARGS)

bench-http: $(DEV) debian/wrk ## measure the HTTP server beside a peer's
	$(BIN)/python -m bench.http $(BENCH_ARGS)

bench-spark: $(DEV) debian/libpostgresql-jdbc-java ## measure the data source for Spark beside its peers
	$(BIN)/python -m bench.spark $(BENCH_ARGS)

bench-webhook: $(DEV) ## measure deliveries to endpoints beside a bare loop of the HTTP client
	$(BIN)/python -m bench.webhook $(BENCH_ARGS)

# --- checks -----------------------------------------------------------------------------------

.PHONY: check lint types format
check: lint types verify/generated

lint: $(DEV) ## ruff and import contracts
	$(BIN)/ruff check $(CODE)
	$(BIN)/lint-imports --no-cache

types: $(DEV) ## mypy, strict
	$(BIN)/mypy $(CODE)

format: $(DEV) ## sort imports and apply ruff's safe fixes
	$(BIN)/ruff check --fix $(CODE)

# --- generated files: every generate/x has a verify/x that fails on drift -------------------------

.PHONY: generate generate/install-sql generate/sync-client generate/http-reference
.PHONY: verify/generated verify/install-sql verify/sync-client verify/http-reference
generate: generate/install-sql generate/sync-client generate/http-reference ## write every generated file anew
verify/generated: verify/install-sql verify/sync-client verify/http-reference ## fail if a generated file is out of date

generate/install-sql: $(DEV) ## src/holdfast/sql/install.sql, from migrations and functions
	$(BIN)/python -m tools.build_install
verify/install-sql: $(DEV) ## is install.sql what its sources make?
	$(BIN)/python -m tools.build_install --check

generate/sync-client: $(DEV) ## the synchronous client, from the asynchronous one
	$(BIN)/python -m tools.generate_sync
verify/sync-client: $(DEV) ## is the synchronous client what the asynchronous one makes?
	$(BIN)/python -m tools.generate_sync --check

generate/http-reference: $(DEV) ## the tables of docs/http.md, from the server's routes
	$(BIN)/python -m tools.describe_http
verify/http-reference: $(DEV) ## are the tables of docs/http.md what the server has?
	$(BIN)/python -m tools.describe_http --check

# --- set-up -----------------------------------------------------------------------------------

.PHONY: setup clean
setup: $(DEV) ## only make .venv, with the tools for development

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Holdfast needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Set PYTHON=…" >&2; exit 1; }
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check pip==$(PIP_VERSION)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[server]'
	touch $@

$(SPARK): $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[server,spark]'
	touch $@

$(DEV): $(SPARK)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group dev
	touch $@

clean: ## remove what make made, except the data in .holdfast
	rm -rf .venv .demo build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

# Debian packages that only tests and benchmarks need. As root they are installed; others are told what to ask for.
.PHONY: debian/pgbouncer debian/redis debian/nodejs debian/postgresql-15 debian/libpostgresql-jdbc-java debian/wrk
debian/pgbouncer:
	@$(call debian_package,pgbouncer,command -v pgbouncer || test -x /usr/sbin/pgbouncer)
debian/redis: debian/pgbouncer  # one apt at a time, also with make -j
	@$(call debian_package,redis,command -v redis-server)
debian/nodejs: debian/redis  # one apt at a time, also with make -j
	@$(call debian_package,nodejs,command -v node)
debian/postgresql-15: debian/nodejs  # one apt at a time, also with make -j
	@$(call debian_package,postgresql-15,test -x $(PG15_BIN)/postgres)
debian/libpostgresql-jdbc-java:
	@$(call debian_package,libpostgresql-jdbc-java,test -f /usr/share/java/postgresql.jar)
debian/wrk:
	@$(call debian_package,wrk,command -v wrk)

# Two that are installed at once, by make -j, wait for one another.
APT_INSTALL := apt-get -o DPkg::Lock::Timeout=300 install --yes --no-install-recommends
define debian_package
if ! { $(2); } >/dev/null 2>&1; then \
  [ "$$(id -u)" = 0 ] || { echo "The Debian package $(1) is needed. Ask root for: apt-get install $(1)" >&2; exit 1; }; \
  echo "Installing the Debian package $(1)"; \
  export DEBIAN_FRONTEND=noninteractive; \
  { $(APT_INSTALL) $(1) || { apt-get update && $(APT_INSTALL) $(1); }; } >/dev/null; \
fi
endef
