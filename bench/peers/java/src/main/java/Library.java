import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.Function;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * One kind of Redisson's locks. The thread that takes a lock must release it.
 *
 * <p>A waiter is woken by pub/sub, which is Redisson's only strategy. A lock without a lease time is kept alive by the watchdog, every
 * third of its 30 s.
 */
final class Library {
  /** A lock is taken by a call of its own where that returns a fence. */
  private record Kind(
      Function<RedissonClient, Function<String, RLock>> open, Consumer<RLock> take, Consumer<RLock> hold) {}

  private static final long HOLD_MS = 600_000;

  private static final Kind PLAIN =
      new Kind(redisson -> redisson::getLock, RLock::lock, lock -> lock.lock(HOLD_MS, TimeUnit.MILLISECONDS));

  private static final Kind FENCED =
      new Kind(
          redisson -> redisson::getFencedLock,
          lock -> ((RFencedLock) lock).lockAndGetToken(),
          lock -> ((RFencedLock) lock).lockAndGetToken(HOLD_MS, TimeUnit.MILLISECONDS));

  private static final Kind FAIR = new Kind(redisson -> redisson::getFairLock, PLAIN.take, PLAIN.hold);

  private static final Map<String, Kind> KINDS =
      Map.of("redisson", PLAIN, "redisson-fenced", FENCED, "redisson-fair", FAIR);

  private final RedissonClient redisson;
  private final Function<String, RLock> locks;
  private final Consumer<RLock> take;

  static void check(Options options) {
    if (!KINDS.containsKey(options.lib())) {
      throw new IllegalArgumentException("unknown library \"" + options.lib() + "\"");
    }
  }

  Library(Options options) {
    Kind kind = KINDS.get(options.lib());
    Config config = new Config();
    config.setLockWatchdogTimeout(options.ttlMs());
    // A thread blocks until its reply is there, so each has a connection; the default is 64.
    config
        .useSingleServer()
        .setAddress(options.urls().get(0))
        .setConnectionPoolSize(Math.max(64, options.tasks()));
    redisson = Redisson.create(config);
    locks = kind.open.apply(redisson);
    take = options.workload().equals("hold") ? kind.hold : kind.take;
  }

  RLock take(String name) {
    RLock lock = locks.apply(name);
    take.accept(lock);
    return lock;
  }

  void close() {
    redisson.shutdown();
  }
}
