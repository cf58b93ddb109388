import { api } from "@/api/client";
import { Sparkline } from "@/design/Sparkline/Sparkline";
import { formatCount } from "@/format/number";

/** The firings of a reactor in each minute of the last hour. */
export function HourSparkline({ name }: { name: string }) {
  const { data } = api.useQuery("get", "/api/v1/reactors/{name}/timeseries", { params: { path: { name } } });
  const counts = data?.per_minute ?? [];
  const total = counts.reduce((sum, count) => sum + count, 0);
  return <Sparkline values={counts} label={`${formatCount(total)} firings of ${name} in the last hour`} />;
}
