import type { LogLine } from "./logBuffer";
import { recordOf } from "./search";

/** Saves lines of a log as a text file. */
export function download(name: string, lines: LogLine[]): void {
  const url = URL.createObjectURL(
    new Blob([lines.map((line) => `${recordOf(line)}\n`).join("")], { type: "text/plain" }),
  );
  const link = document.createElement("a");
  link.href = url;
  link.download = `${name}.log`;
  link.click();
  URL.revokeObjectURL(url);
}
