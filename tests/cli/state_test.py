"""Memory in files: what is saved, inspected, and taken up again."""

import json
import os
import pathlib

from harness import CACHE, DATA, SMOLLM2, TINY, CellarTest, main, need_smollm2, run

GEMMA = str(DATA / "models/tiny-gemma3.gguf")


def script(*operations):
    return "".join(json.dumps(operation) + "\n" for operation in operations)


class StateTest(CellarTest):
    def generate(self, *arguments, model=None):
        return self.json("generate", "-m", model or self.chatty, "--json", "--temp", 0,
                         "--ignore-eos", *arguments)

    def saved(self, name, *arguments):
        path = str(self.folder / name)
        return path, self.generate("--raw", "-p", "The quick brown fox", "-n", 20, "--save", path,
                                   *arguments)

    def test_a_loaded_text_goes_on_as_if_it_had_not_stopped(self):
        path, first = self.saved("on.state")
        whole = self.generate("--raw", "-p", "The quick brown fox", "-n", 50)
        for settings in [], ["--page", 8], ["-t", 1, "--ubatch", 16], ["-c", 200]:
            more = self.generate("--load", path, "-n", 30, *settings)
            self.assertEqual(first["tokens"] + more["tokens"], whole["tokens"])
            self.assertEqual(more["cached_tokens"], 19 + 20 - 1)
            self.assertEqual(more["timings"]["prompt_n"], 1)  # the newest token alone

    def test_a_text_can_follow_what_was_loaded(self):
        path, first = self.saved("follow.state")
        text = "The quick brown fox" + first["text"]
        more = self.generate("--load", path, "--raw", "-p", " and then", "-n", 10)
        self.assertEqual(more["prompt_tokens"], 19 + 20 + 9)
        self.assertEqual(more["cached_tokens"], 19 + 20 - 1)
        if "\ufffd" not in text:
            again = self.generate("--raw", "-p", text + " and then", "-n", 10)
            self.assertEqual(more["tokens"], again["tokens"])

    def test_a_message_can_follow_in_chat_format(self):
        path = str(self.folder / "message.state")
        first = self.generate("-p", "Hello", "-n", 5, "--save", path)
        more = self.generate("--load", path, "-p", "Again", "-n", 5)
        self.assertEqual(more["cached_tokens"], first["prompt_tokens"] + 5 - 1)
        self.assertGreater(more["timings"]["prompt_n"], 5)

    def test_save_and_load_can_be_the_same_file(self):
        path, first = self.saved("same.state")
        second = self.generate("--load", path, "--save", path, "-n", 10)
        third = self.generate("--load", path, "-n", 20)
        whole = self.generate("--raw", "-p", "The quick brown fox", "-n", 50)
        self.assertEqual(first["tokens"] + second["tokens"] + third["tokens"], whole["tokens"])

    def test_a_shifted_text_is_saved_as_it_is_held(self):
        path = str(self.folder / "shifted.state")
        settings = ["-c", 64, "--context-shift", 4]
        self.generate("--raw", "-p", "The quick brown fox", "-n", 100, "--save", path, *settings)
        more = self.generate("--load", path, "-n", 100, *settings)
        self.assertEqual(len(more["tokens"]), 100)
        self.assertEqual(more["timings"]["prompt_n"], 1)

    def test_an_edited_text_computes_what_was_edited(self):
        path = str(self.folder / "edited.state")
        parts = ["".join(chr(97 + (i * k) % 26) for i in range(50)) for k in (3, 5, 7, 11)]
        self.generate("--raw", "-p", "".join(parts), "-n", 0, "--save", path)

        def edited(*texts, reuse=None):
            more = ["--reuse-chunks", reuse] if reuse else []
            answer = self.generate("--load", path, "--replace", "--raw", "-p", "".join(texts),
                                   "-n", 4, *more)
            self.assertEqual(answer["prompt_tokens"], sum(map(len, texts)))
            return answer["cached_tokens"]

        a, b, c, d = parts
        self.assertEqual(edited(a, b, "!?", c), 100)  # what both begin with
        self.assertEqual(edited(a, c, d, reuse=32), 149)  # b left; the last token is computed
        self.assertEqual(edited(a, b, "!?", c, d, reuse=32), 199)
        self.assertEqual(edited(a, "!?", c, "!?", d, "!?", reuse=32), 150)
        self.assertEqual(edited(a, "!?", c, reuse=51), 50)  # no run is so long
        self.fail_with(2, "--load", "generate", "-m", self.chatty, "-p", "x", "--replace")

    def test_compressed_states_are_the_same_ones(self):
        plain, _ = self.saved("plain.state")
        small, _ = self.saved("small.state", "--compress")
        self.assertEqual(self.generate("--load", plain, "-n", 5)["tokens"],
                         self.generate("--load", small, "-n", 5)["tokens"])
        self.assertLess(os.path.getsize(small), os.path.getsize(plain))

    def test_types_are_converted_on_request(self):
        path, _ = self.saved("f16.state")
        other = ["-n", 5, "--type-k", "f32", "--type-v", "f32"]
        self.fail_with(1, "keys as f16", "generate", "-m", self.chatty, "--load", path, *other)
        self.assertEqual(self.generate("--load", path, "--convert", *other)["cached_tokens"], 38)

    def test_what_does_not_fit_is_refused(self):
        path, _ = self.saved("whole.state")
        content = pathlib.Path(path).read_bytes()
        model = ["generate", "-m", self.chatty, "-n", 5, "--load"]
        self.fail_with(1, "rope", *model, path, "--rope-freq-base", 5000)
        self.fail_with(1, "no room", *model, path, "-c", 32)
        self.fail_with(1, "No such file", *model, self.folder / "none.state")
        for cut in 0, 7, 200, len(content) - 1:
            self.fail_with(1, "cut.state", *model, self.file("cut.state", content[:cut]))
        middle = len(content) // 2
        flipped = content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1:]
        self.fail_with(1, "checksum", *model, self.file("flipped.state", flipped))

    def test_a_save_that_fails_says_so_and_leaves_nothing(self):
        folder = self.folder / "no" / "such"
        done = run("generate", "-m", self.chatty, "-p", "x", "-n", 3, "--save", folder / "a.state")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"No such file", done.stderr)
        self.assertFalse(folder.exists())

    def test_options_that_need_a_file_say_so(self):
        self.fail_with(2, "--load", "generate", "-m", self.chatty, "-p", "x", "--convert")
        self.fail_with(2, "--save", "generate", "-m", self.chatty, "-p", "x", "--compress")

    def test_digests_are_remembered_beside_the_cache(self):
        self.saved("memo.state")
        self.assertGreater(len(os.listdir(pathlib.Path(CACHE.name) / "cellar/digests")), 0)


