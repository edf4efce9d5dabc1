"""How setup.py compiles what has changed; and how it compiles, packs and keeps GPU code, with an nvcc of ours, which leaves files without code."""

import lzma
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cpu, pytest.mark.skipif(os.name == "nt", reason="programs of ours are shell scripts")]
ROOT = Path(__file__).resolve().parent.parent
NVCC = """#!/bin/sh
case "$*" in
*--version*) echo "Cuda compilation tools, release 13.0, V13.0.48";;
*--list-gpu-arch*) [ "$FAILS" = list ] && exit 1; printf 'compute_75\\ncompute_80\\ncompute_86\\ncompute_90\\n';;
*scan.cu) echo "scan.cu(3): warning #177-D: variable \\"x\\" was declared but never referenced" >&2;;
esac
case "$*" in *scan.cu) [ "$FAILS" = scan ] && exit 1;; esac
while [ $# -gt 0 ]; do [ "$1" = -o ] && echo code > "$2"; shift; done
exit 0
"""
SETUP = """
import runpy, setuptools
setuptools.setup = lambda **how: None
setup = runpy.run_path("setup.py")
"""


def program(folder, name, text):
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def compiled(tmp_path, cuda="1", smi=None, cache="images", before="", **environment):
    """What setup.py says, and what it gives: the architectures or why there are none, macros, folders."""
    program(tmp_path, "nvcc", NVCC)
    if smi is not None:
        program(tmp_path, "nvidia-smi", f"#!/bin/sh\nprintf '{smi}'\n")
    env = {**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin", "AMPC_CUDA": cuda, "AMPC_CUDA_CACHE": str(tmp_path / cache), **environment}
    done = subprocess.run([sys.executable, "-c", before + SETUP + "print(*setup['gpu_code'](), sep='\\n')"], cwd=ROOT, capture_output=True, text=True, env=env)
    return done, done.stdout.splitlines()[-3:]


@pytest.mark.parametrize("fails", ["", "scan", "list"], ids=["a warning", "an error", "an nvcc that does not start"])
def test_a_build_shows_what_nvcc_says(fails, tmp_path):
    done, (code, macros, _) = compiled(tmp_path, FAILS=fails)
    assert code == ("nvcc failed" if fails else "75 80 90"), done.stderr
    assert ("AC_CUDA_IMAGES" in macros) == (not fails) and ("this build has no GPU code" in done.stderr) == bool(fails)
    if fails != "list":
        assert ("nvcc failed on" if fails else "nvcc about") + " csrc/cuda/scan.cu" in done.stderr and "#177-D" in done.stderr


def test_the_list_of_images_names_no_folder_so_a_cache_may_have_any_name_and_move(tmp_path):
    done, (_, macros, folders) = compiled(tmp_path, cache='a "b" %s \\ ü')
    cache = tmp_path / 'a "b" %s \\ ü'
    listed = cache / eval(macros)[0][1].strip('"')
    assert str(cache) in eval(folders) and 'CUBIN(SCAN, 90, "scan-' in listed.read_text() and "/" not in listed.read_text()
    packed = next(line for line in listed.read_text().splitlines() if line.startswith("PTX(SCAN, 80")).split('"')[1]
    assert lzma.decompress((cache / packed).read_bytes()) == b"code\n"
    assert all("." in path.name for path in cache.iterdir())  # nothing unfinished
    cache.rename(tmp_path / "moved")
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "moved").iterdir()}
    compiled(tmp_path, cache="moved")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "moved").iterdir()} == times


@pytest.mark.parametrize("smi, code", [("8.6\\n", "86"), ("9.0\\n7.5\\n9.0\\n", "75 90"), ("12.0\\n", "90"), ("[N/A]\\n8.0\\n", "80"),
                                       ("7.0\\n8.6\\n", "86"), ("7.0\\n", "no GPU"), ("", "no GPU")])
def test_a_build_for_this_machines_gpus(smi, code, tmp_path):
    """One that nvcc does not know yet runs the newest PTX; one before Turing runs nothing."""
    done, (found, macros, _) = compiled(tmp_path, "native", smi)
    assert found == code and ("AC_CUDA_IMAGES" in macros) == code[0].isdigit(), done.stderr


def test_a_build_for_this_machines_gpus_needs_nvidia_smi(tmp_path):
    for folder in "/usr/bin", "/bin":
        if os.path.exists(f"{folder}/nvidia-smi"):
            pytest.skip("nvidia-smi is here")
    done, _ = compiled(tmp_path, "native")
    assert done.returncode and "AMPC_CUDA=native asks nvidia-smi which GPUs are here, and that fails: " in done.stderr
    assert "AMPC_CUDA=1 compiles for all GPUs" in done.stderr and "Traceback" not in done.stderr


def test_a_python_without_lzma_builds_all_but_gpu_code(tmp_path):
    done, (code, macros, _) = compiled(tmp_path, before="import sys; sys.modules['lzma'] = None")
    assert (code, macros) == ("no lzma", "[]"), done.stderr


def test_what_includes_files_of_folders_with_spaces_is_compiled_when_they_change(tmp_path):
    folder = tmp_path / "my $ project"
    folder.mkdir()
    for name in "a.c", "a.h":
        (folder / name).touch()
    made = tmp_path / "a.o"
    made.touch()
    (tmp_path / "a.o.flags").write_text("-O3")
    escaped = str(folder).replace("$", "$$").replace(" ", "\\ ")
    (tmp_path / "a.d").write_text(f"a.o: {escaped}/a.c \\\n {escaped}/a.h\n")
    asked = f"{SETUP}import os\nprint(setup['is_fresh']({str(made)!r}, '-O3'))\nos.utime({str(folder / 'a.h')!r}, (2e9, 2e9))\n"
    done = subprocess.run([sys.executable, "-c", asked + f"print(setup['is_fresh']({str(made)!r}, '-O3'))"], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "True\nFalse\n", done.stderr
