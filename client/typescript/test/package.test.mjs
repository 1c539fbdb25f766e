import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);
const here = fileURLToPath(new URL("..", import.meta.url));

/** program is what somebody else writes. */
const program = `import { subscribe, StreamerError, LiveQuery, type Change } from "@mongostream/streamer";

interface Order { _id: number; total: number }

for await (const m of subscribe<Order>({ addresses: [process.argv[2]!], db: "shop", coll: "orders", filter: "doc.total >= 100" })) {
  if (m.kind !== "change") continue;
  const change: Change<Order> = m.change;
  console.log(change.key, change.fullDocument?.total, typeof StreamerError, typeof LiveQuery);
  break;
}
`;

// What npm packs in a fresh clone is installed into an empty project, compiled as projects are, and run.
test("the package of a fresh clone works for every moduleResolution", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "package-"));
  t.after(() => rm(folder, { recursive: true }));
  const clone = join(folder, "clone"), project = join(folder, "project");
  await mkdir(project);
  for (const name of ["package.json", "package-lock.json", "README.md", "tsconfig.json", "src"]) await cp(join(here, name), join(clone, name), { recursive: true });
  await symlink(join(here, "node_modules"), join(clone, "node_modules")); // instead of installing them again
  const { stdout } = await run("npm", ["pack", "--json", "--silent", "--pack-destination", folder], { cwd: clone });
  const [packed] = JSON.parse(stdout.slice(stdout.indexOf("[\n")));
  const files = packed.files.map((f) => f.path);
  for (const name of ["package.json", "README.md", "dist/index.js", "dist/index.d.ts", "dist/subscribe.js", "dist/live.js", "dist/collection.js", "dist/sse.js", "dist/extjson.js"]) {
    assert.ok(files.includes(name), `${name} is not among ${files}`);
  }
  await writeFile(join(project, "package.json"), JSON.stringify({ name: "project", private: true, type: "module" }));
  await run("npm", ["install", "--no-audit", "--no-fund", join(folder, packed.filename)], { cwd: project });
  await writeFile(join(project, "process.d.ts"), "declare const process: { argv: string[] };\n");
  await writeFile(join(project, "main.ts"), program);

  const server = createServer((_, response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write('id: a\ndata: {"key":"1121","operationType":"insert","fullDocument":{"_id":1121,"total":149.9}}\n\n');
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  t.after(() => { server.closeAllConnections(); server.close(); });
  for (const [resolution, module] of [["node10", "es2022"], ["nodenext", "nodenext"], ["bundler", "es2022"]]) {
    const compilerOptions = { module, moduleResolution: resolution, target: "es2022", lib: ["es2022", "dom", "dom.iterable"], types: [], strict: true, noUncheckedIndexedAccess: true };
    await writeFile(join(project, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["main.ts", "process.d.ts"] }));
    await run(join(here, "node_modules/.bin/tsc"), ["-p", "."], { cwd: project }).catch((error) => assert.fail(`${resolution}: ${error.stdout}`));
    const { stdout: said } = await run("node", ["main.js", `http://127.0.0.1:${server.address().port}`], { cwd: project });
    assert.equal(said, "1121 149.9 function function\n", resolution);
  }
});
