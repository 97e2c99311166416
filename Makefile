# The two commands to know: `make run` and `make test`. Everything else is below; the work is done by scripts/ and CMake.
SHELL := /bin/bash
PREFIX ?= /usr/local
DESTDIR ?=
# "~" of a command-line variable reaches us unexpanded.
override PREFIX := $(patsubst ~/%,$(HOME)/%,$(PREFIX))

.DEFAULT_GOAL := help
.PHONY: help run test sanitize build install uninstall bench format clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: build ## install what is needed, build, and show three programs sharing one GPU (a simulated one if there is none)
	@scripts/demo.sh

test: ## install what is needed, build, and run the whole suite
	@scripts/dependencies.sh build test
	@scripts/test.sh

sanitize: ## all unit tests under the address and the thread sanitizer
	@scripts/dependencies.sh build test
	@scripts/sanitize.sh

build: ## build what is shipped, into build/release
	@scripts/dependencies.sh build
	@scripts/build.sh release -DBERTH_TESTS=OFF -DBERTH_BENCH=OFF

install: build ## install below PREFIX (default /usr/local; for instance PREFIX=~/.local); DESTDIR is honoured
	@DESTDIR="$(DESTDIR)" cmake --install build/release --prefix "$$(realpath -ms "$(PREFIX)")"

uninstall: ## remove what was installed below PREFIX
	@scripts/uninstall.sh "$(DESTDIR)$$(realpath -ms "$(PREFIX)")"

bench: ## build and run the micro-benchmarks
	@scripts/dependencies.sh build test bench
	@scripts/bench.sh

format: ## format the C++ sources with clang-format 14
	@scripts/dependencies.sh format
	@git ls-files -co --exclude-standard '*.h' '*.cpp' | grep -v /generated/ | xargs clang-format-14 -i

clean: ## remove all build folders
	@rm -rf build
