"""What the tests of the command line share: running cellar, and models to run it on."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import gguf_edit

CELLAR = os.environ["CELLAR_BIN"]
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DATA = pathlib.Path(os.environ.get("CELLAR_TEST_DATA", ROOT / "tests/data"))
MODELS = pathlib.Path(os.environ.get("CELLAR_MODELS", ROOT / "models"))

# Four random layers over 128 tokens, without a tokenizer.
TINY = str(DATA / "models/tiny-llama.gguf")
SMOLLM2 = str(MODELS / "SmolLM2-135M-Instruct.Q4_1.gguf")

# Threads that wait must sleep: tests run beside each other on few cores. What is remembered of
# models is not the user's.
CACHE = tempfile.TemporaryDirectory()
ENVIRONMENT = {**os.environ, "OMP_WAIT_POLICY": "passive", "XDG_CACHE_HOME": CACHE.name}


def command(*arguments):
    return [CELLAR, *map(str, arguments)]


def run(*arguments, stdin=b"", stdout=subprocess.PIPE, environment=None):
    """Runs cellar to its end; gives returncode, stdout and stderr as bytes. `environment` adds
    variables."""
    if isinstance(stdin, str):
        stdin = stdin.encode()
    return subprocess.run(command(*arguments), input=stdin, stdout=stdout, stderr=subprocess.PIPE,
                          timeout=240, env={**ENVIRONMENT, **(environment or {})})


def start(*arguments, **pipes):
    return subprocess.Popen(command(*arguments), env=ENVIRONMENT, **pipes)


class CellarTest(unittest.TestCase):
    """Adds verbs; makes a folder for each class, with the tiny model in a form that can chat."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.chatty = str(cls.folder / "chatty.gguf")
        gguf_edit.make_chatty(TINY, cls.chatty)

    def file(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    def succeed(self, *arguments, stdin=b""):
        """Its standard output."""
        done = run(*arguments, stdin=stdin)
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
        return done.stdout

    def fail_with(self, code, part, *arguments, stdin=b""):
        """Exit code, one sentence on standard error that has `part`, nothing on standard output."""
        done = run(*arguments, stdin=stdin)
        error = done.stderr.decode(errors="replace")
        self.assertEqual(done.returncode, code, error)
        self.assertEqual(done.stdout, b"")
        self.assertTrue(error.startswith("cellar: "), error)
        self.assertEqual(error.count("\n"), 1, error)
        self.assertIn(part, error)

    def json(self, *arguments, stdin=b""):
        return json.loads(self.succeed(*arguments, stdin=stdin))

    def json_lines(self, *arguments, stdin=b""):
        return [json.loads(line) for line in self.succeed(*arguments, stdin=stdin).splitlines()]


def need_smollm2():
    if not os.path.exists(SMOLLM2):
        print(f"SKIPPED: no {SMOLLM2}; `make run` fetches it.", file=sys.stderr)
        raise unittest.SkipTest(f"no {SMOLLM2}")


def main():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    unittest.main(verbosity=2)
