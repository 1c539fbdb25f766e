/**
 * Extended JSON v2 without the loss of a digit. JSON.parse reads every number as a double: 9007199254740993 becomes 9007199254740992. Here an integer
 * that a double cannot hold becomes a bigint, and a Decimal128 keeps its text.
 */

/** A MongoDB ObjectId, as 24 hexadecimal digits. */
export class ObjectId {
  constructor(readonly hex: string) {
    if (!/^[0-9a-f]{24}$/i.test(hex)) throw new TypeError(`not an ObjectId: ${hex}`);
  }
  toString(): string {
    return this.hex;
  }
  toJSON(): unknown {
    return { $oid: this.hex };
  }
}

/** A decimal number of up to 34 digits, as text. */
export class Decimal128 {
  constructor(readonly text: string) {}
  toString(): string {
    return this.text;
  }
  toJSON(): unknown {
    return { $numberDecimal: this.text };
  }
}

/**
 * parse reads relaxed or canonical Extended JSON. Integers become number, or bigint beyond 2^53; $oid becomes ObjectId, $numberDecimal
 * Decimal128, $date Date. Other types (binary data, timestamps, regular expressions, keys of both ends) stay the objects that they are in
 * Extended JSON.
 */
export function parse(text: string): unknown {
  return new Parser(text).document();
}

/** stringify writes a value as canonical enough Extended JSON that parse returns an equal value. */
export function stringify(value: unknown): string {
  switch (typeof value) {
    case "bigint":
      return `{"$numberLong":"${value}"}`;
    case "number":
      if (!Number.isFinite(value)) return `{"$numberDouble":"${Number.isNaN(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity"}"}`;
      return Object.is(value, -0) ? "-0.0" : JSON.stringify(value);
    case "object":
      break;
    default:
      return JSON.stringify(value) ?? "null";
  }
  if (value === null) return "null";
  if (value instanceof Date) return `{"$date":{"$numberLong":"${value.getTime()}"}}`;
  if (value instanceof ObjectId || value instanceof Decimal128) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(stringify).join(",")}]`;
  const fields = Object.entries(value).filter(([, v]) => v !== undefined);
  return `{${fields.map(([k, v]) => `${JSON.stringify(k)}:${stringify(v)}`).join(",")}}`;
}

/** twofold are the objects that were read of a text in which two of their fields have one name: they have the last one. */
const twofold = new WeakSet<object>();

/** isTwofold reports whether an object of parse lacks a field, because another one has the same name. */
export function isTwofold(parsed: object): boolean {
  return twofold.has(parsed);
}

const maxDepth = 1000; // BSON allows 100

class Parser {
  private at = 0;
  private depth = 0;

  constructor(private readonly text: string) {}

  document(): unknown {
    const value = this.value();
    this.space();
    if (this.at !== this.text.length) this.fail();
    return value;
  }

  private fail(): never {
    throw new SyntaxError(`malformed JSON at ${this.at}`);
  }

  private space(): void {
    while (" \t\r\n".includes(this.text[this.at] ?? "x")) this.at++;
  }

  private take(token: string): void {
    this.space();
    if (!this.text.startsWith(token, this.at)) this.fail();
    this.at += token.length;
  }

  private next(): string {
    this.space();
    return this.text[this.at] ?? "";
  }

  private value(): unknown {
    switch (this.next()) {
      case "{":
        return this.nested(() => this.object());
      case "[":
        return this.nested(() => this.array());
      case '"':
        return this.string();
      case "t":
        this.take("true");
        return true;
      case "f":
        this.take("false");
        return false;
      case "n":
        this.take("null");
        return null;
      default:
        return this.number();
    }
  }

  private nested<T>(read: () => T): T {
    if (++this.depth > maxDepth) this.fail();
    const value = read();
    this.depth--;
    return value;
  }

  private array(): unknown[] {
    const all: unknown[] = [];
    this.take("[");
    if (this.next() !== "]") {
      for (;;) {
        all.push(this.value());
        if (this.next() !== ",") break;
        this.at++;
      }
    }
    this.take("]");
    return all;
  }

  private object(): unknown {
    const all: Record<string, unknown> = {};
    this.take("{");
    if (this.next() !== "}") {
      for (;;) {
        if (this.next() !== '"') this.fail();
        const name = this.string();
        this.take(":");
        if (Object.hasOwn(all, name)) twofold.add(all);
        // A field may be called __proto__.
        Object.defineProperty(all, name, { value: this.value(), writable: true, enumerable: true, configurable: true });
        if (this.next() !== ",") break;
        this.at++;
      }
    }
    this.take("}");
    return revive(all);
  }

  private string(): string {
    let end = this.at + 1;
    while (this.text[end] !== '"') {
      if (end >= this.text.length) this.fail();
      end += this.text[end] === "\\" ? 2 : 1;
    }
    const quoted = this.text.slice(this.at, end + 1);
    this.at = end + 1;
    return JSON.parse(quoted) as string;
  }

  private number(): number | bigint {
    const pattern = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?/y;
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (!found) this.fail();
    this.at = pattern.lastIndex;
    return found[1] === undefined && found[2] === undefined ? integer(found[0]) : Number(found[0]);
  }
}

function integer(text: string): number | bigint {
  const value = Number(text);
  return Number.isSafeInteger(value) ? value : BigInt(text);
}

/** revive turns the forms of Extended JSON that have a value of their own in JavaScript into it. */
function revive(o: Record<string, unknown>): unknown {
  const names = Object.keys(o);
  const name = names[0];
  if (names.length !== 1 || name === undefined || !name.startsWith("$")) return o;
  const value = o[name];
  if (name === "$date") {
    if (typeof value === "number" || typeof value === "bigint") return date(Number(value), o);
    return typeof value === "string" ? date(Date.parse(value), o) : o;
  }
  if (typeof value !== "string") return o;
  switch (name) {
    case "$oid":
      return /^[0-9a-f]{24}$/i.test(value) ? new ObjectId(value) : o;
    case "$numberInt":
    case "$numberLong":
      return /^-?\d+$/.test(value) ? integer(value) : o;
    case "$numberDouble":
      return Number(value);
    case "$numberDecimal":
      return new Decimal128(value);
    default:
      return o;
  }
}

/** date is a Date where JavaScript has one for the time; MongoDB's reach further. */
function date(milliseconds: number, otherwise: unknown): unknown {
  const d = new Date(milliseconds);
  return Number.isNaN(d.getTime()) ? otherwise : d;
}
