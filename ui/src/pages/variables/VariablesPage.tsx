import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { useMayWrite } from "@/app/useMe";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { NamedRecords, type RecordAction } from "@/design/RecordsPage/NamedRecords";
import type { Column } from "@/design/Table/Table";
import { Time } from "@/design/Time/Time";
import { DeleteVariable } from "./DeleteVariable";
import { VariableForm } from "./VariableForm";
import styles from "./VariablesPage.module.css";

type Variable = Schema<"VariableView">;

/** Values that operators set and author code reads: list, set, delete. */
export function VariablesPage() {
  return (
    <NamedRecords
      title="Variables"
      noun="variable"
      query={api.useQuery("get", "/api/v1/variables", { params: { query: { limit: 500 } } })}
      columns={COLUMNS}
      empty={<NoVariables />}
      mayChange={useMayWrite()}
      newForm={(close) => <VariableForm onClose={close} />}
      actions={ACTIONS}
    />
  );
}

const COLUMNS: Column<Variable>[] = [
  { header: "Name", cell: ({ name }) => <code>{name}</code> },
  { header: "Value", cell: ({ value }) => <ShortValue value={value} /> },
  { header: "Changed", isSecondary: true, cell: ({ updated_at }) => <Time at={updated_at} isRelative /> },
  { header: "By", isSecondary: true, cell: ({ updated_by }) => updated_by },
];

const ACTIONS: RecordAction<Variable>[] = [
  { label: "Edit", dialog: (variable, close) => <VariableForm variable={variable} onClose={close} /> },
  { label: "Delete", dialog: ({ name }, close) => <DeleteVariable name={name} onClose={close} />, isDangerous: true },
];

function ShortValue({ value }: { value: unknown }) {
  const text = JSON.stringify(value);
  return (
    <code className={styles.value} title={text}>
      {text}
    </code>
  );
}

function NoVariables() {
  return (
    <EmptyState title="No variable is set." commands={[`tidemill --server ${location.origin} variable set region eu`]}>
      A task reads a variable with <code>ctx.variable("region")</code>. A change takes effect at the next attempt.
    </EmptyState>
  );
}
