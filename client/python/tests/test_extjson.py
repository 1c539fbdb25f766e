import json
import math
import unittest
from datetime import datetime, timezone
from decimal import Decimal

from mongostream_streamer import ObjectId, dumps, loads


class ExtendedJSON(unittest.TestCase):
    def test_values_keep_every_digit(self) -> None:
        for text, want in {
            "9007199254740993": 9007199254740993,
            '{"$numberLong":"-9223372036854775808"}': -(2**63),
            '{"$numberInt":"7"}': 7,
            "0.1": 0.1,
            "5.0": 5.0,
            "-0.0": -0.0,
            '{"$numberDouble":"-Infinity"}': -math.inf,
            '{"$numberDecimal":"0.10"}': Decimal("0.10"),
            '{"$numberDecimal":"9.999999999999999999999999999999999E+6144"}': Decimal("9.999999999999999999999999999999999E+6144"),
            '{"$oid":"65a1b2c3d4e5f60718293a4b"}': ObjectId("65a1b2c3d4e5f60718293a4b"),
            '{"$date":"2024-05-01T00:00:00.007Z"}': datetime(2024, 5, 1, microsecond=7000, tzinfo=timezone.utc),
            '{"$date":{"$numberLong":"-1"}}': datetime(1969, 12, 31, 23, 59, 59, 999000, timezone.utc),
            r'"a\udcff"': "a\udcff",
            '[true,null,{"a":{"$oid":"65a1b2c3d4e5f60718293a4b","b":1}}]': [True, None, {"a": {"$oid": "65a1b2c3d4e5f60718293a4b", "b": 1}}],
        }.items():
            with self.subTest(text):
                got = loads(text)
                for value in (got, loads(dumps(got))):
                    self.assertEqual(value, want)
                    self.assertIs(type(value), type(want))
                    self.assertEqual(str(value), str(want))  # the digits of a decimal, the sign of zero

    def test_what_python_has_no_value_for_stays_as_it_is(self) -> None:
        for text in (
            '{"$binary":{"base64":"YWI=","subType":"04"}}',
            '{"$timestamp":{"t":1795407361,"i":6}}',
            '{"$minKey":1}',
            '{"$oid":"short"}',
            '{"$numberLong":"many"}',
            '{"$numberDecimal":"many"}',
            '{"$date":"yesterday"}',
            '{"$date":true}',
            '{"$date":{"$numberLong":"9223372036854775807"}}',
        ):
            with self.subTest(text):
                plain = {"$date": 2**63 - 1} if "922" in text else json.loads(text)
                self.assertEqual(loads(text), plain)

    def test_what_mongodb_cannot_hold_is_refused(self) -> None:
        for value in (2**63, datetime(2024, 5, 1), object()):
            with self.subTest(value), self.assertRaises((ValueError, TypeError)):
                dumps(value)
        with self.assertRaises(ValueError):
            ObjectId("short")

    def test_an_object_id_is_no_text(self) -> None:
        text = "65a1b2c3d4e5f60718293a4b"
        self.assertNotEqual(ObjectId(text), text)
        self.assertEqual(len({ObjectId(text), ObjectId(text.upper()), text}), 2)


if __name__ == "__main__":
    unittest.main()
