"""The table: for each way through the kernels (`ampc._C._ways`) the kernels and the sizes that enter it. Borders are looked for as far as those of
second-level caches of 6 MiB lie."""

from __future__ import annotations

from typing import Any, List, Tuple

from .convolutions import convolution, weight_bits
from .indexing import indexing, losses, pooling, resampling
from .layers import attention, evaluated, norm, plain, recurrence, rows, waiting
from .passes import adamw, elementwise, memory, positions, reduction, scan, sgd
from .products import autocast, expanded, linear, parts, product, strided, trained, unbounded, unbounded_kept, wide
from .running import ALL, FLOATS, HALVES, Border, Case
from .update_rules import dropout, rounding, scaling, update_rules
from .values import activations, conversion, functions

MICRO = ("micro_portable", "micro_avx2", "micro_avx512", "micro_avx512_bf16", "micro_amx_bf16", "micro_amx_split", "micro_amx_fp16")
PACKING = ("pack_portable", "pack_avx2", "pack_avx512")
LOOPS = ("loops_baseline", "loops_avx2", "loops_avx512")
SINGLE: Tuple[str, ...] = ("float32",)
WIDE = ("float64", "float32")


def case(kernel: str, trial: Any, ways: str, dtypes: Tuple[str, ...] = FLOATS, /, *, threads: int = 1, **sizes: Any) -> Case:
    return Case(kernel, trial, tuple(ways.split()), sizes, dtypes, threads)


PRODUCTS = [
    case("product", product, "product_one_thread product_on_stack product_one_block product_one_k_block product_a_as_it_goes product_b_first",
         m=17, k=31, n=15),
    Case("product", product, (*MICRO, *PACKING, "product_a_in_place", "product_b_as_it_goes"), {"m": 64, "k": 96, "n": 80}),
    case("product", product, "", m=33, k=65, n=47, a_turned=True, b_turned=True),
    case("product, few rows", product, "product_thin_along", m=1, k=300, n=100, b_turned=True),
    case("product, few rows", product, "product_thin_along", SINGLE, threads=2, m=5, k=331, n=1003, b_turned=True),
    case("product, few rows", product, "product_thin_across", m=7, k=310, n=301),
    case("product, few rows", product, "product_thin_along product_thin_across", SINGLE, m=2, k=6200, n=70),
    case("product", product, "product_on_heap", m=48, k=Border("product_on_heap", 16, 1024, 16), n=48),
    case("product", product, "product_no_depth", m=5, k=0, n=7),
    case("product", product, "product_k_blocks", m=20, k=Border("product_k_blocks", 16, 4096, 16), n=20),
    case("product, deep", product, "product_spans", m=20, k=6200, n=20, backward=False),
    case("product, deep", product, "product_deep", threads=2, m=70, k=1100, n=60, a_turned=True),
    case("product, deep", product, "product_deep", threads=2, m=1100, k=60, n=70),
    case("product", product, "product_threads", threads=2, m=160, k=Border("product_threads", 64, 512, 32), n=256),
    case("product", product, "product_smaller_blocks", threads=2, m=320, k=80, n=320),
    case("product", product, "product_blocks", m=40, k=24, n=Border("product_blocks", 32, 16384, 32), backward=False),
    case("product", product, "product_a_packed", m=40, k=24, n=Border("product_a_packed", 32, 16384, 32), backward=False),
    case("product", product, "", m=530, k=40, n=24),
    case("product, batch", product, "product_batch_dealt", batch=6, m=24, k=20, n=18),
    case("product, batch", product, "product_batch_in_turn", threads=2, batch=2, m=160, k=Border("product_batch_in_turn", 64, 512, 32), n=256),
    case("product, large operand", product, "product_stream_panels", FLOATS, m=32, k=256, n=Border("product_stream_panels", 64, 1 << 15, 64),
         backward=False),
    case("product, large operand", product, "product_stream_panels", HALVES, m=Border("product_stream_panels", 64, 1 << 15, 64), k=256, n=400,
         backward=False),
    case("product, large operand", wide, "product_b_in_columns", ("float16",), rows=32, inputs=1024, outputs=4224),
    case("product, large result", product, "product_stream_result", SINGLE, m=Border("product_stream_result", 64, 1 << 13, 64), k=16, n=512,
         backward=False),
    case("product, large result", product, "product_stream_result", HALVES, m=Border("product_stream_result", 64, 1 << 13, 64), k=16, n=1024,
         backward=False),
    case("product, strided", strided, "pack_portable", m=40, k=70, n=50),
    case("product, expanded", expanded, "", ALL, m=20, k=33, n=17),
    case("product, all bits", parts, "", HALVES, m=33, k=70, n=47),
    case("product, not finite", unbounded, "product_again", m=80, k=70, n=50),
    case("product, not finite", unbounded, "product_again", m=80, k=71, n=50, apart=True),
    case("product, not finite", unbounded_kept, "product_again", HALVES, rows=24, inputs=70, outputs=50),
    case("product, float64", product, "product_float64_whole", ("float64",), m=30, k=40, n=50),
    case("product, float64", product, "product_float64_pieces", ("float64",), m=Border("product_float64_pieces", 32, 1024, 16), k=64, n=128),
    case("product, float64", strided, "product_float64_copied", ("float64",), m=40, k=70, n=50),
    case("product, integers", product, "product_integers", ("int64",), m=9, k=20, n=11),
    case("linear", linear, "product_b_as_it_goes", ALL, rows=70, inputs=130, outputs=94),
    case("linear", linear, "linear_rows_copied", ALL, rows=24, inputs=40, outputs=30, apart=True),
    case("linear, autocast", autocast, "", HALVES, rows=50, inputs=200, outputs=70),
    case("linear, trained", trained, "copy_packed copy_found copy_renewed product_b_kept", HALVES, rows=40, inputs=120, outputs=70),
    case("linear, trained", trained, "copy_renewed step_pieces", HALVES, rows=24, inputs=300, outputs=260),
    case("linear, trained", trained, "copy_declined", HALVES, rows=24, inputs=60, outputs=40, kept=False),
]

