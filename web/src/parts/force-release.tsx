import { useState } from "preact/hooks";
import { Problem, call, path } from "../api/client";
import type { Holder, LockDetail } from "../api/types";
import { cell, useCell } from "../cell";
import { holderLabel, holderPlace } from "../format";
import { allows, whoami } from "../live/whoami";
import { Dialog } from "./dialog";
import { ProblemNote } from "./feedback";

/** What was seen when the dialog opened. Live rows change; this does not. */
interface Target {
  name: string;
  fence: number;
  holder: Holder | null;
}

const target = cell<Target | null>(null);
const REASON_MAX = 500;

export function ForceReleaseButton({ name, fence, holder }: { name: string; fence: number | null; holder: Holder | null }) {
  useCell(whoami);
  if (fence === null || !allows("force", name)) return null;
  return (
    <button type="button" class="danger small" onClick={() => target.set({ name, fence, holder })}>
      Force release<span class="visually-hidden"> {name}</span>
    </button>
  );
}

/** Stands outside of every page, so that no update of a page touches what was typed. */
export function ForceReleaseDialog() {
  const open = useCell(target);
  return open && <Form key={open.name} seen={open} />;
}

function Form({ seen }: { seen: Target }) {
  const [typed, setTyped] = useState("");
  const [reason, setReason] = useState("");
  const [problem, setProblem] = useState<Problem | null>(null);
  const [outcome, setOutcome] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const close = () => target.set(null);
  const ready = typed === seen.name && reason.trim() !== "" && !busy && problem?.kind !== "changed";

  const submit = async () => {
    setBusy(true);
    setProblem(null);
    try {
      const headers = { "If-Match": `"${seen.fence}"` };
      const body = { reason: reason.trim() };
      const done = await call<{ outcome: string }>(path("locks", seen.name, "force-release"), { method: "POST", headers, body });
      setOutcome(done.outcome);
    } catch (cause) {
      setProblem(Problem.from(cause));
    } finally {
      setBusy(false);
    }
  };

  const lookAgain = async () => {
    try {
      const now = await call<LockDetail>(path("locks", seen.name));
      setTyped("");
      setProblem(null);
      if (now.fence === null) return setOutcome("free_already");
      target.set({ name: seen.name, fence: now.fence, holder: now.holder });
    } catch (cause) {
      setProblem(Problem.from(cause));
    }
  };

  if (outcome) return <Done name={seen.name} outcome={outcome} close={close} />;
  return (
    <Dialog title={`Force the release of ${seen.name}?`} close={close}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (ready) void submit();
        }}
      >
        <p class="notice wait">
          <span>
            <strong>The holder may still be running.</strong> It is not stopped by this. Only what checks fences will refuse its
            late writes.
          </span>
        </p>
        <dl class="facts compact">
          <div>
            <dt>Held by</dt>
            <dd>
              {holderLabel(seen.holder)} <span class="dim">{holderPlace(seen.holder)}</span>
            </dd>
          </div>
          <div>
            <dt>Fence</dt>
            <dd class="num">{seen.fence}</dd>
          </div>
        </dl>
        <label class="field">
          <span>
            Type <code>{seen.name}</code> to confirm
          </span>
          <input value={typed} onInput={(event) => setTyped(event.currentTarget.value)} autocomplete="off" spellcheck={false} name="confirm" />
        </label>
        <label class="field">
          <span>Reason, kept in the audit</span>
          <input value={reason} onInput={(event) => setReason(event.currentTarget.value)} maxLength={REASON_MAX} autocomplete="off" name="reason" />
        </label>
        {problem?.kind === "changed" ? (
          <Changed seen={seen} problem={problem} lookAgain={lookAgain} />
        ) : (
          problem && <ProblemNote problem={problem} />
        )}
        <div class="dialog-actions">
          <button type="button" onClick={close}>
            Cancel
          </button>
          <button type="submit" class="danger" disabled={!ready}>
            {busy ? "Releasing" : "Force release"}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function Changed({ seen, problem, lookAgain }: { seen: Target; problem: Problem; lookAgain: () => void }) {
  const { fence, holder } = problem.body;
  return (
    <div class="notice bad stacked" role="alert">
      <div>
        <strong>The holder has changed; nothing was released.</strong>
        <p>
          You saw fence {seen.fence}.{" "}
          {fence === undefined ? "Nobody holds the lock now." : `Now ${holder ? holderLabel(holder) : "another"} holds it with fence ${fence}.`}
        </p>
      </div>
      <button type="button" onClick={lookAgain}>
        Show the present holder
      </button>
    </div>
  );
}

const OUTCOMES: Record<string, string> = {
  free: "The lock is free.",
  handed_over: "The next in the queue holds the lock.",
  free_already: "The lock was free already. Nothing was released.",
};

function Done({ name, outcome, close }: { name: string; outcome: string; close: () => void }) {
  return (
    <Dialog title={name} close={close}>
      <p role="status">{OUTCOMES[outcome] ?? outcome}</p>
      <div class="dialog-actions">
        <button type="button" onClick={close} autofocus>
          Close
        </button>
      </div>
    </Dialog>
  );
}
