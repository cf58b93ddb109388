import { FilterChips } from "../FilterChips/FilterChips";
import { RANGES, type Range } from "./range";

/** Chooses how far back the plots of a page go. */
export function RangeChips({ range, onChange }: { range: Range; onChange: (id: string) => void }) {
  const chips = RANGES.map(({ id, label }) => ({ id, label, isOn: id === range.id }));
  return <FilterChips label="Time shown" chips={chips} onToggle={onChange} />;
}
