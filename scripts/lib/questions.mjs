/**
 * Questions to a person at a terminal, or to the lines of a file or pipe that answer them in the same order.
 * No answer (an empty line, or no more lines) is `undefined`.
 */
import { createInterface } from "node:readline";
import { Writable } from "node:stream";

/**
 * @param {{ input: NodeJS.ReadStream, output: NodeJS.WritableStream }} io
 * @returns {{ question: (text: string, options?: { secret?: boolean }) => Promise<string | undefined>, close: () => void }}
 */
export function questions({ input, output }) {
  if (!input.isTTY) {
    const lines = createInterface({ input })[Symbol.asyncIterator]();
    return {
      async question(text) {
        output.write(`${text} `);
        const { value, done } = await lines.next();
        output.write("\n");
        return done ? undefined : value.trim() || undefined;
      },
      close: () => void lines.return?.(),
    };
  }
  let hidden = false;
  // What is typed is echoed through here; a key that is being pasted is nobody else's business.
  const echo = new Writable({
    write(chunk, _, done) {
      if (!hidden) output.write(chunk);
      done();
    },
  });
  const terminal = createInterface({ input, output: echo, terminal: true });
  terminal.on("SIGINT", () => process.exit(130));
  return {
    question: (text, { secret = false } = {}) =>
      new Promise((resolve) => {
        terminal.question(`${text} `, (answer) => {
          if (hidden) output.write("\n");
          hidden = false;
          resolve(answer.trim() || undefined);
        });
        hidden = secret;
      }),
    close: () => terminal.close(),
  };
}
