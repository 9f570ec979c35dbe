#!/usr/bin/env bash
# Installs the ggml that a build folder made, then builds and runs a consumer over it.
#
#   tests/install/run.sh <build folder> <work folder>
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$1
work=$2

cmake --install "$build/ggml" --prefix "$work/prefix" >/dev/null
cmake -G Ninja -S "$root/tests/install" -B "$work/consumer" -DCELLAR_ROOT="$root" \
    -DCMAKE_BUILD_TYPE=Debug -DCMAKE_PREFIX_PATH="$work/prefix" \
    ${CELLAR_LAUNCHER:+-DCMAKE_CXX_COMPILER_LAUNCHER="$CELLAR_LAUNCHER"}
cmake --build "$work/consumer"
"$work/consumer/consumer"
