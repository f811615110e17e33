import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson's locks, one command per line; see the README for all of them.
 *
 * <p>A lock belongs to a thread and is re-entrant. `@2 take x 1000` runs on another thread than `take x 1000`, so it is refused.
 */
final class Interop {
  private final String lib;
  private final RedissonClient redisson;
  private final Map<String, Long> tokens = new HashMap<>();

  private Interop(Options options) {
    lib = options.lib();
    redisson = Redisson.create(config(options));
  }

  private static Config config(Options options) {
    Config config = new Config();
    config.setLockWatchdogTimeout(options.ttlMs());
    String[] urls = options.urls().toArray(String[]::new);
    switch (options.mode()) {
      case "cluster" -> config.useClusterServers().addNodeAddress(urls);
      case "sentinel" -> config.useSentinelServers().setMasterName(options.primary()).addSentinelAddress(urls);
      default -> config.useSingleServer().setAddress(urls[0]);
    }
    return config;
  }

  static void serve(Options options) throws Exception {
    Interop interop = new Interop(options);
    Map<String, ExecutorService> threads = new HashMap<>();
    Orders orders = new Orders();
    System.out.println("ready");
    for (String line = orders.next(); line != null; line = orders.next()) {
      List<String> words = Arrays.asList(line.split(" "));
      String thread = words.get(0).startsWith("@") ? words.get(0) : "@1";
      List<String> command = words.get(0).startsWith("@") ? words.subList(1, words.size()) : words;
      ExecutorService runner = threads.computeIfAbsent(thread, name -> Executors.newSingleThreadExecutor());
      System.out.println(runner.submit(() -> interop.answer(command)).get());
    }
    threads.values().forEach(ExecutorService::shutdownNow);
    interop.redisson.shutdown();
  }

  private String answer(List<String> words) {
    try {
      return run(words.get(0), words.get(1), words.subList(2, words.size()));
    } catch (IllegalMonitorStateException refused) {
      return "refused " + refused.getClass().getSimpleName();
    } catch (Exception error) {
      Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
      return ("error " + cause.getClass().getSimpleName() + ": " + cause.getMessage()).replace('\n', ' ');
    }
  }

  private String run(String command, String key, List<String> rest) throws Exception {
    RLock lock = lib.equals("redisson-fenced") ? redisson.getFencedLock(key) : redisson.getLock(key);
    return switch (command) {
      case "take" -> granted(key, lock, 0, Long.parseLong(rest.get(0)));
      case "wait" -> granted(key, lock, Long.parseLong(rest.get(1)), Long.parseLong(rest.get(0)));
      case "keep" -> granted(key, lock, 0, -1);
      case "release" -> {
        lock.unlock();
        yield "done";
      }
      case "force" -> lock.forceUnlock() ? "done" : "refused nobody holds it";
      case "holds" -> "holds " + lock.getHoldCount();
      case "locked" -> "locked " + lock.isLocked() + " " + lock.remainTimeToLive();
      case "token" -> "token " + tokens.get(key);
      case "count" -> count(key, lock, Long.parseLong(rest.get(0)), Integer.parseInt(rest.get(1)), Path.of(rest.get(2)));
      default -> "error unknown command";
    };
  }

  /** A lease of -1 is kept by the watchdog. */
  private String granted(String key, RLock lock, long patienceMs, long ttlMs) throws InterruptedException {
    if (!(lock instanceof RFencedLock fenced)) {
      return lock.tryLock(patienceMs, ttlMs, TimeUnit.MILLISECONDS) ? "granted" : "busy";
    }
    Long token = fenced.tryLockAndGetToken(patienceMs, ttlMs, TimeUnit.MILLISECONDS);
    if (token == null) {
      return "busy";
    }
    tokens.put(key, token);
    return "granted";
  }

  /** Adds one to the number in a file, so many times, each time under the lock. */
  private String count(String key, RLock lock, long ttlMs, int times, Path file) throws Exception {
    ThreadLocalRandom random = ThreadLocalRandom.current();
    int changes = 0;
    long longestNs = 0;
    for (int done = 0; done < times; done++) {
      long begin = System.nanoTime();
      long asked = begin;
      while (!granted(key, lock, 0, ttlMs).equals("granted")) {
        Thread.sleep(random.nextLong(2, 13));
        asked = System.nanoTime();
      }
      longestNs = Math.max(longestNs, System.nanoTime() - begin);
      String[] text = Files.readString(file).split(" ");
      Thread.sleep(1);
      if (System.nanoTime() - asked > ttlMs * 800_000) {
        return "stopped " + done + " its lease had nearly run out before it wrote";
      }
      Files.writeString(file, Integer.parseInt(text[0]) + 1 + " " + lib);
      changes += text[1].equals(lib) ? 0 : 1;
      try {
        lock.unlock();
      } catch (IllegalMonitorStateException refused) {
        return "stopped " + (done + 1) + " its release was refused: " + refused.getClass().getSimpleName();
      }
      Thread.sleep(random.nextLong(0, 4));
    }
    return "counted " + times + " changes=" + changes + " longest_ms=" + longestNs / 1_000_000;
  }
}
