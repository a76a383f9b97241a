/** The child's side of `handOver`: runs a script's `main` and ends when the parent is gone. */
import { pathToFileURL } from "node:url";
import { main } from "./run.mjs";

// Not unref'ed handlers only: a parent that was killed can send no signal, but its end of the channel closes.
process.on("disconnect", () => process.kill(process.pid, "SIGTERM"));
process.channel?.unref();

const [script, ...args] = process.argv.slice(2);
await main(async () => (await import(pathToFileURL(script).href)).main(args));
// Miniflare and undici may keep sockets for a while; the work is done.
process.exit();
