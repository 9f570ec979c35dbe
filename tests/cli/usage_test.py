"""Exit codes and sentences: what a user meets who mistypes, or gives the wrong file."""

import json
import os
import pathlib
import re

from harness import DATA, ROOT, TINY, CellarTest, main, run

COMMANDS = ["generate", "chat", "tokenize", "bench", "replay", "inspect", "devices"]


class UsageTest(CellarTest):
    def test_every_command_has_help_with_an_example(self):
        for arguments in [[], *([command] for command in COMMANDS)]:
            text = self.succeed(*arguments, "--help").decode()
            self.assertIn("Example", text)
            self.assertIn("cellar " + "".join(arguments), text)
        overview = self.succeed("--help").decode()
        for command in COMMANDS:
            self.assertIn(command, overview)

    def test_version_is_the_projects(self):
        cmake = (ROOT / "CMakeLists.txt").read_text()
        version = re.search(r"project\(cellar VERSION ([0-9.]+)", cmake).group(1)
        self.assertEqual(self.succeed("--version").decode(), f"cellar {version}\n")

    def test_command_lines_that_make_no_sense_exit_with_2(self):
        cases = [
            ([], "command"),
            (["bogus"], "'bogus'"),
            (["--bogus"], "--bogus"),
            (["generate"], "--model"),
            (["generate", "-m", TINY, "--zip"], "--zip"),
            (["generate", "-m", TINY, "extra"], "extra"),
            (["generate", "-m", TINY, "-n"], "--predict"),
            (["generate", "-m", TINY, "-p", "a", "-f", "b"], "--prompt"),
            (["bench", "-m", TINY, "--prompt", "0", "--gen", "0"], "--gen"),
            (["bench", "-m", TINY, "--page", "24"], "power of two"),
            (["bench", "-m", TINY, "--type-k", "q9"], "f16"),
            (["replay", "-m", TINY], "script"),
            (["bench", "-m", TINY, "--offload", "7-3"], "--offload: '7-3' names no layers"),
            (["bench", "-m", TINY, "--offload", "1", "--offload", "x"], "'x' names no layers"),
            (["devices", "-m", TINY], "-m"),
        ]
        for arguments, part in cases:
            with self.subTest(arguments):
                self.fail_with(2, part, *arguments)
                self.fail_with(2, "--help", *arguments)

    def test_layers_are_offloaded_only_to_devices_that_are_listed(self):
        found = json.loads(self.succeed("devices", "--json"))["devices"]
        text = self.succeed("devices").decode()
        for device in found:
            self.assertIn(device["name"], text)
            self.assertLessEqual(device["free_bytes"], device["total_bytes"])
        if not found:
            self.assertIn("no device", text)
        for command in ["bench", "replay"]:
            script = ["-"] if command == "replay" else []
            self.fail_with(1, "no device", command, "-m", TINY, "--offload", "all@NOWHERE", *script)

    def test_numbers_out_of_range_exit_with_2_and_name_the_option(self):
        cases = [
            ("-n", ["-2", "1.5", "abc", "", " 1", "0x10", "2147483648", "99999999999999999999"]),
            ("-c", ["-1", "99999999999"]),
            ("-t", ["0", "-1", "100000"]),
            ("--temp", ["abc", "nan", "inf", "1e999", ""]),
            ("--seed", ["-1", "18446744073709551616", "x"]),
            ("--top-k", ["-1"]),
            ("--top-p", ["1.5", "-0.1", "nan"]),
            ("--min-p", ["2", "nan"]),
            ("--repeat-penalty", ["0", "nan"]),
            ("--repeat-last-n", ["-2"]),
            ("--ubatch", ["0"]),
            ("--page", ["0", "512", "3"]),
        ]
        for option, values in cases:
            for value in values:
                with self.subTest(option=option, value=value):
                    self.fail_with(2, option, "generate", "-m", TINY, option, value)

    def test_greatest_numbers_are_taken(self):
        self.succeed("generate", "-m", self.chatty, "-p", "a", "-n", "1", "--seed",
                     "18446744073709551615", "--top-k", "2147483647", "--repeat-last-n", "-1")

    def test_files_that_are_no_models_exit_with_1(self):
        whole = pathlib.Path(TINY).read_bytes()
        cases = [
            self.folder / "missing.gguf",
            self.folder,
            self.file("empty.gguf", b""),
            self.file("text.gguf", "This is not a model. " * 100),
            self.file("cut.gguf", whole[:len(whole) // 2]),
            self.file("head.gguf", whole[:30]),
            "/dev/null",
        ]
        for command in ["generate", "chat", "tokenize", "bench", "replay"]:
            for path in cases:
                with self.subTest(command=command, path=str(path)):
                    script = ["-"] if command == "replay" else []
                    self.fail_with(1, os.path.basename(path), command, "-m", path, *script,
                                   stdin="x")

    def test_model_without_a_tokenizer_exits_with_1(self):
        for command in ["generate", "chat", "tokenize"]:
            self.fail_with(1, "tokenizer", command, "-m", TINY, stdin="x")

    def test_other_files_that_cannot_be_read_exit_with_1(self):
        missing = self.folder / "missing"
        for path, reason in [(missing, "No such file"), (self.folder, "Is a directory")]:
            self.fail_with(1, reason, "generate", "-m", self.chatty, "-f", path)
            self.fail_with(1, reason, "replay", "-m", TINY, path)

    def test_output_that_cannot_be_written_exits_with_1(self):
        for arguments in [["generate", "-m", self.chatty, "-p", "a", "-n", "5"],
                          ["generate", "-m", self.chatty, "-p", "a", "-n", "5", "--json"],
                          ["replay", "-m", TINY, DATA / "replay/verbs.jsonl"]]:
            with open("/dev/full", "wb") as full:
                done = run(*arguments, stdout=full)
            self.assertEqual(done.returncode, 1)
            self.assertIn(b"No space left", done.stderr)

    def test_nothing_but_errors_on_standard_error(self):
        done = run("generate", "-m", self.chatty, "-p", "a", "-n", "5", "--temp", "0")
        self.assertEqual(done.stderr, b"")


if __name__ == "__main__":
    main()