CONVOLUTIONS = [
    case("convolution, few channels", convolution, "columns_forward columns_transposed columns_weight", ALL, images=2, channels=3, outs=20,
         size=(13, 17), kernel=(3, 3), padding=1, stride=2),
    case("convolution, few channels", convolution, "columns_transposed", channels=20, outs=3, size=(9, 11), kernel=(3, 2), dilation=2,
         transposed=True),
    case("convolution", convolution, "direct_whole_planes direct_along direct_cells_in_place direct_cells_paired direct_cells_packed "
         "direct_weight_one_shift direct_weight_two_shifts direct_weight_g_in_place direct_weight_g_packed direct_weight_runs "
         "direct_weight_one_by_one direct_weight_chunks", images=9, channels=16, outs=24, size=(6, 32), kernel=(3, 3), padding=1),
    case("convolution", convolution, "direct_flat", images=2, channels=20, outs=36, size=(7, 7), kernel=(3, 3), padding=1),
    case("convolution", convolution, "direct_dense", ALL, images=3, channels=20, outs=36, size=(8, 8), kernel=(3, 3), padding=1),
    case("convolution", convolution, "direct_dense", images=2, channels=34, outs=40, size=(9, 16), kernel=(3, 4), stride=2, padding=2),
    case("convolution", convolution, "direct_down", images=2, channels=40, outs=17, size=(14, 15), kernel=(3, 3), padding=1),
    case("convolution", convolution, "direct_phases direct_weight_phases direct_classes direct_positions_apart", images=2, channels=18, outs=33,
         size=(15, 21), kernel=(3, 3), padding=1, stride=2),
    case("convolution", convolution, "direct_no_taps", images=2, channels=16, outs=16, size=(9, 10), kernel=(1, 1), stride=2),
    case("convolution", convolution, "", images=2, channels=32, outs=48, size=(12, 13), kernel=(3, 2), dilation=2, groups=2),
    case("convolution", convolution, "", images=2, channels=32, outs=24, size=(10, 11), kernel=(3, 3), padding=1,
         channels_last=True),
    case("convolution", convolution, "direct_bands_by_cache", channels=16, outs=16, images=4, size=(Border("direct_bands_by_cache", 8, 1200, 8), 40),
         kernel=(3, 1)),
    case("convolution", convolution, "direct_bands_by_threads", threads=2, channels=16, outs=16, size=(40, 33), kernel=(3, 3), padding=1),
    case("convolution, weight", convolution, "direct_weight_together", images=24, channels=16, outs=16, size=(5, 6), kernel=(3, 3), padding=1),
    case("convolution, weight", convolution, "direct_weight_alone direct_weight_bands", images=2, channels=32, outs=32,
         size=(Border("direct_weight_bands", 4, 340, 2), 48), kernel=(3, 3), padding=1),
    case("convolution, weight", convolution, "direct_weight_bands", channels=64, outs=48, size=(Border("direct_weight_bands", 8, 400, 8), 40),
         kernel=(3, 3), padding=1, stride=2),
    case("convolution, weight", convolution, "direct_weight_spans", images=2, channels=16, outs=16, size=(9, 2100), kernel=(3, 3), padding=1),
    case("convolution, one dimension", convolution, "direct_along", images=3, channels=24, outs=32, size=(90,), kernel=(5,), padding=2),
    case("convolution, one dimension", convolution, "", channels=16, outs=16, size=(3000,), kernel=(3,), padding=1),
    case("convolution, three dimensions", convolution, "", images=2, channels=17, outs=18, size=(5, 6, 9), kernel=(3, 2, 3), padding=1),
    case("convolution, three dimensions", convolution, "", channels=16, outs=16, size=(7, 7, 7), kernel=(3, 3, 3), padding=1, stride=2),
    case("convolution, transposed", convolution, "direct_classes", images=2, channels=16, outs=24, size=(14, 19), kernel=(4, 4), padding=1,
         stride=2, transposed=True),
    case("convolution, transposed", convolution, "", images=2, channels=17, outs=18, size=(19, 15), kernel=(3, 2), dilation=2, stride=3,
         transposed=True),
    case("convolution, all bits", weight_bits, "", HALVES, channels=18, outs=20, size=(9, 14), kernel=(3, 3)),
    case("convolution, all bits", convolution, "", images=2, channels=20, outs=24, size=(9, 14), kernel=(3, 3), padding=1, heavy=True),
    case("convolution, not finite", convolution, "direct_again direct_weight_again", images=2, channels=24, outs=20, size=(9, 9), kernel=(1, 1),
         special=True),
    case("convolution, not finite", convolution, "columns_weight_again", images=2, channels=17, outs=20, size=(9, 9), kernel=(3, 3), special=True),
    case("depthwise", convolution, "depthwise_forward depthwise_transposed depthwise_weight", images=3, channels=12, outs=12, size=(11, 21),
         kernel=(3, 3), padding=1, groups=12),
    case("depthwise", convolution, "depthwise_transposed", images=2, channels=8, outs=16, size=(9, 18), kernel=(3, 3), padding=1, stride=2, groups=4),
    case("depthwise", convolution, "depthwise_transposed", images=2, channels=6, outs=6, size=(8, 9), kernel=(3, 3), dilation=2, groups=6,
         transposed=True),
]

