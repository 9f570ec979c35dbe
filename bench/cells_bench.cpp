// What the verbs of Cells cost, by the size of the pool and the number of sequences.
//   build/release/bin/cells_bench [--benchmark_filter=Fork]
// Pools are half full, evenly over the sequences; page size 32. A page belongs to one sequence, so
// pools of fewer than two pages a sequence are left out.

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <random>

#include "cells/cells.h"

namespace cellar {
namespace {

constexpr uint32_t kPage = 32;

void must(bool ok) {
    if (!ok) std::abort();
}

void append(Cells& cells, int seq, uint32_t n) {
    Batch batch;
    for (uint32_t i = 0; i < n; i++)
        batch.add(0, SeqId{seq});
    SplitOptions options;
    options.max_ubatch = n;
    auto plan = cells.prepare(batch, options);
    must(plan && cells.commit(*plan, 0));
}

// `n_cells` in the pool, of which `n_seqs` sequences hold half in equal parts. Sequences
// grow in turns of a page, so that each one's pages lie scattered over the pool.
Cells filled(uint32_t n_cells, int n_seqs) {
    auto cells = Cells::create({{n_cells}, kPage, 1});
    must(cells.has_value());
    const uint32_t each = n_cells / 2 / static_cast<uint32_t>(n_seqs);
    for (uint32_t done = 0; done < each; done += kPage)
        for (int s = 0; s < n_seqs; s++)
            append(*cells, s, std::min(kPage, each - done));
    return std::move(*cells);
}

// Pools of 4 Ki, 64 Ki and 1 Mi cells with 1, 64 and 4,096 sequences.
void pools(benchmark::internal::Benchmark* bench) {
    for (const int64_t n_cells : {4 << 10, 64 << 10, 1 << 20})
        for (const int64_t n_seqs : {1, 64, 4096})
            if (n_cells / kPage >= 2 * n_seqs) bench->Args({n_cells, n_seqs});
    bench->ArgNames({"cells", "seqs"});
}

struct Setting {
    explicit Setting(const benchmark::State& state)
        : n_seqs(static_cast<int>(state.range(1))),
          cells(filled(static_cast<uint32_t>(state.range(0)), n_seqs)) {}

    int any() { return static_cast<int>(random() % static_cast<uint32_t>(n_seqs)); }

