import { Link } from "@tanstack/react-router";
import { api } from "@/api/client";
import { Panel } from "@/design/Panel/Panel";
import { SourceProblem } from "@/design/SourceProblem/SourceProblem";
import { Time } from "@/design/Time/Time";
import { plural } from "@/format/number";
import styles from "./ImportErrors.module.css";

/** Why packages are not loaded, by file and line; absent while all are. */
export function ImportErrors() {
  const { data } = api.useQuery("get", "/api/v1/import-errors", { params: { query: { limit: 500 } } });
  if (data === undefined || data.total === 0) return null;
  return (
    <Panel title="Import errors" aside={plural(data.total, "error")} isFlush>
      <ul>
        {data.items.map((problem) => (
          <li key={`${problem.package} ${problem.file} ${problem.line} ${problem.message}`} className={styles.error}>
            <SourceProblem {...problem} />
            <p className={styles.about}>
              <Link to="/packages/$name" params={{ name: problem.package }}>
                {problem.package}
              </Link>{" "}
              {problem.version} · <Time at={problem.at} isRelative />
            </p>
          </li>
        ))}
      </ul>
    </Panel>
  );
}