class ChatSessionTest(CellarTest):
    def chat(self, *lines, path):
        return self.json_lines("chat", "-m", self.chatty, "--json", "--temp", 0, "-n", 6,
                               "--session", path, stdin="".join(line + "\n" for line in lines))

    def test_a_conversation_goes_on_in_another_process(self):
        path = str(self.folder / "chat.state")
        turns = self.chat("Hello", "again", path=path) + self.chat("more", path=path)
        at_once = self.chat("Hello", "again", "more", path=str(self.folder / "other.state"))
        self.assertEqual([turn["tokens"] for turn in turns],
                         [turn["tokens"] for turn in at_once])
        self.assertEqual(turns[2]["cached_tokens"], at_once[2]["cached_tokens"])

    def test_a_conversation_of_nothing_writes_nothing(self):
        path = self.folder / "nothing.state"
        self.chat(path=str(path))
        self.assertFalse(path.exists())

    def test_what_is_no_session_is_refused_and_kept(self):
        path = self.file("other.txt", "my diary")
        self.fail_with(1, "other.txt", "chat", "-m", self.chatty, "--session", path, stdin="Hi\n")
        self.assertEqual(pathlib.Path(path).read_text(), "my diary")


class InspectTest(CellarTest):
    def test_a_state_says_what_it_holds(self):
        path = str(self.folder / "held.state")
        self.json("generate", "-m", self.chatty, "--raw", "-p", "0123456789", "-n", 6, "--temp", 0,
                  "--ignore-eos", "--json", "--save", path)
        report = self.json("inspect", path, "--json")
        model = self.json("inspect", self.chatty, "--json")
        self.assertEqual(report["file"], "state")
        self.assertTrue(report["sound"])
        self.assertEqual(report["bytes"], os.path.getsize(path))
        self.assertEqual(report["weights"], model["weights"])
        self.assertEqual(report["tokenizer"], model["tokenizer"])
        self.assertEqual(report["sequences"],
                         [{"seq": report["sequences"][0]["seq"], "tokens": 16, "cells": [15],
                           "checkpoints": []}])
        self.assertEqual(report["groups"],
                         [{"kind": "full", "layers": 4, "type_k": "f16", "type_v": "f16",
                           "saved": True, "cells": 15}])
        text = self.succeed("inspect", path).decode()
        self.assertIn("all checksums are right", text)

    def test_damage_is_named_and_is_an_error(self):
        path = str(self.folder / "damaged.state")
        self.json("generate", "-m", self.chatty, "-p", "x", "-n", 3, "--json", "--save", path)
        content = bytearray(pathlib.Path(path).read_bytes())
        content[-200] ^= 1
        done = run("inspect", self.file("damaged.state", bytes(content)), "--json")
        self.assertEqual(done.returncode, 1)
        report = json.loads(done.stdout)
        self.assertFalse(report["sound"])
        self.assertIn(report["damage"], done.stderr.decode())

    def test_a_model_says_what_it_holds(self):
        report = self.json("inspect", TINY, "--json")
        self.assertEqual(report["file"], "gguf")
        self.assertEqual(report["bytes"], os.path.getsize(TINY))
        self.assertEqual(report["metadata"]["llama.block_count"], "4")
        self.assertGreater(sum(report["tensors"].values()), 30)
        self.assertIn("general.architecture = \"llama\"", self.succeed("inspect", TINY).decode())

    def test_other_files_are_refused(self):
        self.fail_with(1, "neither", "inspect", self.file("text.txt", "hello"))
        self.fail_with(1, "neither", "inspect", self.file("empty", ""))
        self.fail_with(1, "no regular file", "inspect", self.folder)
        self.fail_with(1, "No such file", "inspect", self.folder / "nothing")
        self.fail_with(1, "broken", "inspect", self.file("broken", b"GGUF\3\0\0\0\xff"))


