import { useRef } from "react";

/** A value that stands still while the reader looks at it, and follows again afterwards. */
export function useHeld<Value>(value: Value, isHeld: boolean): Value {
  const held = useRef(value);
  if (!isHeld) held.current = value;
  return held.current;
}
