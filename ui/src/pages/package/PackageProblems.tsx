import type { Schema } from "@/api/types";
import { Panel } from "@/design/Panel/Panel";
import { SourceProblem } from "@/design/SourceProblem/SourceProblem";
import { Time } from "@/design/Time/Time";
import { plural } from "@/format/number";
import styles from "./PackageProblems.module.css";

/** Why a package is not loaded, or not in the wanted version; absent while all is well. */
export function PackageProblems({ data }: { data: Schema<"PackageInfo"> }) {
  const { problems = [], waiting_for = [], reason, again_at, failures = 0 } = data;
  if (data.state !== "failed" && waiting_for.length === 0) return null;
  const shown =
    problems.length > 0 ? problems : reason ? [{ message: reason, file: null, line: null, source_line: null }] : [];
  return (
    <Panel
      title={data.state === "failed" ? "Why it is not loaded" : "What it waits for"}
      aside={
        again_at != null && (
          <span>
            {plural(failures, "failed attempt")}, the next <Time at={again_at} isRelative />
          </span>
        )
      }
    >
      <div className={styles.list}>
        {shown.map((problem) => (
          <SourceProblem key={`${problem.file} ${problem.line} ${problem.message}`} {...problem} />
        ))}
        {waiting_for.length > 0 && (
          <p>
            Another package must provide {waiting_for.join(", ")} first. This one loads by itself as soon as one does.
          </p>
        )}
        {data.state === "failed" && data.version != null && (
          <p className={styles.note}>Version {data.version} stays loaded until then.</p>
        )}
      </div>
    </Panel>
  );
}
