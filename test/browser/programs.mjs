// The programs that the live view writes: each runs or compiles as it stands, whatever names and filters have in them.

import {execFileSync, spawn} from 'node:child_process';
import {mkdirSync, mkdtempSync, rmSync, writeFileSync} from 'node:fs';
import {createInterface} from 'node:readline';
import {fileURLToPath} from 'node:url';
import {check} from './page.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));

const plain = {db: '', coll: '', ops: [], filter: '', start: 'now', time: null, after: '', page: 'http://127.0.0.1:8080', gateway: '127.0.0.1:9090', token: false};
const hostile = 'doc.name == "O\'Brien `x` $(id) ${y} \\\\ \u202e \ufeff \u{1f600} </script>"\n  || true // it\'s';

// questions are those whose programs are compiled.
const questions = [
  plain,
  {...plain, db: 'demo', coll: 'orders', ops: ['insert', 'update'], filter: hostile, start: 'earliest'},
  {...plain, db: '$(id)', coll: "o'clock \"x\" \u202e", start: 'time', time: new Date('2026-01-02T03:04:05Z'), token: true},
  {...plain, after: 'AgAAAABpV-yFAAAAAYAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA', page: 'https://streamer.example:8443', gateway: 'streamer.example:9090', token: true},
  {...plain, page: 'http://streamer.example:8080', gateway: 'streamer.example:9090', token: true},
];

// written has the page write its programs.
const written = (page, question, name) => page.evaluate(async ([q, n]) => {
  const snippets = await import('/assets/snippets.js');
  return snippets[n]({...q, time: q.time && new Date(q.time)});
}, [question, name]);

// runs runs the curl command in a shell until it has received an event.
async function runs(command) {
  const shell = spawn('sh', ['-c', `exec ${command}`], {stdio: ['ignore', 'pipe', 'pipe']});
  let errors = '';
  shell.stderr.on('data', (text) => { errors += text; });
  try {
    for await (const line of createInterface({input: shell.stdout})) {
      if (line.startsWith('data: {')) return;
      check(!line.startsWith('{"code"'), `the node refuses what curl asks: ${line}\n${command}`);
    }
    check(false, `curl receives nothing: ${errors}\n${command}`);
  } finally {
    shell.kill('SIGKILL');
  }
}

// programs checks what a page writes, with a node behind it that has events.
export async function programs(page, id) {
  const here = {...plain, page: new URL(page.url()).origin};
  for (const q of [{...here, start: 'earliest'}, {...here, db: 'demo', ops: ['insert', 'update'], filter: 'op != "it\'s"', start: 'earliest'}, {...here, after: id}]) await runs(await written(page, q, 'curl'));
  const folder = mkdtempSync(`${root}test/browser/programs-`);
  try {
    const types = [];
    for (const [i, q] of questions.entries()) {
      mkdirSync(`${folder}/go${i}`);
      writeFileSync(`${folder}/go${i}/main.go`, await written(page, q, 'goProgram'));
      writeFileSync(`${folder}/${i}.ts`, await written(page, q, 'typescript'));
      types.push(`${i}.ts`);
      const argument = execFileSync('sh', ['-c', `curl() { printf '%s\\0' "$@"; }\n${await written(page, q, 'curl')}`], {env: {STREAMER_CLIENT_TOKEN: 't'}}).toString().split('\0');
      check(!q.filter || argument.includes(`filter=${q.filter}`), `a shell reads another filter: ${argument}`);
      check(!q.coll || argument.includes(`coll=${q.coll}`), `a shell reads another collection: ${argument}`);
    }
    execFileSync('go', ['vet', `${folder}/...`], {cwd: root, stdio: 'inherit'});
    writeFileSync(`${folder}/process.d.ts`, 'declare const process: {env: Record<string, string | undefined>};\n');
    writeFileSync(`${folder}/tsconfig.json`, JSON.stringify({
      extends: '../../../client/typescript/tsconfig.json', include: [], files: [...types, 'process.d.ts'],
      compilerOptions: {noEmit: true, declaration: false, rootDir: root, moduleDetection: 'force', paths: {'@mongostream/streamer': [`${root}client/typescript/src/index.ts`]}},
    }));
    execFileSync('node', [`${root}client/typescript/node_modules/typescript/bin/tsc`, '-p', folder], {stdio: 'inherit'});
  } finally {
    rmSync(folder, {recursive: true});
  }
}
