import { formatRate } from "@/format/number";
import { currentRate } from "@/live/firingRates";
import { useFirings } from "@/live/LiveProvider";
import { Sparkline } from "../Sparkline/Sparkline";

/** The firings of a reactor in each second of the last minute, counted from the feed: it costs no request. */
export function FiringSparkline({ name }: { name: string }) {
  const { history } = useFirings(name);
  const rate = formatRate(currentRate(history));
  return <Sparkline values={history} label={`Firings of ${name} in the last minute: now ${rate}`} />;
}
