// Serves the page and the client at http://127.0.0.1:8000: node examples/browser/serve.mjs
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";

const files = new Map([
  ["/", ["index.html", "text/html; charset=utf-8"]],
  ["/page.js", ["page.js", "text/javascript"]],
  ...["index", "collection", "extjson", "live", "sse", "subscribe"].map((name) => [
    `/client/${name}.js`, [`../../client/typescript/dist/${name}.js`, "text/javascript"],
  ]),
]);

const server = createServer(async (request, response) => {
  const [name, type] = files.get(new URL(request.url, "http://localhost").pathname) ?? [];
  if (!name) return response.writeHead(404).end();
  try {
    const body = await readFile(new URL(name, import.meta.url));
    response.writeHead(200, { "Content-Type": type, "Cache-Control": "no-store" }).end(body);
  } catch {
    response.writeHead(404).end("run make clients first");
  }
});
server.listen(Number(process.env.PORT ?? 8000), "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
