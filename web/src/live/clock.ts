import { useEffect, useState } from "preact/hooks";
import { connection } from "./connection";

/** The time here, again and again; it stands still while the view is paused. */
export function useNow(every_ms = 1000): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const tick = () => {
      const { state, since_ms } = connection.value;
      setNow(state === "paused" ? since_ms : Date.now());
    };
    tick();
    const timer = setInterval(tick, every_ms);
    return () => clearInterval(timer);
  }, [every_ms]);
  return now;
}
