import { useState } from "preact/hooks";
import { navigate } from "../router";

/** Asks for a name, and goes to where it leads. */
export function Ask({ label, placeholder, to }: { label: string; placeholder: string; to: (name: string) => string }) {
  const [name, setName] = useState("");
  return (
    <form
      class="inline"
      onSubmit={(event) => {
        event.preventDefault();
        if (name) navigate(to(name));
      }}
    >
      <input aria-label={label} placeholder={placeholder} value={name} onInput={(event) => setName(event.currentTarget.value)} />
      <button type="submit" disabled={!name}>
        Show
      </button>
    </form>
  );
}
