"""Just enough of GGUF to give a model file another tokenizer."""

import struct

U32, STRING, ARRAY, BOOL = 4, 8, 9, 7
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
ALIGNMENT = 32

CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% endif %}"
)


def byte_letters():
    """GPT-2's alphabet: printable bytes stand for themselves, others for letters from U+0100 on."""
    letters = {}
    for byte in range(256):
        if 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255:
            letters[byte] = chr(byte)
    for byte in range(256):
        if byte not in letters:
            letters[byte] = chr(256 + sum(1 for b in range(byte) if letters[b] >= "\u0100"))
    return letters


def string(text):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def entry(key, kind, value):
    return string(key) + struct.pack("<I", kind) + value


def strings(key, texts):
    head = struct.pack("<IQ", STRING, len(texts))
    return entry(key, ARRAY, head + b"".join(map(string, texts)))


def integers(key, numbers):
    head = struct.pack("<IQ", U32, len(numbers))
    return entry(key, ARRAY, head + struct.pack(f"<{len(numbers)}I", *numbers))


class Reader:
    def __init__(self, raw):
        self.raw, self.at = raw, 0

    def take(self, size):
        self.at += size
        return self.raw[self.at - size:self.at]

    def number(self, form):
        return struct.unpack("<" + form, self.take(struct.calcsize(form)))[0]

    def skip_string(self):
        return self.take(self.number("Q"))

    def skip_value(self, kind):
        if kind == STRING:
            self.skip_string()
        elif kind == ARRAY:
            inner, count = self.number("I"), self.number("Q")
            for _ in range(count):
                self.skip_value(inner)
        else:
            self.take(SIZES[kind])


def tokenizer_entries(texts, controls, add_bos=False, template=CHATML):
    """A byte-level tokenizer without merges: `controls` are its last tokens, by name."""
    tokens = texts + controls
    kinds = [1] * len(texts) + [3] * len(controls)
    entries = [
        entry("tokenizer.ggml.model", STRING, string("gpt2")),
        entry("tokenizer.ggml.pre", STRING, string("gpt-2")),
        strings("tokenizer.ggml.tokens", tokens),
        integers("tokenizer.ggml.token_type", kinds),
        strings("tokenizer.ggml.merges", []),
        entry("tokenizer.ggml.bos_token_id", U32,
              struct.pack("<I", tokens.index("<|endoftext|>"))),
        entry("tokenizer.ggml.eos_token_id", U32, struct.pack("<I", tokens.index("<|im_end|>"))),
        entry("tokenizer.ggml.add_bos_token", BOOL, struct.pack("<B", add_bos)),
    ]
    if template is not None:
        entries.append(entry("tokenizer.chat_template", STRING, string(template)))
    return entries


CONTROLS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def make_chatty(source, target, template=CHATML):
    """`source`, whose vocabulary has 128 tokens, with a tokenizer of 125 bytes and a chat format."""
    with open(source, "rb") as file:
        reader = Reader(file.read())
    magic = reader.take(8)
    n_tensors, n_keys = reader.number("Q"), reader.number("Q")
    kept = []
    for _ in range(n_keys):
        begin = reader.at
        key = reader.skip_string()
        reader.skip_value(reader.number("I"))
        if not key.startswith(b"tokenizer."):
            kept.append(reader.raw[begin:reader.at])
    begin = reader.at
    for _ in range(n_tensors):
        reader.skip_string()
        reader.take(8 * reader.number("I") + 4 + 8)
    directory = reader.raw[begin:reader.at]
    data = reader.raw[-(-reader.at // ALIGNMENT) * ALIGNMENT:]

    # All of ASCII but controls, then the first bytes and continuations that make other letters.
    letters = byte_letters()
    known = [9, 10, *range(32, 127), *range(0x80, 0x9a), 0xc3, 0xe2]
    entries = kept + tokenizer_entries([letters[b] for b in known], CONTROLS, template=template)
    assert len(known) + len(CONTROLS) == 128
    write(target, magic, n_tensors, entries, directory, data)


def make_tokenizer(target):
    """A file of a tokenizer alone: token b is byte b, then the control tokens."""
    letters = byte_letters()
    entries = tokenizer_entries([letters[b] for b in range(256)], CONTROLS)
    write(target, b"GGUF" + struct.pack("<I", 3), 0, entries, b"", b"")


def write(target, magic, n_tensors, entries, directory, data):
    head = magic + struct.pack("<QQ", n_tensors, len(entries)) + b"".join(entries) + directory
    with open(target, "wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT) + data)
