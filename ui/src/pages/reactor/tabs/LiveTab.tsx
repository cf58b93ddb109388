import { useNavigate } from "@tanstack/react-router";
import { useCallback } from "react";
import type { Schema } from "@/api/types";
import { useSearchParam } from "@/app/useSearchParam";
import { Panel } from "@/design/Panel/Panel";
import { FiringLog } from "../firings/FiringLog";
import { ReactorGraph } from "../graph/ReactorGraph";
import type { LiveReactor } from "../useLiveReactor";
import { Inspector } from "./Inspector";
import styles from "./LiveTab.module.css";

interface Props {
  reactor: LiveReactor;
  graphs: Schema<"GraphDetails">[];
}

/** The reactor at a glance: the live graph, the firings, and what the reader has selected. */
export function LiveTab({ reactor, graphs }: Props) {
  const [selected] = useSearchParam("select", "");
  const [firingId] = useSearchParam("firing", "");
  const navigate = useNavigate();
  // One selection at a time: they share the panel that shows them.
  const select = useCallback(
    (choice: { select?: string; firing?: string }) =>
      void navigate({
        to: ".",
        replace: true,
        search: (search: Record<string, unknown>) => ({
          ...search,
          select: choice.select || undefined,
          firing: choice.firing || undefined,
        }),
      }),
    [navigate],
  );
  const selectBox = useCallback((id: string) => select({ select: id }), [select]);
  const found = reactor.firings.find(({ id }) => id === firingId);
  return (
    <div className={styles.live}>
      <Panel title="Graph" aside={<Legend isSelected={found !== undefined} />} isFlush className={styles.graph}>
        <div className={styles.canvas}>
          <ReactorGraph
            reactor={reactor}
            graphs={graphs}
            firing={found ?? reactor.firings[0]}
            selected={selected}
            onSelect={selectBox}
          />
        </div>
      </Panel>
      <Panel title="Firings" aside="newest first" isFlush className={styles.fixed}>
        <FiringLog reactor={reactor} selected={firingId} onSelect={(id) => select({ firing: id })} />
      </Panel>
      <Inspector
        reactor={reactor}
        graphs={graphs}
        selected={selected}
        firingId={firingId}
        firing={found}
        onClose={() => select({})}
      />
    </div>
  );
}

function Legend({ isSelected }: { isSelected: boolean }) {
  return (
    <div className={styles.legend}>
      <span>
        <i className={styles.swatch} data-route /> route of the {isSelected ? "selected" : "last"} firing
      </span>
      <span>
        <i className={styles.swatch} data-ground="amber" /> p99 of its firings over 100 µs
      </span>
      <span>
        <i className={styles.swatch} data-ground="red" /> over 1 ms
      </span>
    </div>
  );
}
