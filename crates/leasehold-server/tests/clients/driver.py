import os, sys

sys.path.insert(0, sys.argv[2])
from leasehold_client import Leasehold, Refused

with Leasehold(sys.argv[1], ttl=3, label="python") as leases:
    lock = leases.lock("a b/c")
    assert lock.remaining() > 0
    print("held", lock.fence, flush=True)
    try:
        leases.lock("a b/c")
    except Refused as refused:
        print(refused.kind, flush=True)
    assert lock.lost.wait(60)
    print("lost", lock.remaining(), flush=True)
    with leases.lock("a b/c", wait=30) as again:
        print("again", again.fence, flush=True)
print("done", flush=True)
