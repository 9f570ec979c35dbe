#include <fmt/format.h>

#include <CLI/Error.hpp>
#include <CLI/Option.hpp>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "cli/bench_run.h"
#include "cli/bench_shift.h"
#include "cli/bench_state.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/loaded_model.h"
#include "cli/options.h"
#include "cli/state_file.h"
#include "engine/context_shift.h"

namespace cellar::cli {

namespace {

struct Options {
    std::string model;
    BenchWork work;
    ComputeOptions compute;
    RopeOverrides rope;
    bool shift = false;
    std::optional<std::string> state;  // a folder
    bool json = false;
};

double per_second(uint64_t n, double seconds) {
    return seconds > 0.0 ? static_cast<double>(n) / seconds : 0.0;
}

nlohmann::ordered_json to_json(const Options& options, const BenchTimes& times) {
    const BenchWork& work = options.work;
    return {{"prompt", work.prompt},
            {"gen", work.gen},
            {"seqs", work.seqs},
            {"shared", work.shared},
            {"depth", work.depth},
            {"prompt_tps", per_second(work.prompt_tokens(), times.prompt_s)},
            {"gen_tps", per_second(work.gen_tokens(), times.gen_s)},
            {"prompt_s", times.prompt_s},
            {"gen_s", times.gen_s},
            {"attended_cells", times.attended_cells},
            {"read_cells", times.read_cells},
            {"graphs_built", times.graphs_built},
            {"threads", options.compute.n_threads},
            {"ubatch", options.compute.ubatch},
            {"cells", times.cells}};
}

std::string to_text(const Options& options, const BenchTimes& times) {
    const BenchWork& work = options.work;
    return fmt::format(
        "prefill: {} tokens in {:.3f} s, {:.2f} tokens/s\n"
        "decode:  {} tokens in {:.3f} s, {:.2f} tokens/s\n"
        "{} sequence{}{} from depth {}; {} cells attended, {} read, {} graphs built, {} threads\n",
        work.prompt_tokens(), times.prompt_s, per_second(work.prompt_tokens(), times.prompt_s),
        work.gen_tokens(), times.gen_s, per_second(work.gen_tokens(), times.gen_s), work.seqs,
        work.seqs == 1 ? "" : "s", work.shared ? " sharing one prompt" : "", work.depth,
        times.attended_cells, times.read_cells, times.graphs_built, options.compute.n_threads);
}

std::string shift_report(const Options& options, const ShiftTimes& times) {
    const double before_ms = 1000.0 * times.before_s, after_ms = 1000.0 * times.after_s;
    const double slower = before_ms > 0.0 ? after_ms / before_ms - 1.0 : 0.0;
    if (options.json) {
        const nlohmann::ordered_json object = {{"cells", options.work.depth + options.work.prompt},
                                               {"gen", options.work.gen},
                                               {"before_ms", before_ms},
                                               {"after_ms", after_ms},
                                               {"slower", slower},
                                               {"threads", options.compute.n_threads}};
        return object.dump() + "\n";
    }
    return fmt::format(
        "decode of one token at {} cells, medians of {}: {:.3f} ms as encoded, {:.3f} ms after a "
        "shift ({:+.1f} %)\n",
        options.work.depth + options.work.prompt, options.work.gen, before_ms, after_ms,
        100.0 * slower);
}

std::string state_report(const Options& options, const StateTimes& times) {
    const auto mb_per_s = [&times](double seconds) {
        return seconds > 0.0 ? static_cast<double>(times.bytes) / seconds / 1e6 : 0.0;
    };
    const double sooner = times.answer_s > 0.0 ? times.compute_s / times.answer_s : 0.0;
    const uint32_t n_cells = options.work.depth + options.work.prompt;
    if (options.json) {
        const nlohmann::ordered_json object = {{"cells", n_cells},
                                               {"bytes", times.bytes},
                                               {"copy_s", times.copy_s},
                                               {"save_s", times.save_s},
                                               {"load_s", times.load_s},
                                               {"save_to_copy", times.copy_s / times.save_s},
                                               {"load_to_copy", times.copy_s / times.load_s},
                                               {"answer_s", times.answer_s},
                                               {"compute_s", times.compute_s},
                                               {"sooner", sooner},
                                               {"threads", options.compute.n_threads}};
        return object.dump() + "\n";
    }
    return fmt::format(
        "state of {} cells, {} bytes: copy {:.0f} MB/s, save {:.0f} MB/s ({:.2f} of copy), load "
        "{:.0f} MB/s ({:.2f})\n"
        "answer after loading: {:.4f} s, after computing: {:.3f} s, {:.0f} times sooner\n",
        n_cells, times.bytes, mb_per_s(times.copy_s), mb_per_s(times.save_s),
        times.copy_s / times.save_s, mb_per_s(times.load_s), times.copy_s / times.load_s,
        times.answer_s, times.compute_s, sooner);
}

BenchWork work_of(const Options& options) {
    return options.shift   ? shift_work(options.work)
           : options.state ? state_work(options.work)
                           : options.work;
}

DecoderOptions memory_for(const Options& options, const BenchWork& work, uint32_t n_cells) {
    DecoderOptions memory = options.compute.decoder_options(n_cells);
    memory.n_states = 0;
    memory.n_sequences = work.seqs;
    memory.spare_pages = options.shift ? kShiftPages : 0;
    return memory;
}

Result<void> bench_state(const Options& options, const LoadedModel& loaded, Decoder& decoder) {
    const Identity identity = identity_of(loaded, decoder.memory());
    auto times =
        time_state(decoder, options.work, loaded.model->info().n_vocab, identity, *options.state);
    if (!times) {
        return pass(std::move(times));
    }
    return print(state_report(options, *times));
}

Result<void> bench(const Options& options) {
    const BenchWork work = work_of(options);
    auto n_cells = work.cells_needed(options.compute.page);
    if (!n_cells) {
        return pass(std::move(n_cells));
    }
    auto loaded = load(options.model, WithTokenizer::kNo, options.compute.offloads, options.rope);
    if (!loaded) {
        return pass(std::move(loaded));
    }
    auto decoder = Decoder::create(*loaded->model, memory_for(options, work, *n_cells));
    if (!decoder) {
        return pass(std::move(decoder));
    }
    if (options.shift) {
        auto times = time_shift(**decoder, options.work, loaded->model->info().n_vocab);
        if (!times) {
            return pass(std::move(times));
        }
        return print(shift_report(options, *times));
    }
    if (options.state) {
        return bench_state(options, *loaded, **decoder);
    }
    auto times = BenchRun(**decoder, options.work, loaded->model->info().n_vocab).run();
    if (!times) {
        return pass(std::move(times));
    }
    return print(options.json ? to_json(options, *times).dump() + "\n" : to_text(options, *times));
}

void add_count(CLI::App& app, const std::string& name, int64_t low, uint32_t& count,
               const std::string& help) {
    add_whole(app, name, low, 1 << 24, help, [&count](int64_t n) {
        count = static_cast<uint32_t>(n);
    })->default_str(std::to_string(count));
}

}  // namespace

Command add_bench(CLI::App& app) {
    auto options = std::make_shared<Options>();
    CLI::App* command = app.add_subcommand(
        "bench",
        "Measures prefill and decode: how many tokens of pseudo-random prompts are computed in a\n"
        "second, and how many when each step adds one token to every sequence. A short run to\n"
        "warm up is not counted.");
    add_model_option(*command, options->model);
    BenchWork& work = options->work;
    add_count(*command, "--prompt", 0, work.prompt, "tokens of each prompt");
    add_count(*command, "--gen", 0, work.gen, "tokens that each sequence decodes");
    add_count(*command, "--seqs", 1, work.seqs, "sequences at the same time");
    add_count(*command, "--depth", 0, work.depth, "cells that are filled first, unmeasured");
    command->add_flag("--shared", work.shared,
                      "one prompt (and depth) for all sequences, computed once and forked");
    command->add_flag("--shift", options->shift,
                      "time decode on a sequence whose positions moved against one where they did "
                      "not, in turns; of one sequence");
    command
        ->add_option("--state", options->state,
                     "time saving a sequence to a file in FOLDER and loading it against "
                     "copying the file and computing the sequence; of one sequence")
        ->type_name("FOLDER")
        ->excludes("--shift");
    add_compute_options(*command, options->compute);
    add_rope_options(*command, options->rope);
    command->add_flag("--json", options->json, "print one JSON object");
    command->callback([options] {
        const BenchWork& asked = options->work;
        if (asked.gen == 0 && (asked.prompt == 0 || options->shift)) {
            throw CLI::ValidationError(options->shift
                                           ? "--shift measures decode, and --gen is 0"
                                           : "--prompt and --gen are both 0: nothing to measure");
        }
        if ((options->shift || options->state) && (asked.seqs > 1 || asked.shared)) {
            throw CLI::ValidationError(
                fmt::format("{} measures one sequence: no --seqs, no --shared",
                            options->shift ? "--shift" : "--state"));
        }
        if (options->state && asked.prompt + asked.depth == 0) {
            throw CLI::ValidationError("--state needs a --prompt or a --depth to save");
        }
    });
    command->footer(
        "Example:\n"
        "  cellar bench -m model.gguf --prompt 512 --gen 32 --seqs 16 --shared --json");
    return {command, [options] { return bench(*options); }};
}

}  // namespace cellar::cli
