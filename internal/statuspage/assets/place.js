// Where in the log an id of an event stream is (change.Ref, AppendText): a version, the cluster, a head whose bytes have the order of the log, a hash, a checksum.

const begins = 5;
const ends = begins + 18;

const heads = new Map(); // of the last ids

// headOf returns the head of an id as text whose order is that of the log, '' for an id that is none.
export function headOf(id) {
  let head = heads.get(id);
  if (head !== undefined) return head;
  head = '';
  try {
    head = atob(id.split('.')[0].replaceAll('-', '+').replaceAll('_', '/')).slice(begins, ends);
  } catch { /* not base64 */ }
  if (head.length !== ends - begins) head = '';
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
