import { useState } from "preact/hooks";
import { forgetToken, setToken } from "../api/client";

/** Asks for the token that the service wants. It stays in this tab only. */
export function TokenForm() {
  const [typed, setTyped] = useState("");
  return (
    <main id="content" class="gate">
      <form
        class="panel"
        onSubmit={(event) => {
          event.preventDefault();
          if (typed.trim()) setToken(typed.trim());
        }}
      >
        <h1>Leasehold</h1>
        <p>This service needs a token. It is kept in this tab until you close it, and is never part of an address.</p>
        <label class="field">
          <span>Token</span>
          <input type="password" name="token" autocomplete="off" value={typed} onInput={(event) => setTyped(event.currentTarget.value)} autofocus />
        </label>
        <div class="dialog-actions">
          <button type="button" onClick={() => (forgetToken(), setTyped(""))}>
            Forget
          </button>
          <button type="submit" class="primary" disabled={!typed.trim()}>
            Continue
          </button>
        </div>
      </form>
    </main>
  );
}
