import { stateLabel, toneOf } from "../tone";
import { glyphOf } from "./glyph";
import styles from "./StateMark.module.css";

/** A state in the room of one letter: its colour and its sign; the name is for screen readers and the tooltip. */
export function StateMark({ state }: { state: string }) {
  const label = stateLabel(state);
  return (
    <span
      className={styles.mark}
      data-tone={toneOf(state)}
      data-glyph={glyphOf(state)}
      role="img"
      aria-label={label}
      title={label}
    />
  );
}
