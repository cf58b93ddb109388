import type { ReactNode } from "react";
import { type OpenDialog, useDialog } from "@/app/useDialog";
import { RowActions } from "../RowActions/RowActions";
import type { Column } from "../Table/Table";
import { RecordsPage, type RecordsQuery } from "./RecordsPage";

export interface RecordAction<Row> {
  /** The text of its button; in lower case it is the dialog in the address. */
  label: string;
  dialog: (row: Row, close: () => void) => ReactNode;
  isDangerous?: boolean;
  /** The records that it is offered for, if not all. */
  isFor?: (row: Row) => boolean;
}

interface Props<Row> {
  title: string;
  noun: string;
  query: RecordsQuery<Row>;
  columns: Column<Row>[];
  /** The text in which a search looks, if not only the name. */
  searchText?: (row: Row) => string;
  empty: ReactNode;
  /** Without it, the page only shows. */
  mayChange: boolean;
  newForm: (close: () => void) => ReactNode;
  actions: RecordAction<Row>[];
}

/** A page of records with names: the table, and the dialogs that make, change and delete one. */
export function NamedRecords<Row extends { name: string }>(props: Props<Row>) {
  const { title, noun, query, columns, searchText = nameOf, empty, mayChange, newForm, actions } = props;
  const dialog = useDialog();
  const chosen = query.data?.items.find(({ name }) => name === dialog.subject);
  const action = actions.find((action) => kindOf(action) === dialog.kind);
  const edit = actions.find(({ isDangerous = false }) => !isDangerous);
  return (
    <RecordsPage
      title={title}
      noun={noun}
      query={query}
      columns={mayChange ? [...columns, actionsColumn(actions, dialog)] : columns}
      rowKey={nameOf}
      searchText={searchText}
      empty={empty}
      onOpen={mayChange && edit ? ({ name }) => dialog.open(kindOf(edit), name) : undefined}
      onNew={mayChange ? () => dialog.open("new") : undefined}
    >
      {dialog.kind === "new" && newForm(dialog.close)}
      {action && chosen && action.dialog(chosen, dialog.close)}
    </RecordsPage>
  );
}

const nameOf = ({ name }: { name: string }): string => name;
const kindOf = ({ label }: { label: string }): string => label.toLowerCase();

function actionsColumn<Row extends { name: string }>(actions: RecordAction<Row>[], dialog: OpenDialog): Column<Row> {
  return {
    header: "Actions",
    align: "right",
    cell: (row) => (
      <RowActions
        subject={row.name}
        actions={actions
          .filter(({ isFor }) => isFor === undefined || isFor(row))
          .map((action) => ({
            label: action.label,
            act: () => dialog.open(kindOf(action), row.name),
            isDangerous: action.isDangerous ?? false,
          }))}
      />
    ),
  };
}
