import { CommandLine } from "@/design/CommandLine/CommandLine";
import { Page } from "@/design/Page/Page";
import { Panel } from "@/design/Panel/Panel";
import styles from "./FirstSteps.module.css";

const STEPS: { title: string; text: string; commands: string[] }[] = [
  {
    title: "Write a package",
    text: "A package is a folder of Python files. This one has a graph, a workflow and a test.",
    commands: ["tidemill package new hello"],
  },
  {
    title: "Run its workflow once",
    text: "Each task is a function, and its result is the input of the next.",
    commands: ["tidemill run hello/hello.py"],
  },
  {
    title: "Run the package",
    text: "It gets its own address. Save a file, and the change takes effect at once.",
    commands: ["tidemill dev hello"],
  },
];

const TUTORIALS: [href: string, title: string, text: string][] = [
  ["/docs/tutorials/first-steps.html", "First steps", "Run, change, break and fix your first files."],
  ["/docs/tutorials/first-graph.html", "First graph", "React to events, within microseconds."],
  ["/docs/tutorials/first-workflow.html", "First workflow", "Tasks with retries, schedules and backfills."],
  ["/docs/tutorials/first-package.html", "First package", "Build, sign and upload what you wrote."],
];

/** The home page of a node that has nothing to run yet: what to do next, with commands to copy. */
export function FirstSteps() {
  return (
    <Page title="Home" subtitle="This node runs, but no package is loaded yet. Three steps, about a minute:">
      <ol className={styles.steps}>
        {STEPS.map(({ title, text, commands }, index) => (
          <li key={title} className={styles.step}>
            <span className={styles.number} aria-hidden="true">
              {index + 1}
            </span>
            <h2 className={styles.title}>{title}</h2>
            <p className={styles.text}>{text}</p>
            {commands.map((command) => (
              <CommandLine key={command} command={command} />
            ))}
          </li>
        ))}
      </ol>
      <Panel title="Learn more">
        <ul className={styles.tutorials}>
          {TUTORIALS.map(([href, title, text]) => (
            <li key={href}>
              <a href={href}>{title}</a>
              <p className={styles.text}>{text}</p>
            </li>
          ))}
        </ul>
      </Panel>
      <Panel title="Or look at something that runs already">
        <p className={styles.text}>
          Live examples: a market maker, sensors with alerts, a nightly report, and small jobs.
        </p>
        <CommandLine command="tidemill demo" />
      </Panel>
    </Page>
  );
}
