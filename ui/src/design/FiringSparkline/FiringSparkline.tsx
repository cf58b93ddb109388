import { formatRate } from "@/format/number";
import { useFirings } from "@/live/LiveProvider";
import { Sparkline } from "../Sparkline/Sparkline";

/** The firings of a reactor in each second of the last minute, counted from the feed: it costs no request. */
export function FiringSparkline({ name }: { name: string }) {
  const { history, rate } = useFirings(name);
  return <Sparkline values={history} label={`Firings of ${name} in the last minute: now ${formatRate(rate)}`} />;
}
