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
 * <p>A waiter is woken by pub/sub: Redisson has no other strategy. A lock without a lease time is kept alive by the watchdog, after each
 * third of the ttl; that is the default, and so it is in every workload but `hold`.
 */
final class Library {
  /** A lock is taken by a call of its own where that returns a fence. */
  private record Kind(
      Function<RedissonClient, Function<String, RLock>> open, Consumer<RLock> take, Consumer<RLock> hold) {}

  private static final long HOLD_MS = 600_000;

  /**
   * Requests of many threads share a connection, and fewer connections cost less: with 64, which is the default, a cycle of 64 or 512
   * threads took about three times the processor time.
   */
  private static final int CONNECTIONS = 8;

  /** By default 3 s and 4 attempts of 1 to 2 s, which 512 threads of a cold JVM may exceed on a busy machine. */
  private static final int COMMAND_TIMEOUT_MS = 20_000;

  private static final int WRITE_ATTEMPTS = 20;

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
    config
        .useSingleServer()
        .setAddress(options.urls().get(0))
        .setConnectionPoolSize(CONNECTIONS)
        .setConnectionMinimumIdleSize(CONNECTIONS)
        .setTimeout(COMMAND_TIMEOUT_MS)
        .setRetryAttempts(WRITE_ATTEMPTS);
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
