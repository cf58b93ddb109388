/** When a reader leaves the end of a log that they follow. */

export interface ScrollState {
  scrollTop: number;
  scrollHeight: number;
  clientHeight: number;
}

/** Less than this is rounding, or a line that is being measured. */
const SLACK = 30;

/**
 * Whether a scroll was one upwards, away from the end: by wheel, key, touch or scrollbar.
 * A log that grows leaves the end too, but without moving up; one that shrinks moves up, but stays at the end.
 */
export function leavesEnd(topBefore: number, { scrollTop, scrollHeight, clientHeight }: ScrollState): boolean {
  return scrollTop < topBefore && scrollHeight - clientHeight - scrollTop > SLACK;
}
