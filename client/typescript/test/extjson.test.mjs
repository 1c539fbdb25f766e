import assert from "node:assert/strict";
import { test } from "node:test";
import { Decimal128, ObjectId, parse, stringify } from "../dist/index.js";

test("no digit is lost", () => {
  for (const [text, want] of [
    ["9007199254740993", 9007199254740993n],
    ["-9223372036854775808", -9223372036854775808n],
    ['{"$numberLong":"9223372036854775807"}', 9223372036854775807n],
    ['{"$numberLong":"42"}', 42],
    ['{"$numberInt":"-7"}', -7],
    ['{"$numberDouble":"-Infinity"}', -Infinity],
    ["1e3", 1000],
    ["0.1", 0.1],
    ['{"$numberDecimal":"1234567890.123456789012345678901234"}', new Decimal128("1234567890.123456789012345678901234")],
    ['{"$oid":"65a1b2c3d4e5f60718293a4b"}', new ObjectId("65a1b2c3d4e5f60718293a4b")],
    ['{"$date":"2026-01-31T12:00:00.001Z"}', new Date("2026-01-31T12:00:00.001Z")],
    ['{"$date":{"$numberLong":"-1"}}', new Date(-1)],
    ['{"$timestamp":{"t":1,"i":2}}', { $timestamp: { t: 1, i: 2 } }],
    ['{"a":[1,{"b":null},"\\u00e4\\n"], "c" : true}', { a: [1, { b: null }, "ä\n"], c: true }],
    ['{"$oid":"no"}', { $oid: "no" }],
    ["[]", []],
    ["{}", {}],
  ]) {
    const value = parse(text);
    assert.deepEqual(value, want, text);
    assert.deepEqual(parse(stringify(value)), want, text);
  }
  assert.ok(Object.is(parse("-0.0"), -0));
  assert.ok(Number.isNaN(parse('{"$numberDouble":"NaN"}')));
  assert.equal(Object.keys(parse('{"__proto__":{"polluted":1}}'))[0], "__proto__");
  assert.equal({}.polluted, undefined);
});

test("what is no JSON is refused", () => {
  for (const text of ["", "{", "[1,]", '{"a"}', "01", "1 2", '"', "tru", "{'a':1}", "[".repeat(5000)]) {
    assert.throws(() => parse(text), SyntaxError, text.slice(0, 20));
  }
});
