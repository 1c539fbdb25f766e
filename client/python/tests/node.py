"""Against a real node, with documents of _ids that are easily taken for each other; test/node starts it and names it:

STREAMER_TEST_ADDRESS=http://… STREAMER_TEST_DOCUMENTS=24 python3 -m unittest tests.node
"""

import os
import unittest
from typing import Any, Dict, List, Optional

from mongostream_streamer import Change, SnapshotMark, StreamerError, Subscription, dumps, loads, subscribe

ADDRESS = os.environ["STREAMER_TEST_ADDRESS"]
DOCUMENTS = int(os.environ["STREAMER_TEST_DOCUMENTS"])


def orders(**options: Any) -> Subscription:
    return subscribe(ADDRESS, db="shop", coll="orders", **options)


def inserts(messages: Subscription, count: int) -> List[Change]:
    """Takes so many changes; each is an insert."""
    taken: List[Change] = []
    while len(taken) < count:
        message = next(messages)
        assert isinstance(message, Change) and message.operation == "insert", message
        taken.append(message)
    messages.close()
    return taken


class RealNode(unittest.TestCase):
    def numbers(self, changes: List[Change]) -> List[int]:
        return [c.document["n"] for c in changes if c.document is not None]

    def documents_stay_apart(self, changes: List[Change]) -> None:
        self.assertEqual(sorted(self.numbers(changes)), list(range(DOCUMENTS)))
        self.assertEqual(len({c.key for c in changes}), DOCUMENTS)
        # JSON has one replacement for what is not UTF-8 in an _id; keys tell these apart.
        self.assertEqual(len({dumps(c.document_id) for c in changes if c.document_id != "\ufffd"}) + 3, DOCUMENTS)
        for c in changes:
            self.assertEqual(repr(loads(dumps(c.event))), repr(c.event))  # 5 is not 5.0

    def test_documents_of_mixed_ids_stay_apart(self) -> None:
        self.documents_stay_apart(inserts(orders(start="earliest"), DOCUMENTS))

    def test_a_snapshot_has_them_all(self) -> None:
        found: Dict[Optional[str], Change] = {}  # a document that was written just before may come as its change, too
        with orders(start="snapshot", subscriber="python") as messages:
            for message in messages:
                if isinstance(message, Change):
                    found[message.key] = message
                elif isinstance(message, SnapshotMark) and message.state == "done":
                    break
        self.documents_stay_apart(list(found.values()))

    def test_another_process_continues_after_a_saved_position(self) -> None:
        first = inserts(orders(start="earliest"), 7)
        rest = inserts(orders(after=first[-1].id), DOCUMENTS - 7)
        self.assertEqual(self.numbers(first + rest), list(range(DOCUMENTS)))

    def test_filters(self) -> None:
        self.assertEqual(self.numbers(inserts(orders(start="earliest", op=["insert"], filter="doc.n >= 3 && doc.n < 6"), 3)), [3, 4, 5])

    def test_refusals_have_code_and_remedy(self) -> None:
        for options, code in (({"filter": "doc.n >="}, "STRM-FILTER"), ({"after": "nonsense"}, "STRM-SESSION-BAD-POSITION")):
            with self.subTest(code), self.assertRaises(StreamerError) as caught:
                next(orders(**options))
            self.assertTrue(caught.exception.code.startswith(code) and caught.exception.remedy and caught.exception.status == 400)


if __name__ == "__main__":
    unittest.main()