class ReplayStateTest(CellarTest):
    NEW = {"op": "new", "cells": 256, "type_k": "f32", "type_v": "f32"}

    def replay(self, *operations, model=TINY):
        return self.json_lines("replay", "-m", model, "-", stdin=script(*operations))

    def test_a_sequence_is_what_it_was_elsewhere(self):
        for model in TINY, GEMMA:
            with self.subTest(model):
                path = str(self.folder / "replay.state")
                tokens = [i * 7 % 128 for i in range(70)]
                more = {"op": "decode", "items": [{"seq": 4, "tokens": [1, 2, 3]}],
                        "logits": "last", "top": 3}
                decode = {"op": "decode", "items": [{"seq": 4, "tokens": tokens}]}
                before = self.replay(self.NEW, decode, {"op": "hash", "seq": 4},
                                     {"op": "save", "seq": 4, "file": path, "compress": True},
                                     more, model=model)
                after = self.replay({**self.NEW, "page": 8}, {"op": "load", "seq": 4, "file": path},
                                    {"op": "hash", "seq": 4}, more, model=model)
                self.assertTrue(all(a["ok"] for a in before + after), before + after)
                self.assertEqual(before[3]["bytes"], os.path.getsize(path))
                self.assertEqual(after[1]["pos_max"], 69)
                self.assertEqual(after[2]["hash"], before[2]["hash"])
                for a, b in zip(after[3]["logits"][0], before[4]["logits"][0]):
                    self.assertEqual(a[0], b[0])
                    self.assertAlmostEqual(a[1], b[1], delta=1e-3)

    def test_refusals_change_nothing(self):
        path = str(self.folder / "other.state")
        decode = {"op": "decode", "items": [{"seq": 0, "tokens": [1, 2, 3]}]}
        self.replay(self.NEW, decode, {"op": "save", "seq": 0, "file": path})
        answers = self.replay(self.NEW, decode, {"op": "hash", "seq": 0},
                              {"op": "load", "seq": 0, "file": path}, {"op": "hash", "seq": 0},
                              {"op": "save", "seq": 0, "file": str(self.folder / "no/no")},
                              model=GEMMA)
        self.assertFalse(answers[3]["ok"])
        self.assertEqual(answers[4], answers[2])
        self.assertFalse(answers[5]["ok"])


class SmolLm2StateTest(CellarTest):
    @classmethod
    def setUpClass(cls):
        need_smollm2()
        super().setUpClass()

    def test_a_text_goes_on(self):
        path = str(self.folder / "smol.state")
        settings = ["generate", "-m", SMOLLM2, "--temp", 0, "--json"]
        first = self.json(*settings, "-p", "Tell me about the sea.", "-n", 12, "--save", path)
        more = self.json(*settings, "--load", path, "-n", 12)
        whole = self.json(*settings, "-p", "Tell me about the sea.", "-n", 24)
        self.assertEqual(first["text"] + more["text"], whole["text"])


if __name__ == "__main__":
    main()
