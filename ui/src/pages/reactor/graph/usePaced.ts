import { useEffect, useRef, useState } from "react";

/** A value that changes at most once in `pause` milliseconds; with a pause of 0, at once. */
export function usePaced<Value>(value: Value, pause: number): Value {
  const [paced, setPaced] = useState(value);
  const latest = useRef(value);
  latest.current = value;
  useEffect(() => {
    if (pause === 0) return;
    const timer = setInterval(() => setPaced(latest.current), pause);
    return () => clearInterval(timer);
  }, [pause]);
  return pause === 0 ? value : paced;
}
