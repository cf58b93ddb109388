/** The id of a run, as the command line shows it: ids begin with the time, so their end tells them apart. */
export function RunId({ id }: { id: string }) {
  return <code title={id}>{id.slice(-8)}</code>;
}
