"""Text to tokens on the command line."""

import json

import gguf_edit
from harness import DATA, SMOLLM2, CellarTest, main, need_smollm2


class TokenizeTest(CellarTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # Token b is byte b; then the control tokens.
        cls.bytewise = str(cls.folder / "bytewise.gguf")
        gguf_edit.make_tokenizer(cls.bytewise)

    def tokens(self, model, text):
        return self.json("tokenize", "-m", model, "--json", stdin=text)["tokens"]

    def test_every_byte_becomes_a_token_in_its_place(self):
        for data in [bytes(range(256)), bytes(reversed(range(256))), b"\x00\x00", b"\xff\xfe\n",
                     "naïve — ½\r\n".encode(), b"\n", b" ", b"a\n"]:
            self.assertEqual(self.tokens(self.bytewise, data), list(data))

    def test_nothing_is_no_tokens(self):
        self.assertEqual(self.succeed("tokenize", "-m", self.bytewise, "--json"),
                         b'{"tokens":[]}\n')
        self.assertEqual(self.succeed("tokenize", "-m", self.bytewise), b"")

    def test_special_tokens_are_parsed(self):
        self.assertEqual(self.tokens(self.bytewise, "a<|im_end|>b<|im_end"),
                         [97, 258, 98, *b"<|im_end"])

    def test_without_json_ids_come_one_a_line(self):
        self.assertEqual(self.succeed("tokenize", "-m", self.bytewise, stdin="Hi!"),
                         b"72\n105\n33\n")

    def test_long_texts_are_quick(self):
        self.assertEqual(len(self.tokens(self.bytewise, b"a" * 1_000_000)), 1_000_000)

    def test_smollm2_gives_the_expected_ids(self):
        need_smollm2()
        for case in json.loads((DATA / "text/smollm2_tok.json").read_text()):
            with self.subTest(case["text"]):
                self.assertEqual(self.tokens(SMOLLM2, case["text"]), case["tokens"])


if __name__ == "__main__":
    main()