LAYERS = [
    case("attention", attention, "attention_unpacked attention_items", ALL, items=3, queries=20, keys=33, width=24),
    case("attention", attention, "attention_packed", items=2, queries=Border("attention_packed", 32, 160, 8), keys=70, width=32),
    case("attention", attention, "attention_one_item", ALL, items=1, queries=130, keys=131, width=16, causal=True),
    case("attention", attention, "", ALL, items=2, queries=30, keys=21, width=17, shared=True),
    case("attention", attention, "", items=2, queries=140, keys=40, width=16, masked="keeps"),
    case("attention", attention, "", items=3, queries=17, keys=40, width=16, masked="each"),
    case("attention", attention, "", ALL, items=2, queries=30, keys=21, width=9, masked="added"),
    case("recurrence", recurrence, "recurrence_packed recurrence_parts", mode="RNN", steps=4, batch=18, inputs=9, units=17),
    case("recurrence", recurrence, "recurrence_unpacked", ALL, mode="GRU", steps=3, batch=16, inputs=8, units=20),
    case("recurrence", recurrence, "recurrence_parts", ALL, mode="LSTM", steps=3, batch=17, inputs=10, units=33),
    *(case("recurrence", recurrence, "", mode=mode, steps=4, batch=20, inputs=7, units=9, both=True, packed=True) for mode in ("RNN", "GRU", "LSTM")),
    case("norm", norm, "layer_norm_in_place layer_norm_blocks", ALL, kind="layer", shape=(70, 3, 40)),
    case("norm", norm, "layer_norm_copied", kind="layer", shape=(12, 5, 300), apart=True),
    case("norm", norm, "channels_flat channels_gathered", ALL, kind="batch", shape=(30, 20)),
    case("norm", norm, "channels_planes channels_in_place", ALL, kind="batch", shape=(4, 18, 23, 27)),
    case("norm", norm, "channels_stacked channels_in_place", ALL, kind="batch", shape=(14, 18, 9, 11)),
    case("norm", norm, "channels_pieces", kind="batch", shape=(2, 3, Border("channels_pieces", 16, 4096, 8), 16)),
    case("norm", norm, "channels_gathered", kind="batch", shape=(3, 17, 6, 10), apart=True),
    case("norm", norm, "channels_planes", ALL, kind="group", shape=(3, 12, 7, 9), groups=4),
    case("norm", norm, "channels_set_by_set", kind="group", shape=(2, 12, 7, 9), groups=3),
    case("norm", norm, "channels_pass_by_pass", threads=2, kind="group", shape=(1, 6, 9, 11), groups=1),
    case("norm and ReLU", waiting, "waiting_read waiting_computed", ALL, shape=(5, 9, 20, 21)),
    case("norm and ReLU", waiting, "waiting_read waiting_computed", FLOATS, threads=2, shape=(3, 17, 33, 31), last=True),
    case("norm, evaluated", evaluated, "", ALL, shape=(4, 5, 30, 40), training=False),
    case("norm, evaluated", evaluated, "", ALL, shape=(30, 20), training=True),
    case("norm, plain", plain, "", ALL, count=20, n=300),
    case("softmax", rows, "rows_in_place rows_scattered", ALL, count=50, n=77),
    case("softmax", rows, "rows_scattered", count=20, n=1100, apart=True),
]

