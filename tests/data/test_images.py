"""Official image files are read as published, and anything else is refused in one line."""

import gzip
import io
import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from momentum_transformer.data import idx
from momentum_transformer.data.cifar10_pickle import PickleError, read_pickle
from momentum_transformer.data.folder import DataError, data_root
from momentum_transformer.data.images import hold_out, is_here, load_images, pooled
from momentum_transformer.data.order import batch_rows

RNG = np.random.default_rng(0)


def idx_bytes(array: np.ndarray) -> bytes:
    axes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes((0, 0, 8, array.ndim)) + axes + array.astype(np.uint8).tobytes()


def write_mnist(folder: Path, *, packed: bool = True, train: int = 20, test: int = 10) -> dict[str, np.ndarray]:
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {
        "train-images-idx3-ubyte": RNG.integers(0, 256, (train, 28, 28)),
        "train-labels-idx1-ubyte": RNG.integers(0, 10, train),
        "t10k-images-idx3-ubyte": RNG.integers(0, 256, (test, 28, 28)),
        "t10k-labels-idx1-ubyte": RNG.integers(0, 10, test),
    }
    for name, array in arrays.items():
        content = idx_bytes(array)
        (folder / f"{name}{'.gz' if packed else ''}").write_bytes(gzip.compress(content) if packed else content)
    return arrays


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("own_folder", [True, False])
def test_idx_files_are_read_packed_or_not_from_either_folder(tmp_path: Path, packed: bool, own_folder: bool) -> None:
    arrays = write_mnist(tmp_path / "mnist", packed=packed)
    images = load_images("mnist", tmp_path / "mnist" if own_folder else tmp_path)
    assert np.array_equal(images.train.images[..., 0].numpy(), arrays["train-images-idx3-ubyte"])
    assert np.array_equal(images.test.labels.numpy(), arrays["t10k-labels-idx1-ubyte"])
    assert images.note == "a subset: 20 of 60,000 training images, 10 of 10,000 test images"


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise DataError("no network")

    monkeypatch.setattr("momentum_transformer.data.idx.fetch", refuse)
    monkeypatch.setattr("momentum_transformer.data.cifar10.fetch", refuse)


@pytest.mark.parametrize(("name", "file"), [("mnist", "t10k-labels-idx1-ubyte.gz"), ("cifar10", "cifar-10-binary")])
@pytest.mark.usefixtures("offline")
def test_missing_files_are_named_with_their_place(name: str, file: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"is not in .*: put .*{file}.* into {tmp_path / name}, or .*; no network$"):
        load_images(name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_files_that_are_wrong_are_refused_in_one_line(tmp_path: Path) -> None:
    arrays = write_mnist(tmp_path, packed=False)
    images, labels = tmp_path / "train-images-idx3-ubyte", tmp_path / "train-labels-idx1-ubyte"
    good = idx_bytes(arrays["train-images-idx3-ubyte"])
    for content, message in [
        (b"", "is not an idx file of bytes: it starts with nothing"),
        (b"\x89PNG....", "is not an idx file of bytes: it starts with 89 50 4e 47"),
        (b"\x00\x00\x0d\x03" + good[4:], "is not an idx file of bytes"),
        (good[:-1], "is cut off or damaged: 15,695 bytes where its header asks for 15,696"),
        (good + b"x", "is cut off or damaged"),
        (good[:9], "is cut off or damaged"),
        (gzip.compress(good)[:-40], "cannot be read: .*; delete it and get it again"),
        (labels.read_bytes(), r"has 1 axes and train-labels.* 1, .* are the two files swapped\?"),
        (idx_bytes(np.zeros((19, 28, 28))), "has 19 images and train-labels-idx1-ubyte 20 labels"),
        (idx_bytes(np.zeros((20, 32, 32))), "has images of 32 x 32 pixels, not 28 x 28"),
    ]:
        images.write_bytes(content)
        with pytest.raises(DataError, match=message) as caught:
            load_images("mnist", tmp_path)
        assert "\n" not in str(caught.value)
    images.write_bytes(good)
    labels.write_bytes(idx_bytes(np.full(20, 11)))
    with pytest.raises(DataError, match="has a label 11"):
        load_images("mnist", tmp_path)
    labels.unlink()
    with pytest.raises(DataError, match=r"has no train-labels-idx1-ubyte.gz; put it there"):
        load_images("mnist", tmp_path)


def test_one_set_is_not_taken_for_another_with_the_same_file_names(tmp_path: Path) -> None:
    write_mnist(tmp_path, packed=False)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(np.array([*idx.MNIST.first_test_labels, 0, 0])))
    assert load_images("mnist", tmp_path).name == "mnist"
    with pytest.raises(DataError, match="holds MNIST, not Fashion-MNIST"):
        load_images("fashion", tmp_path)


