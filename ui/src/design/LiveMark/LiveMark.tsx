import { useConnection } from "@/live/LiveProvider";
import styles from "./LiveMark.module.css";

const TEXTS = {
  connecting: "Connecting",
  live: "Live",
  reconnecting: "Reconnecting",
  closed: "Not connected",
};

/** Says whether what the page shows is live; while it is not, a click connects at once. */
export function LiveMark() {
  const { state, retryNow } = useConnection();
  return (
    <button
      type="button"
      className={styles.mark}
      data-state={state}
      onClick={retryNow}
      disabled={state === "live"}
      title={state === "live" ? "This page follows the server" : "Connect now"}
    >
      <span className={styles.dot} aria-hidden="true" />
      <span role="status">{TEXTS[state]}</span>
    </button>
  );
}
