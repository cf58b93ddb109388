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

type Variable = Schema<"Variable">;

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
  { header: "Value", cell: (variable) => <ShortValue variable={variable} /> },
  { header: "Changed", isSecondary: true, cell: ({ updated_at }) => <Time at={updated_at} isRelative /> },
  { header: "By", isSecondary: true, cell: ({ updated_by }) => updated_by },
];

const ACTIONS: RecordAction<Variable>[] = [
  { label: "Edit", dialog: (variable, close) => <EditVariable variable={variable} onClose={close} /> },
  { label: "Delete", dialog: ({ name }, close) => <DeleteVariable name={name} onClose={close} />, isDangerous: true },
];

/** The list leaves out large values: the form waits for the whole one, so that saving it loses nothing. */
function EditVariable({ variable, onClose }: { variable: Variable; onClose: () => void }) {
  const isOmitted = variable.omitted?.value !== undefined;
  const path = { name: variable.name };
  const whole = api.useQuery("get", "/api/v1/variables/{name}", { params: { path } }, { enabled: isOmitted });
  const shown = isOmitted ? whole.data : variable;
  return shown === undefined ? null : <VariableForm variable={shown} onClose={onClose} />;
}

function ShortValue({ variable }: { variable: Variable }) {
  const { value, omitted } = variable;
  const size = omitted?.value;
  const text = size === undefined ? JSON.stringify(value) : `${size} bytes, shown in the form`;
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
