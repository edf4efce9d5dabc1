"""Calls that torch refuses: ampc refuses them with torch's type of exception, or there is a reason; it never crashes or hangs."""

import collections
import random

import pytest
import wrong_calls

pytest.importorskip("torch")


def report(accepted, other, count):
    rate = 1 - (len(accepted) + len(other)) / count
    print(f"{count} wrong calls, {100 * rate:.2f} % raise torch's type; {len(accepted)} accepted, {len(other)} of another type")
    for why, n in collections.Counter(wrong_calls.reason(*a) for a in accepted).most_common():
        print(f"  accepted, {n}: {why}")
    for text, want, got in other:
        print(f"  other: {text}: {type(got).__name__} where torch has {type(want).__name__}")
    unknown = [text for text, want in accepted if wrong_calls.reason(text, want) is None]
    assert not unknown, unknown
    return rate


def test_a_part_of_the_wrong_calls():
    part = random.SystemRandom().randrange(12)
    print(f"part {part} of 12")
    accepted, other, count = wrong_calls.compare(part=part, parts=12)
    assert count > 645 and report(accepted, other, count) > 0.9


@pytest.mark.slow
def test_wrong_calls_raise_torchs_types():
    accepted, other, count = wrong_calls.compare()
    assert count > 20_000 and report(accepted, other, count) >= 0.95
