// Starts real parts for the tests: the development MongoDB, etcd, and nodes.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const bin = process.env.STREAMER_BIN ?? fileURLToPath(new URL("../../../bin", import.meta.url));

/** start starts a program that is killed when the test ends, and waits for what a line of its output matches. */
async function start(t, program, args, env, pattern) {
  const child = spawn(`${bin}/${program}`, args, { env: { PATH: process.env.PATH, HOME: process.env.HOME, ...env } });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  t.after(async () => {
    child.kill("SIGKILL");
    await ended;
  });
  const log = [];
  const found = await new Promise((resolve, reject) => {
    for (const stream of [child.stdout, child.stderr]) {
      createInterface({ input: stream }).on("line", (line) => {
        log.push(line);
        const match = pattern.exec(log.join("\n"));
        if (match) resolve(match);
      });
    }
    child.once("error", reject);
    ended.then((code) => reject(new Error(`${program} ended with ${code}:\n${log.join("\n")}`)));
  });
  return { child, ended, found, log };
}

/** parts starts the development MongoDB, of a release, and etcd. */
export async function parts(t, release = "4.4") {
  const { found } = await start(t, "demo", ["parts", "-mongodb", "127.0.0.1:0", "-etcd", "127.0.0.1:0", "-release", release], {},
    /MongoDB +(\S+)\netcd +(\S+)/);
  return { mongodb: found[1], etcd: found[2] };
}

export async function node(t, id, parts, more = {}) {
  const p = await start(t, "streamer", ["run"], {
    STREAMER_MONGODB_URI: parts.mongodb, STREAMER_ETCD_ENDPOINTS: parts.etcd, STREAMER_NODE_ID: id,
    STREAMER_CLUSTER_PARTITIONS: "8", STREAMER_HTTP_LISTEN: "127.0.0.1:0", STREAMER_GRPC_LISTEN: "127.0.0.1:0", ...more,
  }, /msg="node runs".* address=(\S+)/);
  return { address: `http://${p.found[1]}`, child: p.child, ended: p.ended, log: p.log };
}
