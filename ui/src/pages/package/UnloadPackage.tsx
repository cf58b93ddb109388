import { useNavigate } from "@tanstack/react-router";
import { api } from "@/api/client";
import { useOutcome } from "@/api/useOutcome";
import { ConfirmDialog } from "@/design/ConfirmDialog/ConfirmDialog";

/** Withdraws a package; the server refuses while other packages need it, and the dialog says which. */
export function UnloadPackage({ name, onClose }: { name: string; onClose: () => void }) {
  const navigate = useNavigate();
  const { succeeded } = useOutcome("/api/v1/packages", "/api/v1/import-errors", "/api/v1/workflows");
  const unload = api.useMutation("delete", "/api/v1/packages/{name}", {
    onSuccess: async () => {
      // Away first: this page would ask for a package that is gone.
      await navigate({ to: "/packages" });
      succeeded(`Package ${name} is withdrawn; every node unloads it.`);
    },
  });
  return (
    <ConfirmDialog
      title={`Unload ${name}?`}
      action="Unload package"
      onConfirm={() => unload.mutate({ params: { path: { name } } })}
      onClose={onClose}
      isBusy={unload.isPending}
      error={unload.error}
    >
      Every node on the store stops the reactors, schedules and triggers of this package, and unloads it. Runs that are
      active keep their version. Upload the archive again to bring the package back.
    </ConfirmDialog>
  );
}