PASSES = [
    case("elementwise", elementwise, "", ALL, n=37),
    case("elementwise", elementwise, "bits_as_they_are", HALVES, n=2051),
    Case("elementwise", elementwise, (*LOOPS, "threads_one", "threads_several"), {"n": Border("threads_several", 1024, 1 << 18, 1024)}, ALL, 2),
    case("conversion", conversion, "", ALL, n=4099),
    case("functions", functions, "", ALL, n=1031),
    case("functions, gradients", activations, "", ALL, n=1031),
    case("positions", positions, "sort_whole pick_rows pick_columns", ALL, count=7, n=75),
    case("positions", positions, "topk_few", ALL, count=7, n=900, picks=9),
    case("positions", positions, "topk_many", ALL, count=3, n=2500, picks=200),
    case("indexing", indexing, "", ALL, rows=9, width=21, picks=700),
    case("pooling", pooling, "pool_rows", ALL, planes=3, size=(13, 18), kernel=3, stride=2, padding=1, dilation=2),
    case("pooling", pooling, "pool_fours", ALL, planes=3, size=(13, 35), kernel=2, stride=2, padding=0, dilation=1),
    case("pooling", pooling, "pool_windows", ALL, planes=2, size=(13, 9), kernel=3, stride=2, padding=1, dilation=2),
    case("pooling", pooling, "pool_rows", FLOATS, planes=2, size=(7, 8, 9), kernel=2, stride=1, padding=1, dilation=1),
    case("resampling", resampling, "", ALL, planes=3, size=(7, 9), out=(17, 13)),
    case("resampling", resampling, "", planes=3, size=(16, 9), out=(5, 20)),
    case("losses", losses, "", ALL, count=31, classes=45),
    case("dropout", dropout, "", ALL, n=20011),
    case("reduction", reduction, "reduce_rows", ALL, shape=(40, 300), axis=(1,)),
    case("reduction", reduction, "reduce_columns", ALL, shape=(300, 270), axis=(0,)),
    case("reduction", reduction, "reduce_split", shape=(Border("reduce_split", 65536, 1 << 18, 8192),), axis=(0,)),
    case("reduction", reduction, "", shape=(30, 40, 20), axis=(0, 2)),
    case("running totals", scan, "scan_rows", ALL, rows=20, n=1500),
    case("optimizer", adamw, "step_in_place", WIDE, shape=(50, 40)),
    case("optimizer", adamw, "step_pieces", SINGLE, shape=(Border("step_pieces", 16384, 1 << 17, 4096),)),
    case("optimizer", sgd, "step_in_tiles", HALVES, shape=(60, 70)),
    case("optimizer", sgd, "step_in_tiles", ALL, shape=(60, 70), apart=True),
    case("optimizer, rules", update_rules, "", WIDE, n=1031),
    case("optimizer, rounding", rounding, "", HALVES, n=2057),
    case("loss scaling", scaling, "", ALL, n=1031),
    case("memory", memory, "memory_huge_pages memory_plain_pages", SINGLE, bytes=5 << 20),
]


