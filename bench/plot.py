#!/usr/bin/env python3
"""Draws what attention_bench measured: python3 bench/plot.py RESULTS.jsonl OUT.svg

RESULTS.jsonl is what `attention_bench --json` prints. Needs matplotlib (Debian: python3-matplotlib).
"""

import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1]) as file:
        rows = [json.loads(line) for line in file if line.startswith("{")]
    ways = [("bound_s", "bound"), ("kernel_s", "Cellar's kernel"), ("masked_s", "whole pool, masked")]
    figure, axes = plt.subplots(figsize=(9, 0.5 * len(rows) + 1.5), layout="constrained")
    for i, (key, label) in enumerate(ways):
        axes.barh([y + 0.27 * (i - 1) for y in range(len(rows))],
                  [row[key] * 1e6 for row in rows], height=0.25, label=label)
    axes.set_yticks(range(len(rows)), [f"{row['case']}, {row['type']}" for row in rows])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("microseconds a layer (logarithmic)")
    axes.legend()
    figure.savefig(sys.argv[2])


if __name__ == "__main__":
    main()
