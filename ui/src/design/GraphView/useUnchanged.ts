import { useMemo } from "react";

interface Version {
  id: string;
  /** `null` is never the same again. */
  version: string | null;
}

/**
 * Converts items, and returns the object of the last time for each one that looks the same.
 *
 * React Flow draws what is another object: with a thousand boxes, drawing all of them at each change takes too long.
 */
export function useUnchanged<Item, Made>(
  layout: object,
  items: Item[],
  versionOf: (item: Item) => Version,
  make: (item: Item) => Made,
): Made[] {
  // biome-ignore lint/correctness/useExhaustiveDependencies: another layout moves everything
  const known = useMemo(() => new Map<string, { version: string; made: Made }>(), [layout]);
  return items.map((item) => {
    const { id, version } = versionOf(item);
    const before = known.get(id);
    if (before !== undefined && before.version === version) return before.made;
    const made = make(item);
    if (version !== null) known.set(id, { version, made });
    return made;
  });
}