    int n_seqs;
    Cells cells;
    std::minstd_rand random{1};
};

// One decode step of one sequence, and the removal that makes room for the next.
void PrepareCommit(benchmark::State& state) {
    Setting s(state);
    Batch batch;
    for (auto _ : state) {
        const SeqId seq{s.any()};
        batch.clear();
        batch.add(0, seq);
        auto plan = s.cells.prepare(batch, {});
        must(plan && s.cells.commit(*plan, 0));
    }
}
BENCHMARK(PrepareCommit)->Apply([](auto* bench) {
    pools(bench);
    bench->Iterations(900);  // so many cells are free in the smallest pool
    bench->Repetitions(21)->ReportAggregatesOnly();
});

void RejectDraft(benchmark::State& state) {
    Setting s(state);
    for (auto _ : state) {
        const SeqId seq{s.any()};
        const Pos last = s.cells.seq_pos_max(seq);
        state.PauseTiming();
        append(s.cells, value(seq), 4);
        state.ResumeTiming();
        must(s.cells.seq_rm(seq, last + 1, kOpen).has_value());
    }
}
BENCHMARK(RejectDraft)->Apply(pools)->Iterations(2000);

void Fork(benchmark::State& state) {
    Setting s(state);
    const SeqId to{s.n_seqs};
    for (auto _ : state) {
        must(s.cells.seq_cp(SeqId{s.any()}, to, -1, -1).has_value());
        state.PauseTiming();
        must(s.cells.seq_rm(to, -1, -1).has_value());
        state.ResumeTiming();
    }
}
BENCHMARK(Fork)->Apply(pools)->Iterations(2000);

void Remove(benchmark::State& state) {
    Setting s(state);
    const SeqId to{s.n_seqs};
    for (auto _ : state) {
        state.PauseTiming();
        must(s.cells.seq_cp(SeqId{s.any()}, to, -1, -1).has_value());
        state.ResumeTiming();
        must(s.cells.seq_rm(to, -1, -1).has_value());
    }
}
BENCHMARK(Remove)->Apply(pools)->Iterations(2000);

void CopyRange(benchmark::State& state) {
    Setting s(state);
    const SeqId to{s.n_seqs};
    for (auto _ : state) {
        must(s.cells.seq_cp(SeqId{s.any()}, to, 3, 11).has_value());
        must(s.cells.seq_rm(to, -1, -1).has_value());
    }
}
BENCHMARK(CopyRange)->Apply(pools);

void ShiftThereAndBack(benchmark::State& state) {
    Setting s(state);
    for (auto _ : state) {
        const SeqId seq{s.any()};
        must(s.cells.seq_add(seq, 0, kOpen, 1).has_value());
        must(s.cells.seq_add(seq, 0, kOpen, -1).has_value());
    }
}
BENCHMARK(ShiftThereAndBack)->Apply(pools);

// -- One sequence of 100,000 cells --------------------------------------------------------------

Cells long_sequence() {
    auto cells = Cells::create({{200000}, kPage, 1});
    must(cells.has_value());
    append(*cells, 0, 100000);
    return std::move(*cells);
}

void Fork100k(benchmark::State& state) {
    Cells cells = long_sequence();
    for (auto _ : state) {
        must(cells.seq_cp(SeqId{0}, SeqId{1}, -1, -1).has_value());
        state.PauseTiming();
        must(cells.seq_rm(SeqId{1}, -1, -1).has_value());
        state.ResumeTiming();
    }
}
BENCHMARK(Fork100k)->Unit(benchmark::kMicrosecond)->Repetitions(11)->ReportAggregatesOnly();

void Remove100kFork(benchmark::State& state) {
    Cells cells = long_sequence();
    for (auto _ : state) {
        state.PauseTiming();
        must(cells.seq_cp(SeqId{0}, SeqId{1}, -1, -1).has_value());
        state.ResumeTiming();
        must(cells.seq_rm(SeqId{1}, -1, -1).has_value());
    }
}
BENCHMARK(Remove100kFork)->Unit(benchmark::kMicrosecond)->Repetitions(11)->ReportAggregatesOnly();

void Remove100kOnlyHolder(benchmark::State& state) {
    Cells cells = long_sequence();
    for (auto _ : state) {
        must(cells.seq_rm(SeqId{0}, -1, -1).has_value());
        state.PauseTiming();
        append(cells, 0, 100000);
        state.ResumeTiming();
    }
}
BENCHMARK(Remove100kOnlyHolder)
    ->Unit(benchmark::kMicrosecond)
    ->Iterations(30)
    ->Repetitions(11)
    ->ReportAggregatesOnly();

void Shift100k(benchmark::State& state) {
    Cells cells = long_sequence();
    Pos delta = 1;
    for (auto _ : state) {
        must(cells.seq_add(SeqId{0}, 0, kOpen, delta).has_value());
        delta = -delta;
    }
}
BENCHMARK(Shift100k)->Unit(benchmark::kMicrosecond)->Repetitions(11)->ReportAggregatesOnly();

// Bytes of bookkeeping for each cell of a full pool, one sequence: a count, no time.
void BytesPerCell(benchmark::State& state) {
    constexpr uint32_t kCells = 1 << 20;
    auto cells = Cells::create({{kCells}, kPage, 1});
    must(cells.has_value());
    append(*cells, 0, kCells);
    for (auto _ : state)
        benchmark::DoNotOptimize(cells->bytes());
    state.counters["bytes/cell"] = static_cast<double>(cells->bytes()) / kCells;
}
BENCHMARK(BytesPerCell)->Iterations(1);

}  // namespace
}  // namespace cellar

BENCHMARK_MAIN();
