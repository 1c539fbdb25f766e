// What the examples in JavaScript use of a browser, of Node.js and of packages. esbuild puts these
// into their programs, in the place of global names and of imports. print and get are functions of
// the test; get and what it returns block, so that nothing here waits.

export const console = {
  log: (...what) => print(what.map(String).join(" ")),
  warn: (...what) => complain(what.map(String).join(" ")),
  error: (...what) => complain(what.map(String).join(" ")),
};

export const process = { exit() {} }; // print ends the program

export const fetch = async (target, { headers = {} } = {}) => {
  const answer = get(target, headers);
  return {
    ok: answer.status() === 200,
    status: answer.status(),
    headers: { get: (name) => answer.header(name) },
    text: async () => answer.text(),
    body: {
      getReader: () => ({
        read: async () => ({ done: false, value: answer.line() }),
        cancel: async () => answer.close(),
      }),
    },
  };
};

export class TextDecoder {
  decode(line) {
    return line;
  }
}

export class AbortController {
  signal = { aborted: false, addEventListener() {}, removeEventListener() {} };
  abort() {
    this.signal.aborted = true;
  }
}

export class URL {
  static canParse(text) {
    return /^https?:\/\/[^/]+/.test(text);
  }
  constructor(path, base = "") {
    this.href = base + path;
    this.protocol = this.href.replace(/\/.*/, "");
    this.searchParams = {
      set: (name, value) => {
        this.href += `${this.href.includes("?") ? "&" : "?"}${name}=${encodeURIComponent(value)}`;
      },
    };
  }
}

export const setTimeout = () => {};
export const clearTimeout = () => {};
export const queueMicrotask = (task) => void Promise.resolve().then(task);

export const Intl = {
  NumberFormat: class {
    format(n) {
      return `€${n.toFixed(2)}`;
    }
  },
};

// The page of the tutorial: its summary is what the program prints.
export const document = {
  createElement: () => ({ insertCell: () => ({}), replaceWith() {}, remove() {} }),
  querySelector: (what) => (what === "#summary" ? { set textContent(text) { print(text); } } : { prepend() {} }),
};

// node:fs, with no file in it
export const existsSync = () => false;
export const readFileSync = () => "";
export const writeFileSync = () => {};
export const renameSync = () => {};

// @tanstack/db, as far as streamerCollectionOptions speaks to it
export const createCollection = ({ getKey, sync }) => {
  const rows = new Map();
  const write = ({ type, value, key }) => (type === "delete" ? rows.delete(key) : rows.set(getKey(value), value));
  return {
    preload: () => new Promise((markReady) => { sync.sync({ begin() {}, write, commit() {}, markReady }); }),
    get size() {
      return rows.size;
    },
  };
};
