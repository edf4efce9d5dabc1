"""tools/abi.py notices what differs. The comparison with NVIDIA's headers and libraries is a part of .ci/run."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
import abi  # noqa: E402

pytestmark = pytest.mark.skipif(not shutil.which(abi.CC), reason="needs a C compiler")


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    """A folder that looks as if libraries with every function had been downloaded."""
    monkeypatch.setattr(abi, "KEPT", tmp_path)
    for wheel, (prefix, names) in zip(abi.WHEELS, abi.loaded().items()):
        abi.folder_of(wheel).mkdir()
        (abi.folder_of(wheel) / (abi.LIBRARIES[prefix] + "1.names")).write_text("\n".join(sorted(names)))
    return tmp_path


def test_a_function_that_no_library_exports_is_named(wheels):
    assert abi.check_names().startswith("exports: ")
    path = next(wheels.glob("*/libcublasLt*"))
    path.write_text(path.read_text().replace("cublasLtMatmulAlgoGetHeuristic", "cublasLtOther"))
    with pytest.raises(RuntimeError, match="does not export cublasLtMatmulAlgoGetHeuristic"):
        abi.check_names()


def test_nccl_is_compared_where_its_wheel_is_kept(wheels):
    assert abi.NCCL not in abi.wheels() and "of nccl" in abi.check_names()
    path = next(wheels.glob("*/libnccl*"))
    path.unlink()
    assert "of nccl" not in abi.check_names()
    abi.folder_of(abi.NCCL).mkdir()
    (abi.folder_of(abi.NCCL) / "libnccl.so.2.names").write_text("ncclAllReduce")
    with pytest.raises(RuntimeError, match="libnccl.* does not export .*ncclBroadcast"):
        abi.check_names()


def test_headers_that_are_not_found_are_no_success(wheels):
    for wheel in abi.WHEELS:
        abi.folder_of(wheel).mkdir(exist_ok=True)
    if subprocess.run([abi.CC, "-E", "-x", "c", "-"], input="#include <cuda.h>", capture_output=True, text=True).returncode == 0:
        pytest.skip("the compiler finds a cuda.h by itself")
    with pytest.raises(RuntimeError, match="AC_CUDA_HEADERS is not set"):
        abi.check_headers()


def test_exported_names_are_functions(tmp_path):
    source, library = tmp_path / "f.c", tmp_path / "f.so"
    source.write_text("int there(void) { return 1; }\nstatic int hidden(void) { return 2; }\nint (*value)(void) = hidden;\n")
    subprocess.run([abi.CC, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    assert "there" in abi.exported(library) and not {"hidden", "value"} & set(abi.exported(library))


def test_structs_of_other_sizes_are_named(monkeypatch):
    names = abi.struct_names()
    assert len(names) > 15 and "ac_gpu_list" in names
    monkeypatch.setattr(abi, "NVCC", sys.executable)
    monkeypatch.setattr(abi, "sizes_in_ptx", lambda names, room: {name: 8 if name == "ac_gpu_list" else size
                                                                  for name, size in abi.sizes_in_c(names, room).items()})
    with pytest.raises(RuntimeError, match=r"ac_gpu_list: \d+ bytes in C, 8 in PTX"):
        abi.check_structs()


def test_what_cannot_be_had_is_said_and_no_failure(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(abi, "KEPT", tmp_path)
    monkeypatch.setattr(abi, "WHEELS", ("no-such-wheel==1",))
    monkeypatch.setattr(abi, "SECONDS", 0)
    monkeypatch.setattr(abi, "NVCC", "/nowhere/nvcc")
    assert abi.main() == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 2 and all(line.startswith("left out") for line in said)
