"""Writing for TensorBoard: what is written is what torch's writer writes, and TensorBoard's own reader reads it."""

import io
import sys
import wave

import numpy as np
import pytest

import ampc

pytest.importorskip("tensorboard")
pytestmark = pytest.mark.cpu


def test_tensorboard(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with ampc.utils.tensorboard.SummaryWriter(tmp_path) as writer:
        for step in range(3):
            writer.add_scalar("loss", ampc.tensor(1.5) * step, step)
        writer.add_histogram("weights", ampc.randn(100), 1)
        writer.add_text("note", "hello")
        writer.add_image("picture", ampc.rand(3, 4, 5), 2)
        writer.add_scalars("pair", {"a": 1.0, "b": 2.0}, 0)
        with pytest.raises(ValueError, match="not one number"):
            writer.add_scalar("loss", ampc.ones(2))
        with pytest.raises(ValueError, match="no value of 'weights' lies in the bins"):
            writer.add_histogram("weights", ampc.tensor([float("nan")]))
        with pytest.raises(ValueError, match="'weights' has no values"):
            writer.add_histogram("weights", ampc.ones(0))
    found = EventAccumulator(str(tmp_path)).Reload()
    assert [(e.step, e.value) for e in found.Scalars("loss")] == [(0, 0.0), (1, 1.5), (2, 3.0)]
    assert found.Histograms("weights")[0].histogram_value.num == 100
    (image,) = found.Images("picture")
    assert (image.height, image.width, image.step) == (4, 5, 2)
    assert {p.name for p in tmp_path.iterdir() if p.is_dir()} == {"pair_a", "pair_b"}


def test_tensorboard_numbers_in_float64_and_known_choices(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata

    with ampc.utils.tensorboard.SummaryWriter(tmp_path) as writer:
        writer.add_scalar("wide", ampc.tensor(1 / 3, dtype=ampc.float64), 0, new_style=True, double_precision=True)
        writer.add_scalar("narrow", 1 / 3, 0, new_style=True)
        writer.add_hparams({"lr": 0.1, "rule": "adam"}, {"loss": 0.5}, {"rule": ["adam", "sgd"]}, run_name="one")
        with pytest.raises(TypeError, match="hparam_domain_discrete"):
            writer.add_hparams({"lr": 0.1}, {"loss": 0.5}, {"rule": ["adam"]})
    found = EventAccumulator(str(tmp_path)).Reload()
    assert found.Tensors("wide")[0].tensor_proto.double_val[0] == 1 / 3 and found.Tensors("narrow")[0].tensor_proto.float_val[0] == np.float32(1 / 3)
    run = EventAccumulator(str(tmp_path / "one")).Reload()
    content = run.SummaryMetadata("_hparams_/experiment").plugin_data.content
    infos = {info.name: info for info in metadata.parse_experiment_plugin_data(content).hparam_infos}
    assert [v.string_value for v in infos["rule"].domain_discrete.values] == ["adam", "sgd"] and not infos["lr"].HasField("domain_discrete")


def test_a_writer_goes_on_in_a_new_file_after_close(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    writer = ampc.utils.tensorboard.SummaryWriter(tmp_path)
    writer.file_writer.add_summary(ampc.utils.tensorboard.summary.scalar("loss", 1.0), 1)
    writer.close()
    writer.flush()
    writer.close()
    assert writer.file_writer is None
    writer.add_scalar("loss", 2.0, 2)
    writer.add_histogram("gradients", ampc.tensor([float("nan"), 1.0]), 2)
    writer.close()
    (runs,) = {p.parent for p in tmp_path.rglob("events*")}
    found = [e for path in sorted(runs.iterdir()) for e in EventAccumulator(str(path)).Reload().Scalars("loss")]
    assert sorted((e.step, e.value) for e in found) == [(1, 1.0), (2, 2.0)]


def test_tensorboard_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.event_file_writer", None)
    with pytest.raises(ModuleNotFoundError, match="pip install tensorboard"):
        ampc.utils.tensorboard.SummaryWriter(tmp_path)


# -- beside torch ------------------------------------------------------------------------------------------------------------

MESSAGES = {
    "scalar": "s.scalar('a', t.tensor(1.5))",
    "scalar of a new style": "s.scalar('a', 2, new_style=True)",
    "scalar in float64": "s.scalar('a', t.tensor(1 / 3, dtype=t.float64), new_style=True, double_precision=True)",
    "histogram": "s.histogram('h', x.numpy(), usual)",
    "histogram of equal values": "s.histogram('h', t.zeros(5).numpy(), usual)",
    "histogram of overflows": "s.histogram('h', t.tensor([1.0, float('inf'), 2.0]).numpy(), usual)",
    "histogram in ten bins": "s.histogram('h', x.numpy(), 10)",
    "histogram in fewer bins": "s.histogram('h', x.numpy(), 100, 7)",
    "histogram in NumPy's bins": "s.histogram('h', x.numpy(), 'auto')",
    "histogram over given edges": "s.histogram('h', x.numpy(), [-1.0, -0.5, 0.25, 3.0])",
    "histogram that was counted": "s.histogram_raw('h', 0.0, 1.0, 3, 1.5, 0.75, [0.5, 1.0], [1, 2])",
    "text": "s.text('note', '**hello**')",
    "curve": "s.pr_curve('p', (x > 0).numpy(), x.sigmoid().numpy(), 11)",
    "weighed curve": "s.pr_curve('p', (x > 0).numpy(), (x * 0.25).sigmoid().numpy(), 200, x.abs().numpy())",
    "curve that was computed": "s.pr_curve_raw('p', *(t.arange(4.0) + i for i in range(6)), 4)",
    "charts": "s.custom_scalars({'one': {'a': ['Multiline', ['x', 'y']], 'b': ['Margin', ['x', 'low', 'high']]}})",
    "mesh": "s.mesh('m', x[:60].view(2, 10, 3), (x[:60].view(2, 10, 3) * 9).int(), t.arange(12).view(2, 2, 3).int(), {'lights': 1})",
    "mesh of points": "s.mesh('m', x[:60].view(2, 10, 3), None, None, {})",
}


@pytest.mark.parametrize("what", MESSAGES)
def test_messages_are_those_that_torch_writes(torch, what, tmp_path):
    from torch.utils.tensorboard import SummaryWriter
    from torch.utils.tensorboard import summary as theirs

    edges = SummaryWriter(tmp_path).default_bins  # what torch's writer makes of "tensorflow"
    x = np.random.default_rng(7).normal(size=1000).astype(np.float32)
    ours, expected = (eval(MESSAGES[what], {"s": s, "t": t, "x": t.tensor(x), "usual": usual})
                      for s, t, usual in ((ampc.utils.tensorboard.summary, ampc, "tensorflow"), (theirs, torch, edges)))
    if what == "weighed curve":  # torch sums in float32
        ours, expected = (np.array(m.value[0].tensor.float_val) for m in (ours, expected))
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)
    else:
        assert ours == expected


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64", "bool"])
def test_tensors_read_back(dtype):
    from tensorboard.util.tensor_util import make_ndarray

    x = ampc.arange(6).view(2, 3).to(getattr(ampc, dtype))
    read = make_ndarray(ampc.utils.tensorboard.summary.tensor_proto("x", x).value[0].tensor)
    expected = x.float().numpy() if dtype == "float16" else x.numpy()  # 16-bit numbers are written as float32
    assert read.dtype == expected.dtype and read.tolist() == expected.tolist()


def test_parameters_of_a_run_as_torch_writes_them(torch):
    from tensorboard.plugins.hparams import metadata
    from torch.utils.tensorboard import summary as theirs

    given = {"lr": 0.1, "rule": "adam", "steps": 3}, {"loss": 0.5}, {"rule": ["adam", "sgd"]}

    def content(library):
        experiment, start, end = (m.value[0].metadata.plugin_data.content for m in library.hparams(*given))
        infos = metadata.parse_experiment_plugin_data(experiment)
        session = metadata.parse_session_start_info_plugin_data(start)
        return ({i.name: list(i.domain_discrete.values) for i in infos.hparam_infos}, [m.name.tag for m in infos.metric_infos],
                {k: str(v) for k, v in session.hparams.items()}, metadata.parse_session_end_info_plugin_data(end).status)

    ours, expected = content(ampc.utils.tensorboard.summary), content(theirs)
    assert ours[1:] == expected[1:] and ours[0].keys() == expected[0].keys() and ours[0]["rule"] == expected[0]["rule"]


def pixels(message):
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(message.value[0].image.encoded_image_string)))


