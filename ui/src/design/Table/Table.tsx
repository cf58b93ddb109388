import type { ReactNode } from "react";
import { ScrollRegion } from "../ScrollRegion/ScrollRegion";
import styles from "./Table.module.css";

export interface Column<Row> {
  header: string;
  /** The header is for screen readers only, as above a column of buttons. */
  isHeaderHidden?: boolean;
  cell: (row: Row) => ReactNode;
  align?: "left" | "right";
  /** A CSS width; columns without one share the rest. */
  width?: string;
  /** Leave the column out on narrow screens. */
  isSecondary?: boolean;
}

interface Props<Row> {
  label: string;
  columns: Column<Row>[];
  rows: Row[];
  rowKey: (row: Row) => string;
  /** The row that the keyboard points at. */
  selected?: number;
}

/** A dense table that scrolls sideways inside itself, never the page. */
export function Table<Row>({ label, columns, rows, rowKey, selected }: Props<Row>) {
  return (
    <ScrollRegion className={styles.scroll} label={label}>
      <table className={styles.table}>
        <thead>
          <tr>
            {columns.map((column) => (
              <th
                key={column.header}
                scope="col"
                style={{ width: column.width }}
                data-align={column.align}
                data-secondary={column.isSecondary || undefined}
              >
                {column.isHeaderHidden ? <span className="visually-hidden">{column.header}</span> : column.header}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={rowKey(row)} data-selected={index === selected || undefined}>
              {columns.map((column) => (
                <td key={column.header} data-align={column.align} data-secondary={column.isSecondary || undefined}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </ScrollRegion>
  );
}
