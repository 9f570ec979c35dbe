"""Conversations: each line a message, and nothing computed twice."""

import json

import gguf_edit
from harness import SMOLLM2, TINY, CellarTest, main, need_smollm2, run


class ChatTest(CellarTest):
    def chat(self, text, *arguments, model=None):
        return self.json_lines("chat", "-m", model or self.chatty, "--json", "--seed", 4,
                               *arguments, stdin=text)

    def test_each_turn_computes_only_what_is_new(self):
        turns = self.chat("Hello\nAnd then?\nSo?\n", "-n", 10, "--ignore-eos")
        self.assertEqual(len(turns), 3)
        self.assertEqual(turns[0]["cached_tokens"], 0)
        # What a turn adds: the last token of the reply, the end of its turn, the user's message.
        around = len("..\n..user\n..\n..assistant\n") - 8 + 4
        for before, turn, message in zip(turns, turns[1:], ["And then?", "So?"]):
            self.assertEqual(turn["cached_tokens"], before["prompt_tokens"] + 10 - 1)
            self.assertEqual(turn["prompt_tokens"],
                             before["prompt_tokens"] + 10 + around + len(message))
            self.assertEqual(turn["timings"]["prompt_n"],
                             turn["prompt_tokens"] - turn["cached_tokens"])

    def test_replies_are_those_to_the_whole_text(self):
        first, second = self.chat("Hello\nSo?\n", "-n", 8, "--temp", 0)
        # The bytewise tokenizer has one way to write a text, so it can be put together here.
        text = ("<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n" + first["text"] +
                "<|im_end|>\n<|im_start|>user\nSo?<|im_end|>\n<|im_start|>assistant\n")
        if "\ufffd" in first["text"]:
            self.skipTest("the model wrote no text")
        answer = self.json("generate", "-m", self.chatty, "--raw", "--json", "-n", 8, "--temp", 0,
                           stdin=text)
        self.assertEqual(answer["tokens"], second["tokens"])

    def test_clear_begins_a_new_conversation(self):
        turns = self.chat("Hello\n/clear\nHello\n", "-n", 5, "--temp", 0)
        self.assertEqual(turns[0]["tokens"], turns[1]["tokens"])
        self.assertEqual(turns[0]["prompt_tokens"], turns[1]["prompt_tokens"])
        # The same prompt is held still, but for the last token: its logits are needed.
        self.assertEqual(turns[1]["cached_tokens"], turns[1]["prompt_tokens"] - 1)

    def test_exit_and_the_end_of_input_leave(self):
        self.assertEqual(len(self.chat("Hello\n/exit\nHello\n", "-n", 2)), 1)
        self.assertEqual(len(self.chat("Hello\r\n\nHello", "-n", 2)), 2)
        self.assertEqual(self.chat("", "-n", 2), [])

    def test_system_message_comes_first(self):
        plain = self.chat("Hello\n", "-n", 0)[0]["prompt_tokens"]
        told = self.chat("Hello\n", "-n", 0, "--system", "Be brief.")[0]["prompt_tokens"]
        self.assertEqual(told, plain + len("system\nBe brief.\n") + 2)

    def test_same_seed_same_conversation(self):
        text = "Hello\nSo?\n"
        self.assertEqual([turn["tokens"] for turn in self.chat(text, "-n", 10)],
                         [turn["tokens"] for turn in self.chat(text, "-n", 10)])

    def test_prints_replies_one_after_the_other(self):
        out = self.succeed("chat", "-m", self.chatty, "-n", 5, "--temp", 0, stdin="Hello\nSo?\n")
        turns = self.chat("Hello\nSo?\n", "-n", 5, "--temp", 0)
        self.assertEqual(out.decode(), "".join(turn["text"] + "\n" for turn in turns))

    def test_full_context_is_said_and_clear_goes_on(self):
        done = run("chat", "-m", self.chatty, "-c", 60, "--json", "--ignore-eos",
                   stdin="Hello\nSo?\n/clear\nHello\n")
        turns = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([turn["stop_reason"] for turn in turns], ["length", "length"])
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"the context has room for 60; enter /clear", done.stderr)

        plain = run("chat", "-m", self.chatty, "-c", 60, "--ignore-eos", stdin="Hello\n")
        self.assertEqual(plain.returncode, 0)
        self.assertIn(b"context of 60 tokens is full", plain.stderr)

    def test_context_shift_goes_on_when_the_context_is_full(self):
        done = run("chat", "-m", self.chatty, "-c", 100, "--json", "--ignore-eos", "-n", 30,
                   "--context-shift", 4, stdin="Hello\nSo?\n" * 5)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        turns = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([len(turn["tokens"]) for turn in turns], [30] * 10)
        for turn in turns:
            self.assertLessEqual(turn["timings"]["prompt_n"], 60)  # what is new, and no more

    def test_model_without_a_chat_format_is_refused(self):
        base = str(self.folder / "base.gguf")
        gguf_edit.make_chatty(TINY, base, template=None)
        self.fail_with(1, "no chat format", "chat", "-m", base, stdin="Hello\n")

    def test_smollm2_answers_without_computing_anything_twice(self):
        need_smollm2()
        first, second = self.chat("What is two plus two?\nAnd three plus three?\n", "-n", 30,
                                  "--temp", 0, model=SMOLLM2)
        self.assertEqual(second["cached_tokens"],
                         first["prompt_tokens"] + len(first["tokens"]) -
                         (first["stop_reason"] == "length"))
        self.assertLess(second["timings"]["prompt_n"], 25)


if __name__ == "__main__":
    main()
