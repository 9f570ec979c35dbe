#!/usr/bin/env bash
# What `make check` and CI ask of the code beside its tests. Runs all of it, then says what failed.
set -uo pipefail
cd "$(dirname "$0")/.."

sources() {
    git ls-files -co --exclude-standard '*.cpp' '*.h'
}

# clang-tidy needs every test's compile command, hence a configured build.
configure() {
    tools/fetch.py ggml && cmake --preset release -DCELLAR_BUILD_TESTS=ON >/dev/null
}

failed=()
step() {
    echo "== $1"
    shift
    "$@" || failed+=("$*")
}

format() { sources | xargs clang-format-14 --dry-run -Werror; }
tidy() { configure && tools/tidy.py; }

step "format" format
step "rooms" tools/check_includes.py
step "clang-tidy 14" tidy
step "sizes" tools/sizes.py

if ((${#failed[@]})); then
    echo "check: failed: ${failed[*]}" >&2
    exit 1
fi
echo "check: all good"
