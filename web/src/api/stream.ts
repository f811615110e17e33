/** One message of an event stream. */
export interface Message {
  id: string | null;
  event: string;
  data: string;
}

/** More than this without an end of line is not from the service. */
const LINE_MAX = 8 * 1024 * 1024;

/** Splits the text of an event stream into messages; `feed` takes it in pieces of any size. */
export class Parser {
  private rest = "";
  private id: string | null = null;
  private event = "message";
  private data: string[] = [];

  feed(text: string): Message[] {
    const lines = (this.rest + text).split("\n");
    this.rest = lines.pop() ?? "";
    if (this.rest.length > LINE_MAX) throw new Error("a line of the event stream is too long");
    const messages: Message[] = [];
    for (const line of lines) {
      const message = this.take(line.endsWith("\r") ? line.slice(0, -1) : line);
      if (message) messages.push(message);
    }
    return messages;
  }

  private take(line: string): Message | null {
    if (line === "") return this.dispatch();
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "id") this.id = value;
    if (field === "event") this.event = value;
    if (field === "data") this.data.push(value);
    return null;
  }

  private dispatch(): Message | null {
    const message = { id: this.id, event: this.event, data: this.data.join("\n") };
    const empty = this.data.length === 0;
    this.id = null;
    this.event = "message";
    this.data = [];
    return empty ? null : message;
  }
}