def cifar_records(count: int) -> np.ndarray:
    return np.concatenate(
        [RNG.integers(0, 10, (count, 1)), RNG.integers(0, 256, (count, 3072))], 1, dtype=np.uint8, casting="unsafe"
    )


def python_batch(records: np.ndarray, protocol: int) -> bytes:
    values = {b"batch_label": b"one", b"labels": records[:, 0].tolist(), b"data": records[:, 1:], b"filenames": [b"a"]}
    return pickle.dumps(values, protocol=protocol)


def pack(path: Path, members: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("version", ["binary", "python2", "python3"])
def test_cifar10_is_the_same_in_every_version(version: str, packed: bool, tmp_path: Path) -> None:
    batches = {name: cifar_records(7) for name in ("data_batch_2", "data_batch_1", "test_batch")}
    if version == "binary":
        members = {f"cifar-10-batches-bin/{name}.bin": records.tobytes() for name, records in batches.items()}
    else:
        protocol = 2 if version == "python2" else 4
        members = {f"cifar-10-batches-py/{name}": python_batch(r, protocol) for name, r in batches.items()}
    if packed:
        pack(tmp_path / "cifar10" / "some.tar.gz", members)
    else:
        for name, content in members.items():
            (tmp_path / "cifar10" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "cifar10" / name).write_bytes(content)
    images = load_images("cifar10", tmp_path)
    first = batches["data_batch_1"][0]
    assert images.train.images.shape == (14, 32, 32, 3)
    assert images.train.labels.tolist() == [*batches["data_batch_1"][:, 0], *batches["data_batch_2"][:, 0]]
    assert images.train.images[0, 5, 6].tolist() == [first[1 + plane * 1024 + 5 * 32 + 6] for plane in range(3)]
    assert images.note == "a subset: 14 of 50,000 training images, 7 of 10,000 test images"


@pytest.mark.parametrize("values", [b"}" * 10**6, b"(" * 10**6, b")" * 10**6, b"]" * 10**6])
def test_a_batch_of_a_million_values_is_not_made(values: bytes) -> None:
    with pytest.raises(PickleError, match="has more than 200,000 values"):
        read_pickle(b"\x80\x02" + values + b".")


def test_a_whole_batch_is_within_the_limit() -> None:
    """As Python 3 writes it into an old pickle, where a name takes nine opcodes."""
    names = [f"leptodactylus_pentadactylus_s_{i:06}.png".encode() for i in range(10_000)]
    assert read_pickle(pickle.dumps({b"labels": [3] * 10_000, b"filenames": names}, protocol=2))[b"filenames"] == names


class Malicious:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_a_pickle_runs_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "cifar10" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    (folder / "test_batch").write_bytes(python_batch(cifar_records(2), 2))
    for content, message in [
        (pickle.dumps(Malicious(tmp_path / "made"), protocol=2), r"asks to run (posix|nt).mkdir, .* it was not run"),
        (pickle.dumps({b"data": np.zeros((1, 3072)), b"labels": [0]}, protocol=2), "an array that is not of bytes"),
        (pickle.dumps({b"labels": [0]}, protocol=2), "is not a CIFAR-10 batch: KeyError"),
        (b"\x80\x02garbage", "is not a CIFAR-10 batch"),
        (b"", "is not a CIFAR-10 batch: pickle exhausted before seeing STOP"),
        (pickle.dumps({b"data": np.zeros((3, 5), np.uint8), b"labels": [0]}, protocol=2), r"shape \(3, 5\) and 1 lab"),
    ]:
        (folder / "data_batch_1").write_bytes(content)
        with pytest.raises(DataError, match=message):
            load_images("cifar10", tmp_path)
    assert not (tmp_path / "made").exists()


def test_damaged_cifar10_files_are_refused_in_one_line(tmp_path: Path) -> None:
    archive = tmp_path / "cifar10" / "cifar-10-binary.tar.gz"
    whole = {"data_batch_1.bin": cifar_records(3).tobytes(), "test_batch.bin": cifar_records(3).tobytes()}
    pack(archive, whole | {"data_batch_1.bin": whole["data_batch_1.bin"][:-5]})
    with pytest.raises(DataError, match=r"has 9,214 bytes, not a whole number of records of 3,073"):
        load_images("cifar10", tmp_path)
    pack(archive, {"data_batch_1.bin": whole["data_batch_1.bin"]})
    with pytest.raises(DataError, match="has no test_batch"):
        load_images("cifar10", tmp_path)
    pack(archive, {"test_batch.bin": whole["test_batch.bin"]})
    with pytest.raises(DataError, match="has no data_batch"):
        load_images("cifar10", tmp_path)
    pack(archive, whole)
    archive.write_bytes(archive.read_bytes()[:-2000])
    with pytest.raises(DataError, match="cut off or damaged"):
        load_images("cifar10", tmp_path)
    archive.write_bytes(b"no archive at all")
    with pytest.raises(DataError, match="cut off or damaged"):
        load_images("cifar10", tmp_path)


def test_the_digits_come_with_the_package() -> None:
    digits = load_images("digits")
    assert digits.train.images.shape == (1500, 8, 8, 1)
    assert digits.test.images.shape == (297, 8, 8, 1)
    assert not digits.note
    everything = torch.cat([digits.train.images, digits.test.images])
    assert everything.unique().tolist() == [round(level * 255 / 16) for level in range(17)]
    labels = torch.cat([digits.train.labels, digits.test.labels])
    assert labels.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert digits.train.images[0, 0, :, 0].tolist() == [0, 0, 80, 207, 143, 16, 0, 0]


@pytest.mark.parametrize(
    ("name", "shape", "note"),
    [
        ("mnist", (60_000, 28, 28, 1), ""),
        ("cifar10", (10_000, 32, 32, 3), "a subset: 10,000 of 50,000 training images"),
    ],
)
def test_the_real_files_are_read(name: str, shape: tuple[int, ...], note: str) -> None:
    if not (data_root(None) / name).is_dir():
        pytest.skip(f"there is no {name} in {data_root(None)}; set MOMENTUM_DATA")
    images = load_images(name)
    assert (images.train.images.shape, images.note) in [(shape, note), ((50_000, *shape[1:]), "")]
    assert images.test.images.shape == (10_000, *shape[1:])


def test_validation_images_are_apart_from_training_images_and_never_change() -> None:
    train, validation = hold_out(1000, 50)
    assert sorted([*train.tolist(), *validation.tolist()]) == list(range(1000))
    assert len(validation) == 50
    assert torch.equal(validation, hold_out(1000, 50)[1])
    assert len(hold_out(100, 5000)[1]) == 10
    with pytest.raises(ValueError, match="needs 2 images or more"):
        hold_out(1, 1)


def test_pooling_averages_blocks() -> None:
    images = torch.tensor([[[0, 1, 10, 10], [2, 4, 10, 11]]], dtype=torch.uint8)[..., None]
    assert pooled(images, 2).flatten().tolist() == [2, 10]
    assert pooled(images, 1) is images
    with pytest.raises(ValueError, match="images of 2 x 4 pixels cannot be pooled in blocks of 3 x 3"):
        pooled(images, 3)


def test_every_pass_shows_each_image_once_in_an_order_of_its_own() -> None:
    rows = torch.cat([batch_rows(step, batch_size=4, count=10, seed=1) for step in range(5)])
    first, second = rows[:10].tolist(), rows[10:].tolist()
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    assert batch_rows(0, batch_size=25, count=10, seed=1).tolist()[:20] == rows.tolist()
    assert batch_rows(0, batch_size=4, count=10, seed=2).tolist() != first[:4]


def test_the_data_folder_is_the_given_one_then_the_environments_then_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOMENTUM_DATA", "/elsewhere")
    assert data_root(Path("/given")) == Path("/given")
    assert data_root(None) == Path("/elsewhere")
    monkeypatch.delenv("MOMENTUM_DATA")
    assert data_root(None) == Path("data")


def test_whether_a_set_is_here_is_known_without_reading_it(tmp_path: Path) -> None:
    assert is_here("digits", tmp_path)
    assert not any(is_here(name, tmp_path) for name in ("mnist", "fashion", "cifar10"))
    for part in idx.PARTS:
        (tmp_path / "fashion").mkdir(exist_ok=True)
        (tmp_path / "fashion" / part).touch()
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / "cifar-10-python.tar.gz").touch()
    assert [is_here(name, tmp_path) for name in ("mnist", "fashion", "cifar10")] == [False, True, True]
