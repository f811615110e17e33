import { useEffect, useState } from "preact/hooks";
import { connection } from "./connection";

/** The time here, once a second; it stands still while the view is paused. */
export function useNow(): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const tick = () => {
      const { state, since_ms } = connection.value;
      setNow(state === "paused" ? since_ms : Date.now());
    };
    tick();
    const timer = setInterval(tick, 1000);
    return () => clearInterval(timer);
  }, []);
  return now;
}
