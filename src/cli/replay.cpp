#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/loaded_model.h"
#include "cli/options.h"
#include "cli/replayer.h"
#include "cli/state_file.h"

namespace cellar::cli {

namespace {

constexpr uint32_t kDefaultCells = 4096;

struct Options {
    std::string model;
    std::string script;
    ComputeOptions compute;
};

// Answers each line as soon as it is read, so that a program can talk to us through pipes.
Result<void> answer_lines(std::istream& lines, Replayer& replayer) {
    std::string line;
    while (!interrupted() && std::getline(lines, line)) {
        if (line.find_first_not_of(" \t\r") == std::string::npos) {
            continue;
        }
        const std::string answer =
            replayer.answer(line).dump(-1, ' ', false, Answer::error_handler_t::replace);
        if (auto printed = print(answer + "\n"); !printed) {
            return printed;
        }
    }
    return {};
}

Result<void> replay(const Options& options) {
    std::istringstream script;
    if (options.script != "-") {
        auto text = read_file(options.script);
        if (!text) {
            return pass(std::move(text));
        }
        script.str(*std::move(text));
    }
    auto loaded = load(options.model, WithTokenizer::kNo, options.compute.offloads);
    if (!loaded) {
        return pass(std::move(loaded));
    }
    Replayer replayer(*loaded->model, options.compute.decoder_options(kDefaultCells),
                      [&loaded](const Memory& memory) { return identity_of(*loaded, memory); });
    return options.script == "-" ? answer_lines(std::cin, replayer)
                                 : answer_lines(script, replayer);
}

const char* const kHelp =
    "Does the operations of a script on a memory, one JSON object a line, and answers each with\n"
    "a line: {\"ok\":true,...} or {\"ok\":false,\"error\":\"...\"}; then it goes on. The exit code "
    "is 0\n"
    "once the script was read, whatever the answers say.\n"
    "\n"
    "  "
    "{\"op\":\"new\",\"cells\":N,\"type_k\":\"f16\",\"type_v\":\"f16\",\"ubatch\":N,\"page\":N,"
    "\"threads\":N}\n"
    "      a fresh memory; what is missing is as the options below say. A script that does not\n"
    "      begin with it gets one of 4096 cells. \"budget_bytes\":N instead of \"cells\" gives as "
    "many\n"
    "      as so many bytes of keys and values come to, rounded up to whole pages; with "
    "\"grow_step\":N\n"
    "      it begins with N cells and grows by as many. With \"defrag_threshold\":F each decode "
    "first\n"
    "      moves up to \"defrag_cells\":N cells (1024) if more than the part F of pages is "
    "unused.\n"
    "      \"swa_full\":true keeps what windows have passed; \"n_rollback\":N lets the newest N "
    "positions\n"
    "      be taken back; \"checkpoints\":N of a sequence may be kept. \"sequences\":N gives "
    "sliding\n"
    "      and recurrent layers only what N sequences need at the same time. \"attention\" is\n"
    "      \"kernel\", \"graph\" or \"auto\".\n"
    "  "
    "{\"op\":\"decode\",\"items\":[{\"seq\":0,\"tokens\":[...],\"pos\":P}],\"logits\":\"last\","
    "\"top\":K}\n"
    "      appends tokens to sequences, at P or else behind what they hold. \"logits\" (none "
    "unless\n"
    "      given) asks for those of each item's \"last\" token, or of \"all\", or \"none\"; the\n"
    "      answer's \"logits\" lists rows in the order of items and tokens: every logit, or with\n"
    "      \"top\" the K largest as [id, logit]. A logit that is no number is null. With\n"
    "      \"abort_after_ubatch\":N only the first N ubatches are computed and kept.\n"
    "  {\"op\":\"seq_rm\",\"seq\":0,\"p0\":A,\"p1\":B}           forgets positions from A to "
    "before B\n"
    "  {\"op\":\"can_rm\",\"seq\":0,\"p0\":A,\"p1\":B}           whether seq_rm would\n"
    "  {\"op\":\"checkpoint\",\"seq\":0}                     keeps windows and states as they are "
    "now\n"
    "  {\"op\":\"seq_cp\",\"from\":0,\"to\":1,\"p0\":A,\"p1\":B}  shares them; -1 or missing is "
    "open\n"
    "  {\"op\":\"seq_add\",\"seq\":0,\"p0\":A,\"p1\":B,\"delta\":D}  moves positions by D\n"
    "  {\"op\":\"can_shift\"}                              whether seq_add can, before it is "
    "tried\n"
    "  {\"op\":\"seq_div\",\"seq\":0,\"p0\":A,\"p1\":B,\"d\":D}  divides them by D, rounding down\n"
    "  {\"op\":\"seq_keep\",\"seq\":0}                       forgets every other sequence\n"
    "  {\"op\":\"clear\",\"data\":false}                      forgets all; true also zeroes cells\n"
    "  {\"op\":\"defrag\",\"cells\":N}                       gathers pages of which at most half "
    "is\n"
    "      seen, moving at most N cells; the answer's \"moved\" says how many\n"
    "  {\"op\":\"view\",\"groups\":false,\"map\":false}      what is used, free, and whose; with\n"
    "      \"groups\" also each page and span of every group, with \"map\" a text for people\n"
    "  {\"op\":\"save\",\"seq\":0,\"file\":F,\"compress\":false}  writes it to a file\n"
    "  {\"op\":\"load\",\"seq\":0,\"file\":F,\"convert\":false}  takes it up again, in the place "
    "of\n"
    "      what the sequence held; with \"convert\" from other types of keys and values\n"
    "  {\"op\":\"hash\",\"seq\":0}                       of all that the sequence sees";

}  // namespace

Command add_replay(CLI::App& app) {
    auto options = std::make_shared<Options>();
    CLI::App* command = app.add_subcommand("replay", "Does a script's operations on a memory");
    command->add_option("script", options->script, "a file of JSON lines, or - for standard input")
        ->type_name("SCRIPT")
        ->required();
    add_model_option(*command, options->model);
    add_compute_options(*command, options->compute);
    command->footer(std::string(kHelp) +
                    "\n\nExample:\n"
                    "  echo '{\"op\":\"decode\",\"items\":[{\"seq\":0,\"tokens\":[1,2,3]}],"
                    "\"logits\":\"last\",\"top\":5}' |\n"
                    "      cellar replay -m model.gguf -");
    return {command, [options] { return replay(*options); }};
}

}  // namespace cellar::cli
