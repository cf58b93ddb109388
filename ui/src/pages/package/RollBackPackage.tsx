import { api } from "@/api/client";
import { useOutcome } from "@/api/useOutcome";
import { ConfirmDialog } from "@/design/ConfirmDialog/ConfirmDialog";

interface Props {
  name: string;
  version: string;
  /** The version that it replaces; undefined if the package is withdrawn. */
  published: string | undefined;
  onClose: () => void;
}

/** Publishes a kept version; the server checks and imports it first, and the dialog says what is wrong with it. */
export function RollBackPackage({ name, version, published, onClose }: Props) {
  const { succeeded } = useOutcome("/api/v1/packages", "/api/v1/import-errors", "/api/v1/workflows");
  const rollBack = api.useMutation("post", "/api/v1/packages/{name}/rollback", {
    onSuccess: () => {
      succeeded(`Package ${name} is rolled back to ${version}.`);
      onClose();
    },
  });
  return (
    <ConfirmDialog
      title={`Roll ${name} back to ${version}?`}
      action="Roll back"
      onConfirm={() => rollBack.mutate({ params: { path: { name } }, body: { version } })}
      onClose={onClose}
      isBusy={rollBack.isPending}
      error={rollBack.error}
    >
      Every node on the store loads version {version}
      {published !== undefined && ` in place of ${published}`}, as after an upload. Runs that are active keep their
      version, and new ones begin with {version}.
    </ConfirmDialog>
  );
}
