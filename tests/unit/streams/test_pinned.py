"""Draws, order, masks and hashes of rows to the last bit: a run goes on from its checkpoint with the same rows."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from tests.unit.streams.pinned import assert_pinned
from xalign_ray.config import choices
from xalign_ray.config.schema import MaskingConfig
from xalign_ray.shards import counter_random, order
from xalign_ray.shards.order import Pool
from xalign_ray.shards.rows import Rows
from xalign_ray.streams import prediction
from xalign_ray.streams.collate import IGNORED, Vocabulary
from xalign_ray.streams.prediction import StreamContext, stream_columns
from xalign_ray.vocabulary.dictionary import Lexicon

SEED = 12345
FOUR = np.array([0, 1, 5, 8191], np.int64)
POOLS = [Pool(np.array(rows)) for rows in ([300, 300, 3], [4000], [700] * 9 + [2])]

# fmt: off
SCRAMBLED = [16294208416658607535, 10451216379200822465, 16490336266968443936]
KEYS = [11606567437342005916, 10234494586131026238, 3445519804079066133, 11383566501460455551]
KEY_OF_MINUS_ONE = [4007111439069458218]
DRAWN = [
    14295295063263162126, 4883960332486083109, 14074617584851051931, 1417097139526268166, 2899928401053066941,
    16002661987915290475, 9754374798291685590, 16672440536627818848,
]
UNIFORM = [0.6291932815332858, 0.5548130632287196, 0.1867820028462176, 0.617104376575832]
BELOW = [1, 5, 18, 617104]
FIRST_STEP = [[4, 7, 256], [1, 0, 1280], [2, 0, 0], [0, 0, 256], [1, 0, 1281], [4, 7, 257]]
END_OF_A_CHUNK = [[3, 0, 2353], [1, 0, 1405], [4, 7, 333], [2, 0, 77]]
MANY_SUMS = [2512748092, 3792628258, 3814301716]
ORDER_SUMS = [1488248338, 4112181463, 1139561732, 1765803001]
VIEWS = {
    "masked_text": [
        [
            [2, 20, 21, 22, 23, 4, 22, 4, 4, 3, 2, 28, 4, 30, 4, 4, 3],
            [2, 75, 84, 75, 36, 37, 3, 2, 4, 39, 40, 41, 4, 4, 3],
        ],
        [
            [0, 0, 0, 0, 0, 24, 25, 26, 27, 0, 0, 0, 29, 0, 31, 32, 0],
            [0, 33, 34, 35, 0, 0, 0, 0, 38, 39, 0, 0, 42, 43, 0],
        ],
        [
            3154762900166576408,
            8253332607999098866,
        ],
    ],
    "masked_pairs": [
        [
            [2, 28, 4, 30, 66, 4, 3, 22, 4, 4, 23, 24, 25, 26, 27, 3],
            [2, 75, 84, 75, 36, 37, 3, 38, 39, 40, 41, 4, 4, 3],
        ],
        [
            [0, 0, 29, 0, 31, 32, 0, 20, 21, 22, 23, 0, 0, 0, 0, 0],
            [0, 33, 34, 35, 0, 0, 0, 0, 39, 0, 0, 42, 43, 0],
        ],
        [
            2599640839605449268,
            11278180567684369669,
        ],
    ],
    "code_switched_labels, words": [
        [
            [2, 20, 21, 22, 23, 4, 22, 4, 4, 3, 2, 28, 4, 30, 4, 4, 3],
            [2, 75, 84, 75, 36, 37, 3, 2, 4, 39, 40, 41, 4, 4, 3],
        ],
        [
            [0, 0, 0, 0, 0, 94, 25, 26, 27, 0, 0, 0, 29, 0, 31, 32, 0],
            [0, 33, 34, 90, 0, 0, 0, 0, 38, 94, 0, 0, 42, 43, 0],
        ],
        [
            14298964836001392019,
            8197177539926494386,
        ],
    ],
    "code_switched_labels, instances": [
        [
            [2, 66, 4, 22, 23, 4, 25, 26, 27, 3, 2, 28, 4, 30, 31, 32, 3],
            [2, 75, 84, 75, 36, 37, 3, 2, 4, 39, 77, 30, 42, 43, 3],
        ],
        [
            [0, 90, 21, 0, 0, 94, 0, 0, 0, 0, 0, 95, 90, 94, 0, 0, 0],
            [0, 33, 34, 35, 0, 0, 0, 0, 94, 94, 40, 95, 0, 0, 0],
        ],
        [
            1813831553564600818,
            15922870992762380072,
        ],
    ],
    "code_switched_labels, input_swap": [
        [
            [2, 20, 21, 22, 23, 94, 25, 26, 27, 3, 2, 28, 4, 30, 4, 4, 3],
            [2, 95, 84, 90, 36, 37, 3, 2, 4, 94, 40, 41, 42, 43, 3],
        ],
        [
            [0, 0, 0, 0, 0, 24, 25, 26, 27, 0, 0, 0, 29, 0, 31, 32, 0],
            [0, 33, 34, 35, 0, 0, 0, 0, 38, 39, 0, 0, 42, 43, 0],
        ],
        [
            10008166027879263739,
            7423961380009382045,
        ],
    ],
    "code_switched_copy": [
        [
            [2, 66, 4, 22, 23, 4, 22, 4, 4, 3, 20, 4, 22, 23, 4, 25, 26, 27, 3, 2, 28, 4, 79, 31, 32, 3, 28, 4,
            4, 4, 4, 3],
            [2, 75, 84, 75, 36, 37, 3, 4, 34, 77, 36, 37, 3, 2, 4, 39, 4, 41, 4, 82, 3, 38, 71, 4, 95, 42, 43,
            3],
        ],
        [
            [0, 20, 21, 0, 0, 24, 25, 26, 27, 0, 20, 21, 0, 0, 24, 0, 0, 0, 0, 0, 0, 29, 30, 0, 0, 0, 0, 29, 94,
            31, 32, 0],
            [0, 33, 34, 35, 0, 0, 0, 33, 34, 91, 0, 0, 0, 0, 38, 0, 40, 0, 42, 43, 0, 38, 39, 40, 0, 0, 0, 0],
        ],
        [
            15779207724219419228,
            13336066760619934202,
        ],
    ],
}
# fmt: on


def test_every_purpose_of_a_draw_has_a_number_of_its_own():
    constants = vars(counter_random).items()
    purposes = {name: value for name, value in constants if name.isupper() and isinstance(value, int)}
    assert_pinned(
        purposes,
        {
            "CHOOSE_WORD": 1, "SHOW": 2, "RANDOM_PIECE": 3, "SWITCH": 4, "PICK_LANGUAGE": 5, "PICK_SYNONYM": 6,
            "SWAP_SEGMENTS": 7, "INSTANCE": 8, "SPREAD": 9, "PICK_NEGATIVE": 10,
        },
    )  # fmt: skip
    assert len(set(purposes.values())) == len(purposes)
    assert max(purposes.values()) < 16, "a draw's index counts in sixteens: the next number would be another index's"


def test_every_purpose_of_the_order_has_a_number_of_its_own():
    found = (order.OFFSETS, order.SHARDS, order.GROUPS)
    assert len(set(found)) == 3
    assert_pinned(found, (1, 2, 3))


def test_draws():
    assert_pinned(counter_random.splitmix64(np.array([0, 1, 2**64 - 1], np.uint64)), SCRAMBLED)
    keys = counter_random.row_keys(SEED, FOUR)
    assert_pinned(keys, KEYS)
    assert_pinned(counter_random.row_keys(-1, FOUR[:1]), KEY_OF_MINUS_ONE)
    drawn = [int(counter_random.random_bits(keys[1:2], purpose, np.array([3]))[0]) for purpose in range(1, 9)]
    assert_pinned(drawn, DRAWN)
    assert_pinned(counter_random.uniform(keys), UNIFORM)
    assert_pinned(counter_random.integers(keys, np.array([2, 10, 100, 10**6])), BELOW)


def places(first: int, last: int, low: int, high: int, global_rows: int, seed: int = SEED) -> list[list[int]]:
    """[source, shard, row] of the rows of some steps."""
    streams = [
        order.StreamPools(1.0, POOLS, lambda _: np.array([0.2, 0.5, 0.3])),
        order.StreamPools(0.5, POOLS[1:], lambda step: np.array([0.4, 0.6] if step < 64 else [0.9, 0.1])),
    ]
    drawn = order.Order(streams, seed, global_rows, order.CHUNK_STEPS)
    found = [drawn.places(request) for request in drawn.requests(first, last, low, high, 10)]
    return [list(place) for one in found for place in zip(*(map(np.ndarray.tolist, vars(one).values())), strict=True)]


def test_order():
    constants = (order.ROW_GROUP, order.WINDOW_SHARDS, order.PARTITION_ROWS, order.TABLED, order.MANY_ROWS)
    assert_pinned([order.CHUNK_STEPS, *constants], [32, 256, 4, 256, 1024, 32768])
    assert_pinned(places(0, 1, 0, 6, 12), FIRST_STEP)
    assert_pinned(places(31, 33, 4, 6, 12), END_OF_A_CHUNK)
    everything = [
        zlib.crc32(np.array(places(0, 80, 0, rows, rows, seed), "<i8").tobytes())
        for rows, seed in ((12, SEED), (130, SEED), (128, 1))
    ]
    everything.append(zlib.crc32(np.array(places(500_000, 500_003, 7, 90, 130), "<i8").tobytes()))
    assert_pinned(everything, ORDER_SUMS)


def test_the_order_of_many_sources():
    pools = [order.Pool(np.array([300 * number + 40])) for number in range(160)]
    shares = np.arange(1, 161) / np.arange(1, 161).sum()
    drawn = order.Order([order.StreamPools(1.0, pools, lambda _: shares)], SEED, 1024, order.CHUNK_STEPS)
    places = drawn.places(order.Request(64, 96, 0, 1024))
    assert_pinned([zlib.crc32(vars(places)[name].astype("<i8").tobytes()) for name in vars(places)], MANY_SUMS)


def test_words_are_shuffled_by_the_upper_30_bits_of_their_draws():
    draws = np.array([1 << 34, 1 << 33, 0], np.uint64)  # the last bit that counts, and the first that does not
    assert_pinned(prediction._shuffle(draws, np.array([3]), np.array([0])), [1, 2, 0])


# Two rows by hand. As text: two sentences and one; as pairs: one pair each (the last sentence is half of the second).
PIECES = np.arange(20, 44, dtype=np.int32)
VOCABULARY = Vocabulary(pad=0, unknown=1, cls=2, sep=3, mask=4, regular=np.arange(10, 90, dtype=np.int32))
LEXICON = Lexicon(  # three entries with one, two and one languages
    *(np.array(values, np.int32) for values in ([1, 2, 1], [1, 1, 2, 0], [2, 1, 1, 1], [1, 1, 2, 1, 1], range(90, 96)))
)


def rows(segments: int) -> Rows:
    words = np.array([1, 1, 2, 1, 3, 1, 1, 1, 2, 1, 1, 1, 2, 1, 1, 1, 1, 2], np.int32)
    numbers = {
        "word_length": words,
        "entry": np.array([0, -1, -1, 1, -1, 2, 0, 1, -1, 2, -1, 0, -1, 1, 1, -1, 2, -1], np.int32),
        "segment_words": np.array([5, 4, 4, 5], np.int32),
        "segment_language": np.array([0, 1, 0, 1] if segments == 2 else [0, 0, 1, 1], np.int32),
        "row_segments": np.array([2, 2], np.int32),
        "segment_links": np.zeros(4, np.int32),
        "link_from": np.zeros(0, np.int32),
        "link_to": np.zeros(0, np.int32),
    }
    return Rows(pieces=PIECES[: words.sum()], **numbers)


STREAMS = {
    "masked_text": (choices.MaskedText(), 1),
    "masked_pairs": (choices.MaskedPairs(random_order=True), 2),
    "code_switched_labels, words": (choices.CodeSwitchedLabels(t=0.6), 1),
    "code_switched_labels, instances": (choices.CodeSwitchedLabels(t=0.5, mix_unit="instance", refill=True), 1),
    "code_switched_labels, input_swap": (choices.CodeSwitchedLabels(t=0.8, variant="input_swap"), 1),
    "code_switched_copy": (choices.CodeSwitchedCopy(codeswitch_rate=0.5), 1),
}


@pytest.mark.parametrize("name", STREAMS)
def test_masks_and_hashes_of_rows(name: str):
    stream, segments = STREAMS[name]
    masking = MaskingConfig(mlm_probability=0.45, mask_replace_prob=0.6, random_replace_prob=0.3)
    columns = stream_columns(
        stream, rows(segments), np.array([5, 1000]), StreamContext(SEED, masking, VOCABULARY, LEXICON, 42, 8)
    )
    shown, asked = (
        [row[example > 0].tolist() for row, example in zip(columns[of], columns["example_ids"], strict=True)]
        for of in ("input_ids", "labels")
    )
    asked = [[0 if label == IGNORED else label for label in row] for row in asked]
    assert_pinned([shown, asked, columns["row_hash"].tolist()], VIEWS[name])
