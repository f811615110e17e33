import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.BiFunction;
import java.util.function.Function;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * One kind of Redisson's locks. The thread that takes a lock must release it.
 *
 * <p>A waiter is woken by pub/sub: Redisson has no other strategy. A lock without a lease time is kept alive by the watchdog, after each
 * third of the ttl; that is the default, and so it is in every workload but `hold`.
 */
final class Library {
  /** Takes the lock of a name for so long; returns what releases it. {@link #KEPT} is for as long as it is held. */
  private interface Kind {
    Runnable take(String name, long leaseMs) throws InterruptedException;
  }

  private static final long KEPT = -1;
  private static final long HOLD_MS = 600_000;

  /**
   * Requests of many threads share a connection, and fewer connections cost less: with 64, which is the default, a cycle of 64 or 512
   * threads took about three times the processor time.
   */
  private static final int CONNECTIONS = 8;

  /** By default 3 s and 4 attempts of 1 to 2 s, which 512 threads of a cold JVM may exceed on a busy machine. */
  private static final int COMMAND_TIMEOUT_MS = 20_000;

  private static final int WRITE_ATTEMPTS = 20;

  private static final Map<String, BiFunction<RedissonClient, Options, Kind>> KINDS =
      Map.of(
          "redisson", (redisson, options) -> locks(redisson::getLock),
          "redisson-fenced", (redisson, options) -> fencedLocks(redisson::getFencedLock),
          "redisson-fair", (redisson, options) -> locks(redisson::getFairLock),
          "redisson-shared", (redisson, options) -> locks(name -> redisson.getReadWriteLock(name).readLock()),
          "redisson-permits", Library::permits);

  private static Kind locks(Function<String, RLock> open) {
    return (name, leaseMs) -> {
      RLock lock = open.apply(name);
      if (leaseMs == KEPT) {
        lock.lock();
      } else {
        lock.lock(leaseMs, TimeUnit.MILLISECONDS);
      }
      return lock::unlock;
    };
  }

  /** A call of its own returns the fence. */
  private static Kind fencedLocks(Function<String, RFencedLock> open) {
    return (name, leaseMs) -> {
      RFencedLock lock = open.apply(name);
      if (leaseMs == KEPT) {
        lock.lockAndGetToken();
      } else {
        lock.lockAndGetToken(leaseMs, TimeUnit.MILLISECONDS);
      }
      return lock::unlock;
    };
  }

  /** A permit has no watchdog: without a lease it would never expire. */
  private static Kind permits(RedissonClient redisson, Options options) {
    Map<String, RPermitExpirableSemaphore> opened = new ConcurrentHashMap<>();
    Function<String, RPermitExpirableSemaphore> open =
        name -> {
          RPermitExpirableSemaphore semaphore = redisson.getPermitExpirableSemaphore(name);
          semaphore.trySetPermits(options.permits());
          return semaphore;
        };
    return (name, leaseMs) -> {
      RPermitExpirableSemaphore semaphore = opened.computeIfAbsent(name, open);
      String permit = semaphore.acquire(leaseMs == KEPT ? options.ttlMs() : leaseMs, TimeUnit.MILLISECONDS);
      return () -> semaphore.release(permit);
    };
  }

  private final RedissonClient redisson;
  private final Kind kind;
  private final long leaseMs;

  static void check(Options options) {
    if (!KINDS.containsKey(options.lib())) {
      throw new IllegalArgumentException("unknown library \"" + options.lib() + "\"");
    }
  }

  /** Why it cannot take part, or null. */
  static String unsupported(Options options) {
    if (options.urls().size() > 1) {
      return "Redisson's lock over several servers is deprecated";
    }
    boolean isKept = options.workload().equals("keep");
    return isKept && options.lib().equals("redisson-permits") ? "a permit has no watchdog" : null;
  }

  Library(Options options) {
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
    kind = KINDS.get(options.lib()).apply(redisson, options);
    leaseMs = options.workload().equals("hold") ? HOLD_MS : KEPT;
  }

  /** Returns what releases it. */
  Runnable take(String name) throws InterruptedException {
    return kind.take(name, leaseMs);
  }

  void close() {
    redisson.shutdown();
  }
}
