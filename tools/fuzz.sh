#!/usr/bin/env bash
# Runs every fuzzer of build/fuzz for FUZZ_SECONDS on its corpus in fuzz/corpus/<name>, and keeps
# what reaches new code there, minimised. Stops at the first failure: its input is printed and kept.
set -euo pipefail
cd "$(dirname "$0")/.."

for fuzzer in build/fuzz/bin/*_fuzz; do
    name=$(basename "$fuzzer" _fuzz)
    corpus=fuzz/corpus/$name
    fresh=build/fuzz/corpus/$name
    mkdir -p "$corpus" "$fresh"
    echo "== $name: ${FUZZ_SECONDS:-60} s"
    "$fuzzer" -max_total_time="${FUZZ_SECONDS:-60}" -max_len=2000 -timeout=20 -print_final_stats=1 \
        -artifact_prefix="build/fuzz/$name-" "$fresh" "$corpus"
    "$fuzzer" -set_cover_merge=1 -use_counters=0 -max_len=2000 "$corpus" "$fresh"
done
