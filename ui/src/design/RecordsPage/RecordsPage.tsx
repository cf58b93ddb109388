import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { useSearchParam } from "@/app/useSearchParam";
import { formatCount, plural } from "@/format/number";
import { useListNavigation } from "@/keyboard/useListNavigation";
import { Answer } from "../Answer/Answer";
import { Button } from "../Button/Button";
import { EmptyState } from "../EmptyState/EmptyState";
import { Icon } from "../Icon/Icon";
import { Page } from "../Page/Page";
import { Panel } from "../Panel/Panel";
import { SearchInput } from "../SearchInput/SearchInput";
import { type Column, Table } from "../Table/Table";

export type RecordsQuery<Row> = UseQueryResult<{ items: Row[]; total: number }, unknown>;

interface Props<Row> {
  title: string;
  /** One of them: "variable". */
  noun: string;
  query: RecordsQuery<Row>;
  columns: Column<Row>[];
  rowKey: (row: Row) => string;
  /** The text in which a search looks. */
  searchText: (row: Row) => string;
  /** What to show while there are none. */
  empty: ReactNode;
  /** What Enter does with the row that `j` and `k` point at. */
  onOpen?: ((row: Row) => void) | undefined;
  /** Opens the form for a new one; without it there is no button. */
  onNew?: (() => void) | undefined;
  /** The text of that button, if it is not "New variable". */
  newLabel?: string;
  /** Dialogs, and panels below the table. */
  children?: ReactNode;
}

/** A page of records that people keep: a table with a search, and a button for a new one. */
export function RecordsPage<Row>(props: Props<Row>) {
  const { title, noun, query, empty, onNew, newLabel, children } = props;
  const [text, setText] = useSearchParam("q", "");
  const actions = (
    <>
      <SearchInput label={`Search ${noun}s`} value={text} onChange={setText} />
      {onNew && (
        <Button look="primary" onClick={onNew}>
          <Icon name="plus" /> {newLabel ?? `New ${noun}`}
        </Button>
      )}
    </>
  );
  return (
    <Page title={title} actions={actions}>
      <Panel title={`All ${noun}s`} aside={query.data && <Count {...query.data} noun={noun} />} isFlush>
        <Answer query={query}>
          {({ items }) => (items.length === 0 ? empty : <Found {...props} rows={items} text={text.toLowerCase()} />)}
        </Answer>
      </Panel>
      {children}
    </Page>
  );
}

function Count({ items, total, noun }: { items: unknown[]; total: number; noun: string }) {
  const all = plural(total, noun);
  return <>{items.length < total ? `the first ${formatCount(items.length)} of ${all}` : all}</>;
}

function Found<Row>(props: Props<Row> & { rows: Row[]; text: string }) {
  const { title, noun, columns, rowKey, searchText, rows, text, onOpen } = props;
  const found = rows.filter((row) => searchText(row).toLowerCase().includes(text));
  const selected = useListNavigation(found.length, (index) => {
    const row = found[index];
    if (row !== undefined) onOpen?.(row);
  });
  if (found.length === 0) return <EmptyState title={`No ${noun} matches “${text}”.`} />;
  return <Table label={title} columns={columns} rows={found} rowKey={rowKey} selected={selected} />;
}
