/** Server-sent events from the pieces of an answer, as they arrive. */

export interface ServerEvent {
  id: string | null;
  type: string;
  data: string;
}

/** Takes pieces of text in any cut, and returns the events that are complete. */
export class EventParser {
  private rest = "";

  push(piece: string): ServerEvent[] {
    const blocks = (this.rest + piece).replaceAll("\r\n", "\n").split("\n\n");
    this.rest = blocks.pop() ?? "";
    return blocks.map(parseBlock).filter((event) => event.data !== "");
  }
}

function parseBlock(block: string): ServerEvent {
  const event: ServerEvent = { id: null, type: "message", data: "" };
  const data: string[] = [];
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon <= 0) continue;
    const value = line.slice(colon + 1).replace(/^ /, "");
    const field = line.slice(0, colon);
    if (field === "id") event.id = value;
    else if (field === "event") event.type = value;
    else if (field === "data") data.push(value);
  }
  event.data = data.join("\n");
  return event;
}
