import type { ComponentType } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { tokenWanted } from "./api/client";
import { useCell } from "./cell";
import { follow, type Topic } from "./live/connection";
import { AuditPage } from "./pages/audit";
import { ContentionPage } from "./pages/contention";
import { DeadlinesPage } from "./pages/deadlines";
import { ElectionsPage } from "./pages/elections";
import { IdempotencyPage } from "./pages/idempotency";
import { LockPage } from "./pages/lock";
import { LocksPage } from "./pages/locks";
import { MarkersPage } from "./pages/markers";
import { NodesPage } from "./pages/nodes";
import { NotFoundPage } from "./pages/not-found";
import { OverviewPage } from "./pages/overview";
import { PlaygroundPage } from "./pages/playground";
import { ForceReleaseDialog } from "./parts/force-release";
import { Shell } from "./parts/shell";
import { TokenForm } from "./parts/token";
import { location } from "./router";

interface Route {
  title: string;
  page: ComponentType;
  topics?: Topic[];
}

const ROUTES: Record<string, Route> = {
  "/": { title: "Overview", page: OverviewPage },
  "/locks": { title: "Locks", page: LocksPage, topics: ["locks"] },
  "/lock": { title: "Lock", page: LockPage, topics: ["locks"] },
  "/contention": { title: "Who waited for whom", page: ContentionPage },
  "/elections": { title: "Elections", page: ElectionsPage },
  "/idempotency": { title: "Idempotency", page: IdempotencyPage },
  "/markers": { title: "Markers", page: MarkersPage },
  "/deadlines": { title: "Deadlines", page: DeadlinesPage },
  "/nodes": { title: "Nodes", page: NodesPage },
  "/audit": { title: "Audit", page: AuditPage },
  "/playground": { title: "Playground", page: PlaygroundPage, topics: ["playground"] },
};

const NOT_FOUND: Route = { title: "Not found", page: NotFoundPage };

export function App() {
  const { path, query } = useCell(location);
  const wanted = useCell(tokenWanted);
  const route = ROUTES[path] ?? NOT_FOUND;
  const name = path === "/lock" ? (query.get("name") ?? "") : "";
  const first = useRef(true);

  useEffect(() => {
    document.title = `${name || route.title} · Leasehold`;
    follow(route.topics ?? [], name);
    // A screen reader announces the new page; the first one it announces by itself.
    if (!first.current) document.querySelector<HTMLElement>("main h1")?.focus({ preventScroll: true });
    first.current = false;
    scrollTo({ top: 0 });
  }, [path, name]);

  if (wanted) return <TokenForm />;
  const Page = route.page;
  return (
    <>
      <Shell>
        <Page key={path + name} />
      </Shell>
      <ForceReleaseDialog />
    </>
  );
}
