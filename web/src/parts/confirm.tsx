import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Problem } from "../api/client";
import { Dialog } from "./dialog";
import { ProblemNote } from "./feedback";

interface Props {
  /** Of the button in the row. */
  label: string;
  /** What the button acts on, for those who hear the page. */
  on: string;
  title: string;
  danger?: boolean;
  act: () => Promise<unknown>;
  done: () => void;
  children: ComponentChildren;
}

/** A button whose act has to be confirmed. */
export function Confirm({ label, on, title, danger = false, act, done, children }: Props) {
  const [open, setOpen] = useState(false);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const close = () => {
    setOpen(false);
    setProblem(null);
  };
  const submit = async () => {
    setBusy(true);
    try {
      await act();
      close();
      done();
    } catch (cause) {
      setProblem(Problem.from(cause));
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      <button type="button" class={danger ? "danger small" : "small"} onClick={() => setOpen(true)}>
        {label}
        <span class="visually-hidden"> {on}</span>
      </button>
      {open && (
        <Dialog title={title} close={close}>
          {children}
          {problem && <ProblemNote problem={problem} />}
          <div class="dialog-actions">
            <button type="button" onClick={close}>
              Cancel
            </button>
            <button type="button" class={danger ? "danger" : "primary"} disabled={busy} onClick={submit}>
              {label}
            </button>
          </div>
        </Dialog>
      )}
    </>
  );
}
