import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { type OpenDialog, useDialog } from "@/app/useDialog";
import { useMayWrite } from "@/app/useMe";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { RecordsPage } from "@/design/RecordsPage/RecordsPage";
import { RowActions } from "@/design/RowActions/RowActions";
import type { Column } from "@/design/Table/Table";
import { Time } from "@/design/Time/Time";
import { DeleteVariable } from "./DeleteVariable";
import { VariableForm } from "./VariableForm";
import styles from "./VariablesPage.module.css";

type Variable = Schema<"VariableView">;

/** Values that operators set and author code reads: list, set, delete. */
export function VariablesPage() {
  const dialog = useDialog();
  const mayWrite = useMayWrite();
  const variables = api.useQuery("get", "/api/v1/variables", { params: { query: { limit: 500 } } });
  const chosen = variables.data?.items.find(({ name }) => name === dialog.subject);
  return (
    <RecordsPage
      title="Variables"
      noun="variable"
      query={variables}
      columns={mayWrite ? [...COLUMNS, actions(dialog)] : COLUMNS}
      rowKey={({ name }) => name}
      searchText={({ name }) => name}
      empty={<NoVariables />}
      onOpen={mayWrite ? ({ name }) => dialog.open("edit", name) : undefined}
      onNew={mayWrite ? () => dialog.open("new") : undefined}
    >
      {dialog.kind === "new" && <VariableForm onClose={dialog.close} />}
      {dialog.kind === "edit" && chosen && <VariableForm variable={chosen} onClose={dialog.close} />}
      {dialog.kind === "delete" && chosen && <DeleteVariable name={chosen.name} onClose={dialog.close} />}
    </RecordsPage>
  );
}

const COLUMNS: Column<Variable>[] = [
  { header: "Name", cell: ({ name }) => <code>{name}</code> },
  { header: "Value", cell: ({ value }) => <ShortValue value={value} /> },
  { header: "Changed", isSecondary: true, cell: ({ updated_at }) => <Time at={updated_at} isRelative /> },
  { header: "By", isSecondary: true, cell: ({ updated_by }) => updated_by },
];

function actions(dialog: OpenDialog): Column<Variable> {
  return {
    header: "Actions",
    align: "right",
    cell: ({ name }) => (
      <RowActions
        subject={name}
        actions={[
          { label: "Edit", act: () => dialog.open("edit", name) },
          { label: "Delete", act: () => dialog.open("delete", name), isDangerous: true },
        ]}
      />
    ),
  };
}

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
    <EmptyState title="No variable is set." commands={["tidemill variable set region eu"]}>
      A task reads a variable with <code>ctx.variable("region")</code>. A change takes effect at the next attempt.
    </EmptyState>
  );
}