@pytest.mark.parametrize(("shape", "order"), [((3, 4, 5), "CHW"), ((4, 5, 3), "HWC"), ((4, 5), "HW"), ((1, 4, 5), "CHW"), ((2, 3, 4, 5), "NCHW"), ((2, 4, 5, 3), "NHWC")])
def test_pictures_have_the_pixels_given(shape, order):
    pytest.importorskip("PIL")
    x = ampc.randint(0, 256, shape, dtype=ampc.uint8)
    rows = np.moveaxis(x.numpy(), [order.index(c) for c in order if c in "CHW"], [{"H": 0, "W": 1, "C": 2}[c] + ("N" in order) for c in order if c in "CHW"])
    expected = np.concatenate(list(rows), axis=1) if "N" in order else rows
    assert np.array_equal(pixels(ampc.utils.tensorboard.summary.image("p", x, 1, order)).squeeze(), expected.squeeze())


def test_many_pictures_stand_in_rows_of_eight(torch):
    pytest.importorskip("PIL")
    from torch.utils.tensorboard import summary as theirs

    x = np.random.default_rng(7).integers(0, 256, (11, 3, 4, 5)).astype(np.uint8)
    ours = pixels(ampc.utils.tensorboard.summary.image("i", ampc.tensor(x)))
    assert ours.shape == (8, 40, 3) and np.array_equal(ours, pixels(theirs.image("i", torch.tensor(x))))
    with pytest.raises(ValueError, match="or is empty"):
        ampc.utils.tensorboard.summary.image("i", ampc.tensor(x[:0]))


