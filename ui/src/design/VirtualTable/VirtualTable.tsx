import { useVirtualizer } from "@tanstack/react-virtual";
import { type CSSProperties, memo, type ReactNode, useEffect, useRef } from "react";
import { ScrollRegion } from "../ScrollRegion/ScrollRegion";
import styles from "./VirtualTable.module.css";

export interface VirtualColumn<Row> {
  header: string;
  cell: (row: Row) => ReactNode;
  align?: "left" | "right";
  /** A track of a CSS grid: "120px", "minmax(160px, 1fr)". */
  width: string;
  /** Leave the column out if the table is narrow. */
  isSecondary?: boolean;
}

interface Props<Row> {
  label: string;
  columns: VirtualColumn<Row>[];
  rows: Row[];
  rowKey: (row: Row) => string;
  /** The row that the keyboard or the address points at; it is scrolled into view. */
  selected?: number;
  /** The number of rows of the whole list, if not all have been read. */
  total?: number;
  /** Called near the end of the rows: read more. */
  onEnd?: () => void;
  rowHeight?: number;
}

/**
 * A table of any length: only the rows in view exist. What is being read stays where it is when rows appear above it.
 * A link with `data-stretch` in a cell makes the whole row clickable.
 */
export function VirtualTable<Row>(props: Props<Row>) {
  const { label, columns, rows, rowKey, selected = -1, total = rows.length, onEnd, rowHeight = 32 } = props;
  const scroll = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroll.current,
    estimateSize: () => rowHeight,
    overscan: 12,
  });
  const shown = virtual.getVirtualItems();
  const last = shown.at(-1)?.index ?? 0;
  useEffect(() => {
    if (onEnd && rows.length > 0 && last >= rows.length - 20) onEnd();
  }, [last, rows.length, onEnd]);
  useEffect(() => {
    if (selected >= 0) virtual.scrollToIndex(selected);
  }, [selected, virtual]);
  useAnchor(scroll, rows, rowKey, rowHeight);

  return (
    <ScrollRegion ref={scroll} className={styles.scroll} label={label}>
      <table className={styles.table} aria-rowcount={total + 1} style={tracksOf(columns)}>
        <thead className={styles.head}>
          <tr className={styles.row}>
            {columns.map((column) => (
              <th
                key={column.header}
                scope="col"
                className={styles.header}
                data-align={column.align}
                data-secondary={column.isSecondary || undefined}
              >
                {column.header}
              </th>
            ))}
          </tr>
        </thead>
        <tbody className={styles.body} style={{ height: virtual.getTotalSize() }}>
          {shown.map(({ index, start }) => {
            const row = rows[index] as Row;
            return (
              <VirtualRow
                key={rowKey(row)}
                row={row}
                columns={columns}
                index={index}
                top={start}
                height={rowHeight}
                isSelected={index === selected}
              />
            );
          })}
        </tbody>
      </table>
    </ScrollRegion>
  );
}

interface RowProps<Row> {
  row: Row;
  columns: VirtualColumn<Row>[];
  index: number;
  top: number;
  height: number;
  isSelected: boolean;
}

function PlainRow<Row>({ row, columns, index, top, height, isSelected }: RowProps<Row>) {
  return (
    <tr
      aria-rowindex={index + 2}
      className={styles.row}
      data-selected={isSelected || undefined}
      style={{ height, transform: `translateY(${top}px)` }}
    >
      {columns.map((column) => (
        <td
          key={column.header}
          className={styles.cell}
          data-align={column.align}
          data-secondary={column.isSecondary || undefined}
        >
          {column.cell(row)}
        </td>
      ))}
    </tr>
  );
}

/** A row renders again only if its data has changed, not with every step of scrolling. */
const VirtualRow = memo(PlainRow) as typeof PlainRow;

/** The tracks of the columns, with and without those that a narrow table leaves out. */
function tracksOf(columns: { width: string; isSecondary?: boolean }[]): CSSProperties {
  const narrow = columns.filter((column) => !column.isSecondary);
  return {
    "--tracks": columns.map((column) => column.width).join(" "),
    "--narrow-tracks": narrow.map((column) => column.width).join(" "),
  } as CSSProperties;
}

/** Keeps the first row in view at its height when rows are added above it. */
function useAnchor<Row>(
  scroll: { current: HTMLElement | null },
  rows: Row[],
  rowKey: (row: Row) => string,
  rowHeight: number,
): void {
  const previous = useRef(rows);
  useEffect(() => {
    const element = scroll.current;
    const before = previous.current;
    previous.current = rows;
    if (element === null || before === rows || element.scrollTop < rowHeight) return;
    const first = Math.floor(element.scrollTop / rowHeight);
    const anchor = before[first];
    if (anchor === undefined) return;
    const key = rowKey(anchor);
    const now = rows.findIndex((row) => rowKey(row) === key);
    if (now > first) element.scrollTop += (now - first) * rowHeight;
  }, [scroll, rows, rowKey, rowHeight]);
}