def layer(channels: int, outs: int, size: int, kernel: int, **sizes: Any) -> Case:
    """A convolution of square images."""
    return case("layers of networks", convolution, "", channels=channels, outs=outs, size=(size, size), kernel=(kernel, kernel), **sizes)


# Layers of networks that people train: their sizes lie far beyond most borders, where images are cut in many parts.
NETWORKS = [
    layer(3, 32, 112, 7, stride=2, padding=3),
    layer(64, 64, 56, 3, images=2, padding=1),
    layer(64, 128, 56, 3, stride=2, padding=1),
    layer(256, 64, 56, 1),
    layer(128, 128, 28, 3, padding=1),
    layer(256, 256, 14, 3, padding=1),
    layer(64, 32, 7, 3, images=17, padding=1),
    layer(16, 32, 224, 3, padding=1),
    layer(32, 32, 33, 5, padding=4, dilation=2, groups=2),
    layer(64, 32, 28, 4, stride=2, padding=1, transposed=True),
    layer(96, 96, 57, 3, padding=1, groups=96),
    case("layers of networks", linear, "", rows=197, inputs=384, outputs=1000),
    case("layers of networks", attention, "", items=6, queries=197, keys=197, width=64),
    case("layers of networks", norm, "", kind="layer", shape=(2, 197, 384)),
    case("layers of networks", norm, "", kind="batch", shape=(4, 64, 28, 28)),
    case("layers of networks", recurrence, "", mode="LSTM", steps=3, batch=20, inputs=100, units=200),
]

CASES: List[Case] = [*PRODUCTS, *CONVOLUTIONS, *LAYERS, *PASSES, *NETWORKS]

