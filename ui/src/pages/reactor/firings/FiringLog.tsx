import { useVirtualizer } from "@tanstack/react-virtual";
import { type PointerEvent, useRef, useState } from "react";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { ScrollRegion } from "@/design/ScrollRegion/ScrollRegion";
import { plural } from "@/format/number";
import { firingBefore } from "../firings";
import type { LiveReactor } from "../useLiveReactor";
import styles from "./FiringLog.module.css";
import { FiringRow } from "./FiringRow";
import { useHeld } from "./useHeld";

const ROW = 28;

interface Props {
  reactor: LiveReactor;
  selected: string;
  onSelect: (id: string) => void;
}

/** The newest firings. It stands still while the reader points at it or has scrolled, and says how many are new. */
export function FiringLog({ reactor, selected, onSelect }: Props) {
  const scroll = useRef<HTMLDivElement>(null);
  const [isScrolled, setScrolled] = useState(false);
  const [isPointedAt, setPointedAt] = useState(false);
  const isHeld = isScrolled || isPointedAt;
  const live = { firings: reactor.firings, fires: reactor.state.fires };
  const shown = useHeld(live, isHeld);
  const added = live.fires - shown.fires;
  const rows = useVirtualizer({
    count: shown.firings.length,
    getScrollElement: () => scroll.current,
    estimateSize: () => ROW,
    getItemKey: (index) => shown.firings[index]?.id ?? index,
    overscan: 8,
  });
  const follow = () => {
    scroll.current?.scrollTo({ top: 0 });
    setScrolled(false);
    setPointedAt(false);
  };

  if (live.firings.length === 0) return <NoFirings reactor={reactor} />;
  return (
    <div
      className={styles.log}
      onPointerEnter={(event: PointerEvent) => setPointedAt(event.pointerType === "mouse")}
      onPointerLeave={() => setPointedAt(false)}
    >
      {isHeld && added > 0 && (
        <button type="button" className={styles.new} onClick={follow}>
          {plural(added, "new firing")}
        </button>
      )}
      <ScrollRegion
        ref={scroll}
        className={styles.scroll}
        label="Log of firings"
        onScroll={(event) => setScrolled(event.currentTarget.scrollTop > 0)}
      >
        <div className={styles.list} style={{ height: rows.getTotalSize() }}>
          {rows.getVirtualItems().map(({ index, start }) => {
            const firing = shown.firings[index];
            return (
              firing && (
                <FiringRow
                  key={firing.id}
                  firing={firing}
                  before={firingBefore(shown.firings, index)}
                  offset={start}
                  isSelected={firing.id === selected}
                  onSelect={onSelect}
                />
              )
            );
          })}
        </div>
      </ScrollRegion>
    </div>
  );
}

function NoFirings({ reactor: { state } }: { reactor: LiveReactor }) {
  const waiting = state.waiting.length > 0 ? `It waits for ${state.waiting.join(", ")}.` : null;
  return (
    <EmptyState title="This reactor has not fired.">
      {waiting ?? "It fires when its criteria are met; “Force fire” fires it now."}
    </EmptyState>
  );
}