def test_pictures_over_time_and_sound_and_boxes(tmp_path):
    pytest.importorskip("PIL")
    from PIL import Image

    made = ampc.utils.tensorboard.summary
    film = Image.open(io.BytesIO(made.video("v", ampc.rand(2, 5, 3, 8, 9), fps=10).value[0].image.encoded_image_string))
    assert (film.n_frames, film.size, film.info["duration"]) == (5, (18, 8), 100)
    sound = made.audio("a", ampc.tensor([[0.0, 0.5, -1.0, 2.0]]), 8000).value[0].audio
    with wave.open(io.BytesIO(sound.encoded_audio_string)) as file:
        assert (file.getframerate(), file.getnframes(), sound.length_frames) == (8000, 4, 4)
        assert np.frombuffer(file.readframes(4), "<i2").tolist() == [0, 16383, -32767, 32767]
    boxed = pixels(made.image_boxes("b", ampc.zeros(1, 8, 8), ampc.tensor([[1, 2, 5, 6]])))
    assert boxed[2, 1].tolist() == boxed[6, 5].tolist() == [255, 0, 0] and boxed[4, 3].tolist() == [0, 0, 0] and boxed.shape == (8, 8, 3)
    for call, args in ((made.video, (ampc.rand(3, 8, 9),)), (made.audio, (ampc.rand(2, 9),)), (made.image, (ampc.rand(2), 1, "CHW"))):
        with pytest.raises(ValueError, match="shape"):
            call("x", *args)


def test_points_for_the_projector(tmp_path):
    pytest.importorskip("PIL")
    from google.protobuf import text_format
    from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig

    points = ampc.randn(5, 3)
    with ampc.utils.tensorboard.SummaryWriter(tmp_path) as writer:
        writer.add_embedding(points, ["a", "b\tc", "d", "e", "f"], ampc.rand(5, 3, 2, 4), global_step=3, tag="layer/1")
        writer.add_embedding(points, [("a", 1)] * 5, metadata_header=["name", "number"])
        with pytest.raises(ValueError, match="5 points and 1 labels"):
            writer.add_embedding(points, ["a"])
    first, second = text_format.Parse((tmp_path / "projector_config.pbtxt").read_text(), ProjectorConfig()).embeddings
    assert np.array_equal(np.loadtxt(tmp_path / first.tensor_path, dtype=np.float32), points.numpy())
    assert (tmp_path / first.metadata_path).read_text().split("\n") == ["a", "b c", "d", "e", "f", ""] and list(first.sprite.single_image_dim) == [4, 2]
    assert (tmp_path / second.metadata_path).read_text().startswith("name\tnumber\na\t1\n") and not second.HasField("sprite")


def test_every_method_of_torchs_writer_is_there(torch, tmp_path):
    from torch.utils.tensorboard import SummaryWriter

    missing = {n for n in dir(SummaryWriter) if n[0] != "_"} - set(dir(ampc.utils.tensorboard.SummaryWriter))
    assert missing == {"add_onnx_graph"}
    with ampc.utils.tensorboard.SummaryWriter(tmp_path) as writer:
        writer.add_custom_scalars_multilinechart(["a", "b"])
        with pytest.raises(ValueError, match="three tags"):
            writer.add_custom_scalars_marginchart(["a", "b"])
        with pytest.raises(ValueError, match="2 limits of bins and 1 counts"):
            writer.add_histogram_raw("h", 0, 1, 1, 1, 1, [1, 2], [1])
