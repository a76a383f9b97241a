/**
 * The door: a listening socket that can be shut for a while and opened again on the same port.
 *
 * The HTTP server never listens itself; it is handed its connections. So refusing new connections (ECONNREFUSED, as from
 * a host that is down) leaves the answers in progress alone.
 */
import { createServer } from "node:net";

const REOPEN_RETRY_MS = 20;

/** Connections for an HTTP server. */
export class Listener {
  #http;
  #door = null;
  #address = null;
  #busy = new Map();
  #timers = new Set();
  #shutUntil = 0;
  #stopped = false;

  constructor(http) {
    this.#http = http;
  }

  /** Listens; resolves with the port. */
  async open(port, host) {
    this.#door = await this.#listen(port, host);
    this.#address = { port: this.#door.address().port, host };
    return this.#address.port;
  }

  get refusing() {
    return this.#door === null;
  }

  /** Call when a request of this connection begins; the function that it returns says that it has ended. */
  occupy(socket) {
    this.#busy.set(socket, (this.#busy.get(socket) ?? 0) + 1);
    return () => {
      if (!this.#busy.has(socket)) return;
      this.#busy.set(socket, this.#busy.get(socket) - 1);
      if (this.refusing && this.#busy.get(socket) === 0) socket.end();
    };
  }

  /** Refuses new connections for so long; idle ones are closed. A later end wins over an earlier one. */
  refuse(forMs) {
    if (this.#stopped) return;
    this.#shutUntil = Math.max(this.#shutUntil, performance.now() + forMs);
    this.#door?.close();
    this.#door = null;
    for (const [socket, count] of this.#busy) if (count === 0) socket.destroy();
    this.#later(forMs, () => this.#reopen());
  }

  /** Refuses connections from then to then, in ms from now. */
  schedule({ from_ms: from, until_ms: until }) {
    this.#later(Math.max(0, from), () => this.refuse(until - from));
  }

  /** Forgets what was scheduled, and opens again. */
  async unschedule() {
    for (const timer of this.#timers) clearTimeout(timer);
    this.#timers.clear();
    this.#shutUntil = 0;
    await this.#reopen();
  }

  /** Closes everything, connections too. */
  async stop() {
    this.#stopped = true;
    for (const timer of this.#timers) clearTimeout(timer);
    for (const socket of this.#busy.keys()) socket.destroy();
    const door = this.#door;
    this.#door = null;
    if (door) await new Promise((resolve) => door.close(resolve));
  }

  #later(ms, action) {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      action();
    }, ms);
    this.#timers.add(timer);
  }

  async #reopen() {
    if (this.#stopped || this.#door) return;
    if (performance.now() < this.#shutUntil - 1) return;
    try {
      const door = await this.#listen(this.#address.port, this.#address.host);
      if (this.#stopped || this.#door) door.close();
      else this.#door = door;
    } catch {
      // Somebody else has taken the port for the moment.
      this.#later(REOPEN_RETRY_MS, () => this.#reopen());
    }
  }

  #listen(port, host) {
    const door = createServer({ noDelay: true }, (socket) => {
      this.#busy.set(socket, 0);
      socket.on("close", () => this.#busy.delete(socket));
      socket.on("error", () => {});
      this.#http.emit("connection", socket);
    });
    return new Promise((resolve, reject) => {
      door.once("error", reject);
      door.listen({ port, host, backlog: 1024 }, () => {
        door.off("error", reject);
        door.on("error", () => {});
        resolve(door);
      });
    });
  }
}
