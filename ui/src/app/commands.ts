/** What the command palette offers. */

import { useMemo } from "react";
import { ROOT } from "@/api/root";
import { useAllPackages, useAllReactors, useAllWorkflows } from "@/api/wholeLists";
import type { IconName } from "@/design/Icon/Icon";
import { NAVIGATION } from "./navigation";
import { toggleTheme } from "./theme";
import { mayOpen, useMe } from "./useMe";

export interface Command {
  id: string;
  label: string;
  kind: string;
  icon: IconName;
  words?: string;
  to?: string;
  search?: Record<string, string>;
  act?: () => void;
}

const RUN_ID = /^[0-9a-z]{6,}$/;

export function useCommands(typed: string): Command[] {
  const { data: me } = useMe();
  const { data: workflows } = useAllWorkflows();
  const { data: reactors } = useAllReactors();
  const { data: packages } = useAllPackages();
  const named = useMemo(
    () => [
      ...commandsOf("workflow", "/workflows", "workflow", workflows?.items),
      ...commandsOf("reactor", "/reactors", "reactor", reactors?.items),
      ...commandsOf("package", "/packages", "package", packages?.items),
    ],
    [workflows, reactors, packages],
  );
  return [...pages(me), ...named, ...actions(), ...runById(typed)];
}

function pages(me: ReturnType<typeof useMe>["data"]): Command[] {
  return NAVIGATION.flatMap((group) => group.items)
    .filter((item) => mayOpen(me, item))
    .map((item) => ({
      id: item.path,
      label: item.label,
      kind: "page",
      icon: item.icon,
      words: item.words,
      to: item.path,
    }));
}

function commandsOf(kind: string, path: string, icon: IconName, items: { name: string }[] | undefined): Command[] {
  return (items ?? []).map(({ name }) => ({
    id: `${kind}:${name}`,
    label: name,
    kind,
    icon,
    to: `${path}/${encodeURIComponent(name)}`,
  }));
}

function actions(): Command[] {
  return [
    { id: "theme", label: "Switch between dark and light", kind: "action", icon: "moon", act: toggleTheme },
    { id: "docs", label: "Documentation", kind: "link", icon: "book", act: () => location.assign(`${ROOT}/docs/`) },
    { id: "api", label: "API reference", kind: "link", icon: "book", act: () => location.assign(`${ROOT}/api/docs`) },
  ];
}

function runById(typed: string): Command[] {
  const id = typed.trim();
  if (!RUN_ID.test(id)) return [];
  return [
    {
      id: `run:${id}`,
      label: `Runs with “${id}”`,
      kind: "search",
      icon: "run",
      words: id,
      to: "/runs",
      search: { q: id },
    },
  ];
}
