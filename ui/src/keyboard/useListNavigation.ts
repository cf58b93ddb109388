/** `j` and `k` move through a list, Enter opens the selected item. */

import { useMemo, useState } from "react";
import { useShortcuts } from "./useShortcuts";

export function useListNavigation(length: number, open: (index: number) => void): number {
  const [selected, setSelected] = useState(-1);
  const current = Math.min(selected, length - 1);
  const shortcuts = useMemo(
    () => ({
      j: () => setSelected(Math.min(length - 1, current + 1)),
      k: () => setSelected(Math.max(0, current - 1)),
      // biome-ignore lint/correctness/noComponentHookFactories: Enter is a key, not a component
      Enter: () => current >= 0 && open(current),
    }),
    [length, current, open],
  );
  useShortcuts(shortcuts);
  return current;
}
