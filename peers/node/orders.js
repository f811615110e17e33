// Lines of whoever started this program.

import { createInterface } from "node:readline";

// An iterator of lines up to `quit`. If they end without it, nobody is there any more: the program ends at once, whatever it is
// doing.
export function orders() {
  const input = createInterface({ input: process.stdin });
  let isOver = false;
  input.on("line", (line) => (isOver ||= line === "quit"));
  input.on("close", () => isOver || process.exit(1));
  // From here on lines are kept until somebody asks for them.
  const lines = input[Symbol.asyncIterator]();
  return (async function* () {
    for await (const line of lines) {
      if (line === "quit") return;
      yield line;
    }
  })();
}