# On a GPU there are no such ways; there are kernels for each dtype, layout and kind of size.
GPU_CASES: List[Case] = [
    case("product", product, "", ALL, m=33, k=40, n=25, a_turned=True),
    case("product", product, "", batch=3, m=16, k=24, n=8),
    case("product, expanded", expanded, "", ALL, m=20, k=33, n=17),
    case("product, all bits", parts, "", HALVES, m=33, k=40, n=17),
    case("product, not finite", unbounded, "", m=18, k=21, n=10, apart=True),
    case("linear", linear, "", ALL, rows=18, inputs=32, outputs=24),
    case("linear", linear, "", rows=12, inputs=17, outputs=9, apart=True),
    case("linear, autocast", autocast, "", HALVES, rows=20, inputs=48, outputs=24),
    case("linear, trained", trained, "", HALVES, rows=16, inputs=32, outputs=24),
    case("convolution", convolution, "", ALL, images=2, channels=8, outs=16, size=(7, 8), kernel=(3, 3), padding=1),
    case("convolution", convolution, "", images=1, channels=16, outs=8, size=(9, 8), kernel=(3, 3), padding=1, stride=2, channels_last=True),
    case("convolution, transposed", convolution, "", images=2, channels=8, outs=8, size=(8, 9), kernel=(3, 3), padding=1, stride=2, transposed=True),
    case("convolution, three dimensions", convolution, "", channels=4, outs=6, size=(4, 5, 6), kernel=(2, 3, 2)),
    case("depthwise", convolution, "", channels=6, outs=6, size=(8, 9), kernel=(3, 3), padding=1, groups=6),
    case("attention", attention, "", ALL, items=2, queries=18, keys=20, width=16),
    case("attention", attention, "", items=1, queries=17, keys=17, width=8, causal=True),
    *(case("attention", attention, "", ALL, items=2, queries=30, keys=21, width=9, masked=how) for how in ("keeps", "each", "added")),
    *(case("recurrence", recurrence, "", WIDE, mode=mode, steps=4, batch=5, inputs=7, units=9, both=True, packed=True)
      for mode in ("RNN", "GRU", "LSTM")),
    case("recurrence", recurrence, "", WIDE, mode="LSTM", steps=3, batch=5, inputs=7, units=9),
    case("recurrence", recurrence, "", WIDE, mode="GRU", steps=3, batch=5, inputs=7, units=9),
    case("norm", norm, "", ALL, kind="layer", shape=(9, 3, 40)),
    case("norm", norm, "", kind="batch", shape=(4, 6, 7, 9)),
    case("norm", norm, "", kind="group", shape=(3, 8, 5, 6), groups=4),
    case("norm, evaluated", evaluated, "", ALL, shape=(4, 5, 6, 7), training=False),
    case("norm, evaluated", evaluated, "", ALL, shape=(30, 20), training=True),
    case("norm, plain", plain, "", ALL, count=20, n=30),
    case("softmax", rows, "", ALL, count=12, n=77),
    case("conversion", conversion, "", ALL, n=515),
    case("functions", functions, "", ALL, n=131),
    case("functions, gradients", activations, "", ALL, n=131),
    case("positions", positions, "", ALL, count=7, n=75),
    case("indexing", indexing, "", ALL, rows=9, width=21, picks=100),
    case("pooling", pooling, "", ALL, planes=2, size=(9, 8), kernel=3, stride=2, padding=1, dilation=2),
    case("resampling", resampling, "", ALL, planes=2, size=(7, 9), out=(10, 6)),
    case("losses", losses, "", ALL, count=31, classes=45),
    case("dropout", dropout, "", ALL, n=2011),
    case("elementwise", elementwise, "", ALL, n=1031),
    case("reduction", reduction, "", ALL, shape=(40, 90), axis=(1,)),
    case("reduction", reduction, "", shape=(90, 40), axis=(0,)),
    case("running totals", scan, "", ALL, rows=6, n=150),
    case("optimizer", adamw, "", WIDE, shape=(30, 20)),
    case("optimizer", sgd, "", ALL, shape=(30, 20), apart=True),
    case("optimizer, rules", update_rules, "", SINGLE, n=131),  # the GPU has NAdam's running product in float32
    case("optimizer, rounding", rounding, "", HALVES, n=257),
    case("loss scaling", scaling, "", ALL, n=131),
]
