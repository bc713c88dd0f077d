from __future__ import annotations

from pathlib import Path

import pytest

from entrypoint.checks.versions import cuda_version, image_version, tensorflow_version


@pytest.mark.parametrize(
    ("environ", "version"),
    [
        ({}, ""),
        ({"CLUSTER_TRAINER_VERSION": "0.1.0"}, "0.1.0"),
        ({"CLUSTER_TRAINER_VERSION": "0.1.0", "CLUSTER_TRAINER_REVISION": "3a4"}, "0.1.0 (3a4)"),
    ],
)
def test_the_image_is_known_by_version_and_revision(environ: dict[str, str], version: str) -> None:
    assert image_version(environ) == version


@pytest.mark.parametrize(
    ("folders", "version"),
    [
        ([], ""),
        (["tensorflow_datasets-4.9.10.dist-info", "keras-3.15.1.dist-info"], ""),
        (["tensorflow-2.21.0.dist-info"], "2.21.0"),
        (["tensorflow_cpu-2.21.0.dist-info", "tensorflow_io-0.37.dist-info"], "2.21.0"),
    ],
)
def test_tensorflow_is_known_by_its_distribution(
    tmp_path: Path, folders: list[str], version: str
) -> None:
    for name in folders:
        (tmp_path / name).mkdir()
    assert tensorflow_version([str(tmp_path / "missing"), str(tmp_path)]) == version


@pytest.mark.parametrize(
    ("folders", "version"),
    [
        (["nvidia_cuda_nvrtc_cu12-12.9.86.dist-info", "tensorflow-2.21.0.dist-info"], ""),
        (["nvidia_cuda_runtime_cu12-12.9.79.dist-info"], "12.9.79"),
        (["nvidia_cuda_runtime-13.0.48.dist-info"], "13.0.48"),
    ],
)
def test_cuda_is_known_by_its_runtime(tmp_path: Path, folders: list[str], version: str) -> None:
    for name in folders:
        (tmp_path / name).mkdir()
    assert cuda_version([str(tmp_path)]) == version
