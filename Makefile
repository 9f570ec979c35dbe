# The front door: what a newcomer types. The work is in CMake presets and tools/.
.DEFAULT_GOAL := help
.PHONY: help run test models release debug asan tsan fuzz format check clean

MODEL ?= models/SmolLM2-135M-Instruct.Q4_1.gguf
PROMPT ?= What is a wine cellar good for? Answer in three sentences.
N ?= 128
export MODEL PROMPT N

help: ## Show this
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-8s  %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## Set up this machine, build the command line, and let SmolLM2 write (MODEL=, PROMPT=, N=)
	@tools/setup.sh run
	@tools/fetch.py ggml smollm2
	@test -f build/release/build.ninja || cmake --preset release -DCELLAR_BUILD_TESTS=OFF -DCELLAR_BUILD_BENCH=OFF
	@cmake --build --preset release --target cellar
	@echo "build/release/bin/cellar generate -m $$MODEL -n $$N -p '$$PROMPT'"
	@build/release/bin/cellar generate -m "$$MODEL" -n "$$N" -p "$$PROMPT"

test: ## Set up this machine, build everything, and run every test
	@tools/setup.sh test
	@tools/fetch.py ggml smollm2 gemma3
	@cmake --preset release -DCELLAR_BUILD_TESTS=ON
	@cmake --build --preset release
	@ctest --preset release

models: ## Fetch the models that are used for trials: SmolLM2 135M and Gemma 3 270M
	@tools/fetch.py smollm2 gemma3

release: ## Build everything in build/release
debug: ## Build everything with asserts and audits, in build/debug
asan: ## Build with address and undefined-behaviour sanitizers, and run the tests
tsan: ## Build with the thread sanitizer, and run the tests

release debug asan tsan:
	@tools/setup.sh test
	@tools/fetch.py ggml
	@cmake --preset $@ -DCELLAR_BUILD_TESTS=ON
	@cmake --build --preset $@
	$(if $(filter asan tsan,$@),@tools/fetch.py smollm2 && ctest --preset $@)

fuzz: ## Fuzz each target for FUZZ_SECONDS (60); what it learns joins fuzz/corpus
	@tools/setup.sh check
	@tools/fetch.py ggml
	@cmake --preset fuzz
	@cmake --build --preset fuzz --target fuzzers
	@tools/fuzz.sh

format: ## Format the code in place (clang-format 14)
	@git ls-files -co --exclude-standard '*.cpp' '*.h' | xargs clang-format-14 -i

check: ## Check format, clang-tidy's warnings, the rooms' includes; show sizes
	@tools/setup.sh check
	@tools/check.sh

clean: ## Remove what was built; keep what was fetched
	rm -rf build/release build/debug build/asan build/tsan build/fuzz build/coverage
