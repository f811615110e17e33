// Something of everything in the store, so that no page is empty.
import { holder, waiter } from "./service.js";

const ORDERS = 60;

export async function fill(service) {
  const put = (path, body) => service.api("PUT", path, body);
  const post = (path, body, headers) => service.api("POST", path, body, headers);
  const holders = [
    await holder(service, "nightly report", ["deal:42", "nightly", "ledger:eu"]),
    await holder(service, "payout worker", ["deal:77", "payout:1042", "domain:example.com"]),
    await holder(service, "indexer 1", ["search-index", "tenant:acme:export"]),
    await holder(service, "trainer", ["gpu"], { mode: "permits", of: 4, permits: 3 }),
    await holder(service, "reporting", ["catalogue"], { mode: "shared" }),
    await holder(service, "importer", Array.from({ length: ORDERS }, (_, order) => `order:${10_000 + order}`)),
  ];
  const waiters = [
    waiter(service, "deal:42", "reconcile"),
    waiter(service, "deal:42", "billing"),
    waiter(service, "nightly", "mail-out"),
    waiter(service, "deal:77", "billing"),
    waiter(service, "search-index", "indexer 2"),
  ];
  await post("/v1/elections/reports/campaign", { ttl: "60s", label: "indexer 1" });
  const begun = await post("/v1/idempotency/payout/1042/begin", { ttl: "60s", label: "payout worker" });
  await post("/v1/idempotency/payout/1042/complete", { execution: begun.execution, result: { transfer: "tr_1042", amount: 1200 } });
  const refused = await post("/v1/idempotency/payout/1043/begin", { ttl: "60s", label: "payout worker", on_failure: "quarantine" });
  await post("/v1/idempotency/payout/1043/fail", { execution: refused.execution, why: "the bank refused the account" });
  await post("/v1/idempotency/payout/1044/begin", { ttl: "60s", label: "payout worker" });
  for (const id of ["job-7", "job-8", "job-11"]) await put(`/v1/markers/processing/${id}`, { ttl: "10m" });
  await deadlines(service);
  return {
    holders,
    waiters,
    release: async () => {
      for (const { leave } of waiters) leave();
      for (const { release } of holders) await release();
    },
  };
}

async function deadlines(service) {
  for (let id = 0; id < 24; id += 1) await service.api("PUT", `/v1/deadlines/payments/${9000 + id}`, { in: "30m" });
  await service.api("PUT", "/v1/deadlines/payments/8812", { in: "0s", context: { deal: 8812 } });
  const { items } = await service.api("POST", "/v1/deadlines/payments/claim", { limit: 1 });
  const buried = items.map(({ id, number }) => ({ id, number, as: "bury", why: "the bank answered 500 five times" }));
  await service.api("POST", "/v1/deadlines/payments/settle", { items: buried });
  for (const id of ["8901", "8902"]) await service.api("PUT", `/v1/deadlines/payments/${id}`, { in: "0s" });
}
