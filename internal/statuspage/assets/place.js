// Where in the log an id of an event stream is (change.Ref, AppendText): a byte that says which
// parts follow, the cluster, the time, the index in a transaction, a hash, a checksum.

// The bits of the first byte. Earlier builds wrote 2, and a head of 18 bytes after the cluster.
const version = 0x30;
const [event, invalidate, numbered] = [1, 2, 4];
const earlier = 2;

// parse returns the head of an id: its bytes have the order of the log.
function parse(id) {
  const raw = atob(id.split('.')[0].replaceAll('-', '+').replaceAll('_', '/'));
  const parts = raw.charCodeAt(0);
  if (parts === earlier) return raw.length === 43 ? raw.slice(5, 23) : '';
  if ((parts & 0xF0) !== version) return '';
  let at = 9;
  const number = () => { // of seven bits a byte, the lowest first
    let n = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const b = BigInt(raw.charCodeAt(at++)); // throws at the end
      n |= (b & 0x7Fn) << shift;
      if (b < 0x80n) return n;
    }
  };
  const bytes = (n, size) => n.toString(16).padStart(2 * size, '0').replace(/../g, (b) => String.fromCharCode(parseInt(b, 16)));
  const increment = bytes(number(), 4);
  const kind = parts & event ? '\x80' : '\0';
  const index = bytes(parts & numbered ? number() : 0n, 8);
  return raw.slice(5, 9) + increment + kind + index + (parts & invalidate ? '\x01' : '\0');
}

const heads = new Map(); // of the last ids

// headOf returns the head of an id as text whose order is that of the log, '' for an id that is none.
export function headOf(id) {
  let head = heads.get(id);
  if (head !== undefined) return head;
  try {
    head = parse(id);
  } catch { // not base64, or too short
    head = '';
  }
  if (heads.size > 10_000) heads.clear();
  heads.set(id, head);
  return head;
}

// timeOf returns the time of an id, null for one that is none.
export function timeOf(id) {
  const head = headOf(id);
  if (!head) return null;
  return new Date([0, 1, 2, 3].reduce((t, i) => t * 256 + head.charCodeAt(i), 0) * 1000);
}
