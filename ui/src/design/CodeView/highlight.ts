/** Python in colours: enough to read code by, in one pass and without a library. */

export type Kind = "comment" | "string" | "number" | "keyword" | "constant" | "decorator" | "name" | "call";

export interface Token {
  text: string;
  kind: Kind | null;
}

const KEYWORDS =
  "and|as|assert|async|await|break|case|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|match|nonlocal|not|or|pass|raise|return|try|type|while|with|yield";
/** Up to the end of the code, if a text of several lines has none; up to that of the line otherwise. */
const END = "(?![\\s\\S])";
const TEXT = [
  `"""[\\s\\S]*?(?:"""|${END})`,
  `'''[\\s\\S]*?(?:'''|${END})`,
  '"(?:\\\\.|[^"\\\\\\n])*"?',
  "'(?:\\\\.|[^'\\\\\\n])*'?",
].join("|");
const TOKENS = new RegExp(
  [
    "(?<comment>#[^\\n]*)",
    `(?<string>(?:\\b[rRbBuUfFtT]{1,2})?(?:${TEXT}))`,
    "(?<decorator>(?<=^[ \\t]*)@[\\w.]+)",
    "(?<name>(?<=\\b(?:def|class)\\s+)[A-Za-z_]\\w*)",
    "(?<constant>\\b(?:None|True|False|self|cls)\\b)",
    `(?<keyword>\\b(?:${KEYWORDS})\\b)`,
    "(?<number>\\b(?:0[xXoObB][\\da-fA-F_]+|\\d[\\d_]*(?:\\.[\\d_]*)?(?:[eE][+-]?\\d+)?)j?\\b)",
    "(?<call>\\b[A-Za-z_]\\w*(?=\\())",
  ].join("|"),
  "gm",
);

/** The lines of a source, each in tokens. */
export function highlightPython(code: string): Token[][] {
  const lines: Token[][] = [[]];
  const add = (text: string, kind: Kind | null) => {
    text.split("\n").forEach((part, index) => {
      if (index > 0) lines.push([]);
      if (part !== "") lines.at(-1)?.push({ text: part, kind });
    });
  };
  let from = 0;
  for (const match of code.matchAll(TOKENS)) {
    if (match.index > from) add(code.slice(from, match.index), null);
    add(match[0], kindOf(match.groups ?? {}));
    from = match.index + match[0].length;
  }
  add(code.slice(from), null);
  return lines;
}

function kindOf(groups: Record<string, string | undefined>): Kind | null {
  return (Object.keys(groups).find((name) => groups[name] !== undefined) as Kind | undefined) ?? null;
}
