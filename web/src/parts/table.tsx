import type { ComponentChild } from "preact";

/** A column: its head, and what it shows of a row. */
export interface Column<Row> {
  head: string;
  /** Only for those who listen to the page. */
  silent?: boolean;
  class?: "num" | "mono" | "nowrap" | "wrap" | "actions" | "names" | "dim";
  /** Its cells name their rows. */
  names?: boolean;
  cell: (row: Row, index: number) => ComponentChild;
}

/** Rows with a head; `panel` gives it a frame of its own. */
export function Table<Row>({ rows, columns, of, panel }: { rows: Row[]; columns: Column<Row>[]; of: (row: Row) => string | number; panel?: boolean }) {
  return (
    <div class={panel ? "panel flush scroll" : "scroll"}>
      <table class="rows">
        <thead>
          <tr>
            {columns.map(({ head, silent, class: kind }) => (
              <th key={head} scope="col" class={kind === "num" ? "num" : undefined}>
                {silent ? <span class="visually-hidden">{head}</span> : head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={of(row)}>
              {columns.map(({ head, names, class: kind, cell }) =>
                names ? (
                  <th key={head} scope="row" class={kind}>
                    {cell(row, index)}
                  </th>
                ) : (
                  <td key={head} class={kind}>
                    {cell(row, index)}
                  </td>
                ),
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
