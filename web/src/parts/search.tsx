import { useEffect, useRef, useState } from "preact/hooks";
import { call, withQuery } from "../api/client";
import type { LocksPage } from "../api/types";
import { link, lockLink, navigate } from "../router";
import { Icon } from "./icon";

const SUGGESTIONS_MAX = 8;
const TYPING_MS = 120;

/** Finds locks by the beginning of their name. `/` puts the cursor here. */
export function Search() {
  const input = useRef<HTMLInputElement>(null);
  const [text, setText] = useState("");
  const [names, setNames] = useState<string[]>([]);
  const [chosen, setChosen] = useState(-1);
  const [open, setOpen] = useState(false);

  useEffect(() => {
    const focus = (event: KeyboardEvent) => {
      const typing = event.target instanceof HTMLElement && event.target.matches("input, textarea, select, dialog *");
      if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      input.current?.focus();
      input.current?.select();
    };
    addEventListener("keydown", focus);
    return () => removeEventListener("keydown", focus);
  }, []);

  useEffect(() => {
    setChosen(-1);
    if (!text) return setNames([]);
    const abort = new AbortController();
    const timer = setTimeout(() => {
      const url = withQuery("/v1/locks", { prefix: text, limit: SUGGESTIONS_MAX });
      call<LocksPage>(url, { signal: abort.signal }).then(
        ({ items }) => setNames(items.map((row) => row.name)),
        () => setNames([]),
      );
    }, TYPING_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text]);

  const go = (to: string) => {
    setOpen(false);
    setText("");
    input.current?.blur();
    navigate(to);
  };
  const keys = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && names.length > 0) {
      event.preventDefault();
      setChosen((chosen + step + names.length + (chosen < 0 && step < 0 ? 1 : 0)) % names.length);
    } else if (event.key === "Enter" && text) {
      const name = names[chosen];
      go(name === undefined ? link("/locks", { prefix: text }) : lockLink(name));
    } else if (event.key === "Escape") {
      setOpen(false);
      input.current?.blur();
    }
  };
  const shown = open && names.length > 0;
  return (
    <div class="search" role="search">
      <Icon name="search" />
      <input
        ref={input}
        type="text"
        role="combobox"
        aria-label="Find a lock by the beginning of its name"
        aria-expanded={shown}
        aria-controls="found"
        aria-autocomplete="list"
        aria-activedescendant={shown && chosen >= 0 ? `found-${chosen}` : undefined}
        placeholder="Find a lock"
        autocomplete="off"
        spellcheck={false}
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setOpen(true);
        }}
        onFocus={() => setOpen(true)}
        onBlur={() => setOpen(false)}
        onKeyDown={keys}
      />
      <kbd aria-hidden="true">/</kbd>
      <ul id="found" role="listbox" aria-label="Locks" hidden={!shown}>
        {names.map((name, index) => (
          <li
            key={name}
            id={`found-${index}`}
            role="option"
            aria-selected={index === chosen}
            onMouseDown={(event) => {
              event.preventDefault();
              go(lockLink(name));
            }}
          >
            {name}
          </li>
        ))}
      </ul>
    </div>
  );
}
