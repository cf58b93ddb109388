import { useState } from "react";
import { useMayWrite } from "@/app/useMe";
import { Button } from "@/design/Button/Button";
import { Icon } from "@/design/Icon/Icon";
import type { Firing } from "../firings";
import type { LiveReactor } from "../useLiveReactor";
import { FireWithDialog } from "./FireWithDialog";
import { ForceFireDialog } from "./ForceFireDialog";
import { RestartDialog } from "./RestartDialog";
import { useReactorCommand } from "./useReactorCommand";

interface Props {
  reactor: LiveReactor;
  /** Shows a firing that a command caused. */
  onFired: (firing: Firing) => void;
}

/** Pause, resume, fire and restart a reactor; absent for those who may only read. */
export function ReactorActions({ reactor, onFired }: Props) {
  const { name, paused, keys } = reactor.state;
  const [dialog, setDialog] = useState<"fire" | "force" | "restart" | null>(null);
  const { give, isPending } = useReactorCommand(name, ({ firing }) => firing && onFired(firing));
  const close = () => setDialog(null);
  if (!useMayWrite()) return null;
  return (
    <>
      {paused ? (
        <Button look="primary" isBusy={isPending} onClick={() => give("resume")}>
          <Icon name="run" />
          Resume
        </Button>
      ) : (
        <Button isBusy={isPending} onClick={() => give("pause")}>
          <Icon name="pause" />
          Pause
        </Button>
      )}
      <Button
        isBusy={isPending}
        title="Fire now, with the cache as it is"
        onClick={() => (keys ? setDialog("force") : give("force_fire"))}
      >
        <Icon name="trigger" />
        Force fire
      </Button>
      <Button onClick={() => setDialog("fire")}>Fire with…</Button>
      <Button onClick={() => setDialog("restart")}>Restart…</Button>
      {dialog === "fire" && <FireWithDialog state={reactor.state} onFired={onFired} onClose={close} />}
      {dialog === "force" && <ForceFireDialog name={name} onFired={onFired} onClose={close} />}
      {dialog === "restart" && <RestartDialog name={name} onClose={close} />}
    </>
  );
}
