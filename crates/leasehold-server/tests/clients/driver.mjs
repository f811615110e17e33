const { Leasehold, Refused } = await import(`${process.argv[3]}/leasehold.js`);

const leases = await Leasehold.open(process.argv[2], { ttl: 3, label: "typescript" });
const lock = await leases.lock("a b/c");
if (!(lock.remaining() > 0)) throw new Error("not held");
console.log("held", lock.fence);
await leases.lock("a b/c").catch((error) => console.log(error instanceof Refused && error.kind));
await new Promise((lost) => lock.lost.addEventListener("abort", lost));
console.log("lost", lock.remaining());
const again = await leases.lock("a b/c", { wait: 30 });
console.log("again", again.fence);
await again.release();
await leases.close();
console.log("done");
