// The programs that receive what the live view shows: for a shell, in Go and in TypeScript. A question is {db, coll, ops, filter, start, time, after, page, gateway, token}:
// start is now, earliest or time; after is the id to resume from; page is the origin of the node, gateway its address for gRPC; token says that it
// asks for one.

import {timeOf} from './place.js';

// shell quotes a word for a POSIX shell.
const shell = (word) => `'${word.replaceAll("'", `'\\''`)}'`;

// literal writes a string of Go, or one of TypeScript, in ASCII: a bidirectional character would show another program than the one that runs.
function literal(value, wide) {
  return `"${[...value].map((c) => {
    const n = c.codePointAt(0);
    if (c === '"' || c === '\\') return `\\${c}`;
    if (n >= 32 && n < 127) return c;
    return n < 0x10000 ? `\\u${n.toString(16).padStart(4, '0')}` : wide(n.toString(16));
  }).join('')}"`;
}
const go = (value) => literal(value, (digits) => `\\U${digits.padStart(8, '0')}`);
const ts = (value) => literal(value, (digits) => `\\u{${digits}}`);

// parameters are those of /v1/events.
export function parameters(q) {
  const all = [];
  if (q.db) all.push(['db', q.db]);
  if (q.coll) all.push(['coll', q.coll]);
  if (q.ops.length) all.push(['op', q.ops.join(',')]);
  if (q.filter) all.push(['filter', q.filter]);
  if (!q.after && q.start === 'earliest') all.push(['start', 'earliest']);
  if (!q.after && q.start === 'time') all.push(['start', q.time.toISOString()]);
  return all;
}

export function curl(q) {
  const lines = [`curl -N -G ${shell(`${q.page}/v1/events`)}`];
  if (q.token) lines.push('-H "Authorization: Bearer $STREAMER_CLIENT_TOKEN"');
  if (q.after) lines.push(`-H ${shell(`Last-Event-ID: ${q.after}`)}`);
  for (const [name, value] of parameters(q)) lines.push(`--data-urlencode ${shell(`${name}=${value}`)}`);
  return `${lines.join(' \\\n  ')}\n`;
}

export function typescript(q) {
  const lines = [`  addresses: [${ts(q.page)}],`];
  if (q.token) lines.push('  token: () => process.env["STREAMER_CLIENT_TOKEN"] ?? "",');
  if (q.db) lines.push(`  db: ${ts(q.db)},`);
  if (q.coll) lines.push(`  coll: ${ts(q.coll)},`);
  if (q.ops.length) lines.push(`  op: [${q.ops.map(ts).join(', ')}],`);
  if (q.filter) lines.push(`  filter: ${ts(q.filter)},`);
  if (q.after) lines.push(`  after: ${ts(q.after)},`);
  else if (q.start === 'earliest') lines.push('  start: "earliest",');
  else if (q.start === 'time') lines.push(`  start: new Date(${ts(q.time.toISOString())}),`);
  return `import { subscribe } from "@mongostream/streamer";

for await (const m of subscribe({
${lines.join('\n')}
})) {
  if (m.kind === "change") console.log(m.id, m.change);
  if (m.kind === "loss") console.error("read these again:", m.loss);
}
`;
}

// local reports whether an address is this machine's, where the Go client speaks without TLS.
const local = (host) => /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(host);

// goProgram begins in the second of an id: that of an event stream is none of the Go client's positions.
export function goProgram(q) {
  const begins = q.after ? timeOf(q.after) : q.start === 'time' ? q.time : null;
  const secure = q.page.startsWith('https:');
  const imports = ['context', 'fmt', 'log', 'os', 'os/signal'];
  const config = [`		Addresses: []string{${go(q.gateway)}},`];
  if (begins) {
    imports.push('time');
    config.push('		Start:     client.StartTime,', `		Time:      time.UnixMilli(${begins.getTime()}),`);
  } else config.push(`		Start:     client.${q.start === 'earliest' ? 'StartEarliest' : 'StartNow'},`);
  if (secure) {
    imports.push('crypto/tls');
    config.push('		TLS:       &tls.Config{},');
  } else if (!local(q.gateway.replace(/:\d+$/, ''))) config.push('		Plaintext: true,');
  if (q.token) {
    if (!secure && !local(q.gateway.replace(/:\d+$/, ''))) config.push('		TokenInPlaintext: true,');
    config.push('		Token: func(context.Context) (string, error) { return os.Getenv("STREAMER_CLIENT_TOKEN"), nil },');
  }
  const sub = ['ID: "events"'];
  if (q.db) sub.push(`DB: ${go(q.db)}`);
  if (q.coll) sub.push(`Coll: ${go(q.coll)}`);
  if (q.ops.length) sub.push(`Ops: []string{${q.ops.map(go).join(', ')}}`);
  if (q.filter) sub.push(`Filter: ${go(q.filter)}`);
  sub.push('Format: client.JSON');
  return `package main

import (
${imports.sort().map((i) => `	"${i}"`).join('\n')}

	"github.com/mongostream/streamer/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c, err := client.New(client.Config{
${config.join('\n')}
		OnNotice: func(_ context.Context, n client.Notice) error { // also what may have been missed: client.Resync
			log.Printf("%T: %+v", n, n)
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	err = c.Subscribe(client.Subscription{${sub.join(', ')}}, func(_ context.Context, change client.Change) error {
		fmt.Println(string(change.Data))
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
`;
}
