import { formatFullTime, formatRelative, formatTime } from "@/format/time";
import { useNow } from "@/format/useNow";

interface Props {
  at: string;
  isRelative?: boolean;
  isExact?: boolean;
}

/** A point in time: the clock, exact to the millisecond or not, or how long ago; the tooltip has date and time zone. */
export function Time({ at, isRelative = false, isExact = false }: Props) {
  return isRelative ? <RelativeTime at={at} /> : <Stamp at={at} text={formatTime(at, undefined, isExact)} />;
}

function RelativeTime({ at }: { at: string }) {
  const now = useNow();
  return <Stamp at={at} text={formatRelative(at, now)} />;
}

function Stamp({ at, text }: { at: string; text: string }) {
  return (
    <time dateTime={at} title={formatFullTime(at)}>
      {text}
    </time>
  );
}
