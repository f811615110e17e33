import { useState } from "preact/hooks";
import { Icon } from "./icon";

/** A command line that can be copied. */
export function Command({ text }: { text: string }) {
  const [copied, setCopied] = useState(false);
  const copy = () => {
    navigator.clipboard?.writeText(text).then(() => {
      setCopied(true);
      setTimeout(() => setCopied(false), 1500);
    });
  };
  return (
    <div class="command">
      <code>
        <span class="prompt" aria-hidden="true">
          $
        </span>
        {text}
      </code>
      <button type="button" class="quiet" onClick={copy} aria-label={copied ? "Copied" : `Copy the command: ${text}`}>
        <Icon name={copied ? "check" : "copy"} />
      </button>
    </div>
  );
}
