import { formatFullTime, formatRelative, formatTime } from "@/format/time";
import { useNow } from "@/format/useNow";

/** A point in time: the clock, or with `isRelative` how long ago; the tooltip has the date and the time zone. */
export function Time({ at, isRelative = false }: { at: string; isRelative?: boolean }) {
  return isRelative ? <RelativeTime at={at} /> : <Stamp at={at} text={formatTime(at)} />;
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
