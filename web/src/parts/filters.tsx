import { useEffect, useId, useRef, useState } from "preact/hooks";
import { useCell } from "../cell";
import { location, setQuery } from "../router";

const TYPING_MS = 250;

/** A text that is kept in the address of the page. */
export function SearchField({ label, name, placeholder }: { label: string; name: string; placeholder?: string }) {
  const inAddress = useCell(location).query.get(name) ?? "";
  const [text, setText] = useState(inAddress);
  const written = useRef(inAddress);
  const id = useId();

  // The address also changes by the browser's buttons.
  useEffect(() => {
    if (inAddress !== written.current) setText(inAddress);
    written.current = inAddress;
  }, [inAddress]);

  useEffect(() => {
    if (text === written.current) return;
    const timer = setTimeout(() => {
      written.current = text;
      setQuery({ [name]: text }, true);
    }, TYPING_MS);
    return () => clearTimeout(timer);
  }, [text]);

  return (
    <div class="filter">
      <label for={id}>{label}</label>
      <input id={id} type="text" name={name} value={text} placeholder={placeholder} autocomplete="off" spellcheck={false} onInput={(event) => setText(event.currentTarget.value)} />
    </div>
  );
}

/** One of a few values, kept in the address of the page. */
export function Choice({ label, name, options }: { label: string; name: string; options: Record<string, string> }) {
  const value = useCell(location).query.get(name) ?? "";
  const id = useId();
  return (
    <div class="filter">
      <label for={id}>{label}</label>
      <select id={id} name={name} value={value} onChange={(event) => setQuery({ [name]: event.currentTarget.value })}>
        {Object.entries(options).map(([key, text]) => (
          <option key={key} value={key}>
            {text}
          </option>
        ))}
      </select>
    </div>
  );
}
