// What the tests of event streams share: a demo, a reader that is never cut, and doors that cut.

import {spawn} from 'node:child_process';
import {createServer, request} from 'node:http';
import {createInterface} from 'node:readline';

export function check(ok, text) {
  if (!ok) throw new Error(text);
}

export const pause = (ms) => new Promise((done) => { setTimeout(done, ms); });

// until waits until ok returns true.
export async function until(ok, what, ms = 300_000) {
  const end = Date.now() + ms;
  while (!ok()) {
    check(Date.now() < end, `${typeof what === 'function' ? what() : what} did not happen`);
    await pause(20);
  }
}

// demo starts a node under load and returns the address of its HTTP server. With STREAMER_GZIP in
// the environment it compresses event streams.
export async function demo(...args) {
  const child = spawn(process.env.DEMO ?? 'bin/demo', ['-http', '127.0.0.1:0', '-grpc', '127.0.0.1:0', ...(process.env.STREAMER_GZIP ? ['-gzip'] : []), ...args], {stdio: ['ignore', 'pipe', 'ignore']});
  const ended = new Promise((done) => { child.on('exit', done); });
  let address;
  for await (const line of createInterface({input: child.stdout})) {
    if ((address = /running on http:..([^,]+),/.exec(line)?.[1])) break;
  }
  child.stdout.resume();
  check(address, 'the demo has ended before its node ran');
  return {address, async stop() { child.kill('SIGINT'); await ended; }};
}

// follow reads a stream as the standard says, without any library, and calls event with the id of
// each change, which is an event without a name, the time of its arrival, and its data.
export function follow(url, event, headers = {}) {
  const abort = new AbortController();
  const heads = fetch(url, {signal: abort.signal, headers: {Accept: 'text/event-stream', ...headers}}).then((answer) => {
    check(answer.ok, `${url}: ${answer.status}`);
    (async () => {
      let text = '';
      for await (const chunk of answer.body.pipeThrough(new TextDecoderStream())) {
        const blocks = (text + chunk).split('\n\n');
        text = blocks.pop();
        for (const block of blocks) {
          const id = /^id: (.*)$/m.exec(block);
          const data = /^data: (.*)$/m.exec(block);
          if (id && data && !/^event: /m.test(block)) event(id[1], Date.now(), data[1]);
        }
      }
    })().catch(() => {});
    return answer.headers;
  });
  return {heads, close: () => { abort.abort(); }};
}

// door listens at a port of its own, passes requests below /v1/ to the node as they are, and
// everything else to pages. It cuts the stream after each of the numbers of bytes: by a reset
// within the data of an event, or an end after it, in turns; and then refuses connections for a
// while, as while a node restarts.
export async function door(address, bytes, pages = (_, w) => { w.writeHead(404).end(); }) {
  const [host, port] = address.split(':');
  const left = [...bytes];
  const seen = [];
  let closed = 0;
  const server = createServer((r, w) => {
    if (!r.url.startsWith('/v1/')) return void pages(r, w);
    if (Date.now() < closed) return void w.socket.destroy();
    const asked = {url: r.url, headers: r.headers, at: Date.now()};
    seen.push(asked);
    const upstream = request({host, port, path: r.url, method: r.method, headers: r.headers}, (answer) => {
      asked.status = answer.statusCode;
      w.writeHead(answer.statusCode, answer.headers);
      let passed = 0;
      const mine = answer.statusCode === 200 ? left.shift() ?? Infinity : Infinity;
      answer.on('data', (chunk) => {
        passed += chunk.length;
        if (passed < mine) return void w.write(chunk);
        const within = left.length % 2 === 0;
        const event = chunk.lastIndexOf('\n\n'); // eventsource 1 tells an event again of which only the id is missing
        w.write(within ? chunk.subarray(0, chunk.lastIndexOf('data: ') + 100) : event < 0 ? chunk : chunk.subarray(0, event + 2), () => {
          closed = Date.now() + 300;
          if (within) w.socket?.resetAndDestroy(); else w.end();
        });
        answer.removeAllListeners('data');
        upstream.destroy();
      });
      answer.on('end', () => { w.end(); });
      answer.on('error', () => {});
    });
    upstream.on('error', () => { w.destroy(); });
    w.on('close', () => { upstream.destroy(); });
    upstream.end();
  });
  await new Promise((done) => { server.listen(0, '127.0.0.1', done); });
  return {
    origin: `http://127.0.0.1:${server.address().port}`,
    seen,
    cuts: () => bytes.length - left.length,
    stop: () => { server.closeAllConnections(); server.close(); },
  };
}

// A Reading is what one client has received, judged against all.
export class Reading {
  ids = [];
  texts = [];
  most = Infinity;

  // event takes an event as a library has it: its id and its data. What has no data is not an event
  // for a program.
  event(id, data) {
    if (!data || this.ids.length >= this.most) return;
    this.ids.push(id);
    this.texts.push(data);
  }

  // judge compares with all that there was, and its data: nothing is missing, repeated or out of
  // order.
  judge(all, whole) {
    const other = this.ids.findIndex((id, i) => whole.has(id) && this.texts[i].trim() !== whole.get(id));
    if (other >= 0) return `the event ${this.ids[other]} has the data ${this.texts[other]}, not ${whole.get(this.ids[other])}`;
    const first = all.indexOf(this.ids[0]);
    if (first < 0) return `its first event ${this.ids[0]} is unknown`;
    const at = this.ids.findIndex((id, i) => all[first + i] !== id);
    return at < 0 ? '' : `its event ${at} is ${this.ids[at]}, not ${all[first + at]}, after ${this.ids[at - 1]}`;
  }
}
