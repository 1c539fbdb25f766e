// The page shows numbers as they came: node --test examples/gateway/page.test.mjs
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

test("the page keeps every digit", async () => {
  const page = await readFile(new URL("page.html", import.meta.url), "utf8");
  const raw = new Function(`${/ {2}function raw\(text, field\) \{.*?\n {2}\}\n/s.exec(page)[0]}; return raw;`)();
  const change = String.raw`{"x":{"fullDocument":[1]},"ns":{"db":"a:\"b"},"s":"fullDocument\":{","fullDocument":{"n":9007199254740993,"b":[1,{"c":"}"}]},"documentKey":{"_id":1}}`;
  assert.equal(raw(change, "fullDocument"), '{"n":9007199254740993,"b":[1,{"c":"}"}]}');
  assert.equal(raw(change, "documentKey"), '{"_id":1}');
  const vanished = '{"fullDocument":null,"documentKey":{"_id":12345678901234567890}}';
  assert.equal(raw(vanished, "fullDocument"), undefined);
  assert.equal(raw(vanished, "documentKey"), '{"_id":12345678901234567890}');
});
