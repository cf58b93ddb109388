/** The value of a variable as people type it: JSON, or a text without quotes. */

export interface TypedValue {
  value: unknown;
  /** What the value is, in words: "a text". */
  kind: string;
  /** Whether it can be saved: what begins as JSON must be JSON. */
  isValid: boolean;
}

export function parseValue(text: string): TypedValue {
  const typed = text.trim();
  try {
    const value: unknown = JSON.parse(typed);
    return { value, kind: kindOf(value), isValid: true };
  } catch {
    return { value: typed, kind: "a text", isValid: !/^["[{]/.test(typed) };
  }
}

function kindOf(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "a list";
  const kinds: Record<string, string> = { string: "a text", number: "a number", boolean: "a truth value" };
  return kinds[typeof value] ?? "an object";
}
